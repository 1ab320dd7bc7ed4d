"""The figures of the last day."""

import sqlite3
from collections.abc import Mapping

from nfagent.measurement import Step
from nfagent.store.database import Change


def put(change: Change, steps: Mapping[str, Step], oldest: float) -> None:
    """Add a step of each series, and delete those that began before ``oldest``."""
    rows = [(series, step.at, step.mean, step.most) for series, step in steps.items()]
    change.db.executemany("INSERT OR REPLACE INTO day (series, at, mean, most) VALUES (?, ?, ?, ?)", rows)
    change.db.execute("DELETE FROM day WHERE at < ?", (oldest,))
    change.event("figures.kept", "day", None, {"series": len(rows)})


def of(db: sqlite3.Connection, series: str) -> tuple[Step, ...]:
    """Return the steps of a series, oldest first."""
    rows = db.execute("SELECT at, mean, most FROM day WHERE series = ? ORDER BY at", (series,))
    return tuple(Step(*row) for row in rows)
