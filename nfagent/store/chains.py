"""Chains of instances."""

import json
import sqlite3
from typing import Any

from nfagent.model import Chain
from nfagent.store.database import Change


def add(change: Change, chain: Chain) -> None:
    """Add a chain that has no row yet."""
    change.db.execute(
        "INSERT INTO chain (id, name, project, hops, latency_us, created, owned) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            chain.id,
            chain.name,
            chain.project,
            json.dumps(chain.hops),
            chain.latency_us,
            chain.created,
            json.dumps(chain.owned),
        ),
    )
    _tell(change, "chain.created", chain, {"hops": chain.hops, "latency_us": chain.latency_us})


def give_up(change: Change, chain: Chain) -> None:
    """Mark it for deletion, which `finish` ends."""
    change.db.execute("UPDATE chain SET present = 0 WHERE id = ?", (chain.id,))
    _tell(change, "chain.deleting", chain, {})


def finish(change: Change, instance: str) -> None:
    """Delete the chain that is to be deleted with its instances, if this was the last of them."""
    rows = change.db.execute(
        "SELECT * FROM chain WHERE present = 0 AND EXISTS (SELECT 1 FROM json_each(owned) WHERE value = ?)"
        " AND NOT EXISTS (SELECT 1 FROM json_each(owned) JOIN instance ON instance.id = value)",
        (instance,),
    ).fetchall()
    for row in rows:
        remove(change, _chain(row))


def remove(change: Change, chain: Chain) -> None:
    """Delete a chain."""
    change.db.execute("DELETE FROM chain WHERE id = ?", (chain.id,))
    _tell(change, "chain.deleted", chain, {})


def find(db: sqlite3.Connection, chain: str) -> Chain | None:
    """Find a chain by id."""
    row = db.execute("SELECT * FROM chain WHERE id = ?", (chain,)).fetchone()
    return None if row is None else _chain(row)


def named(db: sqlite3.Connection, name: str, project: str | None = None) -> list[Chain]:
    """Return the chains with a name, by project; of one project: one at most."""
    rows = db.execute(
        "SELECT * FROM chain WHERE name = ?1 AND (?2 IS NULL OR project = ?2) ORDER BY project", (name, project)
    )
    return [_chain(row) for row in rows]


def owner(db: sqlite3.Connection, instance: str) -> Chain | None:
    """Return the chain that an instance was ordered with."""
    row = db.execute(
        "SELECT * FROM chain WHERE EXISTS (SELECT 1 FROM json_each(owned) WHERE value = ?)", (instance,)
    ).fetchone()
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
    """Return the chains that contain an instance, without those that are being deleted."""
    rows = db.execute(
        "SELECT * FROM chain WHERE present AND EXISTS (SELECT 1 FROM json_each(hops) WHERE value = ?) ORDER BY name",
        (instance,),
    )
    return [_chain(row) for row in rows]


def _tell(change: Change, kind: str, chain: Chain, more: dict[str, Any]) -> None:
    change.event(kind, chain.id, chain.project, {"id": chain.id, "name": chain.name} | more)


def _chain(row: sqlite3.Row) -> Chain:
    columns: dict[str, Any] = dict(row)
    columns |= {name: tuple(json.loads(row[name])) for name in ("hops", "owned")}
    columns["present"] = bool(row["present"])
    return Chain(**columns)
