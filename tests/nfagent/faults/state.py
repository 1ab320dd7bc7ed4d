"""The external state at a moment of a run, for comparison with other moments."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from nfagent.reasons import REFUSED
from tests.nfagent.faults.nf import Arena, Keeper, Nf
from tests.nfagent.faults.switches import HUB, NIC, ONESWITCHD

if TYPE_CHECKING:
    from tests.nfagent.faults.machine import FakeProcess
    from tests.nfagent.faults.world import World

_GRAIN_S = 1.0
_LONG_S = 64.0


Moment = tuple[object, ...]


def moment(world: World) -> Moment:
    """Return all state outside the agent's memory, without names, texts and exact times."""
    return _Moment(world).whole()


class _Moment:
    """One moment; random names are numbered in order of appearance."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._names: dict[object, int] = {}
        self._epoch = world.store.read.execute("SELECT MAX(epoch) FROM migration WHERE ended IS NULL").fetchone()[0]

    def whole(self) -> tuple[object, ...]:
        world = self._world
        return (
            self._rows(),
            tuple(self._process(each) for each in world.machines.processes.values() if each.is_alive),
            self._switches(),
            frozenset((what, self._time(seconds)) for seconds, what in world.clock.expected()),
            (world.is_dead, world.is_excused, bool(world.violations)),
        )

    def _name(self, thing: object) -> int | None:
        return None if thing is None else self._names.setdefault(thing, len(self._names))

    def _time(self, seconds: float) -> float:
        """Return a time as coarse seconds from now."""
        left = max(-_LONG_S, min(_LONG_S, seconds - self._world.clock.now))
        return math.ceil(left / _GRAIN_S)

    # ---- the store

    def _rows(self) -> tuple[object, ...]:
        db = self._world.store.read
        instance = [
            (row["config"], row["pin"], row["target"], row["present"], row["generation"])
            for row in db.execute("SELECT * FROM instance")
        ]
        running = [self._running(row) for row in db.execute("SELECT * FROM running ORDER BY role DESC")]
        moves = {self._migration(row) for row in db.execute("SELECT * FROM migration")}
        down = db.execute("SELECT type FROM event WHERE type LIKE 'location.%' ORDER BY id DESC LIMIT 1").fetchall()
        return (tuple(instance), tuple(running), frozenset(moves), tuple(each["type"] for each in down))

    def _running(self, row: Any) -> tuple[object, ...]:
        return (
            self._name(row["incarnation"]),
            *(row["role"], row["location"], row["slot"], row["phase"], row["generation"]),
            *(row["control"] is None, _text(row["reason"]), row["pid"] is None, row["own_pid"] is None),
            None if row["silent"] is None else self._time(row["silent"]),
        )

    def _migration(self, row: Any) -> tuple[object, ...]:
        report = json.loads(row["report"])
        if row["outcome"] is not None:
            return (row["mode"] == "restart" or bool(report.get("lost_state")), self._misreported(row, report))
        told = ("why", "waits", "undrained", "lost_state")
        kept = ("mode", "rolled_back_as", "replaced", "restart_at", "failures", "restarted")
        return (
            *(row["source"], row["target"], row["mode"], row["step"]),
            *(report.get(each) for each in kept),
            *(bool(report.get(each)) for each in told),
            report.get("rolled_back_at") is None,
        )

    def _misreported(self, row: Any, report: dict[str, Any]) -> bool:
        has_ended = row["mode"] == "state" and row["outcome"] in ("done", "rolled-back")
        return has_ended and (row["outcome"] == "rolled-back") != (report.get("rolled_back_at") is not None)

    # ---- processes

    def _process(self, process: FakeProcess) -> tuple[object, ...]:
        program = process.program
        which = process.key == f"keeper.{self._epoch}" if process.is_keeper else process.location
        queued = tuple((each.verb, len(each.descriptors)) for each in process.queued)
        hung = self._time(process.hung_until)
        return (
            which,
            self._name(process.process.incarnation) if not process.is_keeper else None,
            max(0, hung),
            queued,
            self._keeper(program) if isinstance(program, Keeper) else self._function(program),
        )

    def _keeper(self, keeper: Keeper) -> tuple[object, ...]:
        return (keeper.note is None, len(keeper.kept))

    def _function(self, nf: Nf) -> tuple[object, ...]:
        is_now = nf.epoch == self._epoch  # its part in an ended migration no longer counts
        return (
            *(json.dumps(nf.config), nf.phase, is_now, frozenset(nf.answers if is_now else ())),
            *(self._arena(nf.arena), self._arena(nf.rings), self._arena(nf.pending)),
            *(nf.listens is not None, self._end(nf.stream), self._end(nf.source), nf.is_orphaned, nf.is_offered),
        )

    def _end(self, nf: Nf | None) -> tuple[object, ...] | None:
        return None if nf is None else (nf.is_alive, nf.phase, self._arena(nf.arena))

    def _arena(self, arena: Arena | None) -> tuple[object, ...] | None:
        if arena is None:
            return None
        return (self._name(arena.inode), arena.count == self._world.counted, arena.ended, arena.given)

    # ---- switches

    def _switches(self) -> tuple[object, ...]:
        switches = self._world.switches
        ports = [
            (port.number, port.home, port.moving and (port.moving.to, port.moving.stage, port.moving.until))
            for port in switches.ports.values()
        ]
        down = [(name, switches.is_gone(name)) for name in (HUB, NIC, ONESWITCHD) if not switches.is_up(name)]
        return (tuple(ports), frozenset(switches.attached), tuple(down))


def _text(reason: str | None) -> str | None:
    if reason is None:
        return None
    return "refused" if REFUSED in reason else "text"
