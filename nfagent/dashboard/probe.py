"""oneswitchd's status, queried separately, so that an unresponsive oneswitchd does not delay the page."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from server.errors import ServerError
from server.oneswitchd.answers import Status, VirtualPort

_EVERY_S = 1.0
_SLOW_S = 3.0

Asks = Callable[[], tuple[Status, list[VirtualPort]]]


@dataclass(frozen=True)
class Switches:
    """The known state of the switches.

    Attributes:
        status: None: oneswitchd does not answer; ``reason`` says why.
        ports: by number.
    """

    status: Status | None
    reason: str | None
    ports: Mapping[int, VirtualPort] = field(default_factory=dict)


class Probe:
    """Queries oneswitchd on demand, at most every second.

    Args:
        asks: queries oneswitchd; raises `ServerError`.
    """

    def __init__(self, asks: Asks) -> None:
        self._asks = asks
        self._changed = threading.Condition()
        self._newest: Switches | None = None
        self._asked = float("-inf")
        self._is_asking = False

    def newest(self, patience_s: float = 0.0) -> Switches:
        """Return the newest answer; wait this long for the first one."""
        with self._changed:
            now = time.monotonic()
            if not self._is_asking and now - self._asked >= _EVERY_S:
                self._is_asking, self._asked = True, now
                threading.Thread(target=self._ask, name="dashboard probe", daemon=True).start()
            if self._newest is None:
                self._changed.wait_for(lambda: self._newest is not None, patience_s)
            if self._newest is None or (self._is_asking and now - self._asked > _SLOW_S):
                return Switches(None, "oneswitchd has not answered yet")
            return self._newest

    def _ask(self) -> None:
        answer = Switches(None, "cannot parse oneswitchd's answer; see nfagent's log")
        try:
            status, ports = self._asks()
            answer = Switches(status, None, {port.number: port for port in ports})
        except ServerError as error:
            answer = Switches(None, str(error))
        finally:
            with self._changed:
                self._newest, self._is_asking = answer, False
                self._changed.notify_all()
