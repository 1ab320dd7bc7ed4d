"""Handshakes and their aftermath, byte for byte as one Open vSwitch bridge with the same versions."""

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.peer import ask, frame

VERSIONS = "OpenFlow10,OpenFlow13,OpenFlow14,OpenFlow15"
_ECHO_REQUEST, _ECHO_REPLY, _SLAVE = 2, 3, 3
_WRITES = (of.PACKET_OUT, of.FLOW_MOD, of.GROUP_MOD, of.PORT_MOD, of.TABLE_MOD, of.METER_MOD)


_NICIRA, _LOCAL = 0x2320, 0xFFFFFFFE
_EXPERIMENTER, _GET_CONFIG, _MULTIPART_REQUEST, _GET_ASYNC = 4, 7, 18, 26
_MASKS = struct.pack("!6I", 7, 1, 7, 2, 63, 1)


def _nicira(subtype: int, body: bytes = b"") -> bytes:
    return frame(_EXPERIMENTER, struct.pack("!II", _NICIRA, subtype) + body)


def _mask(kind: int, reasons: int) -> bytes:
    """Return a property of NXT_SET_ASYNC_CONFIG2."""
    return struct.pack("!HHI", kind, 8, reasons)


def _tlv(command: int, *mappings: tuple[int, int, int, int]) -> bytes:
    """Return a change of the fields for tunnels' options: class, type, length, and N of tunnel_metadataN."""
    return struct.pack("!H6x", command) + b"".join(struct.pack("!HBBHxx", *mapping) for mapping in mappings)


def _multipart(kind: int, body: bytes = b"", more: bool = False) -> bytes:
    return frame(_MULTIPART_REQUEST, struct.pack("!HH4x", kind, more) + body)


def bitmap(versions: int) -> bytes:
    """Return the element of a HELLO that offers these versions."""
    return struct.pack("!HHI", 1, 8, versions)


HELLOS = {
    "1.0": frame(0, version=1),
    "1.2": frame(0, version=3),
    "1.3": frame(0),
    "1.5": frame(0, version=6),
    "version 0": frame(0, version=0),
    "bitmap without ours": frame(0, bitmap(0x60), version=6),
    "bitmap of an unknown version": frame(0, bitmap(0x200), version=9),
    "empty bitmap": frame(0, bitmap(0)),
    "bitmap of version 0": frame(0, bitmap(1)),
    "two words": frame(0, struct.pack("!HHII4x", 1, 12, 0x10, 0)),
    "unknown element": frame(0, struct.pack("!HHI", 9, 8, 0) + bitmap(0x10)),
}
MESSAGES = {
    "second hello": frame(0),
    "second hello of 1.0": frame(0, version=1),
    "error": frame(1, bytes(4)),
    "echo reply of 1.0": frame(_ECHO_REPLY, b"xy", version=1),
    "echo request of 1.0": frame(_ECHO_REQUEST, b"xy", version=1),
    "request of another version": frame(of.BARRIER_REQUEST, version=5) + frame(of.BARRIER_REQUEST, xid=8),
    "request of an unknown version": frame(of.BARRIER_REQUEST, version=9) + frame(of.BARRIER_REQUEST, xid=8),
    "configuration": frame(7),
    "Nicira's asynchronous configuration": _nicira(19, _MASKS) + frame(_GET_ASYNC),
    "reasons of later versions": _nicira(19, b"\xff" * 24) + frame(_GET_ASYNC),
    "lengths of masks": b"".join(_nicira(19, bytes(length)) for length in range(0, 40, 4)) + frame(_GET_ASYNC),
    "properties": _nicira(27) + _nicira(27, b"".join(_mask(kind, kind + 1) for kind in range(6))) + frame(_GET_ASYNC),
    "unknown reasons": b"".join(_nicira(27, _mask(k, 1 << n)) for k in range(6) for n in range(32)) + frame(_GET_ASYNC),
    "unknown property": _nicira(27, _mask(0, 4) + _mask(77, 1)) + _nicira(27, _mask(12, 0)) + frame(_GET_ASYNC),
    "property of an experimenter": _nicira(27, struct.pack("!HHIII", 0xFFFF, 16, 1, 1, 1)),
    "lengths of properties": b"".join(
        _nicira(27, struct.pack("!HHI", 0, length, 1) + bytes(padding)) for length in range(20) for padding in (0, 4, 8)
    )
    + frame(_GET_ASYNC),
    "properties of later versions": b"".join(_nicira(27, _mask(k, 1 << n)) for k in range(6, 14) for n in range(32)),
    "asynchronous configuration of a service": _nicira(27, _mask(1, 1)) + frame(_GET_CONFIG),
    "controller ids": b"".join(_nicira(20, struct.pack("!6xH", n)) for n in (5, 0))
    + b"".join(_nicira(20, body) for body in (b"", b"\1" * 8, bytes(16), struct.pack("!5xBH", 1, 5))),
    "Nicira's role": b"".join(_nicira(10, struct.pack("!I", role)) for role in (1, 2, 0, 9, 3)) + _nicira(10),
    "formats of flows": b"".join(_nicira(12, struct.pack("!I", n)) for n in (0, 2, 9)) + _nicira(12),
    "tables of flow-mods": b"".join(_nicira(15, bytes(n)) for n in (0, 4, 8, 16)),
    "ages of flows": _nicira(18) + _nicira(18, bytes(8)),
    "formats of packet-ins": b"".join(_nicira(16, struct.pack("!I", n)) for n in range(4))
    + _nicira(16)
    + _nicira(16, bytes(8)),
    "messages of other vendors": b"".join(
        frame(_EXPERIMENTER, struct.pack("!II", vendor, number))
        for vendor in (1, 0x4F4E4600, _NICIRA)
        for number in (0, 9, 7777)
    ),
    "notifications": b"".join(_nicira(n, bytes(length)) for n in (11, 14, 17, 26, 30) for length in range(0, 48, 4)),
    "truncated messages of a vendor": b"".join(frame(_EXPERIMENTER, bytes(length)) for length in (0, 4, 7)),
    "statistics of vendors": b"".join(
        _multipart(0xFFFF, struct.pack("!II", vendor, number) + bytes(length))
        for vendor in (1, 0x4F4E4600, _NICIRA)
        for number in (3, 4, 5, 6, 77)
        for length in (0, 8)
    )
    + _multipart(0xFFFF),
    "statistics of LOCAL": b"".join(
        _multipart(5, struct.pack("!II", port, queue)) for port in (_LOCAL, 99) for queue in (0, 1, 0xFFFFFFFF)
    ),
    "parts of table features": _multipart(12, more=True) + _multipart(12, more=True) + _multipart(12, b"1234"),
    "parts of other requests": _multipart(3, more=True) + _multipart(3) + _multipart(8, more=True) + _multipart(3),
    "tables of options": _nicira(25)
    + _nicira(24, _tlv(0, (1, 2, 4, 0), (1, 3, 8, 5)))
    + _nicira(25)
    + b"".join(
        _nicira(24, _tlv(0, (7, 7, 4, 1), entry))
        for entry in ((1, 9, 4, 5), (1, 2, 4, 9), (2, 2, 3, 9), (2, 2, 128, 9))
    )
    + b"".join(_nicira(24, _tlv(0, (7, 7, 124, n), (7, 8, 124, n + 1), (7, 9, 4, n + 2))) for n in (10, 63))
    + _nicira(24, _tlv(1, (0, 0, 0, 5), (0, 0, 0, 6)))
    + _nicira(25)
    + _nicira(24, _tlv(2))
    + _nicira(25)
    + b"".join(_nicira(24, body) for body in (b"", _tlv(3), _tlv(0) + bytes(4)))
    + _nicira(25, b"1"),
    "continuations of nothing": _nicira(28) + _nicira(28, b"x" * 8) + _nicira(28, b"x"),
    "length 4": frame(of.BARRIER_REQUEST) + struct.pack("!BBHI", 4, of.BARRIER_REQUEST, 4, 9),
    "reply": frame(of.BARRIER_REPLY) + frame(of.FEATURES_REPLY, bytes(24)),
}


