"""Parses the JSON output of ovs-vsctl list: the bridges and interfaces of one switch."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from server.errors import TextError

COLUMNS_BRIDGE = "name,fail_mode,datapath_type,protocols"
COLUMNS_INTERFACE = "name,type,ofport,error,mtu,link_state,admin_state"
LIST_COMMAND = (
    "--format=json",
    f"--columns={COLUMNS_BRIDGE}",
    "list",
    "bridge",
    "--",
    f"--columns={COLUMNS_INTERFACE}",
    "list",
    "interface",
)


@dataclass(frozen=True)
class Bridge:
    """A row of table Bridge; ``fail_mode`` None: standalone."""

    name: str
    fail_mode: str | None
    datapath_type: str
    protocols: tuple[str, ...]


@dataclass(frozen=True)
class Interface:
    """A row of table Interface; None: the column is empty. ``ofport`` -1: it could not be opened."""

    name: str
    type: str
    ofport: int | None
    error: str | None
    mtu: int | None
    link_state: str | None
    admin_state: str | None


@dataclass(frozen=True)
class Database:
    """One switch's bridges and interfaces, by name."""

    bridges: dict[str, Bridge]
    interfaces: dict[str, Interface]


def parse(text: str) -> Database:
    """Parse the output of ``ovs-vsctl`` with :data:`LIST_COMMAND`.

    Raises:
        TextError: it is not two JSON tables with the requested columns.
    """
    try:
        bridges, interfaces = (list(_rows(line)) for line in text.splitlines() if line.strip())
        return Database(
            {row["name"]: _bridge(row) for row in bridges}, {row["name"]: _interface(row) for row in interfaces}
        )
    except (ValueError, KeyError, TypeError) as error:
        raise TextError(f"ovs-vsctl list: {text[:200]!r} is not the two requested tables: {error}") from error


def _rows(line: str) -> Iterator[dict[str, Any]]:
    table = json.loads(line)
    for row in table["data"]:
        yield {heading: _value(value) for heading, value in zip(table["headings"], row, strict=True)}


def _value(value: Any) -> Any:
    """Convert OVSDB's JSON: a set of one is its member; an empty set None; others a tuple."""
    if isinstance(value, list) and len(value) == 2 and value[0] == "set":
        return tuple(_value(item) for item in value[1]) or None
    return value


def _bridge(row: dict[str, Any]) -> Bridge:
    protocols = row["protocols"] or ()
    return Bridge(
        row["name"], row["fail_mode"], row["datapath_type"], (protocols,) if isinstance(protocols, str) else protocols
    )


def _interface(row: dict[str, Any]) -> Interface:
    return Interface(
        row["name"], row["type"], row["ofport"], row["error"], row["mtu"], row["link_state"], row["admin_state"]
    )
