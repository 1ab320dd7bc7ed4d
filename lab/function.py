"""A network function that nfagent deployed on a lab, shown, moved and reconfigured by REST."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.errors import ControlError, StartError
from lab.programs import environment
from lab.server import Lab

_POLL_S = 0.005
_WAIT_S = 10.0  # in a request for the end of a migration
_APPLIED_S = 10.0
_INSTANCES = "/api/v1/instances"


class Function:
    """An instance.

    Args:
        agent: the agent of a lab.
        order: its order, as REST takes it.

    Attributes:
        client: of the agent's REST interface.
        id: id of the instance.
        config: its configuration.
        ports: its virtual ports, as REST shows them.

    Raises:
        StartError: the order was refused.
    """

    def __init__(self, agent: AgentProcess, order: Mapping[str, Any]) -> None:
        self.client = agent.client
        self.name: str = order["name"]
        self.config: dict[str, Any] = dict(order["config"])
        answer = self.client.post(_INSTANCES, json=dict(order))
        if answer.status_code != 202:
            raise StartError(f"{self.name} was not deployed: {answer.text}")
        made = answer.json()
        self.id: str = made["id"]
        self.ports: list[dict[str, Any]] = made["ports"]

    def show(self) -> dict[str, Any]:
        """Return the instance as the API reports it."""
        return self.client.get(f"{_INSTANCES}/{self.id}").json()

    def reconfigure(self, more: Mapping[str, Any]) -> None:
        """Change keys of its configuration, and wait until it has them.

        Raises:
            ControlError: it was refused.
        """
        self.config |= more
        answer = self.client.patch(f"{_INSTANCES}/{self.id}", json={"config": self.config})
        if answer.status_code not in (200, 202):
            raise ControlError(f"a configuration was refused: {answer.text}")
        deadline = time.monotonic() + _APPLIED_S
        while (shown := self.show())["config_state"] != "applied":
            if time.monotonic() > deadline:
                raise ControlError(f"a configuration is {shown['config_state']} after {_APPLIED_S:g} s")
            time.sleep(_POLL_S)

    def await_active(self, timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait until it is active at its wanted location.

        Raises:
            StartError: the time limit expired.
        """
        deadline = time.monotonic() + timeout_s
        while (shown := self.show())["status"] != "active":
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} is {shown['status']} after {timeout_s:g} s: {shown['reason']}")
            time.sleep(_POLL_S)
        return shown

    def ask(self, target: str) -> int:
        """Request a migration; return its epoch.

        Raises:
            ControlError: it was refused.
        """
        answer = self.client.post("/api/v1/migrations", json={"instance": self.id, "target": target})
        if answer.status_code != 202:
            raise ControlError(f"a migration to {target} was refused: {answer.text}")
        return answer.json()["epoch"]

    def await_end(self, epoch: int, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until a migration has ended; return it.

        Raises:
            TimeoutError: it has not ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            shown = self._look(epoch, min(left, _WAIT_S))
            if shown["outcome"] is not None:
                return shown
            if not left:
                raise TimeoutError(f"migration {epoch} is still at {shown['step']!r} after {timeout_s:g} s")

    def _look(self, epoch: int, wait_s: float) -> dict[str, Any]:
        """Return a migration at its end, or after ``wait_s``. Asking often would take CPU time from it."""
        return self.client.get(f"/api/v1/migrations/{epoch}", params={"wait_s": wait_s}).json()

    def move(self, target: str) -> dict[str, Any]:
        """Move it, and wait until it is active there; return the migration.

        Raises:
            ControlError: the migration was refused, or did not end as done.
        """
        ended = self.await_end(self.ask(target))
        if ended["outcome"] != "done":
            raise ControlError(f"a migration to {target} ended as {ended['outcome']}: {ended['reason']}")
        self.await_active()
        return ended


def add_rules(lab: Lab, oneswitchd: Oneswitchd, rules: Sequence[str]) -> None:
    """Write rules in one bundle, as the controller of a lab's one switch."""
    argv = ["ovs-ofctl", "-O", "OpenFlow13", "--bundle", "add-flows", oneswitchd.management, "-"]
    variables = environment() | {"OVS_RUNDIR": str(lab.directory)}
    subprocess.run(argv, input="\n".join(rules), text=True, check=True, timeout=30, env=variables)


def ofctl(lab: Lab, oneswitchd: Oneswitchd, command: str, *arguments: str) -> None:
    """Run ``ovs-ofctl`` on a lab's one switch, as its controller."""
    argv = ["ovs-ofctl", "-O", "OpenFlow13", command, oneswitchd.management, *arguments]
    subprocess.run(argv, check=True, timeout=30, env=environment() | {"OVS_RUNDIR": str(lab.directory)})
