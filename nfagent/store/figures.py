"""How many of what there are, for who watches the agent."""

import sqlite3


def instances_by_status(db: sqlite3.Connection) -> dict[str, int]:
    """Instances of each status that some have."""
    return dict(db.execute("SELECT status, COUNT(*) FROM instance_status GROUP BY status").fetchall())


def migrations_by_outcome(db: sqlite3.Connection) -> dict[str, int]:
    """Migrations since the store was made; ``none``: those that go on."""
    return dict(db.execute("SELECT IFNULL(outcome, 'none'), COUNT(*) FROM migration GROUP BY outcome").fetchall())
