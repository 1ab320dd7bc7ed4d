"""How many of what there are, for who watches the agent."""

import sqlite3


def instances_by_status(db: sqlite3.Connection) -> dict[str, int]:
    """Instances of each status that some have."""
    return dict(db.execute("SELECT status, COUNT(*) FROM instance_status GROUP BY status").fetchall())


def migrations_by_outcome(db: sqlite3.Connection) -> dict[str, int]:
    """Migrations since the store was made, those too that are kept no more; ``none``: those that go on."""
    counts = (
        "SELECT IFNULL(outcome, 'none') AS outcome, COUNT(*) AS count FROM migration GROUP BY 1"
        " UNION ALL SELECT outcome, count FROM migration_forgotten"
    )
    return dict(db.execute(f"SELECT outcome, SUM(count) FROM ({counts}) GROUP BY outcome").fetchall())
