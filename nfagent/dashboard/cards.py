"""Network functions, as cards or, if there are many, as rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nfagent.dashboard import figures
from nfagent.dashboard.course import Course, course
from nfagent.dashboard.shares import Bar
from nfagent.dashboard.snapshot import Snapshot, counts_traffic
from nfagent.measurement import Load, Offload
from nfagent.model import View
from nfagent.monitor.day import instance_series


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
        place: the location of the lane; empty: it does not run.
        note: its fault, or its destination.
        fault: fault of its location, which may explain a wrong status.
        wanted: ``pinned`` to or ``wanted`` at a location, in words.
        arrived: where it came from last, and how long ago.
        words: what the search looks at, in lower case.
    """

    key: str
    instance: str
    place: str
    name: str
    project: str
    kind: str
    flavor: str
    status: str
    note: str | None
    fault: str | None
    wanted: str | None
    arrived: str | None
    words: str
    ports: tuple[PortTag, ...]
    usage: Usage | None
    course: Course | None
    why: Why | None


def at(known: Snapshot, location: str, fault: str | None) -> tuple[Card, ...]:
    """Return the instances at a location, and those moving there, without those that never ran."""
    rows = {row.instance: row for row in known.running if row.location == location}
    found = []
    for view in known.views:
        row = rows.get(view.instance.id)
        if row is None or never_ran(known, view):
            continue
        if row.role == "serving":
            found.append(_card(known, view, view.status, _note(view), location, fault))
        else:
            source = view.running.location if view.running else "nowhere"
            found.append(_card(known, view, "incoming", f"moving from {source}", location))
    return _ordered(known, found)


def idle(known: Snapshot) -> tuple[tuple[Card, ...], tuple[Card, ...]]:
    """Return the instances that never ran, and those that do not run any more."""
    never = [view for view in known.views if never_ran(known, view)]
    ended = [view for view in known.views if view.running is None and view.instance.id in known.ran]
    first, second = ([_card(known, view, view.status, _note(view), "") for view in each] for each in (never, ended))
    return _ordered(known, first), _ordered(known, second)


def single(known: Snapshot, view: View) -> Card:
    """Return an instance on its own."""
    return _card(known, view, view.status, _note(view), view.running.location if view.running else "")


def never_ran(known: Snapshot, view: View) -> bool:
    """Tell whether an instance was never active, and is not about to be."""
    is_tried = view.running is not None and view.running.phase != "error"
    return not is_tried and view.instance.id not in known.ran


def _ordered(known: Snapshot, found: list[Card]) -> tuple[Card, ...]:
    # Rows are looked up by name; a few cards keep the order of their creation, which never changes.
    return tuple(sorted(found, key=lambda card: (card.name, card.key)) if known.is_crowded else found)


def _note(view: View) -> str | None:
    if view.migration is not None:
        return f"moving to {view.migration.target}"
    return view.running.reason if view.running else None


def _card(known: Snapshot, view: View, status: str, note: str | None, place: str, fault: str | None = None) -> Card:
    instance = view.instance
    serving = status != "incoming"
    load = known.measured.instances.get(instance.id) if known.measured and serving else None
    counted = load is not None and _is_counted(known, view, load)
    ports = tuple(PortTag(port.number, flow_id(known, port.number)) for port in instance.ports)
    numbers = [str(port.number) for port in instance.ports]
    return Card(
        key=f"{instance.id}-{'serving' if serving else 'incoming'}",
        instance=instance.id,
        place=place,
        name=instance.name,
        project=instance.project,
        kind=instance.kind,
        flavor=instance.flavor,
        status=status,
        note=note,
        fault=fault,
        wanted=_wanted(view) if serving else None,
        arrived=arrived(known, instance.id, place) if serving else None,
        words=" ".join([instance.name, instance.project, instance.kind, instance.id, *numbers]).lower(),
        ports=ports if serving else (),
        usage=_usage(load, counted) if load else None,
        course=_course(known, instance.id) if counted and not known.is_crowded else None,
        why=why(known.whys.get(instance.id)) if serving else None,
    )


def arrived(known: Snapshot, instance: str, place: str) -> str | None:
    """Return where an instance at a location came from last, and how long ago; None: it did not move there."""
    last = known.arrivals.get(instance)
    if last is None or last.target != place:
        return None
    return f"from {last.source}, {figures.ago(known.at - last.ended)}"


def _wanted(view: View) -> str | None:
    instance = view.instance
    if instance.pin is not None:
        return f"pinned to {instance.pin}"
    here = view.running.location if view.running else None
    if instance.target not in (None, here) and view.migration is None:
        return f"wanted at {instance.target}"
    return None


def flow_id(known: Snapshot, number: int) -> int | None:
    """Return a virtual port's flow-id; None: oneswitchd does not report it."""
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


def _course(known: Snapshot, instance: str) -> Course:
    samples = [
        (sample.at, sample.instances[instance].traffic.mbps) for sample in known.history if instance in sample.instances
    ]
    return course(known, instance_series(instance), samples)


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
