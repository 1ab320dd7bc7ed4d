"""Detects databases of switches that do not answer: the switch forwards, but nothing can be started or moved there."""

from collections.abc import Callable, Mapping

from nfagent.bulletin import Bulletin
from nfagent.pulse import Pulse
from nfagent.pulse_watch import PulseWatch

_SILENT_S = 2.0  # people learn of it within 5 s, even if this process hung for 2 s meanwhile
_STOP_S = 2.0
DOWN, UP = "database.down", "database.up"


class DatabasePulse(Pulse):
    """An ovsdb-server, polled by echo requests of RFC 7047."""

    request = b'{"method": "echo", "params": [], "id": "nfagent"}'

    def _answer(self, received: bytes) -> tuple[bytes | None, bytes]:
        return received, b""


class Databases(PulseWatch):
    """Polls them from `start` to `stop`; writes the events ``database.down`` and ``database.up``.

    Args:
        bulletin: for the events.
        addresses: ``unix:PATH`` or ``tcp:HOST:PORT``, by switch; others are not polled.
        is_told_down: whether a switch is known to be down, so that its database needs no words.
    """

    def __init__(self, bulletin: Bulletin, addresses: Mapping[str, str], is_told_down: Callable[[str], bool]) -> None:
        super().__init__("databases of switches", _STOP_S)
        self._bulletin = bulletin
        self._is_told_down = is_told_down
        polled = {name: each for name, each in addresses.items() if each.startswith(("unix:", "tcp:"))}
        self._pulses.update({name: DatabasePulse(each) for name, each in polled.items()})
        self._told: set[str] | None = None  # also by an earlier agent

    def look(self) -> None:
        """Poll each once."""
        if self._told is None:
            self._told = {name for name in self._pulses if self._was_down(name)}
        for name, pulse in self._pulses.items():
            pulse.look()
            is_silent = pulse.silent_s() >= _SILENT_S
            if is_silent and name not in self._told and not self._is_told_down(name):
                self._told.add(name)
                self._tell(name, DOWN, "its ovsdb-server does not answer")
            elif not is_silent and name in self._told:
                self._told.discard(name)
                self._tell(name, UP, "its ovsdb-server answers again")

    def _was_down(self, name: str) -> bool:
        return bool(self._bulletin.down("database", [name]))

    def _tell(self, name: str, event: str, reason: str) -> None:
        self._bulletin.tell(event, name, {"location": name, "reason": reason})
