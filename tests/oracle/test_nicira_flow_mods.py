"""Nicira's flow-mods over OpenFlow 1.3 to 1.5, answered and carried out as by one bridge."""

import struct
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.dialects import messages15 as m
from tests.oracle.dialects import nicira
from tests.oracle.peer import ask, frame, in_version
from tests.oracle.test_openflow14 import role
from tests.oracle.world import clear_messages

_ADD, _MODIFY, _MODIFY_STRICT, _DELETE, _DELETE_STRICT = range(5)
_KEEP_COOKIE, _ALL_TABLES, _NO_PORT, _NO_BUFFER = (1 << 64) - 1, 0xFF, 0xFFFF, 0xFFFFFFFF
_SLAVE, _BARRIER = 3, 20
_ONF = 0x4F4E4600
IP = struct.pack("!IH", 0x00000602, 0x0800)
TCP = IP + struct.pack("!IB", 0x00000C01, 6)


def cookie_is(value: int, mask: int | None = None) -> bytes:
    """Return a match on a cookie."""
    if mask is None:
        return struct.pack("!HBBQ", 1, 30 << 1, 8, value)
    return struct.pack("!HBBQQ", 1, 30 << 1 | 1, 16, value, mask)


def flow_mod(
    command: int,
    match: bytes = b"",
    instructions: bytes = b"",
    *,
    table: int = 0,
    cookie: int = 0,
    flags: int = 0,
    out_port: int = _NO_PORT,
    priority: int = 5,
    idle: int = 0,
) -> bytes:
    """Return Nicira's flow-mod, in OpenFlow 1.3."""
    head = struct.pack("!QHHHH", cookie, table << 8 | command, idle, 0, priority)
    head += struct.pack("!IHHH6x", _NO_BUFFER, out_port, flags, len(match))
    return nicira.message(4, 7, nicira.FLOW_MOD, head + of.padded(match) + instructions)


def to(port: int) -> bytes:
    return of.apply_actions(of.output(port))


