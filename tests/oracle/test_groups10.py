"""Nicira's messages about groups over OpenFlow 1.0: stock ovs-ofctl, and answers byte for byte as one bridge's."""

import struct

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.dialects import messages10, nicira
from tests.oracle.dialects import messages15 as m
from tests.oracle.ofctl import ofctl
from tests.oracle.peer import Peer, ask, frame, in_version
from tests.oracle.steps import Check, Execute, Inject, Move, RestartOneswitchd, RestartSwitch

_ALL, _SELECT, _INDIRECT, _FAST_FAILOVER = range(4)
_ADD, _MODIFY, _DELETE = range(3)
_ADD_OR_MODIFY = 0x8000
_SLAVE = 2
_PACKET = "ffffffffffff0200000000010800450000140000000040060000" + "0a000001" + "0a000002" + "00" * 26
_ETH_SRC, _TOS = struct.pack("!HBB6s", 0x8000, 4 << 1, 6, b"\xff" * 6), struct.pack("!HBBB", 0, 5 << 1, 1, 0xFC)
_IN_PORT, _SET_OUTPUT = (
    struct.pack("!HBBI", 0x8000, 0, 4, 0xFFFFFFFF),
    struct.pack("!HBBI", 0x8000, 43 << 1, 4, 0xFFFFFFFF),
)


def output(port: int) -> bytes:
    """Return an action of OpenFlow 1.0."""
    return struct.pack("!HHHH", 0, 8, port, 0xFFFF)


def short(kind: int, first: int = 0, second: int = 0) -> bytes:
    """Return another one."""
    return struct.pack("!HHHH", kind, 8, first, second)


ENQUEUE = struct.pack("!HHH6xI", 11, 16, 2, 3)
TAGGED = short(1, 5) + short(2, 3 << 8) + output(2) + short(3) + output(3)
TCP = struct.pack("!HH4s", 6, 8, bytes([1, 2, 3, 4])) + short(8, 32 << 8) + short(9, 80)
LOAD = nicira.action(nicira.REG_LOAD, struct.pack("!HIQ", 31, 0x00010004, 1))
CLONE = nicira.action(42, bytes(6) + output(5))
LOAD_ETH = nicira.action(nicira.REG_LOAD, struct.pack("!HIQ", 47, 0x00000406, 1))
LOAD_PART = nicira.action(nicira.REG_LOAD, struct.pack("!HIQ", 8 << 6 | 7, 0x00000E04, 1))
LEARN = nicira.action(
    16, struct.pack("!4xHQHBxHH", 5, 1, 0, 3, 0, 0) + struct.pack("!HIHIH2x", 48, 0x80000806, 0, 0x80000606, 0)
)
MOVE = nicira.action(nicira.REG_MOVE, struct.pack("!HHHII", 32, 0, 0, 0x00000E04, 0x00010004))


def load(offset: int, bits: int, header: int, value: int) -> bytes:
    """Return a load into bits of a field."""
    return nicira.action(nicira.REG_LOAD, struct.pack("!HIQ", offset << 6 | bits - 1, header, value))


_REG0, _ETH_TYPE, _CT_STATE = 0x00010004, 0x00000602, 0x0001D204
LOADS = (
    load(31, 2, _REG0, 1),
    load(0, 64, _REG0, 1),
    load(0, 8, _REG0, 256),
    load(0, 8, _REG0 | 0x104, 1),
    load(0, 8, _REG0 | 0x100, 1),
    load(0, 8, 0x00070604, 1),
    load(0, 8, 0xFFFF5608, 1),
    load(0, 8, 0, 1),
    load(0, 16, _ETH_TYPE, 1),
    load(0, 1, _ETH_TYPE, 2),
    load(0, 17, _ETH_TYPE, 1),
    load(31, 1, _CT_STATE, 1),
    nicira.action(42, bytes(6) + load(31, 2, _REG0, 1)),
)
SPELLED_BY_VERSION = (
    struct.pack("!HH6s6x", 4, 16, bytes(range(6))),
    TCP,
    short(3),
    LOAD,
    LOAD_ETH,
    LOAD_PART,
    MOVE,
    LEARN,
    nicira.action(2, struct.pack("!2xI", 5)),
    nicira.action(9, struct.pack("!6xQ", 5)),
    nicira.action(30, struct.pack("!2xI", 5)),
    nicira.action(31, struct.pack("!B5x", 5)),
)


