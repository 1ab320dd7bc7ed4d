"""UNO's Algorithm 1 as the paper writes it, on PuLP + CBC: the baseline of benchmarks and tests.

VMs and ports are variables with equations, d is binary, and nothing is folded away. Two slips are corrected, because
its answers could not be compared otherwise: the capacity row sums over i, and every edge is listed in both
orientations. One sNIC, one shared limit, one resource.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pulp

from placement.errors import BackendError
from placement.model import CORES, HOST, Problem


@dataclass(frozen=True)
class Solved:
    """Algorithm 1's answer: host millicores, the location of each NF, and whether CBC proved it."""

    host: int | None
    placement: dict[str, int]
    proven: bool


def algorithm1(problem: Problem, seconds: float = 60.0) -> Solved:
    """Solve with UNO's Algorithm 1.

    Args:
        problem: with one sNIC, the limit ``shared``, and one mode per NF and location.
        seconds: CBC's time limit.

    Raises:
        BackendError: CBC stopped without a placement.
    """
    nic = problem.nics[0]
    weight: dict[tuple[str, str], int] = defaultdict(int)
    for demand in problem.demands:
        weight[demand.source, demand.target] += demand.mbps
        weight[demand.target, demand.source] += demand.mbps
    model = pulp.LpProblem("algorithm1", pulp.LpMinimize)
    names = [nf.name for nf in problem.nfs] + list(problem.fixed())
    p = {name: pulp.LpVariable(f"p_{n}", cat=pulp.LpBinary) for n, name in enumerate(names)}
    d = {edge: pulp.LpVariable(f"d_{n}", cat=pulp.LpBinary) for n, edge in enumerate(weight)}
    cost = {nf.name: {mode.location: mode.use.get(CORES, 0) for mode in nf.modes} for nf in problem.nfs}
    model += pulp.lpSum(p[name] * uses.get(HOST, 0) for name, uses in cost.items())
    if nic.shared is not None:
        model += pulp.lpSum(d[edge] * mbps for edge, mbps in weight.items()) <= nic.shared
    if CORES in nic.capacity:
        model += pulp.lpSum((1 - p[name]) * uses.get(1, 0) for name, uses in cost.items()) <= nic.capacity[CORES]
    for i, j in weight:
        model += d[i, j] >= p[i] - p[j]
    for name, location in problem.fixed().items():
        model += p[name] == int(location == HOST)
    for name, uses in cost.items():
        if len(uses) == 1:
            model += p[name] == int(HOST in uses)
    model.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=seconds, threads=1))
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        raise BackendError(f"Algorithm 1 on CBC ended with {pulp.LpStatus[model.status]!r} after at most {seconds:g} s")
    placement = {name: HOST if (p[name].value() or 0) > 0.5 else 1 for name in cost}
    host = sum(uses.get(HOST, 0) for name, uses in cost.items() if placement[name] == HOST)
    return Solved(host, placement, model.sol_status == pulp.LpSolutionOptimal)
