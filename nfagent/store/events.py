"""Reads events, which `nfagent.store.database.Change.event` writes."""

import json
import sqlite3
from collections.abc import Sequence

from nfagent.model import Event
from nfagent.store.database import Store


def after(
    db: sqlite3.Connection, last: int, limit: int, project: str | None, subject: str | None = None
) -> list[Event]:
    """Return events with an id above ``last``, oldest first.

    Args:
        db: connection to read from.
        last: an id.
        limit: maximum number of events.
        project: only this project's; None: all, including the administrators' own.
        subject: only those about it.
    """
    rows = db.execute(
        "SELECT * FROM event WHERE id > ?1 AND (?2 IS NULL OR project = ?2) AND (?3 IS NULL OR subject = ?3)"
        " ORDER BY id LIMIT ?4",
        (last, project, subject, limit),
    )
    return [_event(row) for row in rows]


def newest(db: sqlite3.Connection, limit: int, subject: str | None = None, room: str = "") -> list[Event]:
    """Return the newest events, newest first.

    Args:
        db: connection to read from.
        limit: maximum number of events.
        subject: only those about it.
        room: only types with this prefix, such as ``location.``.
    """
    about = (
        "1" if subject is None else "subject = ?2"
    )  # separate, because an OR would prevent use of the index on subject
    rows = db.execute(
        f"SELECT * FROM event WHERE {about} AND substr(type, 1, length(?1)) = ?1 ORDER BY id DESC LIMIT ?3",
        (room, subject, limit),
    )
    return [_event(row) for row in rows]


def since(
    store: Store, last: int, limit: int, project: str | None, subject: str | None = None
) -> tuple[list[Event], int]:
    """Like `after`, and return the ``last`` to use in the next call, for followers."""
    newest = store.last_event  # before reading, so that events written meanwhile are not skipped
    found = after(store.read, last, limit, project, subject)
    return found, found[-1].id if len(found) == limit else max([newest, last, *(event.id for event in found)])


def of_types(db: sqlite3.Connection, types: Sequence[str], last: int, newest: int, limit: int) -> list[Event]:
    """Return events of these types with ids above ``last`` and up to ``newest``, oldest first."""
    rows = db.execute(
        "SELECT * FROM event WHERE id > ?1 AND id <= ?2 AND type IN (SELECT value FROM json_each(?3))"
        " ORDER BY id LIMIT ?4",
        (last, newest, json.dumps(types), limit),
    )
    return [_event(row) for row in rows]


def subjects(db: sqlite3.Connection, kind: str, among: list[str]) -> set[str]:
    """Return those of ``among`` that have an event of this type."""
    rows = db.execute(
        "SELECT value FROM json_each(?2) WHERE EXISTS (SELECT 1 FROM event WHERE subject = value AND type = ?1)",
        (kind, json.dumps(among)),
    )
    return {row["value"] for row in rows}


def oldest(db: sqlite3.Connection) -> int:
    """Return the id of the oldest event that is kept; 0 if there is none."""
    return db.execute("SELECT IFNULL(MIN(id), 0) FROM event").fetchone()[0]


def _event(row: sqlite3.Row) -> Event:
    return Event(**(dict(row) | {"payload": json.loads(row["payload"])}))
