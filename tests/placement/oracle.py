"""Exhaustive search over a small problem's placements, without equations or a solver."""

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from placement.evaluate import used_by
from placement.model import HOST, Locations, Problem


@dataclass(frozen=True)
class Tried:
    """Feasibility and cost per placement."""

    modes: list[tuple[int, ...]]
    feasible: np.ndarray
    host: np.ndarray
    moves: np.ndarray
    latency: np.ndarray

    def least(self, eps: float, moving: bool) -> tuple[int, int, int] | None:
        """Return host cost, move cost and latency of the lexicographic optimum; None if infeasible."""
        if not self.feasible.any():
            return None
        host = int(self.host[self.feasible].min())
        limit = int((1 + eps) * host) if moving else host
        good = self.feasible & (self.host <= limit)
        moves = int(self.moves[good].min())
        good &= self.moves <= moves
        return host, moves, int(self.latency[good].min())


def try_all(problem: Problem, current: Locations | None = None) -> Tried:
    """Evaluate every placement at once."""
    modes = list(product(*(range(len(nf.modes)) for nf in problem.nfs)))
    chosen = np.array(modes, dtype=np.int64).reshape(len(modes), len(problem.nfs))
    where = {name: np.full(len(modes), location) for name, location in problem.fixed().items()}
    for i, nf in enumerate(problem.nfs):
        where[nf.name] = np.array([mode.location for mode in nf.modes])[chosen[:, i]]
    feasible = np.ones(len(modes), dtype=bool)
    host = np.zeros(len(modes), dtype=np.int64)
    for sample in problem.moments():
        for k, nic in enumerate(problem.nics, 1):
            up, down = np.zeros(len(modes), dtype=np.int64), np.zeros(len(modes), dtype=np.int64)
            for demand in sample.demands:
                up += demand.mbps * ((where[demand.source] == k) & (where[demand.target] != k))
                down += demand.mbps * ((where[demand.target] == k) & (where[demand.source] != k))
            for used, limit in ((up, nic.up), (down, nic.down), (up + down, nic.shared)):
                if limit is not None:
                    feasible &= used <= limit
        for place, capacity in enumerate([problem.host, *(nic.capacity for nic in problem.nics)]):
            for resource in {*capacity, *(problem.weights if place == HOST else ())}:
                used = np.zeros(len(modes), dtype=np.int64)
                for i, nf in enumerate(problem.nfs):
                    amounts = [
                        used_by(sample, nf.name, m, mode).get(resource, 0) * (mode.location == place)
                        for m, mode in enumerate(nf.modes)
                    ]
                    used += np.array(amounts)[chosen[:, i]]
                if resource in capacity:
                    feasible &= used <= capacity[resource]
                if place == HOST:
                    host += used * problem.weights.get(resource, 0)
    latency = np.zeros(len(modes), dtype=np.int64)
    for chain in problem.chains:
        time = _latency(problem, chosen, where, chain.path)
        latency += time
        if chain.limit_us is not None:
            feasible &= time <= chain.limit_us
    for first, second in problem.apart:
        feasible &= (where[first] != where[second]) | (where[first] == HOST)
    moves = np.zeros(len(modes), dtype=np.int64)
    for nf in problem.nfs:
        if current is not None and nf.name in current:
            moves += nf.state_cost * (where[nf.name] != current[nf.name])
    return Tried(modes, feasible, host, moves, latency)


def _latency(problem: Problem, chosen: np.ndarray, where: dict[str, np.ndarray], path: tuple[str, ...]) -> np.ndarray:
    index = {nf.name: i for i, nf in enumerate(problem.nfs)}
    time = np.zeros(len(chosen), dtype=np.int64)
    for name in path:
        if name in index:
            nf = problem.nfs[index[name]]
            time += np.array([mode.latency_us for mode in nf.modes])[chosen[:, index[name]]]
    for first, second in pairwise(path):
        apart = where[first] != where[second]
        time += problem.crossing_us * apart * ((where[first] != HOST).astype(int) + (where[second] != HOST))
    return time
