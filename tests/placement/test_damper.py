"""Few moves under periodic, adversarial and noisy traffic."""

import pytest

from placement.damper import Damper, Settings
from placement.errors import InfeasibleError, PlacementError
from placement.model import CORES, HOST, NF, Mode, Nic, Problem
from placement.studies.traffic import TRAFFICS, adversary, busy_server, damped, naive, noise, run, sine, square
from placement.studies.workloads import uno_ring

SETTINGS = Settings(window=12, deadline=5)


@pytest.mark.parametrize("period", [2, 5, 12])
@pytest.mark.parametrize("traffic", [square, sine])
def test_periods_up_to_the_window_cause_no_move_after_warm_up(traffic, period: int) -> None:
    problem = busy_server(12)
    outcome = run(problem, traffic(problem, period), damped(SETTINGS, problem), epochs=50, warm_up=12)
    assert outcome.late_moves == 0
    assert outcome.moves > 0


def test_naive_re_solving_moves() -> None:
    """Without the damper, the same traffic causes many moves."""
    problem = busy_server(12)
    outcome = run(problem, square(problem), naive(), epochs=50, warm_up=12)
    assert outcome.late_moves > 50


def test_the_adversary_moves_each_nf_a_bounded_number_of_times() -> None:
    problem = busy_server(12)
    epochs = 60
    outcome = run(problem, adversary(problem), damped(SETTINGS, problem), epochs=epochs, warm_up=12)
    assert outcome.most_moved <= 2 * (epochs // SETTINGS.window)


@pytest.mark.parametrize("traffic", sorted(TRAFFICS))
def test_host_cost_is_close_to_the_best_in_hindsight(traffic: str) -> None:
    problem = busy_server(12)
    outcome = run(problem, TRAFFICS[traffic](problem), damped(SETTINGS, problem), epochs=120, warm_up=12)
    assert outcome.host_vs_static <= 1.04


def test_noise_moves_less_than_without_the_damper() -> None:
    problem = busy_server(12)
    calm = run(problem, noise(problem), damped(SETTINGS, problem), epochs=60)
    nervous = run(problem, noise(problem), naive(), epochs=60)
    assert calm.moves * 4 < nervous.moves
    assert calm.overloaded < nervous.overloaded


def test_an_overload_overrides_rest() -> None:
    damper = Damper(Settings(window=6))
    damper.step(uno_ring(10_000))
    damper.step(uno_ring(80_000))
    with pytest.raises(InfeasibleError):
        damper.step(uno_ring(9_000))
    plan = damper.step(uno_ring(10_000))
    assert set(plan.placement.values()) == {0}


def _one_function(millicores: int) -> Problem:
    modes = (Mode(HOST, {CORES: millicores}), Mode(1, {CORES: 2 * millicores}))
    return Problem((NF("nf", modes, 1),), nics=(Nic({CORES: 1000}),))


def _two_functions(first: int, second: int) -> Problem:
    """Return two functions, of which the smart NIC has room for one."""
    used = {"first": first, "second": second}
    nfs = tuple(NF(name, (Mode(HOST, {CORES: each}), Mode(1, {CORES: 2 * each})), 1) for name, each in used.items())
    return Problem(nfs, nics=(Nic({CORES: 800}),))


def test_a_moved_nf_rests_for_a_window() -> None:
    damper = Damper(Settings(window=4, price=1), {"first": HOST, "second": HOST})
    moved = [
        [move.nf for move in damper.step(_two_functions(*used)).moves]
        for used in [(0, 0)] * 4 + [(400, 300)] + [(100, 400)] * 4
    ]
    assert moved[:8] == [[], [], [], [], ["first"], [], [], []]  # the swap would pay at once
    assert sorted(moved[8]) == ["first", "second"]


def test_an_nf_moved_by_others_rests_for_a_window() -> None:
    damper = Damper(Settings(window=4, price=1), {"nf": HOST})
    for used in (0, 0, 0, 0):
        damper.step(_one_function(used))
    damper.rest("nf")
    assert [len(damper.step(_one_function(400)).moves) for _ in range(5)] == [0, 0, 0, 1, 0]


def test_reasons_are_given() -> None:
    damper = Damper(Settings(window=4))
    reasons = []
    for limit in (80_000, 40_000, 40_000):
        damper.step(uno_ring(limit))
        reasons.append(damper.reason)
    assert reasons == ["first placement", "a limit would break", "nothing new"]


def test_a_lasting_load_moves_once_quiet_samples_leave_the_window() -> None:
    """Together with them it did not pay: half of the distinct samples cost nothing."""
    damper = Damper(Settings(window=4, price=60), {"nf": HOST})
    moved = [len(damper.step(_one_function(used)).moves) for used in (0, 0, 0, 0, 20, 20, 20, 20, 20)]
    assert moved == [0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(PlacementError, match="window is 0"):
        Damper(Settings(window=0))
