"""HiGHS through highspy: mixed-integer minimisation, and the multipliers of the linear relaxation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import highspy
import numpy as np

from placement.backends.base import Answer, Status, accept
from placement.errors import BackendError
from placement.formulate import Form, Program
from placement.labels import Dual

SCALE = 1 << 20
"""Multipliers are rounded to this fraction of the goal's multiplier."""


@dataclass(frozen=True)
class _Columns:
    """Column indices: x[i, m] at ``first[i] + m``, c[a] at ``arcs + a``, the slack (if any) last."""

    first: list[int]
    arcs: int
    slack: int | None
    count: int


def _columns(program: Program, slack: bool) -> _Columns:
    first, column = [], 0
    for sites in program.sites:
        first.append(column)
        column += len(sites)
    last = column + len(program.arcs)
    return _Columns(first, column, last if slack else None, last + slack)


def _entries(form: Form, columns: _Columns) -> list[tuple[int, int]]:
    found = [(columns.first[i] + m, coef) for i, coefs in form.choice.items() for m, coef in enumerate(coefs) if coef]
    return found + [(columns.arcs + arc, coef) for arc, coef in form.cross.items() if coef]


def _model(program: Program, goal: Form, columns: _Columns, whole: bool, relaxed: frozenset[int]) -> Any:
    """Write the program for HiGHS: its rows, one equation per NF, and per arc the crossing's two inequalities."""
    rows: list[list[tuple[int, int]]] = []
    lower: list[float] = []
    upper: list[float] = []
    for r, row in enumerate(program.rows):
        slack = [(columns.slack, -1)] if columns.slack is not None and r in relaxed else []
        rows.append(_entries(row.form, columns) + slack)
        lower.append(-highspy.kHighsInf)
        upper.append(row.limit - row.form.constant)
    for i, sites in enumerate(program.sites):
        rows.append([(columns.first[i] + m, 1) for m in range(len(sites))])
        lower.append(1)
        upper.append(1)
    for a, (i, j, k) in enumerate(program.arcs):
        entries = [(columns.first[i] + m, 1) for m, site in enumerate(program.sites[i]) if site == k]
        entries += [(columns.first[j] + m, -1) for m, site in enumerate(program.sites[j]) if site == k]
        rows.append([*entries, (columns.arcs + a, -1)])
        lower.append(-highspy.kHighsInf)
        upper.append(0)
    cost = np.zeros(columns.count)
    for column, coef in _entries(goal, columns):
        cost[column] += coef
    if columns.slack is not None:
        cost[:] = 0
        cost[columns.slack] = 1
    return _lp(rows, lower, upper, cost, goal.constant, columns, whole)


