"""Bundles (ONF's extension for OpenFlow 1.3), byte for byte as one Open vSwitch bridge."""

import itertools
import struct
import time
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.peer import Peer, ask, frame
from tests.oracle.world import clear_messages

_OPEN, _CLOSE, _COMMIT, _DISCARD = of.BUNDLE_OPEN, of.BUNDLE_CLOSE, of.BUNDLE_COMMIT, of.BUNDLE_DISCARD
_ATOMIC, _ORDERED = of.BUNDLE_ATOMIC, of.BUNDLE_ORDERED
_BOTH = _ATOMIC | _ORDERED
_SLAVE, _ID, _XID = 3, 5, 0x77
_IDLE_S = 30.0
_RULES = 3
_FRAME = bytes(12) + b"\x88\xcc" + bytes(50)


def control(what: int, flags: int = _BOTH, *, bundle: int = _ID, rest: bytes = b"") -> bytes:
    """Return a bundle control message."""
    return of.bundle_control(what + 100, bundle, what, flags, rest)


def add(*messages: bytes, flags: int = _BOTH, bundle: int = _ID) -> bytes:
    """Return these messages as parts of a bundle."""
    return b"".join(of.bundle_add(message, bundle, flags) for message in messages)


def whole(*messages: bytes, flags: int = _BOTH) -> bytes:
    """Return a whole bundle."""
    return control(_OPEN, flags) + add(*messages, flags=flags) + control(_CLOSE, flags) + control(_COMMIT, flags)


_xids = itertools.count(_XID)


def rule(port: int, to: int = 1, **named: int) -> bytes:
    """Return the ADD of a rule for packets from a port; 0: from any."""
    fields = (("in_port", port, None),) if port else ()
    return of.FlowMod(of.ADD, 0, 7, fields, of.apply_actions(of.output(to)), **named).encode(next(_xids))


def command(what: int, port: int = 0, instructions: bytes = b"") -> bytes:
    """Return another flow-mod for the same rules."""
    fields = (("in_port", port, None),) if port else ()
    return of.FlowMod(what, 0, 7, fields, instructions).encode(next(_xids))


def group(what: int, number: int, to: int = 1) -> bytes:
    """Return a group-mod."""
    bucket = of.bucket(of.output(to)) if what < 2 else b""
    return of.group_mod(next(_xids), what, 0, number, bucket)


def to_group(port: int, number: int) -> bytes:
    """Return the ADD of a rule that sends to a group."""
    fields = (("in_port", port, None),) if port else ()
    return of.FlowMod(of.ADD, 0, 9, fields, of.apply_actions(of.group_action(number))).encode(next(_xids))


def sent(port: int, actions: bytes) -> bytes:
    """Return a packet-out."""
    return of.packet_out(next(_xids), port, actions, _FRAME)


def port_mod(port: int) -> bytes:
    """Return a port-mod with an address that no port has."""
    return of.port_mod(next(_xids), port, bytes(6), 0, 0)


_WRONG_XID = struct.pack("!IIIHH", of.ONF, of.BUNDLE_ADD, _ID, 0, _BOTH) + rule(1)
_WRONG_VERSION = struct.pack("!IIIHH", of.ONF, of.BUNDLE_ADD, _ID, 0, _BOTH) + b"\x01" + frame(14, bytes(48), xid=9)[1:]
_METER = of.meter_mod(next(_xids), of.ADD, 1, 1, of.band(1, 100))
_UNKNOWN_FIELD = ((("tcp_dst", 80, None)),)