def group_mod(
    command: int, kind: int = _ALL, *buckets: bytes, group: int = 1, place: int = m.ALL_BUCKETS, properties: bytes = b""
) -> bytes:
    """Return Nicira's group-mod."""
    body = m.group_mod(command, kind, *buckets, group=group, place=place, properties=properties)
    return messages10.group_mod(7, body)


def bucket(number: int, done: bytes = b"", *, weight: int = 0, watched: int = of.ANY, kind: int = _ALL) -> bytes:
    """Return a bucket."""
    return m.bucket(number, done, m.watching(kind, weight, watched, of.ANY))


def add(kind: int, *buckets: bytes, group: int = 1, properties: bytes = b"") -> bytes:
    """Return an addition."""
    return group_mod(_ADD, kind, *buckets, group=group, properties=properties)


def using_group() -> bytes:
    """Return the addition of a rule that outputs to group 1."""
    return messages10.FlowMod10(priority=5, actions=messages10.group(1)).encode(9)


def asking(subtype: int, body: bytes) -> bytes:
    """Return a request for statistics."""
    return messages10.stats(7, messages10.STATS_VENDOR, messages10.nicira_stats(subtype, body))


DESCRIPTIONS = asking(messages10.NXST_GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL))
ONE = bucket(7, output(2))
MESSAGES = {
    "every action": add(
        _ALL, bucket(0, TAGGED), bucket(1, TCP + output(2)), bucket(2, ENQUEUE), bucket(3, LOAD + CLONE)
    ),
    "a copy of a field": add(_INDIRECT, bucket(0, MOVE + output(2))),
    "numbers": add(_ALL, ONE, bucket(3, output(5)), bucket(0xFFFFFF00, output(6))),
    "weights": add(_SELECT, bucket(5, output(2), weight=3, kind=_SELECT), bucket(6, output(5), weight=0, kind=_SELECT)),
    "watched ports": add(_FAST_FAILOVER, bucket(0, output(2), watched=2), bucket(1, output(5), watched=5)),
    "no bucket": add(_ALL) + add(_INDIRECT, group=2),
    "modified": add(_ALL, ONE) + group_mod(_MODIFY, _SELECT, bucket(1, output(3), weight=1, kind=_SELECT)),
    "modified, and none is there": group_mod(_MODIFY, _ALL, ONE) + group_mod(_ADD_OR_MODIFY, _ALL, ONE),
    "twice": add(_ALL, ONE) + add(_ALL, ONE),
    "inserted": add(_ALL, ONE)
    + group_mod(m.INSERT_BUCKET, _ALL, bucket(3, TAGGED), place=7)
    + group_mod(m.INSERT_BUCKET, _ALL, bucket(4, output(3)), place=m.FIRST_BUCKET)
    + group_mod(m.INSERT_BUCKET, _ALL, bucket(4, output(3)), place=m.LAST_BUCKET)
    + group_mod(m.INSERT_BUCKET, _ALL, bucket(9, output(3)), place=88),
    "removed": add(_ALL, ONE, bucket(8, output(3)), bucket(9, output(5)))
    + group_mod(m.REMOVE_BUCKET, place=8)
    + group_mod(m.REMOVE_BUCKET, place=88)
    + group_mod(m.REMOVE_BUCKET, place=m.LAST_BUCKET),
    "deleted": add(_ALL, ONE) + group_mod(_DELETE, _INDIRECT) + group_mod(_DELETE, group=of.GROUP_ALL),
    "deleted with buckets": add(_ALL, ONE) + add(_ALL, ONE, group=2) + group_mod(_DELETE, _ALL, ONE, bucket(9, TAGGED)),
    "all deleted with buckets": add(_ALL, ONE) + group_mod(_DELETE, _ALL, ONE, group=of.GROUP_ALL),
    "hashes": add(_SELECT, ONE, properties=m.selection(b"hash", _ETH_SRC + _TOS + _IN_PORT + _SET_OUTPUT))
    + add(_SELECT, ONE, group=2, properties=m.selection(b"dp_hash"))
    + add(_SELECT, ONE, group=3, properties=m.selection(b"hash", _ETH_SRC + _ETH_SRC))
    + add(_ALL, ONE, group=4, properties=m.selection(b"hash")),
    "lengths": b"".join(messages10.group_mod(length, bytes(length)) for length in range(0, 49, 4)),
    "types": b"".join(add(kind, ONE) for kind in range(3, 6)) + group_mod(_DELETE, 4),
    "commands": b"".join(group_mod(command, _ALL, ONE) for command in (4, 6, 0x8001)),
    "places": b"".join(group_mod(command, _ALL, place=7) for command in (_ADD, _MODIFY, _DELETE))
    + group_mod(m.INSERT_BUCKET, _ALL, ONE),
    "numbers of groups": b"".join(add(_ALL, ONE, group=group) for group in (0, 0xFFFFFF00, of.GROUP_ALL, of.ANY)),
    "buckets of wrong lengths": add(_ALL, b"\0\4" + ONE[2:])
    + add(_ALL, b"\0\x28" + ONE[2:])
    + add(_ALL, ONE[:2] + b"\0\x10" + ONE[4:])
    + add(_ALL, ONE[:2] + b"\0\4" + ONE[4:])
    + group_mod(_ADD, _ALL, properties=ONE),
    "numbers of buckets": add(_ALL, ONE, ONE) + add(_ALL, bucket(0xFFFFFF01, output(2))),
    "actions": b"".join(
        add(_ALL, bucket(0, action), group=2)
        for action in (short(99), short(1, 5000), short(8, 3 << 8), b"\0\0\0\x10" + bytes(4), output(0xFF10), short(11))
    ),
    # Switches get buckets with numbers of their own over OpenFlow 1.5, which has no load.
    "loads": b"".join(add(_ALL, bucket(n, each + output(2)), group=2) for n in (0, 7) for each in LOADS),
    "a load before another fault": add(_ALL, bucket(7, LOADS[0] + output(0xFF10)))
    + add(_ALL, bucket(7, output(0xFF10) + LOADS[0]))
    + add(_ALL, bucket(7, LOADS[0] + short(99)))
    + add(_ALL, bucket(7, LOADS[0]), bucket(0xFFFFFF01, output(2))),
    "unknown property": add(_ALL, m.bucket(0, output(2), m.prop(9, bytes(4))))
    + add(_ALL, ONE, properties=m.prop(9, b"")),
    "a slave's": nicira.message(1, 7, nicira.ROLE_REQUEST, struct.pack("!I", _SLAVE))
    + add(_ALL, ONE)
    + messages10.group_mod(7, bytes(12))
    + asking(messages10.NXST_GROUP_FEATURES, b""),
    "forwarded": b"".join(nicira.message(1, 7, nicira.REQUEST_FORWARD, bytes(length)) for length in (0, 8, 12, 16)),
    "features": asking(messages10.NXST_GROUP_FEATURES, b"") + asking(messages10.NXST_GROUP_FEATURES, bytes(8)),
    "descriptions": add(_ALL, ONE)
    + add(_ALL, ONE, group=2)
    + b"".join(asking(messages10.NXST_GROUP_DESC, struct.pack("!I4x", group)) for group in (1, 2, 3, of.ANY))
    + asking(messages10.NXST_GROUP_DESC, bytes(4))
    + asking(messages10.NXST_GROUP_DESC, b""),
    "other statistics": b"".join(asking(number, bytes(8)) for number in (5, 6, 10)),
}


