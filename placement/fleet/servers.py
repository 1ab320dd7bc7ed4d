"""One server of a fleet: its problem, and what came of it as a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from placement.errors import InfeasibleError, PlacementError, ProblemError
from placement.evaluate import load
from placement.model import HOST, Locations, Problem
from placement.portfolio import AUTO
from placement.solve import Plan, solve

Made = tuple[Problem, Locations | None]
"""A problem, and where its NFs run now, if they run."""


@dataclass(frozen=True)
class Server:
    """A server of a fleet.

    Attributes:
        name: unique in its fleet.
        make: returns its problem, on the worker that solves it; it travels there by pickle.
    """

    name: str
    make: Callable[[], Made]


class Verdict(StrEnum):
    """The outcome of a server; only the first two have a placement."""

    PLACED = "placed"
    UNPROVEN = "unproven"
    """The time limit came before the proof."""
    INFEASIBLE = "infeasible"
    REFUSED = "refused"
    """The problem is invalid."""
    FAILED = "failed"
    """The solver found none in time, or the workers that solved it died."""


@dataclass(frozen=True)
class Row:
    """The result of a server. It has no times, so that it depends on nothing but the problem.

    Attributes:
        server: the server's name.
        verdict: what came of it.
        nfs: number of NFs.
        on_snics: number of them on an sNIC.
        host_cost: host cost of the placement, millicores with the default weights.
        bound: no placement costs the host less.
        certified: whether certificates prove the placement to be the best.
        host_alone: host cost without an sNIC; None if some NF cannot run on the host.
        pcie_mbps: per sNIC, Mbps on its PCIe link in both directions.
        moves: number of steps from the present placement.
        placement: per NF its location.
        reason: why the server has no placement.
    """

    server: str
    verdict: str
    nfs: int = 0
    on_snics: int = 0
    host_cost: int | None = None
    bound: int | None = None
    certified: bool = False
    host_alone: int | None = None
    pcie_mbps: tuple[int, ...] = ()
    moves: int = 0
    placement: tuple[tuple[str, int], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Solved:
    """A row, and the CPU seconds of the thread that made it."""

    row: Row
    cpu_seconds: float


@dataclass(frozen=True)
class Effort:
    """Time limit and backend for each server, as ``solve`` has them.

    With ``auto`` a general solver takes over from the kernel after a part of the time. A server that is near that limit
    may then get another placement of equal cost on a slower machine; with ``lagcut`` only unproven rows may differ.
    """

    deadline: float = 10.0
    backend: str = AUTO


def solve_batch(servers: Sequence[Server], effort: Effort) -> list[Solved]:
    """Solve some servers, one after the other."""
    solved = []
    for server in servers:
        started = time.thread_time()
        row = solve_server(server, effort)
        solved.append(Solved(row, time.thread_time() - started))
    return solved


def solve_server(server: Server, effort: Effort) -> Row:
    """Solve one server; a problem that is wrong or infeasible becomes a row, so that the others go on."""
    try:
        problem, current = server.make()
        try:
            plan = solve(problem, current, deadline=effort.deadline, backend=effort.backend)
        except InfeasibleError as error:
            alone = _host_alone(problem)
            return Row(server.name, Verdict.INFEASIBLE, len(problem.nfs), host_alone=alone, reason=str(error))
    except ProblemError as error:
        return Row(server.name, Verdict.REFUSED, reason=str(error))
    except PlacementError as error:
        return Row(server.name, Verdict.FAILED, reason=str(error))
    return _row(server.name, plan)


def _row(name: str, plan: Plan) -> Row:
    taken = load(plan.problem, plan.modes)
    return Row(
        name,
        Verdict.PLACED if plan.proven else Verdict.UNPROVEN,
        len(plan.placement),
        sum(location != HOST for location in plan.placement.values()),
        plan.host_cost,
        plan.bound,
        plan.certified,
        _host_alone(plan.problem),
        tuple(taken.pcie(k) for k in range(1, len(plan.problem.nics) + 1)),
        len(plan.moves),
        tuple(plan.placement.items()),
    )


def _host_alone(problem: Problem) -> int | None:
    """Sum the cheapest host mode of every NF, over all moments."""
    total = 0
    for sample in problem.moments():
        for nf in problem.nfs:
            uses = sample.use.get(nf.name, tuple(mode.use for mode in nf.modes))
            costs = [
                sum(problem.weights.get(resource, 0) * amount for resource, amount in use.items())
                for mode, use in zip(nf.modes, uses, strict=True)
                if mode.location == HOST
            ]
            if not costs:
                return None
            total += min(costs)
    return total