CASES = {
    "nothing in it": whole(),
    "rules": whole(rule(1, 2), rule(2, 3), rule(0, 4)),
    "neither atomic nor ordered": whole(rule(1, 2), flags=0),
    "not closed": control(_OPEN) + add(rule(1)) + control(_COMMIT),
    "not opened": add(rule(1)) + control(_COMMIT),
    "no such bundle": control(_CLOSE) + control(_COMMIT) + control(_DISCARD),
    "opened twice": control(_OPEN) + control(_OPEN) + control(_CLOSE),
    "closed twice": control(_OPEN) + control(_CLOSE) + control(_CLOSE) + control(_COMMIT),
    "added after its end": control(_OPEN) + control(_CLOSE) + add(rule(1)) + control(_COMMIT),
    "committed twice": whole(rule(1)) + control(_COMMIT),
    "discarded": control(_OPEN) + add(rule(1)) + control(_DISCARD) + control(_COMMIT),
    "other flags at its end": control(_OPEN) + control(_CLOSE, 0) + control(_COMMIT),
    "other flags in a part": control(_OPEN) + add(rule(1), flags=_ATOMIC) + control(_COMMIT),
    "other flags at the commit": control(_OPEN) + add(rule(1)) + control(_COMMIT, _ORDERED) + control(_COMMIT),
    "other flags when discarded": control(_OPEN) + control(_DISCARD, 0),
    "unknown flags": whole(rule(1), flags=0xFFFC),
    "two at once": control(_OPEN) + control(_OPEN, bundle=6) + add(rule(1)) + add(rule(2), bundle=6) + control(_COMMIT),
    "replies": b"".join(control(what) for what in (1, 3, 5, 7)),
    "padded": control(_OPEN, rest=bytes(8)) + control(_CLOSE, rest=bytes(16)),
    "lengths": b"".join(
        frame(of.EXPERIMENTER, struct.pack("!II", of.ONF, kind) + bytes(length), xid=length)
        for kind in (of.BUNDLE_CONTROL, of.BUNDLE_ADD)
        for length in range(25)
    ),
    "another xid inside": control(_OPEN) + frame(of.EXPERIMENTER, _WRONG_XID, xid=9) + control(_COMMIT),
    "another version inside": control(_OPEN) + frame(of.EXPERIMENTER, _WRONG_VERSION, xid=9) + control(_COMMIT),
    "longer than the message": control(_OPEN) + add(rule(1) + bytes(8)) + control(_COMMIT),
    "shorter than its message": control(_OPEN) + add(rule(1)[:-8]) + control(_COMMIT),
    "messages of other types": control(_OPEN)
    + add(*(frame(kind, bytes(40), xid=900 + kind) for kind in range(35)))
    + control(_COMMIT),
    "a meter": control(_OPEN) + add(_METER) + control(_COMMIT),
    "a malformed rule": control(_OPEN)
    + add(rule(1), of.FlowMod(of.ADD, 0, 7, _UNKNOWN_FIELD).encode(next(_xids)), rule(2))
    + control(_COMMIT),
    "an unknown table": control(_OPEN) + add(of.FlowMod(of.ADD, 0xFE, 7).encode(3), rule(2)) + control(_COMMIT),
    "a malformed group": control(_OPEN) + add(of.group_mod(3, 0, 9, 1), group(of.ADD, 1)) + control(_COMMIT),
    "only a malformed rule": add(of.FlowMod(of.ADD, 0, 7, _UNKNOWN_FIELD).encode(next(_xids))) + control(_COMMIT),
    "a group and its rules": whole(group(0, 1, 3), to_group(1, 1), to_group(0, 1)),
    "a missing group": whole(rule(1), rule(2), to_group(2, 77), rule(3)),
    "a missing group on the other switch": whole(rule(1), rule(2), to_group(5, 77), to_group(1, 78)),
    "a group twice": whole(rule(1), group(0, 1), group(0, 1)),
    "a group deleted and used": whole(group(0, 1), to_group(1, 1), group(2, 1), rule(2)),
    "all groups deleted": whole(group(0, 1), group(0, 2), to_group(1, 1), group(2, of.GROUP_ALL), group(0, 1)),
    "a modified group": whole(group(0, 1)) + whole(group(1, 1, 4), group(1, 9)) + whole(group(1, 1, 5)),
    "rules deleted": rule(1) + rule(2) + rule(0) + whole(command(of.DELETE), rule(3)),
    "rules deleted, but not": rule(1) + rule(0) + whole(command(of.DELETE), rule(3), to_group(1, 77)),
    "rules modified": rule(1) + rule(2) + whole(command(of.MODIFY, 0, of.apply_actions(of.output(5))), rule(3)),
    "overlapping": whole(rule(1), rule(0, flags=of.CHECK_OVERLAP), rule(2)),
    "overlapping on the other switch": rule(5) + whole(rule(1), rule(0, flags=of.CHECK_OVERLAP)),
    "not overlapping any more": rule(5)
    + whole(command(of.DELETE), rule(0, flags=of.CHECK_OVERLAP))
    + whole(rule(1, flags=of.CHECK_OVERLAP)),
    "with timeouts": whole(rule(1, idle=60), rule(0, idle=70, hard=80), rule(2, flags=of.SEND_FLOW_REM)),
    "floods": whole(rule(1, of.FLOOD), rule(0, of.ALL), group(0, 1, of.FLOOD)),
    "floods deleted": whole(rule(1, of.FLOOD), rule(0, of.ALL), rule(2))
    + whole(of.FlowMod(of.DELETE, of.ALL_TABLES, out_port=of.FLOOD).encode(next(_xids)), rule(3)),
    "packet-outs": whole(sent(1, of.output(of.CONTROLLER, 0xFFFF)), sent(5, of.output(of.CONTROLLER, 0xFFFF)), rule(1)),
    "a packet-out through a new rule": whole(rule(1, of.CONTROLLER), sent(1, of.output(of.TABLE))),
    "a packet-out to a missing group": whole(rule(1), sent(1, of.group_action(77))),
    "a packet-out to a new group": whole(group(0, 1, of.CONTROLLER), sent(5, of.group_action(1))),
    "a packet-out, and a failure": whole(sent(1, of.output(of.CONTROLLER, 0xFFFF)), to_group(1, 77)),
    "a port-mod": whole(rule(1), port_mod(1), rule(2)),
    "a port-mod that is not atomic": whole(rule(1), port_mod(1), rule(2), flags=_ORDERED),
    "a port-mod of an unknown port": whole(rule(1), port_mod(99), rule(2), flags=_ORDERED),
    "a failure before a port-mod": whole(to_group(1, 77), port_mod(1)),
    "messages around it": rule(1)
    + whole(rule(2), rule(0))
    + rule(3)
    + of.message(of.BARRIER_REQUEST, 9)
    + to_group(1, 77),
    "after failures": to_group(1, 77) + whole(rule(2), to_group(2, 78)) + to_group(3, 79) + whole(rule(3)),
    "many rules": whole(*(rule(port, to) for port in range(6) for to in range(1, 50))),
    "a slave's": of.role_request(1, _SLAVE, 1) + whole(rule(1)) + control(9),
}


