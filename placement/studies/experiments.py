"""Studies for the notebooks, each returning plain rows. Seeded; seconds are wall time."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement.errors import BackendError, DeadlineError, InfeasibleError
from placement.evaluate import load
from placement.formulate import formulate
from placement.model import CORES, Nic, Problem
from placement.portfolio import minimise
from placement.solve import solve
from placement.studies.algorithm1 import algorithm1
from placement.studies.workloads import FAMILIES, chains, limited, several


@dataclass(frozen=True)
class ChainPoint:
    """UNO Fig. 2: a chain of NFs on the host behind one sNIC.

    Attributes:
        nfs: length of the chain.
        no_offload: Gbps if the hypervisor switches: the traffic crosses PCIe once.
        full_offload: Gbps if the sNIC switches: in and out of every NF, and once more to the VM.
        crossings: PCIe crossings under full offload.
        added_us: latency that those crossings add over no offload.
    """

    nfs: int
    no_offload: float
    full_offload: float
    crossings: int
    added_us: float


def chain_model(
    nfs: Sequence[int], pcie_gbps: float = 32.0, line_gbps: float = 10.0, crossing_us: float = 10.0
) -> list[ChainPoint]:
    """Throughput of a service chain against its length, by counting PCIe crossings.

    Args:
        nfs: lengths.
        pcie_gbps: capacity of the PCIe link in both directions together.
        line_gbps: the Ethernet link.
        crossing_us: latency of one crossing.

    Notes:
        UNO 2.3: 6 Gbps with two NFs and 32 Gbps of PCIe. With three NFs UNO measured 3 Gbps, where this model says 4.6:
        seven crossings carried 21 Gbps only, since the link degrades under contention.

    Example:
        >>> [round(point.full_offload, 1) for point in chain_model([0, 1, 2, 3])]
        [10.0, 10.0, 6.4, 4.6]
    """
    points = []
    for count in nfs:
        crossings = 2 * count + 1
        full = min(line_gbps, pcie_gbps / crossings)
        points.append(ChainPoint(count, min(line_gbps, pcie_gbps), full, crossings, (crossings - 1) * crossing_us))
    return points


@dataclass(frozen=True)
class Timed:
    """One solve: nodes, family, regime, backend, seconds, and whether the optimum was proven."""

    nodes: int
    family: str
    regime: str
    backend: str
    seconds: float
    proven: bool


def solve_times(
    sizes: Sequence[int], backends: Sequence[str], limit: float = 2.0, regime: str = "hard", seed: int = 0
) -> list[Timed]:
    """Time each backend on each family; ``algorithm1`` is PuLP + CBC on Algorithm 1 as UNO wrote it."""
    rows = []
    for nodes in sizes:
        for family, made in FAMILIES.items():
            problem = limited(made(nodes, seed), regime, seed)
            for backend in backends:
                seconds, proven = _timed(problem, backend, limit)
                rows.append(Timed(nodes, family, regime, backend, seconds, proven))
    return rows


def _timed(problem: Problem, backend: str, limit: float) -> tuple[float, bool]:
    started = time.perf_counter()
    try:
        if backend == "algorithm1":
            proven = algorithm1(problem, limit).proven
        else:
            proven = solve(problem, deadline=limit, backend=backend).proven
    except (BackendError, DeadlineError):
        proven = False
    return time.perf_counter() - started, proven


@dataclass(frozen=True)
class Region:
    """Solve time if T lies between the minimum cut and everything on the host; D is a fraction of the total."""

    t_part: float
    d_part: float
    seconds: float
    host_part: float


def hard_region(
    nodes: int, t_parts: Sequence[float], d_parts: Sequence[float], seed: int = 0, limit: float = 1.0
) -> list[Region]:
    """Solve one chain problem over a grid of limits."""
    base = limited(chains(nodes, seed), "loose", seed)
    need = sum(nf.modes[1].use[CORES] for nf in base.nfs)
    everything = sum(nf.modes[0].use[CORES] for nf in base.nfs)
    program = formulate(replace(base, nics=(Nic({CORES: need}, shared=10**8),)))
    link = program.rows[0].form
    least = minimise(replace(program, rows=(), host=link), "host", 10)
    low = program.value(link, least.modes or ())
    high = program.value(link, tuple(0 for _ in program.names))
    low, high = min(low, high), max(low, high)
    rows = []
    for t_part in t_parts:
        for d_part in d_parts:
            nic = Nic({CORES: round(need * d_part)}, shared=round(low + (high - low) * t_part))
            started = time.perf_counter()
            plan = solve(replace(base, nics=(nic,)), deadline=limit)
            rows.append(Region(t_part, d_part, time.perf_counter() - started, plan.host_cost / everything))
    return rows


@dataclass(frozen=True)
class Several:
    """K sNICs: host cores left, bound, seconds, whether proven, and Gbps per PCIe link."""

    nics: int
    host: float
    bound: float
    seconds: float
    proven: bool
    pcie: tuple[float, ...]


def several_nics(nodes: int, counts: Sequence[int], seed: int = 0, limit: float = 5.0) -> list[Several]:
    """Divide one sNIC's limits among K, with the NFs free to run on any; skip an infeasible K."""
    rows = []
    for count in counts:
        problem = several(limited(chains(nodes, seed), "loose", seed), count, seed)
        try:
            plan = solve(problem, deadline=limit)
        except InfeasibleError:
            continue
        taken = load(problem, plan.modes)
        pcie = tuple(taken.pcie(k) / 1000 for k in range(1, count + 1))
        rows.append(Several(count, plan.host_cost / 1000, (plan.bound or 0) / 1000, plan.seconds, plan.proven, pcie))
    return rows


@dataclass(frozen=True)
class Rules:
    """Rules on the switches per virtual rule: copied everywhere, and copied only where they can match."""

    in_port_part: float
    everywhere: float
    where_needed: float


def rule_ratio(
    parts: Sequence[float], rules: int = 3024, switches: int = 3, ports: int = 24, seed: int = 1
) -> list[Rules]:
    """Compute copies per virtual rule when a fraction of the rules match on in_port.

    A rule that matches in_port is needed only at the switch that runs that port's pipeline; others are needed at every
    switch that runs any port's. UNO 5.4 counted 6810 rules for 3024 on three switches.

    Example:
        >>> [round(row.where_needed, 1) for row in rule_ratio([0.0, 0.5, 1.0])]
        [3.0, 2.0, 1.0]
    """
    rows = []
    for part in parts:
        source = random.Random(seed)
        home = [source.randrange(switches) for _ in range(ports)]
        executing = len(set(home))
        copies = sum(1 if source.random() < part else executing for _ in range(rules))
        rows.append(Rules(part, switches, copies / rules))
    return rows
