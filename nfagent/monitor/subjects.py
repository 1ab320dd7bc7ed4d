"""The measured processes: those that serve instances, from the store."""

import sqlite3
from dataclasses import dataclass

from nfagent.catalog import Catalog
from nfagent.store import instances
from nfagent.store.instances import Filter


@dataclass(frozen=True)
class Subject:
    """A running instance.

    Attributes:
        steady: whether it is not migrating.
        pid: of its process; None: on another machine, or unknown.
        control: path of its control socket; None: it has none.
        macs: virtual ports, each with its MAC address.
    """

    instance: str
    kind: str
    ports: tuple[int, ...]
    workers: int
    location: str
    incarnation: str
    since: float
    steady: bool
    pid: int | None
    control: str | None
    macs: tuple[tuple[int, str], ...] = ()


def subjects(db: sqlite3.Connection, catalog: Catalog, remote: frozenset[str]) -> list[Subject]:
    """Return all running instances.

    Args:
        db: the store.
        catalog: of flavors.
        remote: locations on other machines.
    """
    found: list[Subject] = []
    for view in instances.views(db, Filter()):
        running, instance = view.running, view.instance
        if running is None or running.phase not in ("active", "stopping"):
            continue
        flavor = catalog.flavors.get(instance.flavor)
        found.append(
            Subject(
                instance=instance.id,
                kind=instance.kind,
                ports=tuple(port.number for port in instance.ports),
                workers=flavor.workers if flavor else 1,
                location=running.location,
                incarnation=running.incarnation,
                since=running.since,
                steady=view.migration is None and instance.present,
                pid=None if running.location in remote else running.pid,
                control=running.control,
                macs=tuple((port.number, port.mac) for port in instance.ports),
            )
        )
    return found
