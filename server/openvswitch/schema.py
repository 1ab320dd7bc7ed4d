"""The columns that plumbing reads and writes, with their types as in vswitchd/vswitch.ovsschema.

Statistics above all are left out, which are most of a database. A schema that a server tells would cost each
connection 15 ms of CPU: the ovs library reads JSON in Python. Limits and enumerations are left out as well, because
they grow with Open vSwitch's versions; the server checks them.
"""

from typing import Any

from ovs.db.idl import SchemaHelper
from ovsdbapp.backend.ovs_idl import idlutils

OPEN_VSWITCH = "Open_vSwitch"

_Type = str | dict[str, Any]

_MAP: _Type = {"key": "string", "value": "string", "min": 0, "max": "unlimited"}


def _optional(key: str) -> _Type:
    return {"key": key, "min": 0, "max": 1}


def _references(table: str, least: int = 0, most: int | str = "unlimited") -> _Type:
    return {"key": {"type": "uuid", "refTable": table}, "min": least, "max": most}


COLUMNS: dict[str, dict[str, _Type]] = {
    OPEN_VSWITCH: {
        "bridges": _references("Bridge"),
        "cur_cfg": "integer",
        "next_cfg": "integer",
        "iface_types": {"key": "string", "min": 0, "max": "unlimited"},
    },
    "Bridge": {
        "name": "string",
        "ports": _references("Port"),
        "controller": _references("Controller"),
        "datapath_type": "string",
        "external_ids": _MAP,
        "fail_mode": _optional("string"),
        "protocols": {"key": "string", "min": 0, "max": "unlimited"},
    },
    "Port": {
        "name": "string",
        "interfaces": _references("Interface", 1),
        "external_ids": _MAP,
        "qos": _references("QoS", 0, 1),
    },
    "Interface": {
        "name": "string",
        "type": "string",
        "options": _MAP,
        "ofport": _optional("integer"),
        "ofport_request": _optional("integer"),
        "mtu_request": _optional("integer"),
        "error": _optional("string"),
        "link_state": _optional("string"),
    },
    "Controller": {"target": "string", "external_ids": _MAP},
    "QoS": {"type": "string", "external_ids": _MAP},
}


def schema() -> SchemaHelper:
    """Return a schema with these columns only."""
    tables = {
        name: {"columns": {column: {"type": kind} for column, kind in columns.items()}} | _of_table(name)
        for name, columns in COLUMNS.items()
    }
    helper = idlutils.create_schema_helper({"name": OPEN_VSWITCH, "version": "8.0.0", "tables": tables})
    helper.register_all()
    return helper


def _of_table(name: str) -> dict[str, Any]:
    if name == OPEN_VSWITCH:
        return {"isRoot": True, "maxRows": 1}
    if name == "QoS":
        return {"isRoot": True}
    return {"indexes": [["name"]]} if "name" in COLUMNS[name] else {}  # by which ovsdbapp finds rows
