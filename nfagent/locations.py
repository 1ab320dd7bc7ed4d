"""Detects disconnected locations: the switch does not answer oneswitchd, or its PCIe link is down.

Instances there do not serve anyone, so they count as ended. The hypervisor never counts as disconnected, because
functions have nowhere else to go; an event tells that its switch does not answer. Events also tell that a switch hangs
(it may go on, until oneswitchd disconnects it), and that oneswitchd does not answer.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from nfagent.bulletin import Bulletin
from server.errors import ServerError
from server.oneswitchd.answers import Status, SwitchState

_log = logging.getLogger(__name__)

_PERIOD_S = 0.5
_WITHOUT_ONESWITCHD_S = 2.0  # it restarts in less
ONESWITCHD = "oneswitchd"
"""The subject of the events ``oneswitchd.down`` and ``oneswitchd.up``."""

_STOP_S = 5.0

Transition = Literal["down", "up"]


class Locations:
    """Polls oneswitchd from `start` to `stop`; writes the events ``location.down``, ``oneswitchd.down``, and ``up``.

    Thread safety: any thread may call any method.

    Args:
        bulletin: for the events.
        status: of oneswitchd; raises `ServerError`.
        after_s: how long a location must be disconnected before it counts as down.
        changed: called with a location and its change, in a thread of that location and change. It must tell by the
            change, not by `is_down`, which may have changed meanwhile: a return whose handling hangs must not occupy
            the thread that tells of the next outage.
    """

    def __init__(
        self,
        bulletin: Bulletin,
        status: Callable[[], Status],
        after_s: float,
        changed: Callable[[str, Transition], None],
    ) -> None:
        self._bulletin = bulletin
        self._status = status
        self._after_s = after_s
        self._changed = changed
        self._tellers: dict[tuple[str, Transition], _Teller] = {}
        self._since: dict[str, tuple[float, str]] = {}  # disconnected since (steady clock), and why
        self._down: dict[str, tuple[float, str]] = {}  # seconds since 1970
        self._hub_since: float | None = None  # when the hypervisor's switch stopped answering (steady clock)
        self._told: set[str] | None = None  # locations that events declared down, including an earlier agent's
        self._unanswered_since: float | None = None  # when oneswitchd stopped answering (steady clock)
        self._told_unanswered: bool | None = None  # an event said so, perhaps an earlier agent's
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch locations", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for teller in self._tellers.values():
            teller.stop()

    def is_down(self, location: str) -> bool:
        """Return whether it has been disconnected long enough to restart its instances elsewhere."""
        return location in self._down

    def is_cut_off(self, location: str) -> bool:
        """Return whether it does not answer now, for however short a time."""
        return location in self._since

    def is_told_down(self, location: str) -> bool:
        """Return whether an event says that it is down, or hangs."""
        return location in (self._told or ())

    def down_since(self, location: str) -> tuple[float, str] | None:
        """Return since when it is down, in seconds since 1970, and why; None if it is not down."""
        return self._down.get(location)

    def _run(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            try:
                asked = time.monotonic()
                try:
                    status = self._status()
                except ServerError as error:
                    self.miss(str(error), asked, time.monotonic())
                else:
                    self.look(status, time.monotonic())
            except Exception:  # noqa: BLE001  the others' recovery must not end with one fault
                _log.exception("cannot check the locations")

    def miss(self, why: str, asked: float, now: float) -> None:
        """Note that oneswitchd did not answer when asked (steady clock); its last known status stays valid."""
        if self._unanswered_since is None:
            self._unanswered_since = asked
        if now - self._unanswered_since >= _WITHOUT_ONESWITCHD_S:
            self._tell(ONESWITCHD, "oneswitchd.down", why)
            self._told_unanswered = True

    def _is_told_unanswered(self) -> bool:
        if self._told_unanswered is None:
            self._told_unanswered = bool(self._bulletin.down("oneswitchd", [ONESWITCHD]))
        return self._told_unanswered

    def look(self, status: Status, now: float) -> None:
        """Apply oneswitchd's status as of a moment of the steady clock."""
        if self._told is None:
            self._told = {each.name for each in status.switches if self._was_down(each.name)}
        # While the hypervisor's switch is disconnected, the links' states are unknown, and there is no alternative.
        hub_is_up = all(_fault(each) is None for each in status.switches if each.hub)
        nics = [each for each in status.switches if not each.hub]
        found = {each.name: why for each in nics if (why := _fault(each, judge_link=hub_is_up)) is not None}
        self._since = {name: self._since.get(name, (now, why)) for name, why in found.items()}
        hanging = {each.name: why for each in nics if each.name not in found and (why := _hangs(each)) is not None}
        for name, why in hanging.items():
            self._tell_once(name, why, self._told)
        for name, (since, why) in self._since.items():
            # The next steps need the disk, too.
            if now - since >= self._after_s and self._tell_once(name, why, self._told) and name not in self._down:
                self._down = self._down | {name: (time.time() - (now - since), why)}
                self._pass_on(name, "down")
        hubs = [each for each in status.switches if each.hub]
        for hub in hubs:
            self._look_at_hub(hub, now, self._told)
        for name in self._told - found.keys() - hanging.keys() - {hub.name for hub in hubs}:
            if self._tell(name, "location.up", "its switch and its link are up again"):
                self._down = {other: entry for other, entry in self._down.items() if other != name}
                self._told.discard(name)
                self._pass_on(name, "up")
        self._unanswered_since = None
        if self._is_told_unanswered():
            self._told_unanswered = not self._tell(ONESWITCHD, "oneswitchd.up", "it answers again")

    def _look_at_hub(self, hub: SwitchState, now: float, told: set[str]) -> None:
        why, hangs = _fault(hub), _hangs(hub)
        if hangs is not None:
            self._tell_once(hub.name, hangs, told)
        elif why is None:
            self._hub_since = None
            if hub.name in told and self._tell(hub.name, "location.up", "its switch answers again"):
                told.discard(hub.name)
        else:
            if self._hub_since is None:
                self._hub_since = now
            if now - self._hub_since >= self._after_s:
                self._tell_once(hub.name, why, told)

    def _tell_once(self, name: str, why: str, told: set[str]) -> bool:
        """Tell that a location is down; return whether the disk has taken that."""
        told.add(name)
        return self._tell(name, "location.down", why)

    def _pass_on(self, location: str, change: Transition) -> None:
        # One thread each: the callback may wait for a machine that does not answer.
        teller = self._tellers.get((location, change))
        if teller is None:
            teller = self._tellers[location, change] = _Teller(location, change, self._changed)
        teller.tell()

    def _was_down(self, name: str) -> bool:
        return bool(self._bulletin.down("location", [name]))

    def _tell(self, location: str, event: str, reason: str) -> bool:
        """Tell it, unless that is known; return whether the disk has taken it."""
        about = {} if location == ONESWITCHD else {"location": location}
        return self._bulletin.tell(event, location, {**about, "reason": reason})


