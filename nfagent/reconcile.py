"""Makes the actual state follow the desired state.

Each step compares desired and actual state and does what is missing. It runs when either has changed, when a process
has ended, and some time after a failure. It does not depend on what was done before a crash: rows and processes tell.
"""

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nfagent.catalog import Catalog
from nfagent.errors import (
    ControlRefusedError,
    ControlUnreachableError,
    DiskFullError,
    LaunchError,
    UnavailableError,
    WiringError,
)
from nfagent.locations import Locations, Transition
from nfagent.migrate.keepers import key_of
from nfagent.model import Instance, Migration, Mode, Outcome, Running
from nfagent.protocols import Decider, Migrator
from nfagent.reasons import REFUSED
from nfagent.schedule import Schedule
from nfagent.starter import Starter
from nfagent.store import Store, events, instances, migrations, processes
from nfagent.tracing import Tracing
from server.tracing import step

_log = logging.getLogger(__name__)

_THREADS = 12
_RESERVED = 4  # threads for migrations and the like, while many instances are started or deleted
_STOP_S = 10.0
_AGAIN_S = 30.0  # polling interval where ends of processes are not reported
_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 60.0
_LAST_MIGRATION_RETRY_S = 2.0  # packets may wait meanwhile
_STEADY_S = 60.0
_SERVED_S = 10.0  # a process that served for so long does not fail to start
_ROOM_S = 1.0  # between looks for room on a full disk
_FOLLOW_S = 3600.0
_BATCH = 1000
_NEVER = 2**63

WAKING = ("instance.", "migration.requested")
"""Prefixes of event types that trigger a step. Steps themselves write the others, which must not end their pauses."""

_RETURNS = ("location.up", "database.up", "oneswitchd.up")
"""Events after which what was blocked by switches need not wait for its next try."""


@dataclass
class _Failures:
    """Consecutive failures of one thing."""

    count: int = 0
    last: float = float("-inf")

    def pause(self) -> float:
        """Count one; return the seconds until the next try, which grow, and shrink again after a good while."""
        now = time.monotonic()
        self.count = 1 if now - self.last > _STEADY_S + _LAST_RETRY_S else self.count + 1
        self.last = now
        return min(_FIRST_RETRY_S * 2.0 ** min(self.count - 1, 20), _LAST_RETRY_S)


