"""Executing the moves of a decision: the outcome of each, and the journal of earlier ones."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from nfagent.decide.carrying_out import CarryingOut, InstanceMove
from nfagent.decide.setbacks import Setbacks
from nfagent.errors import DiskFullError
from nfagent.store import instances, migrations, processes
from tests.nfagent.decide.world import HYPERVISOR, NIC, DecideWorld


def ordered(world: DecideWorld) -> CarryingOut:
    """Return a decision whose only move has been requested."""
    world.create("lb")
    carrying = CarryingOut(world.store, 1, [InstanceMove(world.instance("lb").id, "lb", HYPERVISOR, NIC)])
    carrying.advance(frozenset())
    assert not carrying.is_over
    return carrying


def note(world: DecideWorld, **columns: Any) -> None:
    """Change the row of the instance's process."""
    with world.store.change() as change:
        processes.update(change, processes.of(change.db, world.instance("lb").id)[0], **columns)


def test_a_failure_after_arrival_does_not_keep_a_decision_open(world: DecideWorld) -> None:
    carrying = ordered(world)
    world.reconcile()
    note(world, phase="error", reason="its process ended")
    carrying.advance(frozenset())
    assert (carrying.is_over, carrying.result) == (True, "done")


def test_an_instance_that_does_not_become_active_is_moved_back(
    world: DecideWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrying = ordered(world)
    note(world, phase="error", location=NIC)  # without a migration: it was not running when its target was set
    carrying.advance(frozenset())
    assert not carrying.is_over
    monkeypatch.setattr("nfagent.decide.carrying_out._BEGIN_S", -1.0)
    carrying.advance(frozenset())
    assert (carrying.is_over, carrying.result) == (True, "failed")
    assert "did not become active at snic0" in carrying.moves[0]["reason"]
    assert world.instance("lb").target == HYPERVISOR


def test_a_move_that_the_disk_refuses_is_ordered_next(world: DecideWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    for name in ("first", "second"):
        world.create(name)
        steps.append(InstanceMove(world.instance(name).id, name, HYPERVISOR, NIC))
    carrying = CarryingOut(world.store, 1, steps)
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "change", MagicMock(side_effect=DiskFullError("no room")))
        with pytest.raises(DiskFullError):
            carrying.advance(frozenset())
    for _ in steps:
        carrying.advance(frozenset())
        world.reconcile()
    carrying.advance(frozenset())
    assert carrying.is_over
    assert [(move["name"], move["outcome"]) for move in carrying.moves] == [("first", "done"), ("second", "done")]


def aim(world: DecideWorld, location: str) -> None:
    """Set the target as an operator does."""
    with world.store.change() as change:
        instances.aim(change, world.instance("lb").id, location)


def only(carrying: CarryingOut) -> tuple[str, str | None, int | None]:
    """Return outcome, reason and epoch of the only move."""
    carrying.advance(frozenset())
    assert carrying.is_over
    (move,) = carrying.moves
    assert carrying.result == move["outcome"]
    return move["outcome"], move["reason"], move["epoch"]


def test_undoing_a_move_supersedes_it(world: DecideWorld) -> None:
    carrying = ordered(world)
    world.reconcile()
    aim(world, HYPERVISOR)
    world.reconcile()
    assert only(carrying) == ("superseded", "it was wanted at hypervisor", 2)


def test_an_arrival_is_reported_once(world: DecideWorld) -> None:
    setbacks = Setbacks(world.store)
    ordered(world)
    world.reconcile()
    setbacks.look()
    setbacks.look()
    assert setbacks.take_moved() == {world.instance("lb").id}
    setbacks.look()
    assert setbacks.take_moved() == set()


# ---- several moves


def steps(world: DecideWorld, *names: str) -> list[InstanceMove]:
    return [InstanceMove(world.instance(name).id, name, HYPERVISOR, NIC) for name in names]


def moved(step: InstanceMove, outcome: str, reason: str | None = None, epoch: int | None = None) -> dict[str, Any]:
    told = {"instance": step.instance, "name": step.name, "source": step.source, "target": step.target}
    return told | {"outcome": outcome, "reason": reason, "epoch": epoch}


GIVEN_UP = ("superseded", "an earlier move was not done", None)


def test_moves_are_executed_one_at_a_time(world: DecideWorld) -> None:
    for name in ("one", "two"):
        world.create(name)
    wanted = steps(world, "one", "two")
    carrying = CarryingOut(world.store, 7, wanted)
    assert (carrying.decision, carrying.is_over, carrying.moves, carrying.result) == (7, False, [], "done")
    carrying.advance(frozenset())
    assert (world.instance("one").target, world.instance("two").target) == (NIC, None)
    world.reconcile()
    carrying.advance(frozenset())
    assert (carrying.moves, carrying.is_over) == ([moved(wanted[0], "done", epoch=1)], False)
    world.reconcile()
    carrying.advance(frozenset())
    assert carrying.moves == [moved(wanted[0], "done", epoch=1), moved(wanted[1], "done", epoch=2)]
    assert (carrying.is_over, carrying.result) == (True, "done")
    carrying.advance(frozenset())
    assert len(carrying.moves) == 2


def is_pinned(world: DecideWorld) -> str:
    world.pin("lb", HYPERVISOR)
    return "it was pinned to hypervisor"


def is_deleted(world: DecideWorld) -> str:
    with world.store.change() as change:
        instances.give_up(change, world.instance("lb").id)
    return "it is being deleted"


def is_gone(world: DecideWorld) -> str:
    world.delete("lb")
    return "it is being deleted"


def is_moving(world: DecideWorld) -> str:
    with world.store.change() as change:
        migrations.request(change, world.instance("lb"), HYPERVISOR, NIC, "state")
    return "it is already moving"


def is_elsewhere(world: DecideWorld) -> str:
    note(world, location=NIC)
    return "it no longer runs at hypervisor"


def has_failed(world: DecideWorld) -> str:
    note(world, phase="error")
    return "it no longer runs at hypervisor"


def has_no_process(world: DecideWorld) -> str:
    with world.store.change() as change:
        processes.remove(change, processes.of(change.db, world.instance("lb").id)[0])
    return "it no longer runs at hypervisor"


def is_aimed(world: DecideWorld) -> str:
    aim(world, HYPERVISOR)
    return "it was wanted at hypervisor"


@pytest.mark.parametrize("change", [is_deleted, is_aimed, is_pinned])
def test_an_operators_change_supersedes_a_move(world: DecideWorld, change: Callable[[DecideWorld], str]) -> None:
    carrying = ordered(world)
    reason = change(world)
    assert only(carrying) == ("superseded", reason, None)


@pytest.mark.parametrize(
    "hinder", [is_pinned, is_deleted, is_gone, is_moving, is_elsewhere, has_failed, has_no_process]
)
def test_an_impossible_move_ends_the_decision(world: DecideWorld, hinder: Callable[[DecideWorld], str]) -> None:
    for name in ("lb", "next"):
        world.create(name)
    wanted = steps(world, "lb", "next")
    reason = hinder(world)
    carrying = CarryingOut(world.store, 1, wanted)
    carrying.advance(frozenset())
    assert carrying.moves == [moved(wanted[0], "superseded", reason), moved(wanted[1], *GIVEN_UP)]
    assert (carrying.is_over, carrying.result) == (True, "superseded")
    assert "next" not in {each["name"] for each in world.events("instance.aimed")}


def test_nothing_is_moved_to_a_location_that_is_down(world: DecideWorld) -> None:
    world.create("lb")
    wanted = steps(world, "lb")
    carrying = CarryingOut(world.store, 1, wanted)
    carrying.advance(frozenset([NIC]))
    assert carrying.moves == [moved(wanted[0], "superseded", "snic0 is down")]
    assert world.instance("lb").target is None


@pytest.mark.parametrize(
    ("outcome", "reason", "result"),
    [("rolled-back", "it was refused", "rolled-back"), ("failed", None, "failed"), ("cancelled", None, "failed")],
)
def test_a_failed_move_is_reverted(world: DecideWorld, outcome: Any, reason: str | None, result: str) -> None:
    for name in ("lb", "next"):
        world.create(name)
    wanted = steps(world, "lb", "next")
    carrying = CarryingOut(world.store, 1, wanted)
    carrying.advance(frozenset())
    with world.store.change() as change:
        migration = migrations.request(change, world.instance("lb"), HYPERVISOR, NIC, "state")
    carrying.advance(frozenset())
    assert carrying.moves == []
    with world.store.change() as change:
        migrations.end(change, migration, outcome, reason, {})
    carrying.advance(frozenset())
    why = reason or f"the migration was {outcome}"
    assert carrying.moves == [moved(wanted[0], result, why, 1), moved(wanted[1], *GIVEN_UP)]
    assert (carrying.result, world.instance("lb").target) == (result, HYPERVISOR)


def test_an_earlier_migration_does_not_count_for_this_move(world: DecideWorld) -> None:
    world.create("lb")
    with world.store.change() as change:
        before = migrations.request(change, world.instance("lb"), NIC, HYPERVISOR, "state")
        migrations.end(change, before, "failed", "long ago", {})
    carrying = CarryingOut(world.store, 1, steps(world, "lb"))
    carrying.advance(frozenset())
    assert not carrying.is_over
    world.reconcile()
    assert only(carrying) == ("done", None, 2)


def test_an_instance_active_at_its_target_needs_no_migration(world: DecideWorld) -> None:
    carrying = ordered(world)
    note(world, location=NIC, phase="starting")
    carrying.advance(frozenset())
    assert not carrying.is_over
    note(world, phase="active")
    assert only(carrying) == ("done", None, None)


def test_a_move_that_times_out_is_reverted_with_a_reason(world: DecideWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("nfagent.decide.carrying_out.time", SimpleNamespace(time=lambda: clock[0]))
    carrying = ordered(world)
    clock[0] += 60.0
    carrying.advance(frozenset())
    assert not carrying.is_over
    clock[0] += 0.1
    assert only(carrying) == ("failed", "it did not become active at snic0 within 60 s", None)


# ---- setbacks


def ended(world: DecideWorld, outcome: Any, at: float, name: str = "lb") -> None:
    """Store a migration with this outcome and end."""
    with world.store.change() as change:
        made = migrations.request(change, world.instance(name), HYPERVISOR, NIC, "state")
        migrations.end(change, made, outcome, None, {})
        change.db.execute("UPDATE migration SET ended = ? WHERE epoch = ?", (at, made.epoch))


@pytest.mark.parametrize(
    ("outcomes", "count", "rests_s"),
    [
        (["failed"], 1, 30),
        (["failed", "rolled-back"], 2, 60),
        (["rolled-back", "done", "failed"], 1, 30),
        (["failed", "cancelled"], 1, 30),
        (["failed"] * 7, 7, 1920),
        (["failed"] * 8, 8, 3600),
        (["failed"] * 30, 30, 3600),
    ],
)
def test_the_pause_after_failures_grows(
    world: DecideWorld, monkeypatch: pytest.MonkeyPatch, outcomes: list[str], count: int, rests_s: int
) -> None:
    clock = [1_000_000.0]
    monkeypatch.setattr("nfagent.decide.setbacks.time.time", lambda: clock[0])
    world.create("lb")
    setbacks = Setbacks(world.store)
    for outcome in outcomes:
        ended(world, outcome, clock[0])
        clock[0] += 1.0
    failed = clock[0] - 1.0 - (1.0 if outcomes[-1] == "cancelled" else 0.0)
    clock[0] = failed + rests_s - 0.5
    setbacks.look()
    until = time.strftime("%H:%M:%S", time.gmtime(failed + rests_s))
    why = f"its last {count} migration(s) failed; it stays until {until} UTC"
    assert setbacks.held == {world.instance("lb").id: why}
    clock[0] += 0.5
    setbacks.look()
    assert setbacks.held == {}


def test_a_successful_retry_needs_no_pause(world: DecideWorld) -> None:
    for name in ("lb", "other"):
        world.create(name)
    setbacks = Setbacks(world.store)
    for outcome in ("failed", "cancelled", "done"):
        ended(world, outcome, time.time())
    ended(world, "failed", time.time(), "other")
    setbacks.look()
    assert list(setbacks.held) == [world.instance("other").id]
    assert setbacks.take_moved() == {world.instance("lb").id}


def test_old_failures_do_not_count(world: DecideWorld) -> None:
    world.create("lb")
    for ago in (7300, 7300, 10):
        ended(world, "failed", time.time() - ago)
    setbacks = Setbacks(world.store)
    setbacks.look()
    assert setbacks.held[world.instance("lb").id].startswith("its last 1 migration(s) failed; ")
    for ago in (7100, 7000, 5):
        ended(world, "failed", time.time() - ago)
    setbacks.look()
    assert setbacks.held[world.instance("lb").id].startswith("its last 4 migration(s) failed; ")
