"""Open vSwitch reports rules in its own spelling: neither a restart nor an audit rewrites equivalent rules."""

import struct
from pathlib import Path

from tests.oracle import openflow as of
from tests.oracle.channel import Channel
from tests.recovery.conftest import Server

_ANY = 0xFFFFFFFF
_NX = 0x2320


def _oxm(field: int, value: str, mask: str = "", cls: int = 0x8000) -> bytes:
    data = bytes.fromhex(value + mask)
    return struct.pack("!HBB", cls, field << 1 | bool(mask), len(data)) + data


def _padded(action: bytes) -> bytes:
    return action + bytes(-len(action) % 8)


def _action(kind: int, argument: str) -> bytes:
    data = bytes.fromhex(argument)
    return struct.pack("!HH", kind, 4 + len(data)) + data


def _set(oxm: bytes) -> bytes:
    return struct.pack("!HH", 25, len(_padded(b"1234" + oxm))) + oxm + bytes(-len(b"1234" + oxm) % 8)


def _nicira(subtype: int, argument: str) -> bytes:
    data = struct.pack("!IH", _NX, subtype) + bytes.fromhex(argument)
    return struct.pack("!HH", 0xFFFF, len(_padded(b"1234" + data))) + _padded(b"1234" + data)[4:]


def _output(port: int, max_len: int = 0, padding: bytes = bytes(6)) -> bytes:
    return struct.pack("!HHIH", 0, 16, port, max_len) + padding


def _instruction(kind: int, body: bytes) -> bytes:
    return struct.pack("!HH4x", kind, 8 + len(body)) + body


def _apply(*actions: bytes) -> bytes:
    return _instruction(4, b"".join(actions))


_IP, _TAGGED, _MPLS = _oxm(5, "0800"), _oxm(6, "1000", "1000"), _oxm(5, "8847")
_METER = struct.pack("!HHI", 6, 8, 1)
_GOTO = struct.pack("!HHB3s", 1, 8, 5, b"xyz")
_METADATA = struct.pack("!HH4xQQ", 2, 24, 1, 3)

