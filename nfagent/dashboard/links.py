"""PCIe links between the hypervisor and the smart NICs."""

from collections.abc import Callable
from dataclasses import dataclass

from nfagent.dashboard import figures
from nfagent.dashboard.course import Course, course
from nfagent.dashboard.lanes import State, switch_of
from nfagent.dashboard.shares import Bar
from nfagent.dashboard.snapshot import Place, Snapshot
from nfagent.measurement import Measurement, Rate
from nfagent.monitor.day import link_series


@dataclass(frozen=True)
class Direction:
    """One direction of a link."""

    bar: Bar
    rate: str
    course: Course


@dataclass(frozen=True)
class Link:
    """A PCIe link; ``to_nic`` and ``to_host`` are None until measured."""

    nic: str
    hub: str
    state: State
    capacity: str | None
    to_nic: Direction | None
    to_host: Direction | None


def link(known: Snapshot, place: Place) -> Link:
    """Build the PCIe link of an sNIC."""
    hub = next(each.name for each in known.places if each.is_hub)
    use = known.measured.links.get(place.name) if known.measured else None
    to_nic = to_host = None
    if use:
        there, back = link_series(place.name)
        to_nic = _direction(known, there, use.to_nic, use.capacity_mbps, lambda sample: _to_nic(sample, place.name))
        to_host = _direction(known, back, use.to_host, use.capacity_mbps, lambda sample: _to_host(sample, place.name))
    switch = switch_of(known, place.name)
    state: State = "unknown"
    if switch and switch.link:
        state = "up" if switch.link.state == "up" else "down"
    return Link(place.name, hub, state, figures.rate(use.capacity_mbps) if use else None, to_nic, to_host)


def _to_nic(sample: Measurement, nic: str) -> Rate | None:
    return sample.links[nic].to_nic if nic in sample.links else None


def _to_host(sample: Measurement, nic: str) -> Rate | None:
    return sample.links[nic].to_host if nic in sample.links else None


def _direction(
    known: Snapshot, series: str, now: Rate, capacity: int, of: Callable[[Measurement], Rate | None]
) -> Direction:
    samples = [(sample.at, found.mbps) for sample in known.history if (found := of(sample)) is not None]
    return Direction(Bar.of(now.mbps, capacity), figures.rate(now.mbps), course(known, series, samples))
