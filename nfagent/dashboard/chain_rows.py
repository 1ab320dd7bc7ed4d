"""Chains, each with its hops in order and what these cost."""

from dataclasses import dataclass

from nfagent import chain_costs
from nfagent.chain_costs import Hop, Surroundings
from nfagent.dashboard import figures
from nfagent.dashboard.snapshot import Snapshot
from nfagent.model import Chain, Status

MOST = 12
"""Chains that are shown; the others are counted."""


@dataclass(frozen=True)
class HopRow:
    """A hop; figures are in words, None: unknown or not measured.

    Attributes:
        instance: the id of its page; None: it is a port of the server, or gone.
    """

    name: str
    instance: str | None
    kind: str
    status: Status | None
    location: str | None
    crossings: str | None
    latency: str | None
    cpu: str | None
    traffic: str | None


@dataclass(frozen=True)
class ChainRows:
    """A chain.

    Attributes:
        key: of its element.
        cost: of all hops, in words.
        unkept: why its bound is ignored.
    """

    key: str
    name: str
    project: str
    status: Status
    cost: str
    unkept: str | None
    hops: tuple[HopRow, ...]


def shown(known: Snapshot) -> tuple[ChainRows, ...]:
    """Return the chains by name."""
    hub = next(place.name for place in known.places if place.is_hub)
    views = {view.instance.id: view for view in known.views}
    homes = {number: port.switch for number, port in known.switches.ports.items()}
    now = Surroundings(views, homes, hub, known.crossing_us, known.measured)
    return tuple(_rows(known, chain, chain_costs.hops(chain, now)) for chain in known.chains[:MOST])


def rest(known: Snapshot) -> int:
    """Return how many chains are not shown."""
    return max(0, len(known.chains) - MOST)


def _rows(known: Snapshot, chain: Chain, hops: list[Hop]) -> ChainRows:
    return ChainRows(
        key=chain.id,
        name=chain.name,
        project=chain.project,
        status=chain_costs.status(chain, hops),
        cost=_cost(chain, hops),
        unkept=known.unkept.get(chain.id),
        hops=tuple(_row(hop) for hop in hops),
    )


def _cost(chain: Chain, hops: list[Hop]) -> str:
    crossings = chain_costs.total([hop.crossings for hop in hops])
    latency = chain_costs.total([hop.latency_us for hop in hops])
    links = "PCIe links unknown" if crossings is None else f"{crossings} PCIe link{'' if crossings == 1 else 's'}"
    time = None if latency is None else figures.duration(latency / 1e6)
    bound = "" if chain.latency_us is None else f" of at most {figures.duration(chain.latency_us / 1e6)}"
    cpu = figures.cores(sum(hop.millicores or 0 for hop in hops))
    return f"{links}, {time or 'latency unknown'}{bound}, CPU {cpu}"


def _row(hop: Hop) -> HopRow:
    view = hop.view
    gone = "gone" if hop.port is None else f"port {hop.port}"
    return HopRow(
        name=view.instance.name if view else gone,
        instance=view.instance.id if view else None,
        kind=view.instance.kind if view else "",
        status=view.status if view else None,
        location=hop.location,
        crossings=None if hop.crossings is None else str(hop.crossings),
        latency=None if hop.latency_us is None else figures.duration(hop.latency_us / 1e6),
        cpu=None if hop.millicores is None else figures.cores(hop.millicores),
        traffic=None if hop.mbps is None else figures.rate(hop.mbps),
    )
