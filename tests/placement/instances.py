"""Small random problems with every feature of the model, and a current placement."""

import random
from dataclasses import replace
from itertools import pairwise
from math import prod

from placement import NF, Chain, Demand, Mode, Nic, Port, Problem, Sample

MAX_PLACEMENTS = 5000


def instance(seed: int) -> tuple[Problem, dict[str, int] | None]:
    """Return a problem with at most 12 NFs and 3 sNICs; about one in five is infeasible."""
    source = random.Random(seed)
    count = source.randint(1, 12)
    nics = 1 if source.random() < 0.5 else source.randint(1, 3)
    extra = source.random() < 0.3
    nfs = [_nf(source, i, nics, extra) for i in range(count)]
    while prod(len(nf.modes) for nf in nfs) > MAX_PLACEMENTS:
        nfs.pop()
    vms = tuple(f"vm{i}" for i in range(source.randint(0, 3)))
    ports = tuple(Port(f"eth{i}", source.randint(1, nics)) for i in range(source.randint(0, 2)))
    names = [nf.name for nf in nfs] + list(vms) + [port.name for port in ports]
    demands = _demands(source, names)
    problem = Problem(
        nfs=tuple(nfs),
        vms=vms,
        ports=ports,
        demands=demands,
        nics=tuple(_nic(source, sum(d.mbps for d in demands), nfs, k, extra) for k in range(1, nics + 1)),
        host={"cores": source.randint(0, 1500 * len(nfs))} if source.random() < 0.3 else {},
        chains=_chains(source, names) if source.random() < 0.4 else (),
        apart=_apart(source, nfs) if source.random() < 0.3 else (),
        crossing_us=source.randint(0, 20),
    )
    if source.random() < 0.3:
        problem = replace(problem, window=tuple(_sample(source, problem) for _ in range(source.randint(1, 3))))
    current = None
    if source.random() < 0.5:
        current = {nf.name: source.choice(nf.modes).location for nf in nfs if source.random() < 0.8}
    return problem, current


def _nf(source: random.Random, i: int, nics: int, extra: bool) -> NF:
    cores = source.choice([source.randint(0, 2000), 100 * source.randint(1, 5)])
    ratio = source.choice([0.75, 2, 4])
    places = [k for k in range(nics + 1) if source.random() < 0.85] or [source.randint(0, nics)]
    modes = []
    for k in places:
        use = {"cores": round(cores * (ratio if k else 1))}
        if extra:
            use["memory"] = source.randint(0, 64)
        modes.append(Mode(k, use, source.randint(0, 50)))
        if k and extra and source.random() < 0.4:
            modes.append(Mode(k, {"cores": cores // 4, "accelerators": 1}, source.randint(0, 20), "accelerated"))
    return NF(f"nf{i}", tuple(modes), source.choice([0, 1, 1, source.randint(1, 50)]))


def _nic(source: random.Random, traffic: int, nfs: list[NF], k: int, extra: bool) -> Nic:
    demand = sum(mode.use.get("cores", 0) for nf in nfs for mode in nf.modes if mode.location == k)
    capacity = {"cores": round(demand * source.choice([0, 0.2, 0.4, 0.7, 1]))}
    if extra:
        capacity |= {"memory": source.randint(0, 64 * len(nfs)), "accelerators": source.randint(0, 2)}

    def limit(part: float) -> int | None:
        return round(traffic * part * source.random()) if source.random() < 0.7 else None

    if source.random() < 0.5:
        return Nic(capacity, shared=limit(2))
    return Nic(capacity, up=limit(1.2), down=limit(1.2))


def _demands(source: random.Random, names: list[str]) -> tuple[Demand, ...]:
    if len(names) < 2:
        return ()
    pairs = [source.sample(names, 2) for _ in range(source.randint(0, 2 * len(names)))]
    return tuple(Demand(a, b, source.choice([source.randint(0, 1000), 100])) for a, b in pairs)


def _chains(source: random.Random, names: list[str]) -> tuple[Chain, ...]:
    if len(names) < 2:
        return ()
    paths = [tuple(source.sample(names, source.randint(2, min(5, len(names))))) for _ in range(source.randint(1, 2))]
    return tuple(
        Chain(f"c{n}", path, source.randint(20, 150) if source.random() < 0.6 else None) for n, path in enumerate(paths)
    )


def _apart(source: random.Random, nfs: list[NF]) -> tuple[tuple[str, str], ...]:
    found = []
    for first, second in pairwise(nfs):
        places = [{mode.location for mode in nf.modes} for nf in (first, second)]
        pinned = places[0] == places[1] and len(places[0]) == 1 and 0 not in places[0]
        if source.random() < 0.4 and not pinned:
            found.append((first.name, second.name))
    return tuple(found)


def _sample(source: random.Random, problem: Problem) -> Sample:
    demands = tuple(replace(d, mbps=round(d.mbps * source.uniform(0.3, 1.3))) for d in problem.demands)
    use = {}
    for nf in problem.nfs:
        if source.random() < 0.7:
            scale = source.uniform(0.5, 1.3)
            use[nf.name] = tuple({r: round(a * scale) for r, a in mode.use.items()} for mode in nf.modes)
    return Sample(demands, use)
