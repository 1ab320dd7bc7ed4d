"""The values and uses of partial placements."""

from dataclasses import replace

import pytest

from placement import HOST, NF, Demand, Mode, Nic, Port, Problem
from placement.formulate import Program, formulate
from placement.labels import Dual, Label, Losses, TooManyLabelsError, _grow, _Step, open_placements

STEP = _Step(
    options=[(0, HOST, 3, (2,)), (1, 1, 4, (6,))],
    # The NF is the first end of one arc on sNIC 1, and the second end of another.
    arcs=[(0, True, 1, 50, 7, [(0, 40)]), (0, False, 1, 500, 11, [(0, 400)])],
    keep=[0],
    stays=True,
    room=(1000,),
)


def start(site: int, value: int = -1000) -> dict[tuple[int, ...], list[Label]]:
    return {(site,): [Label(value, (1,), 0, None)]}


def grown(states: dict[tuple[int, ...], list[Label]], step: _Step) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    made = _grow(states, step)
    return {after: [(label.mode, label.value, *label.use) for label in labels] for after, labels in made.items()}


def test_a_step_adds_the_losses_of_the_mode_and_of_every_arc() -> None:
    assert grown(start(HOST) | start(1), STEP) == {
        (HOST, HOST): [(0, -1000 + 3, 1 + 2)],
        (HOST, 1): [(1, -1000 + 4 + 50 + 11, 1 + 6 + 40)],
        (1, HOST): [(0, -1000 + 3 + 7 + 500, 1 + 2 + 400)],
        (1, 1): [(1, -1000 + 4, 1 + 6)],
    }


def test_arcs_of_one_kind_add_up() -> None:
    twice = replace(STEP, arcs=[*STEP.arcs, *STEP.arcs])
    assert grown(start(HOST), twice)[(HOST, 1)] == [(1, -1000 + 4 + 2 * (50 + 11), 1 + 6 + 2 * 40)]
    assert grown(start(1, -2000), twice)[(1, HOST)] == [(0, -2000 + 3 + 2 * (7 + 500), 1 + 2 + 2 * 400)]


def test_a_step_keeps_only_sites_that_are_still_needed() -> None:
    assert list(grown(start(1), replace(STEP, keep=[]))) == [(HOST,), (1,)]
    assert list(grown(start(1), replace(STEP, stays=False))) == [(1,)]
    assert list(grown(start(1), replace(STEP, keep=[], stays=False))) == [()]


def test_labels_above_zero_and_beyond_the_room_are_dropped() -> None:
    alone = replace(STEP, arcs=[], options=[(0, HOST, 3, (2,))])
    assert grown(start(1, -3), alone) == {(1, HOST): [(0, 0, 3)]}
    assert grown(start(1, -2), alone) == {}
    assert grown(start(1), replace(alone, room=(3,))) == {(1, HOST): [(0, -997, 3)]}
    assert grown(start(1), replace(alone, room=(2,))) == {}


def two() -> Program:
    nfs = tuple(NF(name, (Mode(HOST, {"cores": 10}), Mode(1, {"cores": 10}))) for name in "ab")
    traffic = (Demand("a", "b", 5), Demand("eth0", "a", 5))
    problem = Problem(nfs, ports=(Port("eth0"),), demands=traffic, nics=(Nic({"cores": 10}, shared=7),))
    return formulate(problem)


def test_multipliers_must_fit_the_program() -> None:
    program = two()
    rows, arcs = len(program.rows), len(program.arcs)
    assert (rows, arcs) == (2, 2)
    for weights, flows, message in [
        ((0,), (0, 0), "1 weights and 2 flows for 2 rows and 2 arcs"),
        ((0, 0), (0,), "2 weights and 1 flows for 2 rows and 2 arcs"),
        ((0, -3), (0, 0), f"the weight of row {program.rows[1].name!r} is -3; expected 0 or more"),
        ((1, 0), (0, -1), f"the flow of arc {program.arcs[1]} is -1; expected 0 to 5"),
        ((2, 0), (11, 0), f"the flow of arc {program.arcs[0]} is 11; expected 0 to 10"),
    ]:
        with pytest.raises(ValueError, match=r"^\d|^the") as caught:
            Losses(program, Dual(weights, flows))
        assert str(caught.value) == message
    assert Losses(program, Dual((2, 0), (10, 0))).crossed == [10, 10]


def test_an_enumeration_keeps_its_limit_and_needs_every_nf() -> None:
    program = two()
    losses = Losses(program, Dual((0, 0), (0, 0)))
    found = open_placements(program, losses, [0, 1], max_labels=2)
    assert found
    assert not any(program.broken(modes) for modes in found)
    with pytest.raises(TooManyLabelsError) as limit:
        open_placements(program, losses, [0, 1], max_labels=0)
    assert str(limit.value) == "2 partial placements are open, more than 0"
    for order in ([0], [0, 0], [0, 1, 2]):
        with pytest.raises(ValueError, match=r"^the order is not a permutation of the NFs$"):
            open_placements(program, losses, order)
