"""Changed traffic on a running placement: moves saved by starting from it, and the cost of that."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

from placement.errors import InfeasibleError
from placement.model import Problem
from placement.solve import solve
from placement.studies.traffic import at_epoch
from placement.studies.workloads import FAMILIES, limited


@dataclass(frozen=True)
class Change:
    """One running placement whose traffic changed.

    Attributes:
        from_scratch: moves to the optimum of a new solve.
        calm: moves of ``solve(current=...)``.
        host: host cost of the calm plan relative to the least.
    """

    from_scratch: int
    calm: int
    host: float


def change(seed: int, nodes: int = 100, part: float = 0.1) -> Change:
    """Solve, change every NF's traffic by up to ``part``, and solve again both ways.

    Args:
        seed: picks family, limits and change.
        nodes: of the placement graph.
        part: largest relative change of an NF's traffic.
    """
    source = random.Random(seed)
    family = source.choice(sorted(FAMILIES))
    before = limited(FAMILIES[family](nodes, seed), "hard", seed)
    running = solve(before, gap=0.0005).placement
    after = at_epoch(before, {nf.name: 1 + source.uniform(-part, part) for nf in before.nfs})
    anew = solve(after)
    calm = solve(after, current=running)
    moved = sum(anew.placement[name] != location for name, location in running.items())
    return Change(moved, sum(not move.detour for move in calm.moves), calm.host_cost / max(1, anew.host_cost))


def changes(count: int = 100) -> list[Change]:
    """Return ``count`` changes, skipping those that leave no feasible placement."""
    found: list[Change] = []
    seed = 0
    while len(found) < count:
        with suppress(InfeasibleError):
            found.append(change(seed))
        seed += 1
    return found


def unchanged(problem: Problem) -> int:
    """Count the moves when a problem is solved again from its own plan; anything but 0 is a fault."""
    return len(solve(problem, current=solve(problem).placement).moves)