@pytest.fixture(scope="module")
def targets() -> Iterator[tuple[str, str]]:
    """The management sockets of oneswitchd, and of a bridge with the same versions."""
    with Comparison(2, binary()) as comparison:
        bridge = comparison.reference.lab.state.switches[0]
        name = Path(bridge.virt).stem
        argv = ["ovs-vsctl", f"--db={bridge.ovsdb}", "set", "bridge", name, f"protocols={VERSIONS}"]
        subprocess.run(argv, check=True, timeout=30)
        yield comparison.targets


@pytest.mark.parametrize("hello", HELLOS.values(), ids=HELLOS)
def test_a_hello_is_answered_as_by_one_bridge(targets: tuple[str, str], hello: bytes) -> None:
    ours, reference = (ask(target, b"", hello=hello) for target in targets)
    assert _without_text(ours) == _without_text(reference)


def _without_text(answers: list[str]) -> list[str]:
    """Cut the text of HELLO_FAILED off, and its length."""
    return [answer if len(answer) < 48 else answer[:4] + answer[8:24] for answer in answers]


@pytest.mark.parametrize("data", MESSAGES.values(), ids=MESSAGES)
def test_a_message_after_the_handshake_is_answered_as_by_one_bridge(targets: tuple[str, str], data: bytes) -> None:
    ours, reference = (ask(target, data, hello=HELLOS["1.3"]) for target in targets)
    assert ours == reference


@pytest.mark.parametrize("kind", _WRITES)
def test_a_slaves_message_of_any_length_gets_the_error_of_one_bridge(targets: tuple[str, str], kind: int) -> None:
    role = frame(24, struct.pack("!I4xQ", _SLAVE, 1))
    data = role + b"".join(frame(kind, bytes(length), xid=100 + length) for length in range(65))
    ours, reference = (ask(target, data, hello=HELLOS["1.3"]) for target in targets)
    assert [answer[:24] for answer in ours] == [answer[:24] for answer in reference]
