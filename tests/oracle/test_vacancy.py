"""Events about the vacancy of tables (OpenFlow 1.4 and 1.5), as Open vSwitch's send_table_status sends them."""

import struct

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.peer import Peer, frame, in_version
from tests.oracle.steps import RestartOneswitchd
from tests.oracle.test_openflow14 import mask, vacancy
from tests.oracle.world import clear_messages

_VACANCY = 8
_TABLE = 5
_BUNDLE_CONTROL, _BUNDLE_ADD = 33, 34
_TABLE_STATUS_TO_SLAVES, _TABLE_STATUS = 8, 9


_EVENTS = mask(_TABLE_STATUS, 0x18)


def limits(down: int, up: int, table: int = _TABLE) -> bytes:
    """Return a table-mod that asks for events."""
    body = struct.pack("!B3xI", table, _VACANCY) + vacancy(down, up)
    return frame(of.TABLE_MOD, body, 5)


def off(table: int = _TABLE) -> bytes:
    """Return a table-mod that ends the events."""
    return frame(of.TABLE_MOD, struct.pack("!B3xI", table, 0), 5)


def rule(port: int, command: int = of.ADD, table: int = _TABLE, flags: int = 0, instructions: bytes = b"") -> bytes:
    """Return a flow-mod."""
    fields = (("in_port", port, None),)
    return in_version(of.FlowMod(command, table, 0, fields, instructions, flags=flags).encode(9), 5)


def clear(table: int = _TABLE) -> bytes:
    """Return the deletion of all rules of a table."""
    return in_version(of.FlowMod(of.DELETE, table).encode(9), 5)


def bundle(*messages: bytes) -> bytes:
    """Return what carries out messages in a bundle."""
    begin, end = (frame(_BUNDLE_CONTROL, struct.pack("!IHH", 1, kind, 3), 5) for kind in (0, 4))
    return begin + b"".join(frame(_BUNDLE_ADD, struct.pack("!IHH", 1, 0, 3) + each, 5, 9) for each in messages) + end


_GROUP = in_version(of.group_mod(3, 0, 0, 1, of.bucket(of.output(2))), 5)
_GROUPED = rule(1, instructions=of.apply_actions(of.group_action(1)))
SEQUENCES = {
    "first and last rule": (limits(100, 100), rule(1), rule(2), clear(), rule(1)),
    "limits of 99": (limits(99, 99), rule(1), clear(), rule(1)),
    "low limits": (limits(20, 80), rule(1), clear()),
    "in a table with rules": (rule(1), limits(99, 100), rule(2), clear(), limits(99, 99), rule(1), clear(), rule(1)),
    "several at once": (rule(1) + rule(2) + limits(99, 100), limits(99, 99), clear(), rule(1)),
    "both events": (rule(1), limits(100, 100), limits(99, 99), clear(), limits(100, 100), rule(1)),
    "off and on": (limits(100, 100), rule(1), off(), clear(), limits(100, 100), rule(1)),
    "all tables": (limits(100, 100, 255), rule(1, table=2) + rule(1, table=3), clear(2), rule(2, table=2)),
    "pipelined": (rule(1) + limits(100, 100) + limits(99, 99) + clear() + limits(100, 100) + rule(1) + clear(),),
    "a replacement": (limits(100, 100), rule(1, command=of.MODIFY), rule(1), rule(1)),
    "refused": (limits(100, 100), rule(1, flags=0x8000), rule(1)),
    "in a bundle": (limits(100, 100), bundle(rule(1), rule(2)), limits(99, 99), bundle(clear(), rule(3)), clear()),
    "by a group": (
        _GROUP + _GROUPED + limits(100, 100) + limits(99, 99),
        in_version(of.group_mod(4, 2, 0, of.GROUP_ALL), 5),
    ),
}


def heard(both: Comparison, sequence: tuple[bytes, ...], version: int = 5) -> tuple[list[list[str]], list[list[str]]]:
    """Return what the sender and another controller hear at each step, of both worlds."""
    found: list[list[list[str]]] = []
    for world, target in zip((both.ours, both.reference), both.targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        peers = [Peer(target, frame(0, version=version), version=version) for _ in range(2)]
        for peer in peers:
            peer.send(frame(of.SET_ASYNC, _EVENTS, version))
            peer.answers()
        peers[0].send(in_version(off(of.ALL_TABLES), version))
        told: list[list[str]] = []
        for data in sequence:
            peers[0].send(in_version(data, version))
            told.extend(peer.answers() for peer in peers)
        found.append(told)
        for peer in peers:
            peer.close()
    return found[0], found[1]


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_events_are_those_of_one_bridge(both: Comparison, sequence: tuple[bytes, ...], version: int) -> None:
    ours, reference = heard(both, sequence, version)
    assert ours == reference


def test_a_mask_keeps_events_away(both: Comparison) -> None:
    masks = frame(of.SET_ASYNC, mask(_TABLE_STATUS, 0x10) + mask(_TABLE_STATUS_TO_SLAVES, 0x18), 5)
    ours, reference = heard(both, (masks, limits(100, 100), rule(1)))
    assert ours == reference
    assert sum(len(each) for each in ours) == 1


def test_a_restart_forgets_no_event(both: Comparison) -> None:
    ours, reference = heard(both, (limits(100, 100), rule(1)))
    assert ours == reference
    both.play(RestartOneswitchd())
    peers = [Peer(target, frame(0, version=5), version=5) for target in both.targets]
    told: list[list[str]] = []
    for peer in peers:
        peer.send(frame(of.SET_ASYNC, _EVENTS, 5))
        peer.answers()
        # The table awaits that there is more space.
        peer.send(rule(2) + limits(99, 99) + clear() + limits(100, 100) + rule(1) + off(of.ALL_TABLES))
        told.append(peer.answers())
        peer.close()
    assert told[0] == told[1]
    assert len(told[0]) == 2
