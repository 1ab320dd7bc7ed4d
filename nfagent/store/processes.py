"""Actual state: the instances' processes."""

import json
import sqlite3
from dataclasses import asdict, replace
from typing import Any

from nfagent.model import Running
from nfagent.store.database import Change


def add(change: Change, running: Running) -> None:
    """Add a process that is about to start.

    Raises:
        sqlite3.IntegrityError: its slot is taken, or the instance already has one in this role or at this location.
    """
    columns = asdict(running)
    change.db.execute(
        f"INSERT INTO running ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values())
    )
    _tell(change, running)


def update(change: Change, running: Running, **columns: Any) -> Running:
    """Update a process if it still has a row; return it."""
    assignments = ", ".join(f"{column} = ?" for column in columns)
    cursor = change.db.execute(
        f"UPDATE running SET {assignments} WHERE incarnation = ?", (*columns.values(), running.incarnation)
    )
    changed = replace(running, **columns)
    if cursor.rowcount:
        _tell(change, changed)
    return changed


def remove(change: Change, running: Running) -> None:
    """Delete the row of an ended process."""
    cursor = change.db.execute("DELETE FROM running WHERE incarnation = ?", (running.incarnation,))
    if cursor.rowcount:
        _tell(change, running, gone=True)


def of(db: sqlite3.Connection, instance: str) -> list[Running]:
    """Return an instance's processes, the serving one first."""
    rows = db.execute("SELECT * FROM running WHERE instance = ? ORDER BY role DESC", (instance,))
    return [_running(row) for row in rows]


def everything(db: sqlite3.Connection) -> list[Running]:
    """Return all processes."""
    return [_running(row) for row in db.execute("SELECT * FROM running")]


def serving(db: sqlite3.Connection) -> list[tuple[tuple[str, str], str, str]]:
    """Return where each instance runs: its project and name, its id, the location."""
    rows = db.execute(
        "SELECT project, name, instance, location FROM running JOIN instance ON instance.id = running.instance"
        " WHERE role = 'serving'"
    )
    return [((row["project"], row["name"]), row["instance"], row["location"]) for row in rows]


def by_incarnation(db: sqlite3.Connection, wanted: list[str]) -> dict[str, Running]:
    """Return the processes with these incarnations."""
    rows = db.execute(
        "SELECT * FROM running WHERE incarnation IN (SELECT value FROM json_each(?))", (json.dumps(wanted),)
    )
    return {row["incarnation"]: _running(row) for row in rows}


def taken_slots(db: sqlite3.Connection, location: str) -> set[str]:
    """Return the names of the slots in use."""
    rows = db.execute("SELECT slot FROM running WHERE location = ? AND slot IS NOT NULL", (location,))
    return {row["slot"] for row in rows}


def left_slots(db: sqlite3.Connection, location: str, instance: str) -> set[str]:
    """Return the names of the slots where failed processes of other instances may have left ports."""
    rows = db.execute(
        "SELECT last_slot FROM running WHERE location = ? AND instance != ? AND last_slot IS NOT NULL AND slot IS NULL",
        (location, instance),
    )
    return {row["last_slot"] for row in rows}


def _running(row: sqlite3.Row) -> Running:
    return Running(**dict(row))


def _tell(change: Change, running: Running, *, gone: bool = False) -> None:
    """Append two events: one for clients, and one with the location for administrators only."""
    owner = change.db.execute("SELECT project FROM instance WHERE id = ?", (running.instance,)).fetchone()
    phase = "gone" if gone else running.phase
    payload: dict[str, Any] = {"id": running.instance, "phase": phase, "reason": running.reason}
    payload["generation"] = running.generation
    if running.role == "serving":
        kind = "silent" if running.silent is not None and phase == "active" else phase
        change.event(f"process.{kind}", running.instance, owner["project"], payload)
    where = {"incarnation": running.incarnation, "role": running.role, "location": running.location}
    where |= {"slot": running.slot, "pid": running.own_pid or running.pid}
    change.event("placement.process", running.instance, None, payload | where)
