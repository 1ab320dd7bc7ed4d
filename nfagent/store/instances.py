"""Desired state of instances and their ports."""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nfagent.model import Instance, InstancePort, Status, View
from nfagent.store import chains, migrations, processes
from nfagent.store.database import Change


@dataclass(frozen=True)
class Filter:
    """A filter of instances; None matches any."""

    project: str | None = None
    name: str | None = None
    kind: str | None = None
    flavor: str | None = None
    status: Status | None = None
    location: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        """Return a condition on the view ``instance_status``, and its arguments."""
        given = [(column, value) for column, value in vars(self).items() if value is not None]
        return " AND ".join(["1", *(f"{column} = ?" for column, _ in given)]), [value for _, value in given]


def add(change: Change, instance: Instance) -> None:
    """Add an instance that has no row yet, with its ports."""
    change.db.execute(
        "INSERT INTO instance (id, name, project, kind, flavor, config, labels, pin, target, present, generation,"
        " created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1, ?)",
        (
            instance.id,
            instance.name,
            instance.project,
            instance.kind,
            instance.flavor,
            json.dumps(instance.config),
            json.dumps(instance.labels),
            instance.pin,
            instance.target,
            instance.created,
        ),
    )
    change.db.executemany(
        "INSERT INTO port (number, instance, position, name, mac) VALUES (?, ?, ?, ?, ?)",
        [(port.number, instance.id, index, port.name, port.mac) for index, port in enumerate(instance.ports)],
    )
    _tell(change, "instance.created", instance.id)


def configure(change: Change, instance: str, config: dict[str, Any]) -> None:
    """Change the configuration, and count its generation."""
    text = json.dumps(config)
    change.db.execute("UPDATE instance SET config = ?, generation = generation + 1 WHERE id = ?", (text, instance))
    _tell(change, "instance.configured", instance)


def describe(change: Change, instance: str, name: str, labels: dict[str, str]) -> None:
    """Change the name and the labels."""
    change.db.execute("UPDATE instance SET name = ?, labels = ? WHERE id = ?", (name, json.dumps(labels), instance))
    _tell(change, "instance.described", instance)


def resize(change: Change, instance: str, flavor: str, resized_from: str | None) -> None:
    """Change the flavor, and what it was before; None: that is confirmed."""
    change.db.execute("UPDATE instance SET flavor = ?, resized_from = ? WHERE id = ?", (flavor, resized_from, instance))
    _tell(change, "instance.resized", instance)


def pin(change: Change, instance: str, location: str | None) -> None:
    """Pin the instance to a location; None unpins it."""
    change.db.execute("UPDATE instance SET pin = ? WHERE id = ?", (location, instance))
    _tell(change, "instance.pinned", instance)


def aim(change: Change, instance: str, location: str | None) -> None:
    """Set the target location."""
    change.db.execute("UPDATE instance SET target = ? WHERE id = ?", (location, instance))
    _tell(change, "instance.aimed", instance)


def give_up(change: Change, instance: str) -> None:
    """Mark it for deletion."""
    change.db.execute("UPDATE instance SET present = 0 WHERE id = ?", (instance,))
    _tell(change, "instance.deleting", instance)


def remove(change: Change, instance: Instance) -> None:
    """Delete its row, after all its processes have ended, and its chain's if that waits only for this."""
    change.db.execute("DELETE FROM instance WHERE id = ?", (instance.id,))
    change.event("instance.deleted", instance.id, instance.project, {"id": instance.id, "name": instance.name})
    chains.finish(change, instance.id)


def find(db: sqlite3.Connection, instance: str) -> Instance | None:
    """Find an instance by id."""
    row = db.execute("SELECT * FROM instance WHERE id = ?", (instance,)).fetchone()
    return None if row is None else _instance(row, _ports(db, [row["id"]]).get(row["id"], ()))


def named(db: sqlite3.Connection, name: str, project: str | None = None) -> list[Instance]:
    """Return the instances with a name, by project; of one project: one at most."""
    within, values = ("", [name]) if project is None else ("AND project = ?", [name, project])
    rows = db.execute(f"SELECT id FROM instance WHERE name = ? {within} ORDER BY project", values).fetchall()
    return [found for row in rows if (found := find(db, row["id"])) is not None]


