"""Answers against exhaustive search, and certificates rechecked without a solver."""

import pytest

from placement import evaluate, solve
from placement.backends import names
from placement.certify import held
from placement.errors import InfeasibleError, MoveOrderError
from placement.formulate import formulate
from tests.placement.instances import instance
from tests.placement.oracle import try_all

EPS = 0.01


def check_instance(seed: int, backend: str = "auto") -> str:
    """Compare one instance; return ``feasible``, ``infeasible`` or ``stuck`` (no order of its moves)."""
    problem, current = instance(seed)
    least = try_all(problem, current).least(EPS, current is not None)
    kind = "feasible"
    try:
        plan = solve(problem, current, EPS, deadline=30, backend=backend)
    except InfeasibleError as error:
        assert least is None, f"seed {seed}: called infeasible, and {least} is possible"
        error.report.check(problem)
        return "infeasible"
    except MoveOrderError as error:
        plan, kind = error.plan, "stuck"
    assert plan is not None
    assert least is not None, f"seed {seed}: a plan for an infeasible problem"
    values = {stage.goal: stage.value for stage in plan.stages}
    reached = (values["host"], values.get("moves", least[1]), values.get("latency", least[2]))
    assert reached == least, f"seed {seed}"
    assert evaluate.breaches(problem, plan.modes) == []
    assert plan.proven, f"seed {seed}"
    plan.check()
    if backend == "auto":
        assert plan.certified, f"seed {seed}"
    return kind


@pytest.mark.parametrize("block", range(10))
def test_a_thousand_instances_agree_with_exhaustive_search(block: int) -> None:
    seen = [check_instance(seed) for seed in range(100 * block, 100 * block + 100)]
    assert seen.count("feasible") >= 30
    assert seen.count("infeasible") >= 10


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("block", range(10))
def test_ten_thousand_instances_agree_with_exhaustive_search(block: int) -> None:
    for seed in range(1000 + 900 * block, 1000 + 900 * block + 900):
        check_instance(seed)


@pytest.mark.parametrize("backend", [name for name in ("cbc", "highs", "lagcut-python", "cpsat") if name in names()])
def test_each_backend_alone_agrees_with_exhaustive_search(backend: str) -> None:
    for seed in range(10 if backend == "cpsat" else 40):
        check_instance(seed, backend)


def test_the_equations_and_the_arithmetic_agree() -> None:
    """formulate and evaluate implement the model independently; every row and objective must be equal."""
    for seed in range(150):
        problem, current = instance(seed)
        program = formulate(problem, current)
        tried = try_all(problem, current)
        for modes, feasible in list(zip(tried.modes, tried.feasible, strict=True))[:: max(1, len(tried.modes) // 20)]:
            choice = dict(zip(program.names, modes, strict=True))
            broken = {(row.name, program.value(row.form, modes)) for row in program.broken(modes)}
            expected = {(breach.limit, breach.used) for breach in evaluate.breaches(problem, choice)}
            assert broken == expected
            assert bool(feasible) == (not expected)
            assert program.value(program.host, modes) == evaluate.host_cost(problem, choice)
            assert program.value(program.moves, modes) == evaluate.move_cost(problem, choice, current or {})


def test_a_fixed_goal_becomes_a_row() -> None:
    problem, _ = instance(3)
    program = held(formulate(problem), (("host", 5),))
    assert program.rows[-1].name == "goal host"
    assert program.rows[-1].limit == 5
