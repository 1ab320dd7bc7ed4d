"""The process that runs CP-SAT: a program as JSON on stdin, an answer as JSON on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

from ortools.sat.python import cp_model  # pyright: ignore[reportMissingImports]  # the extra cpsat brings it


def main() -> None:
    """Read, solve, write."""
    told = json.load(sys.stdin)
    model = cp_model.CpModel()
    x = [[model.new_bool_var("") for _ in sites] for sites in told["sites"]]
    c = [model.new_bool_var("") for _ in told["arcs"]]
    for xs in x:
        model.add_exactly_one(xs)
    for var, (i, j, k) in zip(c, told["arcs"], strict=True):
        inside = sum(x[i][m] for m, site in enumerate(told["sites"][i]) if site == k)
        outside = sum(x[j][m] for m, site in enumerate(told["sites"][j]) if site == k)
        model.add(var >= inside - outside)

    def expression(choice: Any, cross: Any) -> Any:
        terms = [coef * x[i][m] for i, coefs in choice for m, coef in enumerate(coefs) if coef]
        return sum(terms) + sum(coef * c[arc] for arc, coef in cross)

    for choice, cross, limit in told["rows"]:
        model.add(expression(choice, cross) <= limit)
    choice, cross, constant = told["goal"]
    model.minimize(expression(choice, cross) + constant)
    for xs, mode in zip(x, told["start"] or [], strict=False):
        for m, var in enumerate(xs):
            model.add_hint(var, m == mode)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = told["seconds"]
    solver.parameters.relative_gap_limit = told["gap"]
    status = solver.solve(model)
    names = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible", cp_model.INFEASIBLE: "infeasible"}
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    modes = [max(range(len(xs)), key=lambda m: solver.value(xs[m])) for xs in x] if found else None
    bound = None if status not in names or status == cp_model.INFEASIBLE else round(solver.best_objective_bound)
    json.dump({"status": names.get(status, "unknown"), "modes": modes, "bound": bound}, sys.stdout)


if __name__ == "__main__":
    main()