def view(db: sqlite3.Connection, instance: str) -> View | None:
    """Return an instance with its actual state."""
    rows = db.execute("SELECT * FROM instance_status WHERE id = ?", (instance,)).fetchall()
    return next(iter(_views(db, rows)), None)


def views(
    db: sqlite3.Connection,
    wanted: Filter,
    limit: int | None = None,
    after: str | None = None,
    *,
    newest_first: bool = False,
) -> list[View]:
    """Return instances in the order of their creation.

    Args:
        db: connection to read from.
        wanted: the filter.
        limit: maximum number; None: all.
        after: start after the instance with this id.
        newest_first: reverse the order.

    Raises:
        KeyError: instance ``after`` does not exist.
    """
    condition, arguments = wanted.sql()
    if after is not None:
        row = db.execute("SELECT seq FROM instance WHERE id = ?", (after,)).fetchone()
        if row is None:
            raise KeyError(after)
        condition += f" AND seq {'<' if newest_first else '>'} ?"
        arguments.append(row["seq"])
    order = "DESC" if newest_first else "ASC"
    rows = db.execute(
        f"SELECT * FROM instance_status WHERE {condition} ORDER BY seq {order} LIMIT ?",
        (*arguments, -1 if limit is None else limit),
    ).fetchall()
    return _views(db, rows)


def ids(db: sqlite3.Connection) -> list[str]:
    """Return all instances, including those to be deleted."""
    return [row["id"] for row in db.execute("SELECT id FROM instance ORDER BY seq")]


def usage(db: sqlite3.Connection, project: str) -> list[tuple[str, int, int]]:
    """Return a project's use of its quota: flavor, number of instances, number of ports."""
    rows = db.execute(
        "SELECT flavor, COUNT(*) AS instances,"
        " SUM((SELECT COUNT(*) FROM port WHERE port.instance = instance.id)) AS ports"
        " FROM instance WHERE project = ? GROUP BY flavor",
        (project,),
    )
    return [(row["flavor"], row["instances"], row["ports"]) for row in rows]


def port_owners(db: sqlite3.Connection) -> dict[int, str]:
    """Return the instances' ids by port number."""
    return {row["number"]: row["instance"] for row in db.execute("SELECT number, instance FROM port ORDER BY number")}


def _tell(change: Change, kind: str, instance: str) -> None:
    found = find(change.db, instance)
    if found is None:
        raise KeyError(instance)
    payload = {
        "id": found.id,
        "name": found.name,
        "kind": found.kind,
        "flavor": found.flavor,
        "generation": found.generation,
        "ports": [port.number for port in found.ports],
    }
    placed = kind in ("instance.pinned", "instance.aimed")
    if placed:
        payload |= {"pin": found.pin, "target": found.target}
    change.event(kind, instance, None if placed else found.project, payload)


def _views(db: sqlite3.Connection, rows: list[sqlite3.Row]) -> list[View]:
    ports = _ports(db, [row["id"] for row in rows])
    serving = processes.by_incarnation(db, [row["incarnation"] for row in rows if row["incarnation"]])
    moves = migrations.by_epoch(db, [row["epoch"] for row in rows if row["epoch"]])
    return [
        View(
            _instance(row, ports.get(row["id"], ())),
            row["status"],
            serving.get(row["incarnation"]),
            moves.get(row["epoch"]),
        )
        for row in rows
    ]


def _instance(row: sqlite3.Row, ports: tuple[InstancePort, ...]) -> Instance:
    return Instance(
        id=row["id"],
        name=row["name"],
        project=row["project"],
        kind=row["kind"],
        flavor=row["flavor"],
        config=json.loads(row["config"]),
        labels=json.loads(row["labels"]),
        pin=row["pin"],
        target=row["target"],
        present=bool(row["present"]),
        generation=row["generation"],
        created=row["created"],
        ports=ports,
        resized_from=row["resized_from"],
    )


def _ports(db: sqlite3.Connection, instances: Iterable[str]) -> dict[str, tuple[InstancePort, ...]]:
    wanted = json.dumps(list(instances))
    found: dict[str, tuple[InstancePort, ...]] = {}
    rows = db.execute(
        "SELECT * FROM port WHERE instance IN (SELECT value FROM json_each(?)) ORDER BY instance, position", (wanted,)
    )
    for row in rows:
        port = InstancePort(row["number"], row["name"], row["mac"])
        found[row["instance"]] = (*found.get(row["instance"], ()), port)
    return found
