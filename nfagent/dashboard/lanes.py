"""Lanes: the locations with their network functions, and the PCIe links between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nfagent.dashboard import figures, sparkline
from nfagent.dashboard.snapshot import Place, Snapshot, counts_traffic
from nfagent.dashboard.sparkline import Sparkline
from nfagent.measurement import Load, Measurement, Offload, Rate
from nfagent.model import Running, View
from server.oneswitchd.answers import SwitchState

State = Literal["up", "down", "syncing", "unknown"]
Level = Literal["calm", "high", "full"]

_HIGH, _FULL = 70, 90  # percent


@dataclass(frozen=True)
class Bar:
    """A share of something.

    Attributes:
        percent: width, from 0 to 100.
        text: the figure, which may exceed 100 %.
    """

    percent: int
    text: str

    @classmethod
    def of(cls, part: float, whole: float) -> "Bar":
        """Compute a share; 0 of 0 is 0."""
        share = part / whole if whole > 0 else 0.0
        return cls(max(0, min(100, round(100 * share))), figures.percent(share))

    @property
    def level(self) -> Level:
        """Return how close it is to its limit."""
        return "full" if self.percent >= _FULL else "high" if self.percent >= _HIGH else "calm"


@dataclass(frozen=True)
class PortTag:
    """A virtual port; ``flow_id`` None: oneswitchd does not report it."""

    number: int
    flow_id: int | None


@dataclass(frozen=True)
class Usage:
    """An instance's load, in words.

    Attributes:
        traffic: None: not counted.
        flows: None: not reported.
        offload: None: it does not ask the switches to carry flows.
    """

    bar: Bar
    millicores: str
    traffic: str | None
    flows: str | None
    offload: str | None


@dataclass(frozen=True)
class Why:
    """The reason for an instance's location."""

    text: str
    runner_up: str | None
    binding: tuple[str, ...]


@dataclass(frozen=True)
class Card:
    """An instance.

    Attributes:
        status: as `nfagent.model.Status`, or ``incoming``: moving to this lane.
        note: its fault, or its destination.
        fault: fault of its location, which may explain a wrong status.
        wanted: ``pinned`` to or ``wanted`` at a location, in words.
    """

    key: str
    name: str
    project: str
    kind: str
    flavor: str
    status: str
    note: str | None
    fault: str | None
    wanted: str | None
    ports: tuple[PortTag, ...]
    usage: Usage | None
    course: Sparkline | None
    why: Why | None


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


@dataclass(frozen=True)
class Direction:
    """One direction of a link."""

    bar: Bar
    rate: str
    course: Sparkline | None


@dataclass(frozen=True)
class Link:
    """A PCIe link; ``to_nic`` and ``to_host`` are None until measured."""

    nic: str
    hub: str
    state: State
    capacity: str | None
    to_nic: Direction | None
    to_host: Direction | None


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
        cards=_cards(known, here, None if state != "down" else f"{place.name} is down"),
    )


def waiting(known: Snapshot) -> tuple[Card, ...]:
    """Return the instances that do not run."""
    return tuple(_card(known, view, view.status, _note(view)) for view in known.views if view.running is None)


def link(known: Snapshot, place: Place) -> Link:
    """Build the PCIe link of an sNIC."""
    hub = next(each.name for each in known.places if each.is_hub)
    use = known.measured.links.get(place.name) if known.measured else None
    to_nic = to_host = None
    if use:
        to_nic = _direction(known, use.to_nic, use.capacity_mbps, lambda sample: _to_nic(sample, place.name))
        to_host = _direction(known, use.to_host, use.capacity_mbps, lambda sample: _to_host(sample, place.name))
    switch = _switch(known, place.name)
    state: State = "unknown"
    if switch and switch.link:
        state = "up" if switch.link.state == "up" else "down"
    return Link(place.name, hub, state, figures.rate(use.capacity_mbps) if use else None, to_nic, to_host)


def condition(known: Snapshot, place: Place) -> tuple[State, str | None]:
    """Return whether a location works, and if it does not, why."""
    switch = _switch(known, place.name)
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
        if bridge.state != "up":
            return "syncing", f"oneswitchd is comparing the rules of its bridge {name}"
    return "up", None


def _switch(known: Snapshot, name: str) -> SwitchState | None:
    status = known.switches.status
    return next((switch for switch in status.switches if switch.name == name), None) if status else None


def _cards(known: Snapshot, here: list[Running], fault: str | None) -> tuple[Card, ...]:
    rows = {row.instance: row for row in here}
    cards = []
    for view in known.views:
        row = rows.get(view.instance.id)
        if row is None:
            continue
        if row.role == "serving":
            cards.append(_card(known, view, view.status, _note(view), fault))
        else:
            source = view.running.location if view.running else "nowhere"
            cards.append(_card(known, view, "incoming", f"moving from {source}"))
    return tuple(cards)


