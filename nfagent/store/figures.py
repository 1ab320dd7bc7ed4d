"""Counts for monitoring the agent."""

import sqlite3


def instances_by_status(db: sqlite3.Connection) -> dict[str, int]:
    """Count instances by status."""
    return dict(db.execute("SELECT status, COUNT(*) FROM instance_status GROUP BY status").fetchall())


def migrations_by_outcome(db: sqlite3.Connection) -> dict[str, int]:
    """Count migrations by outcome since the store was created, including deleted ones; ``none``: open ones."""
    counts = (
        "SELECT IFNULL(outcome, 'none') AS outcome, COUNT(*) AS count FROM migration GROUP BY 1"
        " UNION ALL SELECT outcome, count FROM migration_forgotten"
    )
    return dict(db.execute(f"SELECT outcome, SUM(count) FROM ({counts}) GROUP BY outcome").fetchall())
