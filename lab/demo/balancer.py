"""A load balancer, by the agent's REST interface."""

import json
from datetime import datetime
from typing import Any

from lab.agent import AgentProcess
from lab.agent_events import AgentEvents
from lab.errors import ControlError

NAME = "lb1"
_INSTANCES, _MIGRATIONS, _PROPOSAL = "/api/v1/instances", "/api/v1/migrations", "/api/v1/placement/proposal"
_ACTIVE_S, _MOVED_S = 30.0, 60.0


class Balancer:
    """The instance that a demonstration deploys.

    Args:
        agent: a running agent.
        events: its events.
        name: of the instance.
        kind: of function.
    """

    def __init__(self, agent: AgentProcess, events: AgentEvents, name: str, kind: str) -> None:
        self._agent, self._events, self.name, self._kind = agent, events, name, kind

    def deploy(self, config: dict[str, Any]) -> dict[str, Any]:
        """Create it and wait until it is active; return it as REST shows it.

        Raises:
            ControlError: it was refused, or did not become active; with the agent's reason.
        """
        order = {"name": self.name, "kind": self._kind, "flavor": "small", "ports": 1, "config": config}
        self._request("POST", _INSTANCES, order)
        self._events.wait(lambda: self.show()["status"] in ("active", "error"), _ACTIVE_S)
        shown = self.show()
        if shown["status"] != "active":
            raise ControlError(f"{self.name} is {shown['status']} after {_ACTIVE_S:g} s: {shown['reason']}")
        return shown

    def show(self) -> dict[str, Any]:
        """Return the instance as REST shows it."""
        return self._request("GET", f"{_INSTANCES}/{self.name}")

    def location(self) -> str:
        """Return its location."""
        return self.show()["placement"]["location"]

    def moves(self) -> list[dict[str, Any]]:
        """Return all migrations, oldest first."""
        return self._request("GET", _MIGRATIONS)["migrations"][::-1]

    def move(self, target: str) -> dict[str, Any]:
        """Request a migration and wait for its end; return it as REST shows it.

        Raises:
            ControlError: it was refused, or did not end; with the step that it reached.
        """
        epoch = self._request("POST", _MIGRATIONS, {"instance": self.name, "target": target})["epoch"]
        path = f"{_MIGRATIONS}/{epoch}"
        self._events.wait(lambda: self._request("GET", path)["outcome"], _MOVED_S)
        shown = self._request("GET", path)
        if shown["outcome"] is None:
            raise ControlError(f"migration {epoch} is still at step {shown['step']} after {_MOVED_S:g} s")
        return shown

    def await_move(self, number: int, timeout_s: float = _MOVED_S) -> dict[str, Any] | None:
        """Wait until the migration with that index has ended, whatever its outcome; None after the time limit."""
        return self._events.wait(lambda: self._ended(number), timeout_s)

    def why(self) -> str:
        """Return the optimiser's current reason for its location: JSON, or why it has none."""
        try:
            return json.dumps(self._request("GET", _PROPOSAL)["explanation"])
        except ControlError as error:
            return str(error)

    def _ended(self, number: int) -> dict[str, Any] | None:
        moves = self.moves()
        return moves[number] if len(moves) > number and moves[number]["outcome"] else None

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self._agent.client.request(method, path, json=body)
        if answer.is_error:
            detail = (
                answer.json().get("detail", answer.text) if "json" in answer.headers["content-type"] else answer.text
            )
            raise ControlError(f"nfagent answers {answer.status_code} to {method} {path}: {detail}")
        return answer.json()


def moment(text: str) -> float:
    """Parse a time as REST shows it, into seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