def described(target: str) -> set[bytes]:
    """Return the descriptions of all groups."""
    found = set[bytes]()
    for answer in ask(target, DESCRIPTIONS, version=1):
        data = bytes.fromhex(answer)[24:]
        while data:
            length = int.from_bytes(data[:2])
            found.add(data[:length])
            data = data[length:]
    return found


@pytest.mark.parametrize("data", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_taken_as_by_one_bridge(both: Comparison, data: bytes) -> None:
    ours, reference = (ask(target, data, version=1) for target in both.targets)
    assert ours == reference
    ours, reference = (described(target) for target in both.targets)
    assert ours == reference
    if TAGGED not in data:  # Known difference: actions on tags, read over OpenFlow 1.3.
        assert both.ours.dump() == both.reference.dump()


def test_counters_are_those_of_one_bridge(both: Comparison) -> None:
    rule = using_group()
    data = add(_ALL, bucket(7, TCP + output(2)), bucket(9, output(5))) + rule
    found: list[list[str]] = []
    for target in both.targets:
        assert ask(target, data, version=1) == []
    both.play(Inject(1, (_PACKET, _PACKET)))
    both.play(Check())
    for target in both.targets:
        asked = [asking(messages10.NXST_GROUP, struct.pack("!I4x", group)) for group in (of.GROUP_ALL, 1, 2, of.ANY)]
        answers = ask(target, b"".join(asked), version=1)
        found.append([f"{answer[:112]} {answer[128:]}" for answer in answers])
    assert found[0] == found[1]


def test_an_enqueue_of_a_bucket_does_nothing(both: Comparison) -> None:
    """Three actions of OpenFlow 1.5 for it do something, and all versions tell them apart as those of one bridge."""
    three = nicira.action(5, bytes(6))
    three = struct.pack("!HHI", 21, 8, 3) + struct.pack("!HHIH6x", 0, 16, 6, 0xFFFF) + three
    body = m.group_mod(_ADD, _ALL, bucket(1, three), bucket(2, three + of.output(5)), group=2)
    data = add(
        _ALL, bucket(7, ENQUEUE), bucket(9, ENQUEUE + output(5)), bucket(3, nicira.action(42, bytes(6) + ENQUEUE))
    )
    rule = messages10.FlowMod10(priority=5, actions=messages10.group(1) + messages10.group(2)).encode(9)
    for target in both.targets:
        assert ask(target, frame(of.GROUP_MOD, body, 6), version=6) == []
        assert ask(target, data + rule, version=1) == []
    for step in (Check(), Execute(1, 1), Move(2, 1), RestartOneswitchd()):
        both.play(step)
        both.play(Inject(1, (_PACKET,)))
        ours, reference = (described(target) for target in both.targets)
        assert ours == reference
        both.play(Check())
    both.play(RestartSwitch(1))
    both.play(Inject(1, (_PACKET,)))


def test_groups_stay_when_ports_move_and_switches_restart(both: Comparison) -> None:
    rule = using_group()
    for target in both.targets:
        assert ask(target, add(_ALL, bucket(7, TAGGED), bucket(3, TCP + output(5))) + rule, version=1) == []
    for step in (Execute(1, 1), Move(2, 1), RestartOneswitchd(), RestartSwitch(1)):
        both.play(step)
        both.play(Inject(1, (_PACKET,)))
        ours, reference = (described(target) for target in both.targets)
        assert ours == reference


@pytest.mark.parametrize("version", [1, 4, 5, 6])
def test_each_version_gets_actions_as_from_one_bridge(both: Comparison, version: int) -> None:
    """In descriptions and in others' requests."""
    chosen = struct.pack("!HHI", 11, 8, 3)
    in_words = nicira.message(version, 7, nicira.SET_ASYNC_CONFIG2, chosen)
    asking_later = of.multipart(7, of.GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL) * (version == 6))
    change = add(_ALL, *(bucket(number, done + output(2)) for number, done in enumerate(SPELLED_BY_VERSION)))
    heard: list[list[str]] = []
    for target in both.targets:
        other = Peer(target, frame(0, version=version), version)
        other.send(in_words if version < 5 else frame(of.SET_ASYNC, chosen, version))
        assert other.answers() == ask(target, change, version=1) == []
        other.send(DESCRIPTIONS if version == 1 else in_version(asking_later, version))
        heard.append(other.answers())
        other.close()
    assert heard[0] == heard[1]
    assert len(heard[0]) == 2


