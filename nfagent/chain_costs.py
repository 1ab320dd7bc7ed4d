"""The cost of a chain: PCIe links that its packets cross, their latency, and CPU, hop by hop."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from nfagent.measurement import Measurement
from nfagent.model import PORT_HOP, Chain, Status, View


@dataclass(frozen=True)
class Hop:
    """A hop of a chain, and what it adds to the chain's cost.

    Attributes:
        name: as stored: ``port:N``, or the id of an instance.
        view: the instance; None for a port.
        location: None: unknown, or nowhere yet.
        crossings: PCIe links between the hop before and this one; None: unknown.
        latency_us: of those.
        millicores: used by the instance's process; None: not measured.
        mbps: traffic between the hop before and this one, both ways; None: not measured.
    """

    name: str
    view: View | None
    location: str | None
    crossings: int | None
    latency_us: int | None
    millicores: int | None
    mbps: float | None

    @property
    def port(self) -> int | None:
        """Return its number, if it is a port of the server."""
        return int(self.name.removeprefix(PORT_HOP)) if self.name.startswith(PORT_HOP) else None


@dataclass(frozen=True)
class Surroundings:
    """All that the cost of a chain depends on.

    Attributes:
        views: of instances, by id.
        homes: locations of the server's ports, by number.
        hub: the hypervisor's name.
        crossing_us: latency of a PCIe link.
        measured: None: not measured yet.
    """

    views: Mapping[str, View]
    homes: Mapping[int, str]
    hub: str
    crossing_us: int
    measured: Measurement | None


def hops(chain: Chain, now: Surroundings) -> list[Hop]:
    """Return a chain's hops in order."""
    places = [_location(name, now) for name in chain.hops]
    links = [0, *(crossings(here, there, now.hub) if here and there else None for here, there in pairwise(places))]
    legs = [None, *(_mbps(before, hop, now) for before, hop in pairwise(chain.hops))]
    return [
        Hop(
            name=name,
            view=now.views.get(name),
            location=place,
            crossings=crossed,
            latency_us=None if crossed is None else crossed * now.crossing_us,
            millicores=_millicores(name, now),
            mbps=mbps,
        )
        for name, place, crossed, mbps in zip(chain.hops, places, links, legs, strict=True)
    ]


def crossings(here: str, there: str, hub: str) -> int:
    """Return the number of PCIe links between two locations."""
    return 0 if here == there else (here != hub) + (there != hub)


def status(chain: Chain, found: list[Hop]) -> Status:
    """Return a chain's status: the worst of its instances'."""
    if not chain.present:
        return "deleting"
    states = {hop.view.status for hop in found if hop.view is not None}
    worst_first: tuple[Status, ...] = ("error", "deleting", "building", "migrating")
    for each in worst_first:
        if each in states:
            return each
    return "active"


def total(amounts: list[int | None]) -> int | None:
    """Return a sum; None: a part of it is unknown."""
    known = [each for each in amounts if each is not None]
    return sum(known) if len(known) == len(amounts) else None


def _location(name: str, now: Surroundings) -> str | None:
    view = now.views.get(name)
    if view is not None:
        return view.running.location if view.running else None
    return now.homes.get(int(name.removeprefix(PORT_HOP))) if name.startswith(PORT_HOP) else None


def _millicores(name: str, now: Surroundings) -> int | None:
    load = now.measured.instances.get(name) if now.measured else None
    return load.millicores if load else None


def _mbps(before: str, hop: str, now: Surroundings) -> float | None:
    ends, others = _ports(before, now), _ports(hop, now)
    if now.measured is None or not (ends and others):
        return None
    return sum(
        rate.mbps
        for (source, target), rate in now.measured.matrix.items()
        if (source in ends and target in others) or (source in others and target in ends)
    )


def _ports(name: str, now: Surroundings) -> set[int]:
    view = now.views.get(name)
    if view is not None:
        return {port.number for port in view.instance.ports}
    return {int(name.removeprefix(PORT_HOP))} if name.startswith(PORT_HOP) else set()