class Reconciler:
    """Threads that reconcile, from `start` to `stop`.

    Args:
        store: desired and actual state.
        catalog: what can be deployed.
        starter: starts and ends processes.
        decider: chooses where instances start.
        migrator: moves state.
        locations: knows which ones are disconnected.
        flows: of an instance, in the last measurement before a moment (seconds since 1970).
        tracing: of steps; None: they are not traced.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        starter: Starter,
        decider: Decider,
        migrator: Migrator,
        locations: Locations,
        flows: Callable[[str, float], int | None],
        tracing: Tracing | None = None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._starter = starter
        self._decider = decider
        self._migrator = migrator
        self._locations = locations
        self._flows = flows
        self._tracing = tracing
        self._causes: dict[str, str | None] = {}  # traces that the next steps belong to, by instance; None: new ones
        self._without_room: set[str] = set()  # instances whose step waits for room on the disk
        self._rewire: set[str] = set()  # instances whose ports may be missing on a switch that is back
        self._unswept: set[str] = set()  # locations where ending strays failed
        self._failures: defaultdict[str, _Failures] = defaultdict(_Failures)
        self._blocked: defaultdict[str, _Failures] = defaultdict(_Failures)  # by switches, not by their processes
        self._served: dict[str, float] = {}  # since when instances serve (steady clock), by id
        self._refused: dict[str, tuple[int, str]] = {}  # configurations that processes have refused: generation, why
        self._setbacks: defaultdict[str, _Failures] = defaultdict(_Failures)  # migrations that failed
        self._held_back: dict[str, tuple[str, float]] = {}  # where an instance could not be moved, and until when
        self._schedule = Schedule(self.step, _THREADS, self._is_slow, _RESERVED)
        self._follower = threading.Thread(target=self._follow, name="follow events", daemon=True)

    def start(self) -> None:
        """Start, with a step for everything: a switch may have come back without its ports."""
        here, *elsewhere = self._starter.machines()
        self._end_strays(here)
        for location in elsewhere:  # in threads, so that a hung machine does not delay other machines' instances
            threading.Thread(target=self._sweep, args=(location,), name=f"strays {location}", daemon=True).start()
        self._rewire.update(instances.ids(self._store.read))
        for running in processes.everything(self._store.read):
            with contextlib.suppress(LaunchError):  # server.toml no longer has its location: its step reports that
                self._starter.watch(running)
        for instance in instances.ids(self._store.read):
            self._schedule.wake(instance)
        self._schedule.start()
        self._follower.start()

    def stop(self) -> None:
        """Stop; instances' processes keep running."""
        self._store.end_waits()
        self._schedule.stop(_STOP_S)
        self._migrator.stop()
        if self._follower.is_alive():
            self._follower.join(_STOP_S)

    def wake(self, instance: str) -> None:
        """Schedule a step for an instance."""
        self._schedule.wake(instance)

    def look_at(self, location: str, change: Transition) -> None:
        """Schedule steps for the instances at a location that went down or came up."""
        if change == "up" and not self._locations.is_down(location):
            self._end_strays(location)  # only here: others may be disconnected, and asking them would take long
            self._rewire.update(instances.ids(self._store.read))
        for instance in instances.ids(self._store.read):
            self._schedule.wake(instance)

    def _sweep(self, location: str) -> None:
        try:
            self._end_strays(location)
        except Exception:  # noqa: BLE001  a step that begins something there tries again
            if not self._store.is_ending:
                _log.exception("cannot end strays at %s", location)
            self._unswept.add(location)

    def _end_strays(self, location: str | None = None) -> None:
        def kept() -> list[str]:
            return [key_of(epoch) for epoch in migrations.open_epochs(self._store.read)]

        ended, failed = self._starter.end_strays(kept, location)
        self._unswept.update(failed)
        for key in ended:
            _log.warning("ended a process without a row: %s", key)

    def _follow(self) -> None:
        last = self._store.last_event
        while not self._store.is_ending:
            try:
                found, last = events.since(self._store, last, _BATCH, None)
            except Exception:  # noqa: BLE001  a disk error must not end it, or orders would stay unnoticed
                _log.exception("cannot read events; retrying")
                self._store.wait(_NEVER, _FIRST_RETRY_S)
                continue
            for event in found:
                if event.type in _RETURNS:
                    for blocked in list(self._blocked):
                        self._schedule.wake(blocked)
                if event.type.startswith(WAKING):
                    woken = event.payload.get("instance", event.subject)
                    if self._tracing is not None:
                        self._causes[woken] = event.payload.get("traceparent")
                    self._schedule.wake(woken)
            if len(found) < _BATCH:
                self._store.wait(last, _FOLLOW_S, (*WAKING, *_RETURNS))

    def _is_slow(self, key: str) -> bool:
        """Return whether an instance's next step starts or deletes it: slow, and without waiting packets."""
        db = self._store.read
        if migrations.open_of(db, key) is not None:
            return False
        instance = instances.find(db, key)
        return instance is None or not instance.present or not processes.of(db, key)

    # ---- steps: each returns the maximum number of seconds until the next one

    def step(self, key: str) -> float | None:
        """Do what is missing for an instance."""
        try:
            delay = self._traced_step(key)
        except DiskFullError as error:
            # Logged once, because the log may be on that disk; the list of faults shows it meanwhile.
            if key not in self._without_room:
                self._without_room.add(key)
                _log.warning("instance %s: %s", key, error)
            return _ROOM_S
        self._without_room.discard(key)
        return delay

    def _traced_step(self, key: str) -> float | None:
        """Do it as a part of the trace of what has changed the instance."""
        if self._tracing is None or key not in self._causes:
            return self._step(key)
        cause = self._causes.pop(key)
        with self._tracing.begin("reconcile", "internal", cause, instance=key):
            delay = self._step(key)
        if delay is not None and delay < _AGAIN_S:
            self._causes.setdefault(key, cause)
        return delay

    def _step(self, key: str) -> float | None:
        instance = instances.find(self._store.read, key)
        if instance is None:
            for known in (
                self._failures,
                self._blocked,
                self._served,
                self._refused,
                self._setbacks,
                self._held_back,
                self._causes,
            ):
                known.pop(key, None)
            self._rewire.discard(key)
            return None
        migration = migrations.open_of(self._store.read, key)
        rows = processes.of(self._store.read, key)
        serving = next((row for row in rows if row.role == "serving"), None)
        try:
            if migration is not None:
                return self._migrate(instance, migration, serving)
            self._tidy()
            if not instance.present:
                return self._delete(instance, rows)
            for row in rows:
                if row is not serving:
                    self._end_row(row)  # left over from an ended migration
            return self._serve(instance, serving)
        except LaunchError as error:
            _log.warning("instance %s (%s): %s", instance.name, instance.id, error)
            if serving is not None:
                self._starter.note(serving, str(error))
            return self._retry(instance)

    def _end_row(self, row: Running) -> None:
        """End a process and delete its row, without contacting a location that is down."""
        try:
            self._starter.end(row)
        except LaunchError:
            if not self._locations.is_down(row.location):
                raise
            self._starter.forget(row)
            self._unswept.add(row.location)

    def _serve(self, instance: Instance, serving: Running | None) -> float | None:
        if serving is not None and self._locations.is_down(serving.location):
            return self._leave(instance, serving)
        if serving is None or serving.phase in ("error", "stopping"):
            return self._start(instance, self._wanted(instance, serving), serving)
        if serving.phase == "starting":
            return self._go_on(instance, serving)
        if self._starter.find(serving) is None:
            ending = self._starter.ending(serving)
            if time.monotonic() - self._served.get(instance.id, float("-inf")) <= _SERVED_S:
                return self._fail(instance, serving.location, serving, ending)
            self._failures.pop(instance.id, None)
            self._note_failure(instance, serving.location, serving, ending)
            return 0.0  # packets are lost meanwhile, and only repeated failures need pauses
        if serving.flavor != instance.flavor:
            return self._start(instance, serving.location, self._starter.halt(serving))
        if serving.location != self._wanted(instance, serving):
            return self._relocate(instance, serving)
        if serving.generation < instance.generation:
            return self._configure(instance, serving)
        return self._look_after(instance, serving)

    def _leave(self, instance: Instance, serving: Running) -> float | None:
        """Restart an instance of a location that is down on the hypervisor; its state is lost."""
        if instance.pin == serving.location:
            _, why = self._locations.down_since(serving.location) or (0.0, "")
            self._starter.note(serving, f"{serving.location} is down, and this instance is pinned there: {why}")
            return _AGAIN_S
        with self._store.change() as change:
            if instance.target not in (None, self._catalog.home):
                instances.aim(change, instance.id, self._catalog.home)
            migrations.request(change, instance, serving.location, self._catalog.home, "restart")
        return 0.0

    def _look_after(self, instance: Instance, serving: Running) -> float | None:
        """Check a healthy process: reconnect lost ports, and clear an old reason."""
        if serving.silent is not None:
            return _AGAIN_S  # `nfagent.health` has said what is wrong, and says when it is over
        try:
            if instance.id in self._rewire:
                self._starter.connect(instance, serving)  # oneswitchd knows the ports, but the switch may lack them
                self._rewire.discard(instance.id)
            elif not self._starter.is_connected(instance, serving):
                _log.warning("instance %s (%s): reconnecting its ports", instance.name, instance.id)
                self._starter.serve(instance, serving)
                return _AGAIN_S
            self._starter.note(serving, None)
        except WiringError as error:
            self._starter.note(serving, str(error))
            return self._blocked[instance.id].pause()
        self._blocked.pop(instance.id, None)
        return _AGAIN_S

    def _tidy(self) -> None:
        """End what an earlier attempt failed to end."""
        self._migrator.tidy()
        for location in list(self._unswept):
            if self._starter.is_here(location) or not self._locations.is_cut_off(location):
                self._unswept.discard(location)  # so that no other thread tries at the same time
                self._sweep(location)

    def _start(self, instance: Instance, location: str, before: Running | None) -> float | None:
        if self._locations.is_down(location):
            return self._fail(instance, location, before, f"{location} is down, and this instance is pinned there")
        if self._locations.is_cut_off(location):
            return _FIRST_RETRY_S  # until it is clear whether it stays so
        if before is not None and before.phase == "stopping":
            before = self._starter.halt(before)
        try:
            running = self._starter.begin(instance, location, "serving", before)
        except LaunchError as error:
            if self._wanted(instance, before) != location:
                return 0.0  # another instance has taken the slot since this one was placed
            return self._fail(instance, location, before, str(error))
        return self._go_on(instance, running)

    def _go_on(self, instance: Instance, running: Running) -> float | None:
        """Bring a process from its row to serving."""
        try:
            running = self._starter.launch(instance, running)
        except LaunchError as error:
            current = next((row for row in processes.of(self._store.read, instance.id) if row.role == "serving"), None)
            return self._fail(instance, running.location, current, str(error))
        try:
            self._starter.serve(instance, running)
        except WiringError as error:
            _log.warning("instance %s (%s): %s", instance.name, instance.id, error)
            self._starter.note(running, str(error))
            return self._blocked[instance.id].pause()
        self._blocked.pop(instance.id, None)
        self._served[instance.id] = time.monotonic()
        return _AGAIN_S

    def _configure(self, instance: Instance, serving: Running) -> float | None:
        if not self._starter.kind(instance).movable:
            return self._start(instance, serving.location, self._starter.halt(serving))
        refused, reason = self._refused.get(instance.id, (0, ""))
        if refused == instance.generation:
            if serving.silent is None:  # else `nfagent.health` has said what is wrong
                self._starter.note(serving, reason)  # it may have failed before, or another fault took its place
            return _AGAIN_S
        try:
            self._starter.configure(instance, serving)
        except ControlRefusedError as error:
            reason = f"{REFUSED}: {error.detail}"
            self._refused[instance.id] = instance.generation, reason
            self._starter.note(serving, reason)
        except ControlUnreachableError as error:
            _log.warning("instance %s (%s): %s", instance.name, instance.id, error)
            return self._retry(instance)
        return _AGAIN_S

    def _delete(self, instance: Instance, rows: list[Running]) -> float | None:
        try:
            self._starter.disconnect(instance)
        except WiringError as error:
            _log.warning("deletion of instance %s (%s) waits: %s", instance.name, instance.id, error)
            for row in rows:
                self._starter.note(self._starter.halt(row), str(error))
            if not rows:  # the reason needs one
                self._starter.fail(instance, self._catalog.home, "serving", None, str(error))
            return self._blocked[instance.id].pause()
        for row in rows:
            self._end_row(row)
        with self._store.change() as change:
            instances.remove(change, instance)
        return 0.0

    # ---- from one location to another

    def _wanted(self, instance: Instance, serving: Running | None) -> str:
        if instance.pin is not None:
            return instance.pin
        # An instance that has never run is placed again, because a slot may have become free elsewhere.
        wanted = instance.target or (serving.location if serving and serving.pid is not None else None)
        if wanted is not None and self._locations.is_down(wanted):
            return self._catalog.home
        if wanted is None:
            try:
                with step("place"):
                    wanted = self._decider.place(instance)
            except UnavailableError as error:
                _log.info("instance %s (%s) starts at %s: %s", instance.name, instance.id, self._catalog.home, error)
        return wanted or self._catalog.home

    def _relocate(self, instance: Instance, serving: Running) -> float | None:
        goal = self._wanted(instance, serving)
        if self._locations.is_down(goal):
            self._starter.note(serving, f"it is pinned to {goal}, which is down")
            return _AGAIN_S
        pause = self._pause(instance, goal)
        if pause > 0:
            self._starter.note(serving, f"it should run at {goal} but could not be moved there: see its migrations")
            return pause
        mode: Mode = "state" if self._starter.kind(instance).movable else "restart"
        with self._store.change() as change:
            migrations.request(change, instance, serving.location, goal, mode)
        return 0.0

    def _pause(self, instance: Instance, goal: str) -> float:
        """Return the seconds until the next attempt to move an instance after a failed one."""
        refused, until = self._held_back.get(instance.id, ("", 0.0))
        return until - time.monotonic() if refused == goal else 0.0

    def _migrate(self, instance: Instance, migration: Migration, serving: Running | None) -> float | None:
        if migration.mode == "restart":
            delay = self._restart(instance, migration, serving)
        else:
            self._migrator.run(migration)
            delay = 0.0
        now = migrations.find(self._store.read, migration.epoch)
        if now is not None and now.outcome is None:
            if self._is_to_go(instance) and now.mode == "state":
                self._migrator.cancel(now)
                return 0.0
            self._note_wait(instance)
            return delay or min(self._retry(instance), _LAST_MIGRATION_RETRY_S)
        self._failures.pop(instance.id, None)  # earlier failures no longer count: the next start does not wait
        if now is not None and now.outcome == "done":
            self._setbacks.pop(instance.id, None)
        else:
            self._held_back[instance.id] = migration.target, time.monotonic() + self._setbacks[instance.id].pause()
        return delay

    def _is_to_go(self, instance: Instance) -> bool:
        """Return whether an instance is to be deleted by now."""
        found = instances.find(self._store.read, instance.id)
        return found is not None and not found.present

    def _note_wait(self, instance: Instance) -> None:
        """Note that a migration waits; its report says for what, which clients may not know."""
        for row in processes.of(self._store.read, instance.id):
            if row.role == "serving" and row.reason is None:
                self._starter.note(row, "its migration waits; the migration's report has the reason")

    def _restart(self, instance: Instance, migration: Migration, serving: Running | None) -> float | None:
        """Migrate an instance without movable state: end it at the source and start it at the target."""
        if not instance.present:
            self._end(migration, "cancelled", "the instance is being deleted")
            return 0.0
        if down := self._locations.down_since(migration.target):
            return self._back(instance, migration, f"{migration.target} is down: {down[1]}")
        if migration.step == "requested":
            with self._store.change() as change:
                migration = migrations.step(change, migration, "restart", self._stopped(instance, migration))
        if serving is not None and serving.location == migration.source:
            self._end_row(serving)
            serving = None
        try:
            running = serving or self._starter.begin(instance, migration.target, "serving", None)
            running = self._starter.launch(instance, running)
        except LaunchError as error:
            return self._back(instance, migration, str(error))
        try:
            self._starter.serve(instance, running)
        except WiringError as error:
            self._starter.note(running, str(error))
            return self._retry(instance)
        self._end(migration, "done", None)
        return 0.0

    def _stopped(self, instance: Instance, migration: Migration) -> dict[str, Any]:
        """Return the first report of a restart: the start of the outage, and what a lost location took with it."""
        down = self._locations.down_since(migration.source)
        if down is None:
            return {"unserved_since": time.time()}
        since, why = down
        reason = f"{migration.source} is down: {why}"
        lost = {"why": reason, "flows": self._flows(instance.id, since), "instances": [instance.id]}
        return {"unserved_since": since, "lost_state": lost}

    def _back(self, instance: Instance, migration: Migration, reason: str) -> float:
        """Return to the source after a failed start at the target."""
        for row in processes.of(self._store.read, instance.id):
            if row.location != migration.source:
                self._end_row(row)
        restarted = migration.step != "requested"
        with self._store.change() as change:
            instances.aim(change, instance.id, migration.source)
            migrations.end(change, migration, "rolled-back", reason, _report(migration, restarted=restarted))
        return 0.0

    def _end(self, migration: Migration, outcome: Outcome, reason: str | None) -> None:
        done = outcome == "done"
        with self._store.change() as change:
            migrations.end(change, migration, outcome, reason, _report(migration, restarted=done))
            if done and "lost_state" in migration.report:
                told = {"id": migration.instance, "location": migration.target, "from": migration.source}
                told |= migration.report["lost_state"]
                change.event("instance.recovered", migration.instance, None, told)

    # ---- failures

    def _fail(self, instance: Instance, location: str, running: Running | None, reason: str) -> float:
        """Note a failure; return the seconds until the next try."""
        self._note_failure(instance, location, running, reason)
        return self._retry(instance)

    def _note_failure(self, instance: Instance, location: str, running: Running | None, reason: str) -> None:
        _log.warning("instance %s (%s) at %s: %s", instance.name, instance.id, location, reason)
        self._starter.fail(instance, location, "serving", running, reason)

    def _retry(self, instance: Instance) -> float:
        """Return the seconds until the next try."""
        return self._failures[instance.id].pause()


def _report(migration: Migration, *, restarted: bool) -> dict[str, Any]:
    """Return the final report of a migration without movable state."""
    report = dict(migration.report)
    since = report.pop("unserved_since", None)
    if since is not None:
        report["outage_us"] = round((time.time() - since) * 1e6)
    return report | ({"restarted": True} if restarted else {})