def _note(view: View) -> str | None:
    if view.migration is not None:
        return f"moving to {view.migration.target}"
    return view.running.reason if view.running else None


def _card(known: Snapshot, view: View, status: str, note: str | None, fault: str | None = None) -> Card:
    instance = view.instance
    serving = status != "incoming"
    load = known.measured.instances.get(instance.id) if known.measured and serving else None
    counted = load is not None and _is_counted(known, view, load)
    ports = tuple(PortTag(port.number, _flow_id(known, port.number)) for port in instance.ports)
    return Card(
        key=f"{instance.id}-{'serving' if serving else 'incoming'}",
        name=instance.name,
        project=instance.project,
        kind=instance.kind,
        flavor=instance.flavor,
        status=status,
        note=note,
        fault=fault,
        wanted=_wanted(view) if serving else None,
        ports=ports if serving else (),
        usage=_usage(load, counted) if load else None,
        course=_course(known, instance.id) if counted else None,
        why=why(known.whys.get(instance.id)) if serving else None,
    )


def _wanted(view: View) -> str | None:
    instance = view.instance
    if instance.pin is not None:
        return f"pinned to {instance.pin}"
    here = view.running.location if view.running else None
    if instance.target not in (None, here) and view.migration is None:
        return f"wanted at {instance.target}"
    return None


def _flow_id(known: Snapshot, number: int) -> int | None:
    port = known.switches.ports.get(number)
    return port.flow_id if port else None


def _is_counted(known: Snapshot, view: View, load: Load) -> bool:
    """Tell whether its traffic was counted: by the switches, or by itself, if it had any."""
    by_switches = known.measured is not None and counts_traffic(known.measured)
    return by_switches or load.traffic.pps > 0 or not view.instance.ports


def _usage(load: Load, is_counted: bool) -> Usage:
    return Usage(
        bar=Bar.of(load.utilisation, 1.0),
        millicores=f"{load.millicores:,}",
        traffic=figures.rate(load.traffic.mbps) if is_counted else None,
        flows=None if load.flows is None else figures.count(load.flows),
        offload=_offload(load.offload) if load.offload else None,
    )


def _offload(offload: Offload) -> str:
    """Phrase what the switches carry."""
    if offload.state != "connected":
        return f"{offload.state}: {offload.why}" if offload.why else offload.state
    carried = f"{figures.count(offload.flows)} flows, {figures.percent(offload.share)} of packets"
    refused = [f"{reason} {figures.count(count)}" for reason, count in sorted(offload.refused.items()) if count]
    return f"{carried}, refused: {', '.join(refused)}" if refused else carried


def _course(known: Snapshot, instance: str) -> Sparkline | None:
    samples = [
        (sample.at, sample.instances[instance].traffic.mbps) for sample in known.history if instance in sample.instances
    ]
    return _drawn(known, samples, max((value for _, value in samples), default=0.0))


def _drawn(known: Snapshot, samples: list[tuple[float, float]], ceiling: float) -> Sparkline | None:
    # A series of zeros counts, too: a line at the bottom.
    return sparkline.draw(samples, known.measured.at, ceiling or 1.0) if known.measured else None


def _to_nic(sample: Measurement, nic: str) -> Rate | None:
    return sample.links[nic].to_nic if nic in sample.links else None


def _to_host(sample: Measurement, nic: str) -> Rate | None:
    return sample.links[nic].to_host if nic in sample.links else None


def _direction(known: Snapshot, now: Rate, capacity: int, of: Callable[[Measurement], Rate | None]) -> Direction:
    samples = [(sample.at, found.mbps) for sample in known.history if (found := of(sample)) is not None]
    ceiling = max((value for _, value in samples), default=0.0)
    return Direction(Bar.of(now.mbps, capacity), figures.rate(now.mbps), _drawn(known, samples, ceiling))


def why(said: Mapping[str, Any] | None) -> Why | None:
    """Phrase the decider's reasons; None: it gave none."""
    text = said.get("text") if said else None
    if said is None or not text:
        return None
    runner_up = said.get("runner_up")
    return Why(
        text=str(text),
        runner_up=_alternative(runner_up) if runner_up else None,
        binding=tuple(_limit(each) for each in said.get("binding") or ()),
    )


def _alternative(said: Mapping[str, Any] | str) -> str:
    if isinstance(said, str):
        return said
    cost = int(said.get("host_cost") or 0)
    words = "at the same host cost" if cost == 0 else f"host cost {cost:+,} millicores"
    blocked = " and ".join(_limit(each) for each in said.get("blocked_by") or ())
    return f"{said.get('location')}, {words}" + (f"; {blocked} forbids it" if blocked else "")


def _limit(said: Mapping[str, Any] | str) -> str:
    if isinstance(said, str):
        return said
    return f"{said.get('limit')} ({said.get('used'):,} of {said.get('allowed'):,})"