ADDED = flow_mod(_ADD, IP, to(1), cookie=3) + flow_mod(_ADD, TCP, to(2), cookie=4, table=1, flags=1, idle=60)
RULES = ADDED + flow_mod(_ADD, IP, of.goto(2), table=1, priority=9, cookie=3)
_ARP = struct.pack("!IH", 0x00000602, 0x0806)
BACK = {
    f"to table {table}{ending}": flow_mod(
        command, match, to(3) + of.goto(table), table=_ALL_TABLES, cookie=cookie, priority=9
    )
    for table in (0, 1, 2)
    for ending, command, match, cookie in (
        ("", _MODIFY, IP, _KEEP_COOKIE),
        (" with a cookie", _MODIFY, IP, 9),
        (", strictly", _MODIFY_STRICT, IP, 9),
        (" by its cookie", _MODIFY, cookie_is(3), 8),
        (" by bits of its cookie", _MODIFY, IP + cookie_is(1, 1), _KEEP_COOKIE),
        (", and none is there", _MODIFY, _ARP, 9),
        (", and none is there to keep", _MODIFY, _ARP, _KEEP_COOKIE),
    )
}
"""Modifications of all tables that go to the table of a rule, or to an earlier one; in one table, that is refused."""
MESSAGES = {
    "added": ADDED,
    "added to all tables": flow_mod(_ADD, IP, to(1), table=_ALL_TABLES),
    "added with a cookie to match on": flow_mod(_ADD, IP + cookie_is(3), to(1)),
    "modified": ADDED + flow_mod(_MODIFY, IP, to(3), cookie=_KEEP_COOKIE),
    "modified with a cookie": ADDED + flow_mod(_MODIFY, IP, to(3), cookie=9),
    "modified in all tables": ADDED + flow_mod(_MODIFY, IP, to(3), cookie=9, table=_ALL_TABLES),
    "modified, and none is there": flow_mod(_MODIFY_STRICT, IP, to(3), cookie=9, table=2),
    "modified without a cookie, and none is there": flow_mod(_MODIFY, IP, to(3), cookie=_KEEP_COOKIE),
    "modified by its cookie": ADDED + flow_mod(_MODIFY, cookie_is(3), to(4), cookie=8),
    "modified by bits of its cookie": ADDED + flow_mod(_MODIFY, cookie_is(1, 1), to(4), cookie=8, table=_ALL_TABLES),
    "deleted": ADDED + flow_mod(_DELETE, IP),
    "deleted in all tables": ADDED + flow_mod(_DELETE, IP, table=_ALL_TABLES),
    "deleted by its port": ADDED + flow_mod(_DELETE, out_port=2, table=_ALL_TABLES),
    "deleted by its cookie": ADDED + flow_mod(_DELETE_STRICT, TCP + cookie_is(4), table=1),
    "with another instruction": flow_mod(_ADD, IP, of.goto(3) + of.write_metadata(5, 7))
    + flow_mod(_ADD, IP, of.goto(0)),
    "modified in one table, to it": ADDED + flow_mod(_MODIFY, IP, of.goto(1), table=1, cookie=9),
    "flags": b"".join(flow_mod(_ADD, IP, to(1), flags=1 << bit) for bit in range(16)),
    "unknown command": flow_mod(5, IP, to(1)) + flow_mod(0x80, IP, to(1)),
    "unknown table": flow_mod(_ADD, IP, to(1), table=254) + flow_mod(_DELETE, table=254),
    "malformed match": flow_mod(_ADD, IP[:5], to(1)) + flow_mod(_ADD, IP + IP, to(1)) + flow_mod(_ADD, b"\xff" * 8),
    "without what it needs": flow_mod(_ADD, TCP[6:], to(1)),
    "malformed instructions": flow_mod(_ADD, IP, b"\0\4\0\7" + bytes(4)) + flow_mod(_ADD, IP, of.output(1)),
    "lengths": b"".join(nicira.message(4, length, nicira.FLOW_MOD, bytes(length)) for length in range(0, 49, 4)),
    "a slave's": role(_SLAVE, 1 << 63) + ADDED + nicira.message(4, 9, nicira.FLOW_MOD, bytes(4)),
}


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("data", MESSAGES.values(), ids=MESSAGES)
def test_a_flow_mod_is_taken_as_by_one_bridge(comparison: Comparison, data: bytes, version: int) -> None:
    answers: list[list[str]] = []
    for world, target in zip((comparison.ours, comparison.reference), comparison.targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        barrier = frame(_BARRIER, version=version)
        answers.append(ask(target, in_version(data, version) + barrier, version=version))
    assert answers[0] == answers[1]
    assert comparison.ours.dump() == comparison.reference.dump()


def bundled(data: bytes, version: int) -> bytes:
    """Return a bundle of messages, in this version."""
    out = b""
    for what in (of.BUNDLE_OPEN, None, of.BUNDLE_COMMIT):
        for part in messages_of(data) if what is None else [b""]:
            kind = m.BUNDLE_CONTROL if what is not None else m.BUNDLE_ADD
            body = struct.pack("!IHH", 1, what or 0, 1) + part
            match version:
                case 4:
                    number = 2300 if what is not None else 2301
                    out += frame(of.EXPERIMENTER, struct.pack("!II", _ONF, number) + body, version, 7)
                case _:
                    out += frame(kind, body, version, 7)
    return out


def messages_of(data: bytes) -> list[bytes]:
    """Split messages, which get one xid."""
    found: list[bytes] = []
    while data:
        length = int.from_bytes(data[2:4])
        found.append(data[:4] + struct.pack("!I", 7) + data[8:length])
        data = data[length:]
    return found


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "a slave's"])
def test_a_flow_mod_in_a_bundle_is_taken_as_by_one_bridge(comparison: Comparison, name: str, version: int) -> None:
    data = in_version(MESSAGES[name], version)
    answers: list[list[str]] = []
    for world, target in zip((comparison.ours, comparison.reference), comparison.targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        answers.append(ask(target, bundled(data, version), version=version))
    assert answers[0] == answers[1]
    assert comparison.ours.dump() == comparison.reference.dump()


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("bundles", [False, True])
@pytest.mark.parametrize("data", BACK.values(), ids=BACK)
def test_a_modification_of_all_tables_goes_back(
    comparison: Comparison, data: bytes, version: int, *, bundles: bool
) -> None:
    answers: list[list[str]] = []
    for world, target in zip((comparison.ours, comparison.reference), comparison.targets, strict=True):
        world.channel.send(clear_messages(1) + RULES)
        world.channel.barrier()
        sent = in_version(data, version)
        barrier = frame(_BARRIER, version=version)
        answers.append(ask(target, (bundled(sent, version) if bundles else sent) + barrier, version=version))
    assert answers[0] == answers[1]
    assert comparison.ours.dump() == comparison.reference.dump()