def _lp(
    rows: list[list[tuple[int, int]]],
    lower: list[float],
    upper: list[float],
    cost: Any,
    constant: int,
    columns: _Columns,
    whole: bool,
) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns.count, len(rows)
    lp.col_cost_, lp.offset_ = cost, 0 if columns.slack is not None else constant
    lp.col_lower_ = np.zeros(columns.count)
    lp.col_upper_ = np.ones(columns.count)
    if columns.slack is not None:
        top = np.ones(columns.count)
        top[columns.slack] = highspy.kHighsInf
        lp.col_upper_ = top
    lp.row_lower_, lp.row_upper_ = np.array(lower, dtype=float), np.array(upper, dtype=float)
    starts = np.cumsum([0] + [len(row) for row in rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = starts.astype(np.int32)
    lp.a_matrix_.index_ = np.array([column for row in rows for column, _ in row], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([coef for row in rows for _, coef in row], dtype=float)
    if whole:
        kinds = [highspy.HighsVarType.kInteger] * columns.arcs
        kinds += [highspy.HighsVarType.kContinuous] * (columns.count - columns.arcs)
        lp.integrality_ = kinds
    return lp


def _solver(lp: Any, seconds: float, gap: float = 0.0) -> highspy.Highs:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", max(seconds, 0.001))
    solver.setOptionValue("mip_rel_gap", gap)
    solver.setOptionValue("mip_abs_gap", 0.999)
    if solver.passModel(lp) == highspy.HighsStatus.kError:
        raise BackendError("HiGHS refused the model; report this problem")
    return solver


class HighsBackend:
    """HiGHS as a backend."""

    name = "highs"

    def minimise(
        self, program: Program, goal: str, seconds: float, start: tuple[int, ...] | None = None, gap: float = 0.0
    ) -> Answer:
        """See ``Backend.minimise``."""
        if not program.names:
            return trivial(program, goal, self.name)
        form = Form() if goal == "feasible" else program.goal(goal)
        columns = _columns(program, slack=False)
        solver = _solver(_model(program, form, columns, True, frozenset()), seconds, gap)
        if start is not None:
            solver.setSolution(_solution(program, columns, start))
        solver.run()
        status = solver.getModelStatus()
        info = solver.getInfo()
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return Answer(Status.INFEASIBLE, self.name)
        bound = None if abs(info.mip_dual_bound) >= highspy.kHighsInf else _ceil(info.mip_dual_bound)
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Answer(Status.UNKNOWN, self.name, None, bound)
        modes = accept(program, _modes(columns, solver.getSolution().col_value), self.name)
        optimal = status == highspy.HighsModelStatus.kOptimal
        value = program.value(form, modes)
        return Answer(Status.OPTIMAL if optimal else Status.FEASIBLE, self.name, modes, value if optimal else bound)


def trivial(program: Program, goal: str, name: str) -> Answer:
    """Answer a program without NFs."""
    if program.broken(()):
        return Answer(Status.INFEASIBLE, name)
    value = 0 if goal == "feasible" else program.value(program.goal(goal), ())
    return Answer(Status.OPTIMAL, name, (), value)


def _ceil(bound: float) -> int:
    """Round up a bound on a whole number, with a tolerance just above whole numbers."""
    return int(np.ceil(bound - 1e-6 * max(1.0, abs(bound))))


def _modes(columns: _Columns, values: Any) -> tuple[int, ...]:
    ends = [*columns.first, columns.arcs]
    return tuple(int(np.argmax(values[a:b])) for a, b in pairwise(ends))


def _solution(program: Program, columns: _Columns, modes: tuple[int, ...]) -> Any:
    values = np.zeros(columns.count)
    for first, mode in zip(columns.first, modes, strict=True):
        values[first + mode] = 1
    values[columns.arcs : columns.arcs + len(program.arcs)] = program.crossing(modes)
    made = highspy.HighsSolution()
    made.col_value = list(values)
    return made


def relaxation(program: Program, goal: str, seconds: float = 60.0) -> Dual | None:
    """Compute multipliers of the linear relaxation, rounded to whole numbers, with the goal's last.

    For the goal ``feasible``, or if the relaxation has no solution, they are those of the least amount by which all
    limits would have to grow; ``feasible`` adds no multiplier of a goal.

    Returns:
        None if the time limit expired.
    """
    if goal != "feasible":
        solved = _relax(program, program.goal(goal), False, seconds)
        if solved is not None:
            return Dual((*solved.weights, SCALE), solved.flows)
    solved = _relax(program, Form(), True, seconds)
    if solved is None or goal == "feasible":
        return solved
    return Dual((*solved.weights, 0), solved.flows)


def _relax(program: Program, form: Form, slack: bool, seconds: float) -> Dual | None:
    columns = _columns(program, slack)
    solver = _solver(_model(program, form, columns, False, frozenset(range(len(program.rows)))), seconds)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    duals = np.rint(-np.array(solver.getSolution().row_dual) * SCALE)
    count, arcs = len(program.rows), len(program.arcs)
    weights = tuple(int(max(value, 0)) for value in duals[:count])
    most = [0] * arcs
    for weight, row in zip(weights, program.rows, strict=True):
        for arc, coef in row.form.cross.items():
            most[arc] += weight * coef
    for arc, coef in form.cross.items():
        most[arc] += SCALE * coef
    flows = tuple(int(min(max(value, 0), top)) for value, top in zip(duals[len(duals) - arcs :], most, strict=True))
    return Dual(weights, flows)


def least_slack(program: Program, relaxed: frozenset[int], seconds: float) -> tuple[int, tuple[int, ...]] | None:
    """Find the least amount by which some rows' limits must grow together for a placement to exist.

    Returns:
        The amount and such a placement; None if no growth of those rows suffices.

    Raises:
        BackendError: the time limit expired.
    """
    if not program.names:
        over = [row.form.constant - row.limit for row in program.rows]
        if any(excess > 0 for r, excess in enumerate(over) if r not in relaxed):
            return None
        return max([over[r] for r in relaxed] + [0]), ()
    columns = _columns(program, slack=True)
    solver = _solver(_model(program, Form(), columns, True, relaxed), seconds)
    solver.run()
    status = solver.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise BackendError(f"HiGHS did not find the least limits within {seconds:g} s; allow more time")
    modes = _modes(columns, solver.getSolution().col_value)
    over = max([program.value(program.rows[r].form, modes) - program.rows[r].limit for r in relaxed] + [0])
    return over, modes
