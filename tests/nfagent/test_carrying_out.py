"""Carrying out the moves of a decision: what each of them comes to, and what the journal says of earlier ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nfagent.decide.carrying_out import CarryingOut, Step
from nfagent.decide.setbacks import Setbacks
from nfagent.store import instances, processes
from tests.nfagent.decide_world import HYPERVISOR, NIC, DecideWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DecideWorld]:
    made = DecideWorld(tmp_path)
    yield made
    made.store.close()


def ordered(world: DecideWorld) -> CarryingOut:
    """A decision whose only move has been asked for."""
    world.create("lb")
    carrying = CarryingOut(world.store, 1, [Step(world.instance("lb").id, "lb", HYPERVISOR, NIC)])
    carrying.advance(frozenset())
    assert not carrying.is_over
    return carrying


def note(world: DecideWorld, **columns: Any) -> None:
    """Of the process of that instance."""
    with world.store.change() as change:
        processes.update(change, processes.of(change.db, world.instance("lb").id)[0], **columns)


def test_what_arrived_and_broke_down_then_does_not_keep_a_decision_open(world: DecideWorld) -> None:
    carrying = ordered(world)
    world.reconcile()
    note(world, phase="error", reason="its process ended")
    carrying.advance(frozenset())
    assert (carrying.is_over, carrying.result) == (True, "done")


def test_what_does_not_become_active_at_the_target_is_taken_back(
    world: DecideWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrying = ordered(world)
    note(world, phase="error", location=NIC)  # without a migration: it did not run when it was wanted there
    carrying.advance(frozenset())
    assert not carrying.is_over
    monkeypatch.setattr("nfagent.decide.carrying_out._BEGIN_S", -1.0)
    carrying.advance(frozenset())
    assert (carrying.is_over, carrying.result) == (True, "failed")
    assert "did not become active at snic0" in carrying.moves[0]["reason"]
    assert world.instance("lb").target == HYPERVISOR


def aim(world: DecideWorld, location: str) -> None:
    """As an operator."""
    with world.store.change() as change:
        instances.aim(change, world.instance("lb").id, location)


def only(carrying: CarryingOut) -> tuple[str, str | None, int | None]:
    """Outcome, reason and epoch of the only move."""
    carrying.advance(frozenset())
    assert carrying.is_over
    (move,) = carrying.moves
    assert carrying.result == move["outcome"]
    return move["outcome"], move["reason"], move["epoch"]


def test_a_move_of_what_an_operator_deletes_is_superseded(world: DecideWorld) -> None:
    carrying = ordered(world)
    with world.store.change() as change:
        instances.give_up(change, world.instance("lb").id)
    assert only(carrying) == ("superseded", "it is being deleted", None)


def test_a_move_that_an_operator_changes_is_superseded(world: DecideWorld) -> None:
    carrying = ordered(world)
    aim(world, HYPERVISOR)
    assert only(carrying) == ("superseded", "it was wanted at hypervisor", None)


def test_a_move_that_an_operator_undoes_is_superseded(world: DecideWorld) -> None:
    carrying = ordered(world)
    world.reconcile()
    aim(world, HYPERVISOR)
    world.reconcile()
    assert only(carrying) == ("superseded", "it was wanted at hypervisor", 2)


def test_a_move_that_an_operator_pins_is_superseded(world: DecideWorld) -> None:
    carrying = ordered(world)
    world.pin("lb", HYPERVISOR)
    assert only(carrying) == ("superseded", "it was pinned to hypervisor", None)


def test_what_arrived_is_told_once(world: DecideWorld) -> None:
    setbacks = Setbacks(world.store)
    ordered(world)
    world.reconcile()
    setbacks.look()
    setbacks.look()
    assert setbacks.take_moved() == {world.instance("lb").id}
    setbacks.look()
    assert setbacks.take_moved() == set()
