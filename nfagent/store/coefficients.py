"""The learnt costs of kinds of network functions."""

import sqlite3
from collections.abc import Iterable
from dataclasses import asdict

from nfagent.measurement import Coefficient
from nfagent.store.database import Change


def put(change: Change, learnt: Iterable[Coefficient]) -> None:
    """Replace the stored costs."""
    for each in learnt:
        change.db.execute(
            "INSERT OR REPLACE INTO coefficient (kind, location_class, millicores_per_mbps, samples, deviation)"
            " VALUES (:kind, :location_class, :millicores_per_mbps, :samples, :deviation)",
            asdict(each),
        )
        change.event("coefficient.learnt", each.kind, None, asdict(each))


def everything(db: sqlite3.Connection) -> list[Coefficient]:
    """Return all costs."""
    return [Coefficient(**dict(row)) for row in db.execute("SELECT * FROM coefficient ORDER BY kind, location_class")]
