"""Placement problems for studies: UNO's own graph, service chains, shared NFs, gravity matrices, SNDlib networks.

Everything is seeded. NFs cost what UNO 5.3 measured: a DPI needs 5 host cores per 9 Gbps of incoming traffic, and
an sNIC core does a half (DPI), a quarter (L7FW) or four thirds (SECGW) of a host core's work.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from placement.errors import ProblemError
from placement.formulate import formulate
from placement.model import CORES, HOST, NF, Demand, Mode, Nic, Port, Problem
from placement.portfolio import minimise


@dataclass(frozen=True)
class FunctionType:
    """A type of NF: host millicores per Gbps of incoming traffic, and sNIC cores per host core."""

    name: str
    per_gbps: int
    ratio: float


DPI = FunctionType("DPI", 556, 2.0)
L7FW = FunctionType("L7FW", 300, 4.0)
SECGW = FunctionType("SECGW", 400, 0.75)
KINDS = (DPI, L7FW, SECGW)
FLOWS = 50
"""Flows per demand."""


def uno_ring(shared: int, vms: int = 9, mbps: int = 1800, uplink: int = 10_000, capacity: int = 36_000) -> Problem:
    """UNO Fig. 15 as the text describes it: a ring of VMs with one DPI per direction between neighbours.

    Args:
        shared: UNO's T in Mbps.
        vms: length of the ring; there are twice as many NFs.
        mbps: traffic through each DPI.
        uplink: traffic from the Ethernet port to the first VM.
        capacity: UNO's D in sNIC millicores.
    """
    nfs, demands = [], [Demand("eth0", "vm0", uplink)]
    host = round(5000 * mbps / 9000)
    for i in range(vms):
        for direction in (1, -1):
            name, source, target = f"dpi{i}{'+' if direction > 0 else '-'}", f"vm{i}", f"vm{(i + direction) % vms}"
            nfs.append(NF(name, (Mode(HOST, {CORES: host}), Mode(1, {CORES: 2 * host}))))
            demands += [Demand(source, name, mbps), Demand(name, target, mbps)]
    names = tuple(f"vm{i}" for i in range(vms))
    nic = Nic({CORES: capacity}, shared=shared)
    return Problem(tuple(nfs), names, (Port("eth0"),), tuple(demands), (nic,))


def flow_size(source: random.Random) -> float:
    """Size of a flow in packets: the mixture fitted to four billion flows, cut at ten million."""
    u, part = source.random(), source.random()
    if part < 0.959:
        size = 64 + 102 * ((1 - u) ** -1.593 - 1) / 1.593
    elif part < 0.984:
        size = 6158 * (-math.log(1 - u)) ** (1 / 1.594)
    else:
        size = 84496 * (-math.log(1 - u)) ** (1 / 0.8)
    return min(size, 1e7)


def heavy_tailed(source: random.Random, count: int, total: int) -> list[int]:
    """Draw ``count`` demands in Mbps that add up to about ``total``, each the sum of a few heavy-tailed flows."""
    sizes = [sum(flow_size(source) for _ in range(FLOWS)) for _ in range(count)]
    scale = total / sum(sizes)
    return [max(1, round(size * scale)) for size in sizes]


def gravity(source: random.Random, names: list[str], total: int) -> dict[tuple[str, str], int]:
    """Draw a gravity-model traffic matrix in Mbps: each pair in proportion to its ends' random masses."""
    mass = {name: source.expovariate(1) for name in names}
    whole = sum(mass[a] * mass[b] for a in names for b in names if a != b)
    return {(a, b): round(total * mass[a] * mass[b] / whole) for a in names for b in names if a != b}