RULES: dict[str, tuple[bytes, bytes]] = {
    "output with a length": (b"", _apply(_output(2, 128))),
    "output to the controller": (b"", _apply(_output(0xFFFFFFFD, 128))),
    "padding of an output": (b"", _apply(_output(2, 65509, b"abcdef"))),
    "nothing to apply": (b"", _apply()),
    "nothing to write": (b"", _instruction(3, b"")),
    "order": (b"", _GOTO + _METADATA + _instruction(3, _output(3, 9)) + _instruction(5, b"") + _apply(_output(1))),
    "meter last": (b"", _apply(_output(2)) + _METER),
    "flood": (b"", _apply(_output(0xFFFFFFFB, 9, b"abcdef")) + _GOTO),
    "write flood": (b"", _instruction(3, _output(0xFFFFFFFB, 9))),
    "set eth_src": (b"", _apply(_set(_oxm(4, "010203040506")), _output(1))),
    "set eth_src of OpenFlow 1.1": (b"", _apply(_action(3, "010203040506" + "00" * 6), _output(1))),
    "set eth_dst of OpenFlow 1.1": (b"", _apply(_action(4, "010203040506" + "00" * 6), _output(1))),
    "set ip_src of OpenFlow 1.1": (_IP, _apply(_action(5, "0a000001"), _output(1))),
    "set ip_dst of OpenFlow 1.1": (_IP, _apply(_action(6, "0a000001"), _output(1))),
    "set NXM_OF_ETH_DST": (b"", _apply(_set(_oxm(1, "010203040506", cls=0)), _output(1))),
    "set NXM_OF_ETH_SRC": (b"", _apply(_set(_oxm(2, "010203040506", cls=0)), _output(1))),
    "set NXM_OF_IP_SRC": (_IP, _apply(_set(_oxm(7, "0a000001", cls=0)), _output(1))),
    "set NXM_OF_IP_DST": (_IP, _apply(_set(_oxm(8, "0a000001", cls=0)), _output(1))),
    "set NXM_NX_REG0": (b"", _apply(_set(_oxm(0, "00000007", cls=1)), _output(1))),
    "set NXM_NX_TUN_ID": (b"", _apply(_set(_oxm(16, "0000000000000007", cls=1)), _output(1))),
    "reg_load": (b"", _apply(_nicira(7, "001f" + "00010004" + "0000000000000007"), _output(1))),
    "set_tunnel": (b"", _apply(_nicira(2, "0000" + "00000005"), _output(1))),
    "set_tunnel64": (b"", _apply(_nicira(9, "000000000000" + "0000000000000005"), _output(1))),
    "note": (b"", _apply(_nicira(8, "616263646566"))),
    "resubmit": (b"", _apply(_nicira(14, "fff8" + "09" + "000000"))),
    "push and set": (b"", _apply(_action(17, "81001234"), _set(_oxm(6, "1007")), _output(1))),
    "pop": (_TAGGED, _apply(_action(18, "00000007"), _output(1))),
    "TTL": (_IP, _apply(_action(23, "0578797a"), _action(24, "61626364"), _output(1))),
    "pop MPLS": (_MPLS, _apply(_action(20, "08000009"), _output(1))),
    "MPLS TTL": (_MPLS, _apply(_action(15, "09616263"), _action(16, "61626364"), _output(1))),
    "queue": (b"", _apply(_action(21, "00000003"), _output(1))),
    "masked match": (_IP + _oxm(12, "0a000000", "ff000000"), _apply(_output(1))),
    "fully masked match": (_IP + _oxm(12, "0a000001", "ffffffff"), _apply(_output(1))),
    "unordered match": (_oxm(4, "020000000001") + _oxm(0, "00000001"), _apply(_output(2))),
    "empty mask": (_oxm(3, "00" * 6, "00" * 6) + _oxm(4, "020000000001"), _apply(_output(1))),
}


def _flow_mod(number: int, match: bytes, instructions: bytes, flags: int = 0) -> bytes:
    oxm = struct.pack("!HH", 1, 4 + len(match)) + match
    numbers = (number, 0, 0, 0, 0, 0, number, _ANY, _ANY, _ANY, flags)
    body = struct.pack("!QQBBHHHIIIH2x", *numbers) + _padded(oxm) + instructions
    return of.message(of.FLOW_MOD, number, body)


def fill(server: Server) -> None:
    """Install every rule of the list, two with flags, and a meter and a group with padding."""
    target = server.oneswitchd.management.removeprefix("unix:")
    band = struct.pack("!HHIIB3s", 1, 16, 1000, 0, 0, b"abc")
    bucket = struct.pack("!HHII4s", 32, 0, _ANY, _ANY, b"xyzw") + _output(2, 77, b"abcdef")
    channel = Channel(Path(target))
    channel.send(of.message(of.METER_MOD, 1, struct.pack("!HHI", 0, 1, 1) + band))
    channel.send(of.message(of.GROUP_MOD, 2, struct.pack("!HBxI", 0, 0, 7) + bucket))
    for number, (match, instructions) in enumerate(RULES.values(), 10):
        channel.send(_flow_mod(number, match, instructions))
        channel.send(_flow_mod(number + 1000, match, instructions, flags=0b11111))
    channel.ask(of.BARRIER_REQUEST)
    errors = [reply for reply in channel.replies if reply[1] == of.ERROR]
    channel.close()
    assert not errors, errors
    assert len(server.cookies()) == 2 * len(RULES)


def test_equivalent_rules_are_not_rewritten_at_a_restart(server: Server) -> None:
    fill(server)
    server.restart("oneswitchd")
    server.oneswitchd.wait_up()
    assert server.repairs() == 0, _spelled_otherwise(server)


def _spelled_otherwise(server: Server) -> str:
    lines = server.oneswitchd.log.read_text().splitlines()
    return "\n".join(line for line in lines if "in step" in line or "differs" in line)
