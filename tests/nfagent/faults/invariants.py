"""Invariants of a quiet world: no dead end, and no row that contradicts the processes."""

from __future__ import annotations

from collections.abc import Iterator

from nfagent.model import Running, View
from nfagent.store import migrations, processes
from tests.nfagent.faults.machine import FakeProcess
from tests.nfagent.faults.world import World

_REST_S = 30.0
_OPEN, _REASON = "a migration has not ended", "it has a reason though it is active"


def may_rest(world: World, delay: float) -> bool:
    """Tell whether a reconciler without work for this long may be left alone."""
    return delay >= _REST_S and not world.clock.is_expecting


def standing(world: World) -> str:
    """Describe the state of a world."""
    view = world.view()
    if view is None:
        return "there is no instance"
    move = view.migration
    rows = [f"{row.role} {row.phase} at {row.location} ({row.reason})" for row in _rows(world)]
    runs = [f"{world.short(each.key)} {world.nf(each).phase}" for each in world.machines.functions()]
    ports = [f"{port.home} moving {port.moving}" for port in world.switches.ports.values()]
    last = f"; last fault: {world.failures[-1]!r}" if world.failures else ""
    return (
        f"{view.status}; migration: {move and (move.step, move.reason or move.report.get('why'))}; rows: {rows};"
        f" processes: {runs}; ports: {ports}{last}"
    )


def settled(world: World, *, lost: bool) -> list[str]:
    """Return the violations of a quiet world.

    Args:
        world: driven until it was quiet.
        lost: a necessary part is lost for good: reporting that is all that is required.
    """
    view = world.view()
    if view is None:
        return list(_left(world))
    found = list(_wrong(world, view))
    if is_said(view) and lost:
        found = []
    return [f"{each}; {standing(world)}" for each in found]


def deleted(world: World, *, lost: bool) -> list[str]:
    """Return the violations after a deletion."""
    view = world.view()
    if view is None:
        return list(_left(world))
    if not lost:
        return [f"it is not deleted; {standing(world)}"]
    return [] if is_said(view) else [f"it is not deleted, and no reason is said; {standing(world)}"]


def is_said(view: View) -> bool:
    """Tell whether the API reports the fault."""
    return bool((view.running and view.running.reason) or (view.migration and view.migration.reason))


def _left(world: World) -> Iterator[str]:
    """Return the remains of a deleted instance."""
    for each in (*_reached(world), *world.machines.keepers()):
        yield f"after the deletion {each.key} runs"
    if world.switches.ports:
        yield f"after the deletion there are ports: {world.switches.ports}"


def _wrong(world: World, view: View) -> Iterator[str]:
    if view.migration is not None:
        yield _OPEN
        return
    rows = _rows(world)
    if view.status != "active" or view.running is None or len(rows) != 1:
        yield "it is not active, with one row"
        return
    if view.running.reason is not None and "was refused" in view.running.reason:
        return
    if view.running.reason is not None:
        yield _REASON
    if view.running.generation != view.instance.generation and not view.running.reason:
        yield "its newest configuration is not in force"
    yield from _processes(world, view.running)
    yield from _ports(world, view.running)
    yield from _state(world)
    yield from _reports(world)


def _processes(world: World, row: Running) -> Iterator[str]:
    functions = _reached(world)
    if [each.process.incarnation for each in functions] != [row.incarnation]:
        yield "what runs is not what the row says"
        return
    if world.machines.is_hung(functions[0]) and row.reason is None:
        yield "it hangs, and it is not said"
    if world.nf(functions[0]).phase != "running":
        yield "it does not run free"
    if world.machines.keepers():
        yield "a keeper is left"


def _ports(world: World, row: Running) -> Iterator[str]:
    edge = {"s0": "vf0", "s1": "pf0vf0"}.get(row.slot or "")
    for port in world.switches.ports.values():
        if port.moving is not None:
            yield "a move of its port is left"
        elif port.home != (row.location, edge):
            yield "its port is elsewhere"
    if not world.switches.ports:
        yield "its port is gone"


def _state(world: World) -> Iterator[str]:
    moves = migrations.page(world.store.read, world.instance, None, 100, None)
    is_told = any(move.report.get("lost_state") or move.mode == "restart" for move in moves)
    functions = _reached(world)
    has = world.nf(functions[0]).arena.count if functions else 0
    if has != world.counted and not is_told and not world.is_excused:
        yield f"its state is of {has} packets, not of {world.counted}, and no report says so"


def _reports(world: World) -> Iterator[str]:
    """Check that a report names the step of a rollback exactly if there was one."""
    for move in migrations.page(world.store.read, world.instance, None, 100, None):
        went_back = move.report.get("rolled_back_at")
        has_ended = move.mode == "state" and move.outcome in ("done", "rolled-back")
        if has_ended and (move.outcome == "rolled-back") != (went_back is not None):
            yield f"migration {move.epoch} is {move.outcome}, and its report says rolled_back_at: {went_back}"


def _rows(world: World) -> list[Running]:
    return processes.of(world.store.read, world.instance)


def _reached(world: World) -> list[FakeProcess]:
    """Return functions at reachable locations; the others are ended when their locations are back."""
    return [each for each in world.machines.functions() if world.machines.reaches(each.location)]
