"""Lanes: the locations with their network functions."""

from dataclasses import dataclass
from typing import Literal

from nfagent.dashboard import cards, figures
from nfagent.dashboard.cards import Card
from nfagent.dashboard.shares import Bar
from nfagent.dashboard.snapshot import Place, Snapshot
from server.oneswitchd.answers import SwitchState

State = Literal["up", "down", "syncing", "unknown"]


@dataclass(frozen=True)
class Lane:
    """A location.

    Attributes:
        reason: why it is not up.
        used: CPU of capacity, in words; None: not measured yet.
        slots: taken of all, in words; None: it has none.
    """

    name: str
    is_hub: bool
    state: State
    reason: str | None
    bar: Bar | None
    used: str | None
    slots: str | None
    cards: tuple[Card, ...]


def lane(known: Snapshot, place: Place) -> Lane:
    """Build a location's lane with its instances and those moving to it."""
    state, reason = condition(known, place)
    use = known.measured.locations.get(place.name) if known.measured else None
    here = [row for row in known.running if row.location == place.name]
    taken = sum(row.slot is not None for row in here)
    return Lane(
        name=place.name,
        is_hub=place.is_hub,
        state=state,
        reason=reason
        if known.switches.status or state == "down"
        else None,  # otherwise it applies to all and is in the banner
        bar=Bar.of(use.millicores, use.capacity_millicores) if use else None,
        used=f"{figures.cores(use.millicores)} of {figures.cores(use.capacity_millicores)} cores" if use else None,
        slots=f"{taken} of {place.slots}" if place.slots else None,
        cards=cards.at(known, place.name, None if state != "down" else f"{place.name} is down"),
    )


def condition(known: Snapshot, place: Place) -> tuple[State, str | None]:
    """Return whether a location works, and if it does not, why."""
    switch = switch_of(known, place.name)
    outage = known.outages.get(place.name)
    if outage is not None and outage.type == "location.down":
        return "down", str(outage.payload.get("reason") or "reported by nfagent")
    if switch is None:
        return "unknown", known.switches.reason or "oneswitchd does not know this switch"
    if switch.link is not None and switch.link.state != "up":
        return "down", "its PCIe link is down"
    for name, bridge in (("virt", switch.virt), ("edge", switch.edge)):
        if bridge.state == "down":
            why = f": {bridge.last_error}" if bridge.last_error else ""
            return "down", f"oneswitchd cannot reach its bridge {name}{why}"
        if bridge.state == "silent":
            return "down", "its Open vSwitch hangs: it is connected, but does not answer"
        if bridge.state != "up":
            return "syncing", f"oneswitchd is comparing the rules of its bridge {name}"
    return "up", None


def switch_of(known: Snapshot, name: str) -> SwitchState | None:
    """Return a switch's state; None: oneswitchd does not report it."""
    status = known.switches.status
    return next((switch for switch in status.switches if switch.name == name), None) if status else None
