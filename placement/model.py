"""The placement problem as data: NFs with their possible locations and costs, traffic, and limits.

Units: traffic in whole Mbps, cores in whole millicores, memory in whole MiB, latency in whole microseconds; accelerator
units and state costs are plain counts. Whole numbers keep every answer exact: with bits per second in floating point,
solvers have returned wrong optima.

Locations: 0 is the host, 1..K are the sNICs. Each sNIC hangs off the host by its own PCIe link, so traffic between two
sNICs crosses two links (UNO 2.3, 3.2.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from placement.errors import ProblemError

HOST = 0
CORES = "cores"
MEMORY = "memory"
ACCELERATORS = "accelerators"

Locations = Mapping[str, int]
"""Where each NF runs: its name and a location."""


@dataclass(frozen=True)
class Mode:
    """One way to run an NF: a location and its resources there. A pin is the absence of other modes.

    Attributes:
        location: 0 for the host, k for sNIC k.
        use: amount of each resource (cores in millicores, memory in MiB, accelerators in units).
        latency_us: time a packet spends in the NF, in microseconds.
        name: its name in explanations, for example ``accelerated``.
    """

    location: int
    use: Mapping[str, int]
    latency_us: int = 0
    name: str = ""


@dataclass(frozen=True)
class NF:
    """A network function, one running copy.

    Attributes:
        name: unique among all vertices.
        modes: the ways it may run.
        state_cost: cost of moving it (for example MiB of state); 1 counts moves.
    """

    name: str
    modes: tuple[Mode, ...]
    state_cost: int = 1


@dataclass(frozen=True)
class Port:
    """An Ethernet port, fixed on its sNIC.

    Attributes:
        name: unique among all vertices.
        nic: the sNIC, 1..K.
    """

    name: str
    nic: int = 1


@dataclass(frozen=True)
class Demand:
    """Traffic from one vertex to another, one direction, in Mbps."""

    source: str
    target: str
    mbps: int


@dataclass(frozen=True)
class Nic:
    """An sNIC and its PCIe link. None means no limit.

    Attributes:
        capacity: amount of each resource (UNO's D is ``{"cores": D}``).
        up: Mbps from the sNIC to the host.
        down: Mbps from the host to the sNIC.
        shared: Mbps of both directions together (UNO's T).
    """

    capacity: Mapping[str, int]
    up: int | None = None
    down: int | None = None
    shared: int | None = None


@dataclass(frozen=True)
class Chain:
    """A path of packets, and its latency bound.

    Attributes:
        name: its name in explanations.
        path: vertices in order.
        limit_us: bound on the time in NFs and on PCIe links, in microseconds; None: only minimised.
    """

    name: str
    path: tuple[str, ...]
    limit_us: int | None = None


@dataclass(frozen=True)
class Sample:
    """Another moment of the same problem: the same NFs and modes, other traffic and other amounts.

    Attributes:
        demands: the traffic of that moment.
        use: per NF, the use of each of its modes at that moment; an omitted NF uses the problem's own amounts.
    """

    demands: tuple[Demand, ...]
    use: Mapping[str, tuple[Mapping[str, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """One server's placement problem (UNO's Algorithm 1, corrected and generalised).

    Attributes:
        nfs: the NFs to place.
        vms: names of the virtual machines, which stay on the host.
        ports: Ethernet ports, which stay on their sNIC.
        demands: traffic; several demands between the same two vertices add up.
        nics: the sNICs; ``nics[0]`` is location 1.
        host: limits of the host's resources; an omitted resource is unlimited.
        chains: paths with latency.
        apart: pairs of NFs that must not share an sNIC (anti-affinity).
        crossing_us: latency of crossing one PCIe link, in microseconds.
        weights: cost of each host resource per unit; ``solve`` minimises the host cost first.
        window: further moments at which all limits must hold too; the host cost is summed over all of them.

    Example:
        >>> dpi = NF("dpi", (Mode(HOST, {"cores": 1000}), Mode(1, {"cores": 2000})))
        >>> problem = Problem(nfs=(dpi,), vms=("vm",), ports=(Port("eth0"),), nics=(Nic({"cores": 2000}, shared=5000),),
        ...                   demands=(Demand("eth0", "dpi", 1800), Demand("dpi", "vm", 1800)))
        >>> problem.nf("dpi").modes[1].location
        1
    """

    nfs: tuple[NF, ...]
    vms: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    demands: tuple[Demand, ...] = ()
    nics: tuple[Nic, ...] = ()
    host: Mapping[str, int] = field(default_factory=dict)
    chains: tuple[Chain, ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    crossing_us: int = 0
    weights: Mapping[str, int] = field(default_factory=lambda: {CORES: 1})
    window: tuple[Sample, ...] = ()

    def nf(self, name: str) -> NF:
        """Return the NF with this name.

        Raises:
            KeyError: unknown name.
        """
        for nf in self.nfs:
            if nf.name == name:
                return nf
        raise KeyError(name)

    def fixed(self) -> dict[str, int]:
        """Return the vertices that cannot move, with their locations."""
        return dict.fromkeys(self.vms, HOST) | {port.name: port.nic for port in self.ports}

    def moments(self) -> tuple[Sample, ...]:
        """Return the problem's own moment, then the window's."""
        return (Sample(self.demands), *self.window)


def pin(nf: NF, location: int) -> NF:
    """Return the NF with only its modes at one location.

    Raises:
        ProblemError: it has no mode there.
    """
    modes = tuple(mode for mode in nf.modes if mode.location == location)
    if not modes:
        where = sorted({mode.location for mode in nf.modes})
        raise ProblemError(f"NF {nf.name!r} cannot be pinned to location {location}: its modes are at {where}")
    return replace(nf, modes=modes)


def robust(samples: Sequence[Problem]) -> Problem:
    """Build one problem whose limits hold at each of several moments (the rows T and D repeated, the choices shared).

    Args:
        samples: the same problem at several moments; the last one is the present.

    Raises:
        ProblemError: the samples do not have the same NFs and modes.
    """
    if not samples:
        raise ProblemError("robust() needs at least one sample, but got none")
    present = samples[-1]
    shape = _shape(present)
    for number, sample in enumerate(samples):
        if _shape(sample) != shape:
            raise ProblemError(
                f"sample {number} has different NFs or modes from the last one; all samples of a window need the same"
            )
    return replace(present, window=tuple(_as_sample(sample) for sample in samples[:-1]))


def _shape(problem: Problem) -> list[tuple[str, tuple[int, ...]]]:
    return [(nf.name, tuple(mode.location for mode in nf.modes)) for nf in problem.nfs]


def _as_sample(problem: Problem) -> Sample:
    return Sample(problem.demands, {nf.name: tuple(mode.use for mode in nf.modes) for nf in problem.nfs})
