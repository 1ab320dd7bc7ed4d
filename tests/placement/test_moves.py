"""Orders of moves: every step is feasible, with detours where needed, or a clear error."""

import random

import pytest

from placement import HOST, NF, Demand, Mode, Nic, Problem, evaluate, solve
from placement.errors import InfeasibleError, MoveOrderError
from placement.formulate import formulate
from placement.moves import order_moves
from placement.studies.changes import change, unchanged
from placement.studies.workloads import uno_ring
from tests.placement.instances import instance
from tests.placement.oracle import try_all


def test_every_step_of_random_plans_is_feasible() -> None:
    """From a feasible placement to the optimum, no step breaks a limit."""
    walked = 0
    for seed in range(200):
        problem, _ = instance(seed)
        tried = try_all(problem)
        choices = [modes for modes, good in zip(tried.modes, tried.feasible, strict=True) if good]
        if len(choices) < 2:
            continue
        source = random.Random(seed)
        before, after = source.choice(choices), source.choice(choices)
        try:
            steps = order_moves(formulate(problem), before, after)
        except MoveOrderError:
            continue
        modes = dict(zip((nf.name for nf in problem.nfs), before, strict=True))
        for step in steps:
            nf = problem.nf(step.nf)
            assert nf.modes[modes[step.nf]].location == step.source
            candidates = [m for m, mode in enumerate(nf.modes) if mode.location == step.target]
            goal = after[[n.name for n in problem.nfs].index(step.nf)]
            modes[step.nf] = goal if goal in candidates else candidates[0]
            if len(candidates) == 1:
                assert evaluate.breaches(problem, modes) == []
        walked += len(steps)
    assert walked > 100


def swap(nics: int = 1, host: int = 9) -> Problem:
    """Return two NFs, each of which fills an sNIC."""
    nfs = tuple(
        NF(name, (Mode(HOST, {"cores": there}), *(Mode(k, {"cores": 10}) for k in range(1, nics + 1))))
        for name, there in (("a", 5), ("b", 9))
    )
    return Problem(nfs, nics=tuple(Nic({"cores": 10}) for _ in range(nics)), host={"cores": host})


def test_a_swap_needs_a_third_place() -> None:
    """a is on the sNIC and b on the host; a swap temporarily needs 14 host cores or two on the sNIC."""
    with pytest.raises(MoveOrderError, match=r"cores of the host \(14 of 9\)"):
        order_moves(formulate(swap()), (1, 0), (0, 1))


def test_a_detour_makes_room() -> None:
    steps = order_moves(formulate(swap(3, host=4)), (1, 2), (2, 1))
    assert [step.detour for step in steps].count(True) == 1
    modes = {"a": 1, "b": 2}
    for step in steps:
        modes[step.nf] = step.target
        assert evaluate.breaches(swap(3, host=4), modes) == []
    assert modes == {"a": 2, "b": 1}


def test_an_overload_may_shrink_but_not_grow() -> None:
    """Under an overload, every step must reduce or keep it."""
    problem = uno_ring(20_000)
    program = formulate(problem)
    everything_off = tuple(1 for _ in program.names)
    steps = order_moves(program, everything_off, tuple(solve(problem).modes.values()))
    assert len(steps) == 16
    assert all(step.target == HOST for step in steps)


def test_the_same_problem_moves_nothing() -> None:
    assert unchanged(uno_ring(40_000)) == 0


def test_a_small_change_causes_few_moves() -> None:
    seen = []
    for seed in range(8):
        try:
            seen.append(change(seed, nodes=60))
        except InfeasibleError:
            continue
    assert sum(c.calm for c in seen) * 2 <= sum(c.from_scratch for c in seen)
    assert all(c.host <= 1.0101 for c in seen)


def test_demands_of_a_new_nf_count_at_its_start() -> None:
    nfs = (NF("old", (Mode(HOST, {"cores": 5}), Mode(1, {"cores": 5}))), NF("new", (Mode(1, {"cores": 5}),)))
    problem = Problem(nfs, ("vm",), demands=(Demand("vm", "new", 3),), nics=(Nic({"cores": 5}, shared=9),))
    plan = solve(problem, current={"old": 1})
    assert plan.placement == {"old": HOST, "new": 1}
    assert [(step.nf, step.target) for step in plan.moves] == [("old", HOST)]
