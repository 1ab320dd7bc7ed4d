"""Every kind of request of ovs-ofctl is decoded and encoded again to the same bytes."""

from pathlib import Path

import pytest

from tests.codec.codec import Codec
from tests.codec.recorder import record
from tests.codec.test_replies import FLOWS, GROUPS, METERS

COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "add-flows": (("add-flows", "SWITCH", "-"), "\n".join(FLOWS)),
    "add-flows-bundle": (("--bundle", "add-flows", "SWITCH", "-"), "\n".join(FLOWS)),
    "mod-flows": (("--strict", "mod-flows", "SWITCH", "priority=3,ip,actions=1"), ""),
    "del-flows": (("del-flows", "SWITCH", "cookie=5/7,ip,out_port=1"), ""),
    "add-groups": (("add-groups", "SWITCH", "-"), "\n".join(GROUPS)),
    "mod-group": (("--may-create", "mod-group", "SWITCH", GROUPS[0]), ""),
    "del-groups": (("del-groups", "SWITCH", "group_id=1"), ""),
    "add-meter": (("add-meter", "SWITCH", METERS[0]), ""),
    "mod-meter": (("mod-meter", "SWITCH", METERS[0]), ""),
    "del-meters": (("del-meters", "SWITCH"), ""),
    "packet-out": (("packet-out", "SWITCH", f"in_port=1,packet={'02' * 60},actions=pop_vlan,2"), ""),
    "mod-port": (("mod-port", "SWITCH", "1", "no-forward"), ""),
    "mod-table": (("mod-table", "SWITCH", "1", "drop"), ""),
    "show": (("show", "SWITCH"), ""),
    "dump-flows": (("dump-flows", "SWITCH", "table=1,ip"), ""),
    "dump-aggregate": (("dump-aggregate", "SWITCH"), ""),
    "dump-tables": (("dump-tables", "SWITCH"), ""),
    "dump-table-features": (("dump-table-features", "SWITCH"), ""),
    "dump-ports": (("dump-ports", "SWITCH", "1"), ""),
    "dump-ports-desc": (("dump-ports-desc", "SWITCH"), ""),
    "dump-groups": (("dump-groups", "SWITCH"), ""),
    "dump-group-stats": (("dump-group-stats", "SWITCH"), ""),
    "dump-group-features": (("dump-group-features", "SWITCH"), ""),
    "dump-meters": (("dump-meters", "SWITCH"), ""),
    "meter-stats": (("meter-stats", "SWITCH"), ""),
    "meter-features": (("meter-features", "SWITCH"), ""),
    "queue-stats": (("queue-stats", "SWITCH"), ""),
    "queue-get-config": (("queue-get-config", "SWITCH", "any"), ""),
    "ping": (("ping", "SWITCH"), ""),
    "get-frags": (("get-frags", "SWITCH"), ""),
    "set-frags": (("set-frags", "SWITCH", "drop"), ""),
    "add-tlv-map": (("add-tlv-map", "SWITCH", "{class=0xffff,type=0,len=4}->tun_metadata0"), ""),
    "monitor": (("monitor", "SWITCH", "65535"), ""),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_requests_of_ovs_ofctl_round_trip(codec: Codec, module_directory: Path, name: str) -> None:
    arguments, stdin = COMMANDS[name]
    for message in record(module_directory, *arguments, stdin=stdin):
        codec.round_trip(message)
        inner = bundled(message)
        if inner:
            codec.round_trip(inner)


def bundled(message: bytes) -> bytes | None:
    """Return the message inside ONFT_BUNDLE_ADD_MESSAGE."""
    if message[1] == 4 and message[8:16] == bytes.fromhex("4f4e4600000008fd"):
        return message[24:]
    return None