@pytest.fixture(scope="module")
def both() -> Iterator[Comparison]:
    """Oneswitchd over two switches, and one bridge."""
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.mark.parametrize("data", CASES.values(), ids=CASES)
def test_a_bundle_is_answered_as_by_one_bridge_and_leaves_the_same(both: Comparison, data: bytes) -> None:
    for world in (both.ours, both.reference):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        world.channel.replies.clear()
    ours, reference = (ask(target, data) for target in both.targets)
    assert ours == reference
    assert both.ours.dump() == both.reference.dump()


def test_a_commit_is_carried_out_although_its_controller_has_left(both: Comparison) -> None:
    """The messages of the bundle, and one behind it, reach the switch before the end of the connection."""
    for world, target in zip((both.ours, both.reference), both.targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        peer = Peer(target, frame(0))
        peer.send(whole(rule(1, 2), group(of.ADD, 1, 3), to_group(2, 1)) + rule(3, 1))
        peer.end()
        while peer.next():
            pass  # replies, until it disconnects, too
        end = time.monotonic() + _IDLE_S
        while len(world.dump()["flows"]) < _RULES:
            assert time.monotonic() < end, "the bundle is lost"
        peer.close()
    assert both.ours.dump() == both.reference.dump()


@pytest.mark.soak
def test_an_idle_bundle_times_out_as_on_one_bridge(both: Comparison) -> None:
    peers = [Peer(target, frame(0), answer_s=_IDLE_S) for target in both.targets]
    idle = control(_OPEN) + add(rule(1)) + add(rule(2), bundle=6)
    for peer in peers:
        peer.send(idle)
    # The reply, and two errors, in the order of Open vSwitch's hash table.
    ours, reference = (sorted(peer.next() for _ in range(3)) for peer in peers)
    for peer in peers:
        peer.close()
    assert ours == reference