class Builder:
    """Collects paths through NFs, from which each NF's traffic follows."""

    def __init__(self) -> None:
        self.kinds: dict[str, FunctionType] = {}
        self.demands: dict[tuple[str, str], int] = defaultdict(int)

    def nf(self, kind: FunctionType) -> str:
        name = f"{kind.name.lower()}{len(self.kinds)}"
        self.kinds[name] = kind
        return name

    def path(self, names: list[str], mbps: int) -> None:
        for first, second in itertools.pairwise(names):
            if first != second:
                self.demands[first, second] += mbps

    def problem(self, vms: list[str], ports: tuple[Port, ...]) -> Problem:
        incoming: dict[str, int] = defaultdict(int)
        for (_, target), mbps in self.demands.items():
            incoming[target] += mbps
        nfs = tuple(_nf(name, kind, incoming[name]) for name, kind in self.kinds.items())
        demands = tuple(Demand(a, b, mbps) for (a, b), mbps in self.demands.items() if mbps)
        return Problem(nfs, tuple(vms), ports, demands, (Nic({CORES: 0}, shared=0),))


def _nf(name: str, kind: FunctionType, mbps: int) -> NF:
    host = max(1, round(kind.per_gbps * mbps / 1000))
    return NF(name, (Mode(HOST, {CORES: host}), Mode(1, {CORES: max(1, round(host * kind.ratio))})))


