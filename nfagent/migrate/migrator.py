"""Brings migrations of state from their journalled step to their end."""

import functools
import logging
import sqlite3
import time

from nfagent.errors import AgentError
from nfagent.migrate import protocol, recover
from nfagent.migrate.journal import COMMITTED
from nfagent.migrate.move import Parts, RunningMigration, TurnBackError
from nfagent.migrate.outage import Outage
from nfagent.migrate.peer import PeerGoneError
from nfagent.model import Migration
from nfagent.store import instances, migrations, processes

_log = logging.getLogger(__name__)

_MEASURED = "migration"  # files of this name, with the epoch as suffix, hold measurements of the outage
_DEATHS = 4  # deaths of its processes that one call tolerates


class StateMigrator:
    """See `nfagent.protocols.Migrator`.

    Args:
        parts: shared resources.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._outages: dict[int, Outage] = {}
        self._remove_measurements()

    def run(self, migration: Migration) -> None:
        """Bring it as far as possible now; if it is blocked, call again later."""
        instance = instances.find(self._parts.store.read, migration.instance)
        if instance is None:
            with self._parts.store.change() as change:
                migrations.end(change, migration, "failed", "the instance does not exist", migration.report)
            return
        self._parts.keepers.expect(migration.epoch)
        outage = self._outage_of(migration)
        move = RunningMigration(self._parts, migration, instance, outage.seconds)
        try:
            if migration.step == "requested" and move.journal.report.rolled_back_at is None:
                _begin(move)
            elif not move.journal.is_committed:
                recover.roll_back(move, f"the agent ended during step {migration.step}")
            if move.journal.is_committed and move.journal.migration.outcome is None:
                _go_on(move)
        except AgentError as error:
            _log.warning("migration %d of instance %s waits: %s", migration.epoch, instance.name, error)
            move.note_wait(str(error))
        finally:
            move.close()
            if move.journal.migration.outcome is not None:
                self._forget_outage(migration)

    def cancel(self, migration: Migration) -> None:
        """See `nfagent.protocols.Migrator`."""
        instance = instances.find(self._parts.store.read, migration.instance)
        if instance is None:
            return
        move = RunningMigration(self._parts, migration, instance)
        for row in processes.of(self._parts.store.read, instance.id):
            move.halt(row, 0.0)
        waited = move.journal.report.waits or f"it was in step {migration.step}"
        move.journal.measure()
        with self._parts.store.change() as change:
            move.journal.end(change, "cancelled", f"the instance is being deleted; {waited}")
        move.close()
        self._forget_outage(migration)
        self._parts.keepers.end(migration.epoch)

    def stop(self) -> None:
        """See `nfagent.protocols.Migrator`."""
        while self._outages:
            self._outages.popitem()[1].stop(ended=False)

    def _outage_of(self, migration: Migration) -> Outage:
        """Return the outage meter of a migration, which runs from its start and between attempts."""
        found = self._outages.get(migration.epoch)
        if found is None:
            parts, places = self._parts, (migration.source, migration.target)
            sockets = [
                parts.runtime / f"{migration.instance}.{place}.sock" for place in dict.fromkeys((*places, parts.home))
            ]
            found = self._outages[migration.epoch] = Outage(
                sockets,
                parts.switching.bridges(places),
                functools.partial(parts.switching.single_threaded, places),
                functools.partial(self._are_in_step, migration),
                parts.runtime / f"{_MEASURED}.{migration.epoch}",
                time.monotonic() - (time.time() - migration.requested),
            )
            found.start()
        return found

    def _are_in_step(self, migration: Migration) -> bool:
        """Return whether the switches have what the process needs that has the right to send now."""
        read, parts = self._parts.store.read, self._parts
        instance, now = instances.find(read, migration.instance), migrations.find(read, migration.epoch)
        rows = {row.role: row for row in processes.of(read, migration.instance)}
        is_committed = now is not None and now.step in COMMITTED
        sender = (rows.get("incoming") if is_committed else None) or rows.get("serving")
        wires = parts.starter.wires(instance, sender) if instance is not None and sender is not None else []
        places = [(port, (sender.location, edge)) for port, edge in wires if sender is not None]
        return parts.switching.are_in_step((migration.source, migration.target), places)

    def _remove_measurements(self) -> None:
        """Remove files of migrations that ended right before an earlier agent did."""
        epochs = migrations.open_epochs(self._parts.store.read)
        for path in self._parts.runtime.glob(f"{_MEASURED}.*"):
            if path.name.split(".")[1] not in map(str, epochs):
                path.unlink(missing_ok=True)

    def _forget_outage(self, migration: Migration) -> None:
        found = self._outages.pop(migration.epoch, None)
        if found is not None:
            found.stop(ended=True)

    def tidy(self) -> None:
        """See `nfagent.protocols.Migrator`."""
        store = self._parts.store
        self._parts.keepers.tidy(lambda: migrations.open_epochs(store.read))


def _begin(move: RunningMigration) -> None:
    for row in processes.of(move.parts.store.read, move.instance.id):
        if row.role != "serving":
            move.end(row, 0.0)  # left over
    try:
        move.require_wanted()
        protocol.prepare(move)
        protocol.hand_over(move)
    except (AgentError, sqlite3.Error) as error:
        move.journal.look()
        if move.journal.is_committed:
            _log.warning("migration %d of instance %s: %s", move.journal.epoch, move.instance.name, error)
            return
        outcome = error.outcome if isinstance(error, TurnBackError) else "rolled-back"
        recover.roll_back(move, str(error), outcome)


def _go_on(move: RunningMigration) -> None:
    for _ in range(_DEATHS):
        if move.journal.report.restart_at is not None:
            recover.restart(move)
            return
        try:
            protocol.settle(move)
            protocol.switch_over(move)
            protocol.finish(move)
        except PeerGoneError as gone:
            _log.warning("migration %d of instance %s: %s", move.journal.epoch, move.instance.name, gone)
            if gone.role == "incoming":
                recover.replace_new(move)
                if move.journal.migration.outcome is not None:
                    return
        else:
            return
