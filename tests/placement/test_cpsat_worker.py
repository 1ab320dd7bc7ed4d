"""The program that runs CP-SAT, over a stand-in that tries all assignments: importing the real one breaks HiGHS."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

OPTIMAL, FEASIBLE, INFEASIBLE, UNKNOWN = 4, 2, 3, 0


@dataclass(frozen=True)
class Linear:
    """A linear expression in variables."""

    coefs: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.coefs, self.constant + other)
        return Linear(self.coefs + other.coefs, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, by: int) -> Linear:
        return Linear(tuple((var, coef * by) for var, coef in self.coefs), self.constant * by)

    __rmul__ = __mul__

    def __sub__(self, other: Linear | int) -> Linear:
        return self + other * -1

    def __rsub__(self, other: int) -> Linear:
        return self * -1 + other

    def __le__(self, other: Linear | int) -> Linear:
        """Return what must not exceed 0."""
        return self - other

    def __ge__(self, other: Linear | int) -> Linear:
        return self * -1 + other

    def at(self, values: tuple[int, ...]) -> int:
        """Evaluate it."""
        return self.constant + sum(coef * values[var] for var, coef in self.coefs)


class CpModel:
    """The model's part that the program uses."""

    def __init__(self) -> None:
        self.count = 0
        self.rows: list[Linear] = []
        self.groups: list[list[Linear]] = []
        self.goal = Linear()
        self.hints: list[tuple[int, bool]] = []

    def new_bool_var(self, _: str) -> Linear:
        self.count += 1
        return Linear(((self.count - 1, 1),))

    def add_exactly_one(self, group: list[Linear]) -> None:
        self.groups.append(group)

    def add(self, row: Linear | bool) -> None:
        assert row is not False
        if isinstance(row, Linear):
            self.rows.append(row)

    def minimize(self, goal: Linear | int) -> None:
        self.goal = Linear() + goal

    def add_hint(self, var: Linear, value: bool) -> None:
        self.hints.append((var.coefs[0][0], value))


class CpSolver:
    """A solver that tries all assignments; ``stopped`` makes it claim less than it knows."""

    stopped: int | None = None
    made: list[CpSolver]

    def __init__(self) -> None:
        self.parameters = ModuleType("parameters")
        self.best_objective_bound = 0.0
        self.model = CpModel()
        self.made.append(self)

    def solve(self, model: CpModel) -> int:
        self.model = model
        fits = [
            values
            for values in itertools.product((0, 1), repeat=model.count)
            if all(sum(var.at(values) for var in group) == 1 for group in model.groups)
            and all(row.at(values) <= 0 for row in model.rows)
        ]
        if not fits or self.stopped == UNKNOWN:
            return INFEASIBLE if not fits else UNKNOWN
        self.values = min(fits, key=model.goal.at)
        self.best_objective_bound = model.goal.at(self.values) + 0.25
        return self.stopped or OPTIMAL

    def value(self, var: Linear) -> int:
        return var.at(self.values)


@pytest.fixture(name="worker")
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, Any]]]:
    name = "placement.backends.cpsat_worker"
    cp_model = ModuleType("cp_model")
    vars(cp_model).update(CpModel=CpModel, CpSolver=CpSolver, OPTIMAL=OPTIMAL, FEASIBLE=FEASIBLE, INFEASIBLE=INFEASIBLE)
    for part in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    vars(sys.modules["ortools.sat.python"])["cp_model"] = cp_model
    monkeypatch.setattr(CpSolver, "made", [], raising=False)
    sys.modules.pop(name, None)
    module = importlib.import_module(name)

    def ask(**document: object) -> dict[str, Any]:
        told = io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({**ASKED, **document})))
        monkeypatch.setattr(sys, "stdout", told)
        module.main()
        return json.loads(told.getvalue())

    yield ask
    del sys.modules[name]


ASKED: dict[str, object] = {
    "sites": [[0, 1], [0, 1]],
    "arcs": [[0, 1, 1]],
    # The first NF costs 5 at the host, the second 7; both together exceed the sNIC's 9.
    "rows": [[[[0, [0, 6]], [1, [0, 4]]], [], 9]],
    "goal": [[[0, [5, 0]], [1, [7, 0]]], [], 100],
    "seconds": 2.5,
    "start": None,
    "gap": 0.125,
}


def test_the_optimum_is_told_with_its_bound(worker: Callable[..., dict[str, Any]]) -> None:
    assert worker() == {"status": "optimal", "modes": [0, 1], "bound": 105}
    (solver,) = CpSolver.made
    assert vars(solver.parameters)["max_time_in_seconds"] == 2.5
    assert vars(solver.parameters)["relative_gap_limit"] == 0.125
    assert solver.model.hints == []


def test_crossings_count_from_their_first_end(worker: Callable[..., dict[str, Any]]) -> None:
    # Only the first NF fits, and then the arc crosses.
    only_first = [[[[1, [0, 1]]], [], 0]]
    assert worker(rows=only_first)["modes"] == [1, 0]
    assert worker(rows=only_first, goal=[[[0, [5, 0]]], [[0, 4]], 0]) == {
        "status": "optimal",
        "modes": [1, 0],
        "bound": 4,
    }
    assert worker(rows=only_first, goal=[[[0, [5, 0]]], [[0, 6]], 0])["modes"] == [0, 0]
    assert worker(rows=[*only_first, [[], [[0, 1]], 0]])["modes"] == [0, 0]
    # The second NF alone on the sNIC does not cross the first one's arc.
    only_second = [[[[0, [0, 1]]], [], 0], [[], [[0, 1]], 0]]
    assert worker(rows=only_second)["modes"] == [0, 1]


def test_a_start_is_a_hint(worker: Callable[..., dict[str, Any]]) -> None:
    worker(start=[1, 0])
    assert CpSolver.made[0].model.hints == [(0, False), (1, True), (2, True), (3, False)]


def test_other_statuses_tell_only_what_is_known(
    worker: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker(rows=[[[[0, [1, 1]]], [], 0]]) == {"status": "infeasible", "modes": None, "bound": None}
    monkeypatch.setattr(CpSolver, "stopped", FEASIBLE)
    assert worker() == {"status": "feasible", "modes": [0, 1], "bound": 105}
    monkeypatch.setattr(CpSolver, "stopped", UNKNOWN)
    assert worker() == {"status": "unknown", "modes": None, "bound": None}
