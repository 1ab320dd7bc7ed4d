"""The journal of migrations."""

import json
import secrets
import sqlite3
import time
from dataclasses import replace
from typing import Any, NamedTuple

from nfagent.errors import StoreError
from nfagent.model import Instance, Migration, Mode, Outcome
from nfagent.store.database import Change

_KEPT = 10_000
_SECRET_BYTES = 32


class Ending(NamedTuple):
    """The outcome of a migration, without its report, because thousands are read often."""

    instance: str
    outcome: Outcome
    ended: float


class Arrival(NamedTuple):
    """A completed migration of an instance."""

    instance: str
    source: str
    target: str
    ended: float


def request(change: Change, instance: Instance, source: str, target: str, mode: Mode) -> Migration:
    """Add a requested migration, and prune the oldest ended ones.

    Raises:
        sqlite3.IntegrityError: the instance has an open one.
    """
    requested = time.time()
    cursor = change.db.execute(
        "INSERT INTO migration (instance, project, source, target, mode, step, requested)"
        " VALUES (?, ?, ?, ?, ?, 'requested', ?)",
        (instance.id, instance.project, source, target, mode, requested),
    )
    epoch = cursor.lastrowid or 0
    change.db.execute("INSERT INTO migration_secret VALUES (?, ?)", (epoch, secrets.token_hex(_SECRET_BYTES)))
    _forget(change, epoch - _KEPT)
    migration = Migration(epoch, instance.id, instance.project, source, target, mode, "requested", requested)
    _tell(change, "migration.requested", migration)
    return migration


def step(change: Change, migration: Migration, name: str, report: dict[str, Any] | None = None) -> Migration:
    """Record that a step is about to start, and the report so far."""
    started, known = migration.started or time.time(), migration.report if report is None else report
    change.db.execute(
        "UPDATE migration SET step = ?, started = ?, report = ? WHERE epoch = ?",
        (name, started, json.dumps(known), migration.epoch),
    )
    changed = replace(migration, step=name, started=started, report=known)
    _tell(change, "migration.step", changed)
    return changed


def end(
    change: Change, migration: Migration, outcome: Outcome, reason: str | None, report: dict[str, Any]
) -> Migration:
    """Record the outcome."""
    ended = time.time()
    change.db.execute(
        "UPDATE migration SET ended = ?, outcome = ?, reason = ?, report = ? WHERE epoch = ?",
        (ended, outcome, reason, json.dumps(report), migration.epoch),
    )
    change.db.execute("DELETE FROM migration_secret WHERE epoch = ?", (migration.epoch,))
    changed = replace(migration, ended=ended, outcome=outcome, reason=reason, report=report)
    _tell(change, "migration.ended", changed)
    return changed


def secret(db: sqlite3.Connection, epoch: int) -> str:
    """Return the secret that authenticates markers and copied state, 64 hexadecimal digits.

    Raises:
        StoreError: the migration has ended.
    """
    row = db.execute("SELECT secret FROM migration_secret WHERE epoch = ?", (epoch,)).fetchone()
    if row is None:
        raise StoreError(f"migration {epoch} has no secret: it has ended")
    return row["secret"]


def find(db: sqlite3.Connection, epoch: int) -> Migration | None:
    """Find a migration by epoch."""
    return by_epoch(db, [epoch]).get(epoch)


def open_of(db: sqlite3.Connection, instance: str) -> Migration | None:
    """Return an instance's open migration."""
    row = db.execute("SELECT * FROM migration WHERE instance = ? AND ended IS NULL", (instance,)).fetchone()
    return None if row is None else _migration(row)


def open_epochs(db: sqlite3.Connection) -> list[int]:
    """Return the epochs of all open migrations."""
    return [row["epoch"] for row in db.execute("SELECT epoch FROM migration WHERE ended IS NULL")]


def page(
    db: sqlite3.Connection,
    instance: str | None,
    outcome: str | None,
    limit: int,
    before: int | None,
) -> list[Migration]:
    """Return migrations, newest first.

    Args:
        db: connection to read from.
        instance: only its migrations; None: all.
        outcome: only this outcome; ``none``: open ones; None: all.
        limit: maximum number.
        before: only lower epochs.
    """
    rows = db.execute(
        "SELECT * FROM migration WHERE (?1 IS NULL OR instance = ?1) AND (?2 IS NULL OR IFNULL(outcome, 'none') = ?2)"
        " AND (?3 IS NULL OR epoch < ?3) ORDER BY epoch DESC LIMIT ?4",
        (instance, outcome, before, limit),
    )
    return [_migration(row) for row in rows]


def endings(db: sqlite3.Connection, since: float) -> list[Ending]:
    """Return those that ended after ``since``, seconds since 1970, newest first."""
    rows = db.execute("SELECT instance, outcome, ended FROM migration WHERE ended > ? ORDER BY ended DESC", (since,))
    return [Ending(*row) for row in rows]


def arrivals(db: sqlite3.Connection) -> dict[str, Arrival]:
    """Return the newest completed migration of each instance, by its id."""
    rows = db.execute(
        "SELECT last.instance, last.source, last.target, last.ended FROM instance"
        " JOIN migration AS last ON last.epoch ="
        " (SELECT MAX(epoch) FROM migration WHERE migration.instance = instance.id AND outcome = 'done')"
    )
    return {row["instance"]: Arrival(*row) for row in rows}


def by_epoch(db: sqlite3.Connection, wanted: list[int]) -> dict[int, Migration]:
    """Return the migrations with these epochs."""
    rows = db.execute("SELECT * FROM migration WHERE epoch IN (SELECT value FROM json_each(?))", (json.dumps(wanted),))
    return {row["epoch"]: _migration(row) for row in rows}


def _migration(row: sqlite3.Row) -> Migration:
    return Migration(**(dict(row) | {"report": json.loads(row["report"])}))


def _forget(change: Change, last: int) -> None:
    """Delete ended migrations up to an epoch; `nfagent.store.figures` still counts them."""
    change.db.execute(
        "INSERT INTO migration_forgotten SELECT outcome, COUNT(*) FROM migration WHERE epoch <= ? AND ended IS NOT NULL"
        " GROUP BY outcome ON CONFLICT (outcome) DO UPDATE SET count = count + excluded.count",
        (last,),
    )
    change.db.execute("DELETE FROM migration WHERE epoch <= ? AND ended IS NOT NULL", (last,))


def _tell(change: Change, kind: str, migration: Migration) -> None:
    # Only administrators may know where instances run.
    change.event(kind, str(migration.epoch), None, vars(migration))
