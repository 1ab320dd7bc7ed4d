"""The optimiser's decisions and their outcomes."""

import json
import sqlite3
import time
from typing import Any

from nfagent.model import Decision
from nfagent.store.database import Change

_KEPT = 200


def add(
    change: Change,
    problem: dict[str, Any],
    plan: dict[str, str],
    explanation: dict[str, Any],
    moves: tuple[str, ...],
) -> Decision:
    """Add a decision, and prune the oldest ones."""
    decided = time.time()
    cursor = change.db.execute(
        "INSERT INTO decision (decided, problem, plan, explanation, moves) VALUES (?, ?, ?, ?, ?)",
        (decided, json.dumps(problem), json.dumps(plan), json.dumps(explanation), json.dumps(moves)),
    )
    identity = cursor.lastrowid or 0
    change.db.execute("DELETE FROM decision WHERE id <= ?", (identity - _KEPT,))
    change.event("placement.decided", str(identity), None, {"decision": identity, "moves": list(moves)})
    return Decision(identity, decided, problem, plan, explanation, moves, None)


def end(change: Change, decision: int, outcome: str, report: dict[str, Any]) -> None:
    """Record a decision's outcome."""
    change.db.execute(
        "UPDATE decision SET ended = ?, outcome = ?, report = ? WHERE id = ?",
        (time.time(), outcome, json.dumps(report), decision),
    )
    payload = {"decision": decision, "outcome": outcome, "report": report}
    change.event("placement.ended", str(decision), None, payload)


def unfinished(db: sqlite3.Connection) -> list[int]:
    """Return the ids of decisions without an outcome."""
    return [row["id"] for row in db.execute("SELECT id FROM decision WHERE outcome IS NULL ORDER BY id")]


def find(db: sqlite3.Connection, decision: int) -> Decision | None:
    """Find a decision by id."""
    row = db.execute("SELECT * FROM decision WHERE id = ?", (decision,)).fetchone()
    return None if row is None else _decision(row)


def page(db: sqlite3.Connection, limit: int, before: int | None) -> list[Decision]:
    """Return decisions with an id below ``before``, newest first."""
    rows = db.execute("SELECT * FROM decision WHERE (?1 IS NULL OR id < ?1) ORDER BY id DESC LIMIT ?2", (before, limit))
    return [_decision(row) for row in rows]


def _decision(row: sqlite3.Row) -> Decision:
    columns: dict[str, Any] = dict(row)
    for name in ("problem", "plan", "explanation", "moves", "report"):
        columns[name] = json.loads(columns[name])
    columns["moves"] = tuple(columns["moves"])
    return Decision(**columns)
