"""The resources that a placement uses and the limits that it breaks, straight from the problem's data.

Deliberately independent of ``formulate``, so that the equations and this arithmetic check each other.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from placement.model import HOST, Locations, Mode, Problem, Sample

Choice = Mapping[str, int]
"""How each NF runs: its name and an index into its modes."""


@dataclass(frozen=True)
class Load:
    """The use of a placement at one moment.

    Attributes:
        up: per sNIC, Mbps from the sNIC to the host.
        down: per sNIC, Mbps from the host to the sNIC.
        use: per location and resource, the amount.
    """

    up: Mapping[int, int]
    down: Mapping[int, int]
    use: Mapping[tuple[int, str], int]

    def pcie(self, nic: int) -> int:
        """Return the Mbps in both directions on the PCIe link of an sNIC."""
        return self.up[nic] + self.down[nic]


@dataclass(frozen=True)
class Breach:
    """A limit that a placement breaks.

    Attributes:
        limit: its name, for example ``pcie shared of sNIC 1``.
        used: the placement's use.
        allowed: the limit.
    """

    limit: str
    used: int
    allowed: int


def locations(problem: Problem, choice: Choice) -> dict[str, int]:
    """Return the location of each NF and fixed vertex."""
    return problem.fixed() | {nf.name: nf.modes[choice[nf.name]].location for nf in problem.nfs}


def used_by(sample: Sample, name: str, index: int, mode: Mode) -> Mapping[str, int]:
    """Return the use of a mode at a moment."""
    return sample.use[name][index] if name in sample.use else mode.use


def load(problem: Problem, choice: Choice, sample: Sample | None = None) -> Load:
    """Compute the use of a placement at one moment (default: the problem's own)."""
    moment = sample or problem.moments()[0]
    where = locations(problem, choice)
    up = dict.fromkeys(range(1, len(problem.nics) + 1), 0)
    down = dict(up)
    for demand in moment.demands:
        source, target = where[demand.source], where[demand.target]
        if source == target:
            continue
        if source != HOST:
            up[source] += demand.mbps
        if target != HOST:
            down[target] += demand.mbps
    use: dict[tuple[int, str], int] = defaultdict(int)
    for nf in problem.nfs:
        mode = nf.modes[choice[nf.name]]
        for resource, amount in used_by(moment, nf.name, choice[nf.name], mode).items():
            use[mode.location, resource] += amount
    return Load(up, down, use)


def host_cost(problem: Problem, choice: Choice) -> int:
    """Sum the weighted use of the host's resources over all moments (millicores with the default weights)."""
    total = 0
    for sample in problem.moments():
        for nf in problem.nfs:
            mode = nf.modes[choice[nf.name]]
            if mode.location == HOST:
                use = used_by(sample, nf.name, choice[nf.name], mode)
                total += sum(problem.weights.get(resource, 0) * amount for resource, amount in use.items())
    return total


def move_cost(problem: Problem, choice: Choice, current: Locations) -> int:
    """Sum the state costs of all NFs that would move; an NF that runs nowhere yet costs nothing."""
    return sum(
        nf.state_cost
        for nf in problem.nfs
        if nf.name in current and nf.modes[choice[nf.name]].location != current[nf.name]
    )


def latency(problem: Problem, choice: Choice, path: tuple[str, ...]) -> int:
    """Sum the microseconds in the NFs of a path and on the PCIe links that it crosses."""
    where = locations(problem, choice)
    modes = {nf.name: nf.modes[choice[nf.name]] for nf in problem.nfs}
    inside = sum(modes[name].latency_us for name in path if name in modes)
    return inside + problem.crossing_us * crossings(where, path)


def crossings(where: Mapping[str, int], path: tuple[str, ...]) -> int:
    """Count the PCIe links that a path crosses; between two sNICs it crosses two."""
    total = 0
    for first, second in itertools.pairwise(path):
        if where[first] != where[second]:
            total += (where[first] != HOST) + (where[second] != HOST)
    return total


def breaches(problem: Problem, choice: Choice) -> list[Breach]:
    """Return all limits that a placement breaks; none means feasible."""
    found: list[Breach] = []
    for number, sample in enumerate(problem.moments()):
        found += _at_moment(problem, load(problem, choice, sample), f" in sample {number}" if number else "")
    for chain in problem.chains:
        if chain.limit_us is not None:
            taken = latency(problem, choice, chain.path)
            if taken > chain.limit_us:
                found.append(Breach(f"latency of chain {chain.name}", taken, chain.limit_us))
    where = locations(problem, choice)
    for first, second in problem.apart:
        if where[first] == where[second] != HOST:
            found.append(Breach(f"apart {first} and {second} on sNIC {where[first]}", 2, 1))
    return found


def _at_moment(problem: Problem, taken: Load, suffix: str) -> list[Breach]:
    found: list[Breach] = []

    def check(name: str, used: int, allowed: int | None) -> None:
        if allowed is not None and used > allowed:
            found.append(Breach(name + suffix, used, allowed))

    for number, nic in enumerate(problem.nics, 1):
        check(f"pcie up of sNIC {number}", taken.up[number], nic.up)
        check(f"pcie down of sNIC {number}", taken.down[number], nic.down)
        check(f"pcie shared of sNIC {number}", taken.pcie(number), nic.shared)
        for resource, allowed in nic.capacity.items():
            check(f"{resource} of sNIC {number}", taken.use.get((number, resource), 0), allowed)
    for resource, allowed in problem.host.items():
        check(f"{resource} of the host", taken.use.get((HOST, resource), 0), allowed)
    return found
