"""Chains of instances."""

import json
import sqlite3
from typing import Any

from nfagent.model import Chain
from nfagent.store.database import Change


def add(change: Change, chain: Chain) -> None:
    """Add a chain that has no row yet."""
    change.db.execute(
        "INSERT INTO chain (id, name, project, hops, latency_us, created) VALUES (?, ?, ?, ?, ?, ?)",
        (chain.id, chain.name, chain.project, json.dumps(chain.hops), chain.latency_us, chain.created),
    )
    change.event("chain.created", chain.id, chain.project, {"id": chain.id, "name": chain.name, "hops": chain.hops})


def remove(change: Change, chain: Chain) -> None:
    """Delete a chain."""
    change.db.execute("DELETE FROM chain WHERE id = ?", (chain.id,))
    change.event("chain.deleted", chain.id, chain.project, {"id": chain.id, "name": chain.name})


def find(db: sqlite3.Connection, chain: str) -> Chain | None:
    """Find a chain by id."""
    row = db.execute("SELECT * FROM chain WHERE id = ?", (chain,)).fetchone()
    return None if row is None else _chain(row)


def page(db: sqlite3.Connection, project: str | None, limit: int | None, after: str | None) -> list[Chain]:
    """Return a project's chains (None: all), ordered by name, after the one with the id ``after``.

    Raises:
        KeyError: chain ``after`` does not exist.
    """
    marker = find(db, after) if after is not None else None
    if after is not None and marker is None:
        raise KeyError(after)
    name, key = (marker.name, marker.id) if marker else ("", "")
    rows = db.execute(
        "SELECT * FROM chain WHERE (?1 IS NULL OR project = ?1) AND (name, id) > (?2, ?3) ORDER BY name, id LIMIT ?4",
        (project, name, key, -1 if limit is None else limit),
    )
    return [_chain(row) for row in rows]


def through(db: sqlite3.Connection, instance: str) -> list[Chain]:
    """Return the chains that contain an instance."""
    rows = db.execute(
        "SELECT * FROM chain WHERE EXISTS (SELECT 1 FROM json_each(hops) WHERE value = ?) ORDER BY name", (instance,)
    )
    return [_chain(row) for row in rows]


def _chain(row: sqlite3.Row) -> Chain:
    columns: dict[str, Any] = dict(row)
    columns["hops"] = tuple(json.loads(row["hops"]))
    return Chain(**columns)