@pytest.mark.parametrize("version", [1, 4, 5, 6])
@pytest.mark.parametrize("sender", [1, 6])
def test_group_mods_are_forwarded_as_by_one_bridge(both: Comparison, sender: int, version: int) -> None:
    """Those of meters are not forwarded over OpenFlow 1.0."""
    chosen = struct.pack("!HHI", 11, 8, 3)
    own = {
        1: nicira.message(1, 7, nicira.SET_ASYNC_CONFIG2, chosen),
        4: nicira.message(4, 7, nicira.SET_ASYNC_CONFIG2, chosen),
    }
    two, five = (output(2), output(5)) if sender == 1 else (of.output(2), of.output(5))

    def change(command: int, kind: int, *buckets: bytes, place: int = m.ALL_BUCKETS, group: int = 1) -> bytes:
        body = m.group_mod(command, kind, *buckets, place=place, group=group)
        return messages10.group_mod(7, body) if sender == 1 else frame(of.GROUP_MOD, body, 6)

    changes = (
        change(_ADD, _SELECT, bucket(7, two, weight=5, kind=_SELECT))
        + change(_MODIFY, _ALL, bucket(9, two), bucket(3, five))
        + change(m.INSERT_BUCKET, _ALL, bucket(4, five), place=9)
        + change(m.REMOVE_BUCKET, _ALL, place=9)
        + change(_ADD_OR_MODIFY, _ALL, bucket(9, two))
        + change(_DELETE, _INDIRECT)
        + change(_DELETE, _ALL, bucket(5, two), group=5)
    )
    heard: list[list[str]] = []
    for target in both.targets:
        source, other = (Peer(target, frame(0, version=each), each) for each in (sender, version))
        other.send(own.get(version) or frame(of.SET_ASYNC, chosen, version))
        assert other.answers() == []
        source.send(changes)
        assert source.answers() == []
        assert ofctl(target, "-OOpenFlow13", "add-meter", "meter=1,kbps,band=type=drop,rate=1000") == ""
        heard.append(other.answers())
        source.close()
        other.close()
    assert heard[0] == heard[1]
    assert len(heard[0]) == (7 if version == 1 else 8)


