"""Requests to solvers, and the choice between their answers."""

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from placement import backends, portfolio, solve
from placement.backends import Answer, Status, cpsat
from tests.placement.instances import instance

PROGRAM = cast(Any, SimpleNamespace(goal=lambda goal: goal, value=lambda form, modes: sum(modes)))
KERNEL = Answer(Status.FEASIBLE, "lagcut", (1, 2), 2)


def test_the_better_placement_of_two_solvers_counts() -> None:
    better, worse = (Answer(Status.FEASIBLE, "highs", modes) for modes in ((0, 1), (3, 3)))
    assert portfolio._merge(PROGRAM, "host", KERNEL, better) == Answer(Status.FEASIBLE, "lagcut+highs", (0, 1), 2)
    assert portfolio._merge(PROGRAM, "host", KERNEL, worse) == Answer(Status.FEASIBLE, "lagcut+highs", (1, 2), 2)
    none = Answer(Status.UNKNOWN, "highs")
    assert portfolio._merge(PROGRAM, "host", KERNEL, none).modes == (1, 2)
    nothing = Answer(Status.UNKNOWN, "lagcut")
    assert portfolio._merge(PROGRAM, "host", nothing, none) == nothing


def test_backends_are_listed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat, "installed", lambda: False)
    assert backends.names() == ("cbc", "highs", "lagcut", "lagcut-python")
    monkeypatch.setattr(cpsat, "installed", lambda: True)
    assert backends.names() == ("cbc", "highs", "lagcut", "lagcut-python", "cpsat")


def test_only_the_first_goal_has_a_gap_and_each_starts_from_the_last_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["placement.solve"]  # the package has a function of the same name
    asked: list[tuple[str, object, float]] = []
    answers: list[tuple[int, ...] | None] = []
    minimise = portfolio.minimise

    def remember(program: Any, goal: str, seconds: float, name: str, start: Any = None, gap: float = 0.0) -> Answer:
        asked.append((goal, start, gap))
        answer = minimise(program, goal, seconds, name, start, gap)
        answers.append(answer.modes)
        return answer

    monkeypatch.setattr(module, "minimise", remember)
    problem, _ = instance(11)
    assert problem.chains
    solve(problem, gap=0.25, deadline=60.0)
    assert asked == [("host", None, 0.25), ("latency", answers[0], 0.0)]
