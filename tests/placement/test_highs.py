"""The statuses of HiGHS, and the answers made of them."""

from types import SimpleNamespace
from typing import Any

import highspy
import pytest

from placement import HOST, NF, Mode, Nic, Problem
from placement.backends import Answer, Status, highs
from placement.errors import BackendError
from placement.formulate import Program, formulate

NONE, FEASIBLE = highspy.SolutionStatus.kSolutionStatusNone, highspy.SolutionStatus.kSolutionStatusFeasible
Kind = highspy.HighsModelStatus


def program(cores: int = 10) -> Program:
    """Return a program of two NFs, of which one fits on the sNIC."""
    nfs = tuple(NF(name, (Mode(HOST, {"cores": 7}), Mode(1, {"cores": 6}))) for name in "ab")
    return formulate(Problem(nfs, nics=(Nic({"cores": cores}),)))


class Stopped:
    """A solver that stopped with a given status."""

    def __init__(self, status: Any, solution: Any = NONE, bound: float = 0.0, values: tuple[float, ...] = ()) -> None:
        self.status, self.values = status, values
        self.info = SimpleNamespace(mip_dual_bound=bound, primal_solution_status=solution)
        self.started: list[Any] = []

    def run(self) -> None:
        """Do nothing."""

    def setSolution(self, solution: Any) -> None:  # noqa: N802  # highspy's name
        self.started.append(list(solution.col_value))

    def getModelStatus(self) -> Any:  # noqa: N802
        return self.status

    def getInfo(self) -> Any:  # noqa: N802
        return self.info

    def getSolution(self) -> Any:  # noqa: N802
        return SimpleNamespace(col_value=self.values)


def stop(monkeypatch: pytest.MonkeyPatch, *args: Any, **more: Any) -> Stopped:
    stopped = Stopped(*args, **more)
    monkeypatch.setattr(highs, "_solver", lambda *_: stopped)
    return stopped


@pytest.mark.parametrize(
    ("bound", "told"),
    [(2.25, 3), (2.0000001, 2), (3.0, 3), (-1.5, -1), (highspy.kHighsInf, None), (-highspy.kHighsInf, None)],
)
def test_a_solver_without_placement_tells_its_bound(
    monkeypatch: pytest.MonkeyPatch, bound: float, told: int | None
) -> None:
    stop(monkeypatch, Kind.kTimeLimit, bound=bound)
    answer = highs.HighsBackend().minimise(program(), "host", 1.0)
    assert answer == Answer(Status.UNKNOWN, "highs", None, told)


def test_a_placement_without_proof_is_feasible(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = stop(monkeypatch, Kind.kTimeLimit, FEASIBLE, 4.5, (0.0, 1.0, 0.9, 0.1))
    answer = highs.HighsBackend().minimise(program(), "host", 1.0, start=(0, 1))
    assert answer == Answer(Status.FEASIBLE, "highs", (1, 0), 5)
    assert solver.started == [[1.0, 0.0, 0.0, 1.0]]


def test_an_optimum_is_its_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = stop(monkeypatch, Kind.kOptimal, FEASIBLE, 4.5, (0.0, 1.0, 1.0, 0.0))
    assert highs.HighsBackend().minimise(program(), "host", 1.0) == Answer(Status.OPTIMAL, "highs", (1, 0), 7)
    assert solver.started == []


@pytest.mark.parametrize("status", [Kind.kInfeasible, Kind.kUnboundedOrInfeasible])
def test_both_statuses_of_infeasibility_count(monkeypatch: pytest.MonkeyPatch, status: Any) -> None:
    stop(monkeypatch, status, bound=1.0)
    assert highs.HighsBackend().minimise(program(), "host", 1.0) == Answer(Status.INFEASIBLE, "highs")
    assert highs.least_slack(program(), frozenset({0}), 1.0) is None


def test_a_time_limit_is_told_where_no_answer_is_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    stop(monkeypatch, Kind.kTimeLimit)
    assert highs.relaxation(program(), "host", 1.0) is None
    assert highs.relaxation(program(), "feasible", 1.0) is None
    with pytest.raises(BackendError) as caught:
        highs.least_slack(program(), frozenset({0}), 1.5)
    assert str(caught.value) == "HiGHS did not find the least limits within 1.5 s; allow more time"


def test_a_refused_model_is_reported() -> None:
    lp = highspy.HighsLp()
    lp.num_col_ = 2  # without costs and limits of these columns
    with pytest.raises(BackendError) as caught:
        highs._solver(lp, 1.0)
    assert str(caught.value) == "HiGHS refused the model; report this problem"


def test_the_least_growth_of_a_limit_and_its_placement_are_found() -> None:
    pinned = Problem(tuple(NF(name, (Mode(1, {"cores": 6}),)) for name in "ab"), nics=(Nic({"cores": 10}),))
    assert highs.least_slack(formulate(pinned), frozenset({0}), 10.0) == (2, (0, 0))
    assert highs.least_slack(formulate(pinned), frozenset(), 10.0) is None
    by, modes = highs.least_slack(program(), frozenset({0}), 10.0) or (None, ())
    assert by == 0
    assert program().broken(modes) == []


def test_the_goals_multiplier_follows_those_of_the_rows() -> None:
    feasible, impossible = program(), program(0)
    for asked, goal, last in [(feasible, "host", [highs.SCALE]), (feasible, "feasible", [])]:
        dual = highs.relaxation(asked, goal)
        assert dual is not None
        assert list(dual.weights[len(asked.rows) :]) == last
    pinned = Problem((NF("a", (Mode(1, {"cores": 6}),)),), nics=(Nic({"cores": 5}),))
    dual = highs.relaxation(formulate(pinned), "host")
    assert dual is not None
    assert dual.weights == (highs.SCALE, 0)
    assert highs.HighsBackend().minimise(impossible, "host", 10.0).bound == 14
