"""CBC through PuLP, the reference. CBC 2.10 calls some feasible problems infeasible, so HiGHS checks that answer."""

from __future__ import annotations

import pulp

from placement.backends.base import Answer, Status, accept
from placement.backends.highs import HighsBackend, trivial
from placement.formulate import Form, Program


class Cbc:
    """PuLP with its CBC as a backend."""

    name = "cbc"

    def minimise(
        self, program: Program, goal: str, seconds: float, start: tuple[int, ...] | None = None, gap: float = 0.0
    ) -> Answer:
        """See ``Backend.minimise``. Returns infeasible only if HiGHS agrees."""
        if not program.names:
            return trivial(program, goal, self.name)
        form = Form() if goal == "feasible" else program.goal(goal)
        model, x = _write(program, form)
        model.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=max(seconds, 0.01), threads=1, gapRel=gap, gapAbs=0.999))
        if model.status == pulp.LpStatusInfeasible:
            return HighsBackend().minimise(program, goal, seconds, start, gap)
        if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return Answer(Status.UNKNOWN, self.name)
        modes = tuple(max(range(len(xs)), key=lambda m: xs[m].value() or 0.0) for xs in x)
        accept(program, modes, self.name)
        if model.sol_status == pulp.LpSolutionOptimal:
            return Answer(Status.OPTIMAL, self.name, modes, program.value(form, modes))
        return Answer(Status.FEASIBLE, self.name, modes)


def _write(program: Program, goal: Form) -> tuple[pulp.LpProblem, list[list[pulp.LpVariable]]]:
    model = pulp.LpProblem("placement", pulp.LpMinimize)
    x = [
        [pulp.LpVariable(f"x_{i}_{m}", cat=pulp.LpBinary) for m in range(len(sites))]
        for i, sites in enumerate(program.sites)
    ]
    c = [pulp.LpVariable(f"c_{a}", 0, 1) for a in range(len(program.arcs))]

    def expression(form: Form) -> pulp.LpAffineExpression:
        terms = [(x[i][m], coef) for i, coefs in form.choice.items() for m, coef in enumerate(coefs) if coef]
        terms += [(c[arc], coef) for arc, coef in form.cross.items()]
        return pulp.LpAffineExpression(terms, form.constant)

    model += expression(goal)
    for row in program.rows:
        if row.form.choice or row.form.cross:
            model += expression(row.form) <= row.limit
        elif row.form.constant > row.limit:
            # PuLP drops rows without variables; this one cannot be satisfied.
            model += pulp.lpSum(x[0]) <= 0
    for xs in x:
        model += pulp.lpSum(xs) == 1
    for a, (i, j, k) in enumerate(program.arcs):
        inside = [x[i][m] for m, site in enumerate(program.sites[i]) if site == k]
        outside = [x[j][m] for m, site in enumerate(program.sites[j]) if site == k]
        model += c[a] >= pulp.lpSum(inside) - pulp.lpSum(outside)
    return model, x
