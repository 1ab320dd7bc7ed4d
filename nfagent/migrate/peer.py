"""The two processes of a migration, driven through their control sockets."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from nfagent.control import Answer, Connection, Control, flow_count
from nfagent.errors import AgentError, ControlError, ControlRefusedError, ControlUnreachableError
from nfagent.model import Role, Running
from nfagent.starter import Starter

PATIENCE_S = 30.0
_ENDING_S = 0.3
_POLL_S = 0.01
_STATUS_S = 2.0  # a healthy process answers `status` at once, whatever else it does


class PeerGoneError(AgentError):
    """One of the processes has ended, or was killed because it did not answer.

    Attributes:
        role: its role.
    """

    def __init__(self, role: Role, detail: str) -> None:
        self.role: Role = role
        super().__init__(detail)


class Peer:
    """A process of a migration, with a connection that is reopened if it breaks.

    During a long verb, the peer asks the process for its status every second. A process that does not answer hangs;
    it is killed if that loses no state.

    Args:
        starter: starts and ends processes.
        running: its row.
        epoch: epoch of the migration.
        is_spare: tells whether its end loses nothing, because another process has its state.
        go_on: called every second of a wait; its exceptions end the wait.
    """

    def __init__(
        self,
        starter: Starter,
        running: Running,
        epoch: int,
        is_spare: Callable[[], bool],
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._starter = starter
        self.running = running
        self._epoch = epoch
        self._is_spare = is_spare
        self._go_on = go_on
        self._connection: Connection | None = None

    def again(self) -> "Peer":
        """Return another one of the same process, with a connection of its own, for another thread."""
        return Peer(self._starter, self.running, self._epoch, self._is_spare, self._go_on)

    def ask(self, verb: str, *, timeout_s: float = PATIENCE_S, **arguments: Any) -> dict[str, Any]:
        """Request a verb of the migration's epoch.

        Raises:
            PeerGoneError: the process has ended, or hung and was killed.
            ControlUnreachableError: it is running but does not answer.
            ControlRefusedError: it refused.
        """
        answer = self.exchange(verb, timeout_s=timeout_s, **arguments)
        for descriptor in answer.descriptors:
            os.close(descriptor)
        return answer.value

    def exchange(self, verb: str, *, timeout_s: float = PATIENCE_S, **arguments: Any) -> Answer:
        """Like `ask`, but return the descriptors that come with the answer."""
        kept = self._connection is not None
        try:
            return self._exchange(verb, timeout_s, arguments)
        except ControlUnreachableError:
            self._require_alive()
            if not kept:
                raise
        # Only an old connection may have broken; verbs can be repeated.
        try:
            return self._exchange(verb, timeout_s, arguments)
        except ControlUnreachableError:
            self._require_alive()
            raise

    def _exchange(self, verb: str, timeout_s: float, arguments: dict[str, Any]) -> Answer:
        try:
            connection = self._connected()
            return connection.exchange(
                verb, timeout_s=timeout_s, meanwhile=self._feel_pulse, epoch=self._epoch, **arguments
            )
        except ControlRefusedError:
            raise
        except AgentError:
            self.close()
            raise

    @contextlib.contextmanager
    def begun(self, verb: str, *, timeout_s: float = PATIENCE_S, **arguments: Any) -> Iterator[Callable[[], object]]:
        """Like `ask`, but yield a function that waits for the answer, and do not repeat the request."""
        try:
            connection = self._connected()
            with connection.begun(
                verb, timeout_s=timeout_s, meanwhile=self._feel_pulse, epoch=self._epoch, **arguments
            ) as answer:
                yield answer
        except ControlUnreachableError:
            self.close()
            self._require_alive()
            raise
        except ControlRefusedError:
            raise
        except AgentError:
            self.close()
            raise

    def _feel_pulse(self) -> None:
        """Check that the process answers.

        Raises:
            PeerGoneError: it did not, and was killed.
            ControlUnreachableError: it does not, and has the only copy of the state.
        """
        self._go_on()
        try:
            Control(self._starter.control_path(self.running)).ask("status", timeout_s=_STATUS_S)
        except ControlUnreachableError as error:
            self._require_alive()
            self._give_up(error)
        except ControlRefusedError:
            return  # it answers

    def _give_up(self, error: ControlUnreachableError) -> None:
        if not self._is_spare():
            raise error
        why = f"it did not answer and was killed: {error}"
        self._starter.kill(self.running, why)
        raise PeerGoneError(self.running.role, f"the {self._which} process: {why}") from error

    def phase(self) -> str:
        """Return its phase in this epoch's migration: ``none``, or a name of nf_runtime::migration."""
        known = self.ask("status").get("migration") or {}
        return str(known["phase"]) if known.get("epoch") == self._epoch else "none"

    def flows(self) -> int | None:
        """Return its number of flows, if it reports one."""
        with contextlib.suppress(ControlError):
            return flow_count(self.ask("counters"))
        return None

    def require_open(self) -> None:
        """Check, without a request, that it is running.

        Raises:
            PeerGoneError: it is not.
        """
        if self._connection is None or not self._connection.is_open():
            self.close()
            self._require_alive()

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._starter.find(self.running) is not None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None:
            try:
                self._connection = Connection(self._starter.control_path(self.running), _STATUS_S)
            except ControlUnreachableError as error:
                self._require_alive()
                self._give_up(error)
                raise
        return self._connection

    def _require_alive(self) -> None:
        # Its socket disappears before the process.
        deadline = time.monotonic() + _ENDING_S
        while (lives := self.is_alive()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not lives:
            ending = self._starter.ending(self.running)
            raise PeerGoneError(self.running.role, f"the {self._which} process ended; {ending}")

    @property
    def _which(self) -> str:
        return "old" if self.running.role == "serving" else "new"
