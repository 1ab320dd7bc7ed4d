"""The columns of `server.openvswitch.schema` are those of the installed Open vSwitch."""

import json
from typing import Any

from lab.programs import find_schema
from server.openvswitch.schema import COLUMNS


def plain(kind: Any) -> Any:
    """Leave out what servers of other versions limit otherwise."""
    if isinstance(kind, str):
        return {"key": kind}
    key = kind["key"]
    if isinstance(key, dict):
        left = {name: each for name, each in key.items() if name in ("type", "refTable")}
        key = left["type"] if set(left) == {"type"} else left
    return kind | {"key": key}


def test_the_columns_are_those_of_open_vswitch() -> None:
    installed: dict[str, Any] = json.loads(find_schema().read_text())["tables"]
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            assert plain(kind) == plain(installed[table]["columns"][name]["type"]), f"{table}.{name}"