def chains(nodes: int, seed: int) -> Problem:
    """Service chains: each VM reaches the Ethernet port through one to four NFs of its own."""
    source, made, vms = random.Random(seed), Builder(), list[str]()
    rates = heavy_tailed(source, nodes, 200 * nodes)
    while len(made.kinds) + len(vms) + 1 < nodes:
        vm = f"vm{len(vms)}"
        room = nodes - len(made.kinds) - len(vms) - 2
        vms.append(vm)
        hops = [made.nf(source.choice(KINDS)) for _ in range(min(room, source.randint(1, 4)))]
        rate = rates[len(vms)]
        made.path([vm, *hops, "eth0"], rate)
        made.path(["eth0", *reversed(hops), vm], max(1, rate // 2))
    return made.problem(vms, (Port("eth0"),))


def shared(nodes: int, seed: int) -> Problem:
    """Shared NFs: flows between VMs and the port pick instances from pools, so that chains meet."""
    source, made = random.Random(seed), Builder()
    pools = [[made.nf(kind) for _ in range(max(1, nodes * 2 // 9))] for kind in KINDS]
    vms = [f"vm{i}" for i in range(max(1, nodes - len(made.kinds) - 1))]
    flows = 2 * len(vms)
    for n, rate in enumerate(heavy_tailed(source, flows, 200 * nodes)):
        hops = [source.choice(pool) for pool in source.sample(pools, source.randint(1, 3))]
        end = "eth0" if source.random() < 0.7 else source.choice(vms)
        made.path([vms[n % len(vms)], *hops, end], rate)
    return made.problem(vms, (Port("eth0"),))


def ring(nodes: int, seed: int) -> Problem:
    """UNO's ring enlarged: one NF type, with different traffic through every DPI."""
    source, made = random.Random(seed), Builder()
    count = max(2, (nodes - 1) // 3)
    vms = [f"vm{i}" for i in range(count)]
    rates = iter(heavy_tailed(source, 2 * count, 1200 * count))
    for i in range(count):
        for step in (1, -1):
            made.path([vms[i], made.nf(DPI), vms[(i + step) % count]], next(rates))
    made.path(["eth0", vms[0]], 5 * count)
    return made.problem(vms, (Port("eth0"),))


def matrix(nodes: int, seed: int) -> Problem:
    """A gravity matrix between VMs; each of the larger pairs passes one of the NFs, the rest go direct."""
    source, made = random.Random(seed), Builder()
    vms = [f"vm{i}" for i in range(max(2, nodes // 3))]
    traffic = gravity(source, vms, 200 * nodes)
    pool = [made.nf(source.choice(KINDS)) for _ in range(max(1, nodes - len(vms) - 1))]
    for n, ((a, b), mbps) in enumerate(sorted(traffic.items(), key=lambda item: -item[1])[: 3 * nodes]):
        first, second = pool[n % len(pool)], pool[source.randrange(len(pool))]
        end = "eth0" if source.random() < 0.4 else b
        made.path([a, first, second, end] if source.random() < 0.5 else [a, first, end], mbps)
    return made.problem(vms, (Port("eth0"),))


FAMILIES: Mapping[str, Callable[[int, int], Problem]] = {
    "chains": chains,
    "shared": shared,
    "ring": ring,
    "matrix": matrix,
}

REGIMES: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "loose": ((0.8, 1.0), (0.7, 0.9)),
    "pcie": ((0.1, 0.3), (0.7, 0.9)),
    "cores": ((0.8, 1.0), (0.15, 0.35)),
    "hard": ((0.1, 0.5), (0.2, 0.5)),
}
"""Where T lies between the minimum cut and the cut that D alone leads to, and D as a part of what all NFs need
there."""


def limited(problem: Problem, regime: str, seed: int) -> Problem:
    """Give a problem of one sNIC its limits T and D, by regime.

    Raises:
        KeyError: unknown regime.
    """
    source = random.Random(f"{regime} {seed}")
    (t_low, t_high), (d_low, d_high) = REGIMES[regime]
    need = sum(mode.use.get(CORES, 0) for nf in problem.nfs for mode in nf.modes if mode.location == 1)
    capacity = round(need * source.uniform(d_low, d_high))
    program = formulate(replace(problem, nics=(Nic({CORES: capacity}, shared=10**8),)))
    link = program.rows[0].form
    least = minimise(replace(program, rows=(), host=link), "host", 30)
    assert least.modes is not None
    low, high = program.value(link, least.modes), program.value(link, _fill(problem, capacity))
    shared = round(low + max(high - low, 0) * source.uniform(t_low, t_high))
    return replace(problem, nics=(Nic({CORES: capacity}, shared=shared),))


def _fill(problem: Problem, capacity: int) -> tuple[int, ...]:
    """Fill the sNIC by capacity alone: NFs in the order of their savings per core there."""
    costs = [(nf.modes[0].use[CORES], nf.modes[1].use[CORES]) for nf in problem.nfs]
    chosen = [0] * len(costs)
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i][0] / costs[i][1], i)):
        if costs[i][1] <= capacity:
            capacity -= costs[i][1]
            chosen[i] = 1
    return tuple(chosen)


def several(problem: Problem, nics: int, seed: int) -> Problem:
    """Give the same NFs K sNICs: divide the cores, add a PCIe link and a port for each, and let every NF run on any."""
    source = random.Random(seed)
    part = problem.nics[0]
    assert part.shared is not None
    each = Nic({name: amount // nics for name, amount in part.capacity.items()}, shared=part.shared)
    nfs = tuple(
        replace(nf, modes=(nf.modes[0], *(replace(nf.modes[1], location=k) for k in range(1, nics + 1))))
        for nf in problem.nfs
    )
    ports = tuple(Port(f"eth{k - 1}", k) for k in range(1, nics + 1))

    def end(name: str) -> str:
        return f"eth{source.randrange(nics)}" if name == "eth0" else name

    demands = tuple(Demand(end(d.source), end(d.target), d.mbps) for d in problem.demands)
    return replace(problem, nfs=nfs, ports=ports, demands=demands, nics=(each,) * nics)


def sndlib(document: str, nodes: int, seed: int) -> Problem:
    """Build a problem whose VMs communicate as the nodes of an SNDlib network do.

    Args:
        document: a network of topohub as JSON text (``json.dumps(topohub.get("sndlib/polska"))``).
        nodes: NFs to place, spread over the demands.
        seed: which NF a demand passes.

    Raises:
        ProblemError: the document has no demands.
    """
    source, made = random.Random(seed), Builder()
    demands = json.loads(document).get("graph", {}).get("demands", {})
    pairs = [(a, b, amount) for a, row in demands.items() for b, amount in row.items() if amount > 0]
    if not pairs:
        raise ProblemError("the network has no demands under graph.demands; take one of topohub's 'sndlib/...'")
    vms = sorted({f"vm{v}" for a, b, _ in pairs for v in (a, b)})
    scale = 200 * nodes / sum(amount for *_, amount in pairs)
    pool = [made.nf(source.choice(KINDS)) for _ in range(nodes)]
    for n, (a, b, amount) in enumerate(pairs):
        hops = [pool[n % nodes], pool[source.randrange(nodes)]]
        end = "eth0" if source.random() < 0.3 else f"vm{b}"
        made.path([f"vm{a}", *hops, end], max(1, round(amount * scale)))
    return made.problem(vms, (Port("eth0"),))
