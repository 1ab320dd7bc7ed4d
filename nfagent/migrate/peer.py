"""The two processes of a migration, as far as their control sockets reach."""

import contextlib
import os
from typing import Any

from nfagent.control import Answer, Connection, flow_count
from nfagent.errors import AgentError, ControlError, ControlUnreachableError
from nfagent.model import Role, Running
from nfagent.starter import Starter

_PATIENCE_S = 30.0


class PeerGoneError(AgentError):
    """One of the processes has ended.

    Attributes:
        role: of it.
    """

    def __init__(self, role: Role, detail: str) -> None:
        self.role: Role = role
        super().__init__(detail)


class Peer:
    """A process that takes part; its connection is kept open, and made again where it broke.

    Args:
        starter: of processes.
        running: its row.
        epoch: of the migration.
    """

    def __init__(self, starter: Starter, running: Running, epoch: int) -> None:
        self._starter = starter
        self.running = running
        self._epoch = epoch
        self._connection: Connection | None = None

    def ask(self, verb: str, *, timeout_s: float = _PATIENCE_S, **arguments: Any) -> dict[str, Any]:
        """A verb of the migration's epoch.

        Raises:
            PeerGoneError: the process has ended.
            ControlUnreachableError: it lives, and does not answer.
            ControlRefusedError: it refused.
        """
        answer = self.exchange(verb, timeout_s=timeout_s, **arguments)
        for descriptor in answer.descriptors:
            os.close(descriptor)
        return answer.value

    def exchange(self, verb: str, *, timeout_s: float = _PATIENCE_S, **arguments: Any) -> Answer:
        """As `ask`, with the descriptors that come with the answer."""
        kept = self._connection is not None
        try:
            return self._connected().exchange(verb, timeout_s=timeout_s, epoch=self._epoch, **arguments)
        except ControlUnreachableError:
            self.close()
            self._require_alive()
            if not kept:
                raise
        # What broke may have been a connection of before; verbs can be asked again.
        try:
            return self._connected().exchange(verb, timeout_s=timeout_s, epoch=self._epoch, **arguments)
        except ControlUnreachableError:
            self.close()
            self._require_alive()
            raise

    def phase(self) -> str:
        """What part it has in this epoch's migration: ``none``, or nf_runtime::migration's name of it."""
        known = self.ask("status").get("migration") or {}
        return str(known["phase"]) if known.get("epoch") == self._epoch else "none"

    def flows(self) -> int | None:
        """How many flows it knows, if it says."""
        with contextlib.suppress(ControlError):
            return flow_count(self.ask("counters"))
        return None

    def require_open(self) -> None:
        """See, without asking, that it lives.

        Raises:
            PeerGoneError: it does not.
        """
        if self._connection is None or not self._connection.is_open():
            self.close()
            self._require_alive()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._starter.find(self.running) is not None

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._starter.control_path(self.running))
        return self._connection

    def _require_alive(self) -> None:
        if not self.is_alive():
            which = "old" if self.running.role == "serving" else "new"
            raise PeerGoneError(self.running.role, f"the {which} process ended; {self._starter.ending(self.running)}")