class _Teller:
    """A thread that reports one location's outages, or its returns; those during a report are merged."""

    def __init__(self, location: str, change: Transition, changed: Callable[[str, Transition], None]) -> None:
        self._location = location
        self._change: Transition = change
        self._changed = changed
        self._pending = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"{location} {change}", daemon=True)
        self._thread.start()

    def tell(self) -> None:
        """Report once more."""
        self._pending.set()

    def stop(self) -> None:
        """Stop; a running callback gets a few seconds."""
        self._stopping = True
        self._pending.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while self._pending.wait() and not self._stopping:
            self._pending.clear()
            try:
                self._changed(self._location, self._change)
            except Exception:  # noqa: BLE001  the next change is to be told all the same
                _log.exception("cannot handle that %s is %s", self._location, self._change)


def _hangs(switch: SwitchState) -> str | None:
    if switch.is_silent:
        return "its Open vSwitch hangs: it is connected, but does not answer"
    return None


def _fault(switch: SwitchState, *, judge_link: bool = True) -> str | None:
    if "down" in (switch.virt.state, switch.edge.state):
        said = switch.edge.last_error or switch.virt.last_error
        return f"its Open vSwitch does not answer{f': {said}' if said else ''}"
    if judge_link and switch.link is not None and switch.link.state == "down":
        return f"its PCIe link {switch.link.hypervisor} is down"
    return None
