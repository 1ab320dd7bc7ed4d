"""Which locations are cut off: the switch there does not answer oneswitchd, or its PCIe link is down.

What runs at such a location serves nobody, so it counts as ended. The hypervisor is never one: there is nowhere to go.
"""

import logging
import threading
import time
from collections.abc import Callable

from nfagent.store import Store, events
from unoctl.errors import UnoctlError
from unoctl.model import Status, SwitchState

_log = logging.getLogger(__name__)

_PERIOD_S = 0.5
_STOP_S = 5.0


class Locations:
    """Asks oneswitchd now and then, from `start` to `stop`; writes the events ``location.down`` and ``location.up``.

    Thread safety: any thread may ask.

    Args:
        store: for the events.
        status: of oneswitchd; raises `UnoctlError`.
        after_s: a location is down once it has been cut off for so long.
        changed: is told which location went down or came up; by a thread of that location.
    """

    def __init__(
        self, store: Store, status: Callable[[], Status], after_s: float, changed: Callable[[str], None]
    ) -> None:
        self._store = store
        self._status = status
        self._after_s = after_s
        self._changed = changed
        self._tellers: dict[tuple[str, str], _Teller] = {}
        self._since: dict[str, tuple[float, str]] = {}  # since when a location is cut off (steady clock), and why
        self._down: dict[str, tuple[float, str]] = {}  # seconds since 1970
        self._told: set[str] | None = None  # that events say to be down, those of an agent before this one included
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch locations", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for teller in self._tellers.values():
            teller.stop()

    def is_down(self, location: str) -> bool:
        """Whether it has been cut off for long enough that its instances are to go on elsewhere."""
        return location in self._down

    def is_cut_off(self, location: str) -> bool:
        """Whether it does not answer now, for however short a time."""
        return location in self._since

    def down_since(self, location: str) -> tuple[float, str] | None:
        """Since when it is cut off, in seconds since 1970, and why; None: it is not down."""
        return self._down.get(location)

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            try:
                self.look(self._status(), time.monotonic())
            except UnoctlError:
                continue  # nobody knows; what was known still counts
            except Exception:  # noqa: BLE001  the others' recovery must not end with one fault
                _log.exception("the locations could not be looked at")

    def look(self, status: Status, now: float) -> None:
        """Take in what oneswitchd says at a moment of the steady clock."""
        if self._told is None:
            self._told = {each.name for each in status.switches if self._was_down(each.name)}
        # While the hypervisor's own switch is away nobody can say which links work, and there is nowhere to go.
        hub_is_up = all(_fault(each) is None for each in status.switches if each.hub)
        nics = [each for each in status.switches if not each.hub]
        found = {each.name: why for each in nics if (why := _fault(each, judge_link=hub_is_up)) is not None}
        self._since = {name: self._since.get(name, (now, why)) for name, why in found.items()}
        for name, (since, why) in self._since.items():
            if name not in self._down and now - since >= self._after_s:
                self._tell(name, "location.down", why)
                self._down = self._down | {name: (time.time() - (now - since), why)}
                self._told.add(name)
                self._pass_on(name, "down")
        for name in [name for name in self._told if name not in found]:
            self._tell(name, "location.up", "its switch and its link are up again")
            self._down = {other: entry for other, entry in self._down.items() if other != name}
            self._told.discard(name)
            self._pass_on(name, "up")

    def _pass_on(self, location: str, change: str) -> None:
        # A thread for each: what follows may wait for a machine that does not answer.
        teller = self._tellers.get((location, change))
        if teller is None:
            teller = self._tellers[location, change] = _Teller(location, self._changed)
        teller.tell()

    def _was_down(self, location: str) -> bool:
        return any(event.type == "location.down" for event in events.newest(self._store.read, 1, location, "location."))

    def _tell(self, location: str, event: str, reason: str) -> None:
        _log.warning("%s: %s: %s", event, location, reason)
        with self._store.change() as change:
            change.event(event, location, None, {"location": location, "reason": reason})


class _Teller:
    """A thread that tells of a location's changes of one kind; those that happen meanwhile are told once."""

    def __init__(self, location: str, changed: Callable[[str], None]) -> None:
        self._location = location
        self._changed = changed
        self._pending = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"look at {location}", daemon=True)
        self._thread.start()

    def tell(self) -> None:
        """Tell it once more."""
        self._pending.set()

    def stop(self) -> None:
        """End; what is being done has a few seconds."""
        self._stopping = True
        self._pending.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while self._pending.wait() and not self._stopping:
            self._pending.clear()
            try:
                self._changed(self._location)
            except Exception:  # noqa: BLE001  the next change is to be told all the same
                _log.exception("%s went down or came up, and what follows from that failed", self._location)


def _fault(switch: SwitchState, *, judge_link: bool = True) -> str | None:
    if "down" in (switch.virt.state, switch.edge.state):
        said = switch.edge.last_error or switch.virt.last_error
        return f"its Open vSwitch does not answer{f': {said}' if said else ''}"
    if judge_link and switch.link is not None and switch.link.state == "down":
        return f"its PCIe link {switch.link.hypervisor} is down"
    return None