COMMANDS = (
    ("add-group", "group_id=1,type=select,bucket=bucket_id:3,weight:5,mod_vlan_vid:5,output:2,bucket=output:3"),
    ("add-group", "group_id=1,type=all"),
    ("insert-buckets", "group_id=1,command_bucket_id=last,bucket=bucket_id:9,output:5"),
    ("insert-buckets", "group_id=1,command_bucket_id=3,bucket=bucket_id:3,output:5"),
    ("remove-buckets", "group_id=1,command_bucket_id=3"),
    ("--may-create", "mod-group", "group_id=2,type=ff,bucket=watch_port:2,output:2"),
    ("mod-group", "group_id=3,type=all,bucket=output:2"),
    ("add-group", "group_id=4,type=select,selection_method=hash,fields(eth_src,ip_src),bucket=output:2"),
    ("del-groups", "group_id=2"),
    ("dump-groups", "1"),
    ("dump-group-features",),
    ("del-groups",),
)


def test_stock_ovs_ofctl_says_what_it_says_of_one_bridge(both: Comparison) -> None:
    for words in COMMANDS:
        said: list[list[str]] = []
        for target in both.targets:
            said.append(sorted(ofctl(target, "-OOpenFlow10", *words).splitlines()))
            shown = (ofctl(target, "-OOpenFlow10", each) for each in ("dump-groups", "dump-group-stats"))
            lines = [line.partition("duration=")[0] for each in shown for line in each.splitlines()]
            said[-1] += sorted(lines)
        assert said[0] == said[1], words
        assert len(said[0]) > 0
