"""OpenFlow 1.4: replies, errors and notifications byte for byte as one bridge's, and stock ovs-ofctl."""

import struct
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.dialects.openflow14 import intel_counters
from tests.oracle.ofctl import ofctl
from tests.oracle.peer import Peer, ask, frame, in_version
from tests.oracle.test_bundles import CASES
from tests.oracle.world import clear_messages

_NICIRA, _ONF = 0x2320, 0x4F4E4600
_TABLE_DESC, _QUEUE_DESC = 14, 15
_BUNDLE_CONTROL, _BUNDLE_ADD = 33, 34
_MASTER, _SLAVE = 2, 3


def message(kind: int, body: bytes = b"", xid: int = 7) -> bytes:
    """Return a message of OpenFlow 1.4."""
    return frame(kind, body, 5, xid)


def multipart(kind: int, body: bytes = b"") -> bytes:
    """Return a multipart request."""
    return message(of.MULTIPART_REQUEST, struct.pack("!HH4x", kind, 0) + body)


def in_14(data: bytes) -> bytes:
    """Return messages that are the same in OpenFlow 1.3 and 1.4."""
    return in_version(data, 5)


def role(number: int, generation: int) -> bytes:
    """Return a request for a role."""
    return message(of.ROLE_REQUEST, struct.pack("!I4xQ", number, generation))


def mask(kind: int, reasons: int) -> bytes:
    """Return a property of an asynchronous configuration."""
    return struct.pack("!HHI", kind, 8, reasons)


def table_mod(table: int, config: int, properties: bytes = b"") -> bytes:
    """Return a change of the configuration of a table."""
    return message(of.TABLE_MOD, struct.pack("!B3xI", table, config) + properties)


def vacancy(down: int, up: int, now: int = 0) -> bytes:
    """Return the limits of a table's vacancy, as a property."""
    return struct.pack("!HHBBBx", 3, 8, down, up, now)


def important(importance: int, rule: of.FlowMod) -> bytes:
    """Return a flow-mod with an importance."""
    encoded = in_14(rule.encode(9))
    return encoded[:46] + struct.pack("!H", importance) + encoded[48:]


def in_bundle(data: bytes) -> bytes:
    """Return what carries out a message in a bundle."""
    xid = int.from_bytes(data[4:8])
    control = [message(_BUNDLE_CONTROL, struct.pack("!IHH", 1, kind, 1)) for kind in (of.BUNDLE_OPEN, of.BUNDLE_COMMIT)]
    return control[0] + message(_BUNDLE_ADD, struct.pack("!IHH", 1, 0, 1) + data, xid) + control[1]


_INTEL_COUNTERS = 304  # where custom statistics begin
_EVICTION, _VACANCY, _ALL_TABLES = 4, 8, 255
_PORT_MOD = struct.pack("!I4x6s2xII", 1, bytes(6), 0, 0)
_WRITES = (of.PACKET_OUT, of.FLOW_MOD, of.GROUP_MOD, of.PORT_MOD, of.TABLE_MOD, of.METER_MOD)
MESSAGES = {
    "features": message(of.FEATURES_REQUEST),
    "configuration": message(of.GET_CONFIG_REQUEST),
    "asynchronous configuration": message(of.GET_ASYNC_REQUEST),
    "masks": message(of.SET_ASYNC, b"".join(mask(kind, kind // 4 + 1) for kind in range(8)) + mask(9, 8))
    + message(of.GET_ASYNC_REQUEST),
    "all reasons": b"".join(message(of.SET_ASYNC, mask(k, 1 << n)) for k in range(12) for n in range(32))
    + message(of.GET_ASYNC_REQUEST),
    "unknown mask": message(of.SET_ASYNC, mask(77, 1)),
    "masks of an experimenter": message(of.SET_ASYNC, struct.pack("!HHIII", 0xFFFF, 16, 1, 1, 1)),
    "lengths of masks": b"".join(message(of.SET_ASYNC, bytes(length)) for length in range(0, 40, 4)),
    "Nicira's masks": message(of.EXPERIMENTER, struct.pack("!II", _NICIRA, 27) + mask(1, 0x3B) + mask(0, 8))
    + message(of.GET_ASYNC_REQUEST),
    "ONF's extensions": b"".join(message(of.EXPERIMENTER, struct.pack("!II16x", _ONF, n)) for n in (1, 1911, 2300)),
    "role": role(1, 0) + role(_SLAVE, 1 << 63) + role(9, 0),
    "slave": role(_SLAVE, 1 << 63)
    + b"".join(message(kind, bytes(length), 100 + length) for kind in _WRITES for length in range(0, 65, 4)),
    "queues' configuration": message(of.QUEUE_GET_CONFIG_REQUEST, bytes(8)),
    "queue descriptions": multipart(_QUEUE_DESC, struct.pack("!II", 17, 0xFFFFFFFF)) + multipart(_QUEUE_DESC, bytes(4)),
    "table descriptions": multipart(_TABLE_DESC) + multipart(_TABLE_DESC, bytes(8)),
    "table features": multipart(of.TABLE_FEATURES),
    "groups": multipart(of.GROUP, struct.pack("!I4x", of.GROUP_ALL)) + multipart(of.GROUP_DESC),
    "group features": multipart(of.GROUP_FEATURES),
    "meters": multipart(of.METER_FEATURES) + multipart(of.METER, struct.pack("!I4x", of.METER_ALL)),
    "unknown statistics": multipart(99),
    "table-mod": message(of.TABLE_MOD, struct.pack("!B3xI", 0, 0)) + message(of.TABLE_MOD, bytes(4)),
    "configurations of tables": b"".join(
        table_mod(table, config, properties) + multipart(_TABLE_DESC) + multipart(of.TABLE_FEATURES)
        for table, config, properties in (
            (3, _EVICTION, b""),
            (4, _VACANCY, vacancy(20, 80)),
            (3, _VACANCY | _EVICTION, vacancy(0, 100)),
            (4, _VACANCY, b""),
            (253, 0xFFFFFFFF, vacancy(1, 1)),
            (_ALL_TABLES, _VACANCY, vacancy(7, 9)),
            (3, 0, vacancy(5, 6)),
            (_ALL_TABLES, 0, b""),
        )
    ),
    "properties of a table-mod": b"".join(
        table_mod(5, config, properties) + multipart(_TABLE_DESC)
        for config in (0, _EVICTION, _VACANCY)
        for properties in (
            *(mask(2, factors) for factors in range(9)),
            vacancy(80, 20),
            vacancy(20, 101),
            vacancy(101, 102),
            vacancy(20, 80, 1),
            vacancy(20, 80) + vacancy(30, 70),
            vacancy(20, 80) + mask(2, 1),
            struct.pack("!HHI", 2, 7, 0),
            struct.pack("!HHI8x", 3, 12, 0),
            struct.pack("!HHI8x", 2, 16, 0),
            mask(1, 0),
            mask(4, 0),
            mask(0x8000, 0),
            struct.pack("!HHIQ", 0xFFFF, 16, 1, 1),
            bytes(4),
            bytes(8),
        )
    )
    + table_mod(_ALL_TABLES, 0),
    "tables of a table-mod": b"".join(table_mod(table, 0) for table in (0, 253, 254)),
    "unknown port": message(of.PORT_MOD, struct.pack("!I4x6s2xII", 77, bytes(6), 0, 0)),
    "port that does not fit": message(of.PORT_MOD, struct.pack("!I4x6s2xII", 0x10000, bytes(6), 0, 0)),
    "properties of a port-mod": b"".join(
        message(of.PORT_MOD, _PORT_MOD + each)
        for each in (bytes(8), mask(5, 0), mask(1, 0), struct.pack("!HHI", 0, 9, 0), struct.pack("!HHIQ", 0, 16, 0, 0))
    ),
    "unknown type": b"".join(message(kind, bytes(length)) for kind in (30, 31, 32, 35) for length in range(0, 33, 4)),
    "flow-mods": b"".join(
        in_14(of.FlowMod(command=command, table=table, flags=flags).encode(9))
        for command in (0, 3, 9)
        for table in (0, 254)
        for flags in (0, 0x80)
    ),
    "unknown group": in_14(of.FlowMod(instructions=of.apply_actions(of.group_action(9))).encode(9)),
    "version 1.3": frame(of.BARRIER_REQUEST) + message(of.BARRIER_REQUEST),
}
COMMANDS = (
    ("add-flow", "table=2,importance=0,tcp,tcp_dst=80,cookie=7,actions=set_field:1.2.3.4->ip_dst,output:2"),
    ("add-flow", "in_port=1,actions=meter:1,output:2"),
    ("add-group", "group_id=1,type=select,bucket=output:1,bucket=output:2"),
    ("add-flow", "ip,actions=group:1,goto_table:2"),
    ("add-flow", "importance=7,priority=9,ipv6,actions=output:1"),
    ("add-flow", "importance=9,priority=9,arp,actions=output:1"),
    ("mod-flows", "importance=8,arp,actions=output:2"),
    ("mod-table", "1", "evict"),
    ("mod-table", "2", "vacancy:20,80"),
    ("mod-table", "253", "vacancy:20,80"),
    ("mod-table", "253", "novacancy"),
    ("mod-table", "254", "evict"),
    ("add-meter", "meter=1,kbps,band=type=drop,rate=1000"),
    ("add-flow", "in_port=1,actions=meter:1,output:2"),
    ("mod-flows", "tcp,actions=output:3"),
    ("--no-stats", "dump-flows"),
    ("dump-groups",),
    ("dump-meters",),
    ("dump-table-desc",),
    ("dump-aggregate",),
    ("mod-port", "2", "no-forward"),
    ("mod-port", "2", "forward"),
    ("mod-port", "17", "forward"),
    ("mod-table", "all", "noevict"),
    ("dump-table-desc",),
    ("del-groups",),
    ("del-meters",),
    ("del-flows",),
)


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    """Both worlds."""
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.fixture
def targets(comparison: Comparison) -> tuple[str, str]:
    return comparison.targets


def connect(target: str) -> Peer:
    """Connect over OpenFlow 1.4."""
    return Peer(target, frame(0, version=5), version=5)


@pytest.mark.parametrize("data", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_answered_as_by_one_bridge(targets: tuple[str, str], data: bytes) -> None:
    ours, reference = (without_identity(ask(target, data, version=5), 5) for target in targets)
    assert ours == reference


def without_identity(answers: list[str], version: int) -> list[str]:
    """Remove the datapath's number from replies about features."""
    return [each[:16] + each[32:] if each.startswith(f"{version:02x}06") else each for each in answers]


def test_commands_do_what_they_do_on_one_bridge(targets: tuple[str, str]) -> None:
    for words in COMMANDS:
        # The order of rules of one priority is Open vSwitch's own, and differs between its runs.
        ours, reference = (sorted(ofctl(target, "-OOpenFlow14", *words).splitlines()) for target in targets)
        assert ours == reference, words


def bundle_in_14(messages: bytes) -> bytes:
    """Return messages of OpenFlow 1.3, some of them about bundles, in 1.4."""
    out = b""
    while messages:
        length = int.from_bytes(messages[2:4])
        kind, xid, body = messages[1], int.from_bytes(messages[4:8]), messages[8:length]
        messages = messages[length:]
        if kind != of.EXPERIMENTER:
            out += message(kind, body, xid)
        elif body[4:8] == struct.pack("!I", 2300):
            out += message(_BUNDLE_CONTROL, body[8:], xid)
        else:
            head, inner = body[8:16], body[16:]
            if len(inner) > 8 and inner[1] == of.PORT_MOD:
                inner = message(of.PORT_MOD, inner[8:32], int.from_bytes(inner[4:8]))
            version = inner[:1].replace(b"\4", b"\5")
            out += message(_BUNDLE_ADD, head + version + inner[1:], xid)
    return out


BUNDLES = {name: data for name, data in CASES.items() if name != "a slave's"}
"""Without that one, whose generation of roles is older than that of other tests here."""


@pytest.mark.parametrize("data", BUNDLES.values(), ids=BUNDLES)
def test_a_bundle_is_answered_as_by_one_bridge(comparison: Comparison, targets: tuple[str, str], data: bytes) -> None:
    answers: list[list[str]] = []
    for world, target in zip((comparison.ours, comparison.reference), targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        answers.append(ask(target, bundle_in_14(data), version=5))
    assert answers[0] == answers[1]
    assert comparison.ours.dump() == comparison.reference.dump()


@pytest.mark.parametrize(("kind", "body"), [(of.PORT_DESC, b""), (of.PORT_STATS, b"\xff" * 4 + bytes(4))])
def test_ports_are_shown_as_by_one_bridge(targets: tuple[str, str], kind: int, body: bytes) -> None:
    """The bridge also has LOCAL, other addresses, and other ages and counters."""
    found: list[list[str]] = []
    for target in targets:
        peer = connect(target)
        peer.send(multipart(kind, body))
        data = b"".join(bytes.fromhex(answer)[16:] for answer in peer.answers())
        peer.close()
        entries: list[str] = []
        while data:
            length = int.from_bytes(data[4:6] if kind == of.PORT_DESC else data[:2])
            entry = bytearray(data[:length])
            data = data[length:]
            hidden = slice(8, 14) if kind == of.PORT_DESC else slice(8, 80)
            number = bytes(entry[:4] if kind == of.PORT_DESC else entry[4:8])
            entry[hidden] = bytes(hidden.stop - hidden.start)
            if kind == of.PORT_STATS:
                custom = bytes(entry[_INTEL_COUNTERS:])
                entry[_INTEL_COUNTERS:] = custom[:16] + " ".join(intel_counters(custom)).encode()
            if number != of.LOCAL.to_bytes(4):
                entries.append(entry.hex())
        found.append(sorted(entries))
    assert found[0] == found[1]


def test_notifications_are_those_of_one_bridge(comparison: Comparison, targets: tuple[str, str]) -> None:
    heard: list[list[str]] = []
    for world, target in zip((comparison.ours, comparison.reference), targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        peer, other = connect(target), connect(target)
        peer.send(message(of.SET_CONFIG, struct.pack("!HH", 0, 0xFFFF)) + role(_MASTER, 1 << 63))
        peer.answers()
        other.send(role(_MASTER, 1 << 63))
        other.answers()
        told = [peer.next()]
        peer.send(role(1, 1 << 63))
        peer.answers()
        to_controller = of.apply_actions(of.output(of.CONTROLLER, 0xFFFF))
        rule = of.FlowMod(cookie=5, priority=3, flags=of.SEND_FLOW_REM, instructions=to_controller)
        peer.send(in_14(of.meter_mod(1, 0, 1, 1, of.band(1, 1000))) + in_14(rule.encode(1)))
        assert peer.answers() == []
        world.wires.inject(world.places[1], bytes.fromhex("ffffffffffff0200000000010800") + bytes(46))
        world.wires.settle()
        told.append(peer.next())
        world.wires.purge()
        metered = of.FlowMod(cookie=6, priority=4, flags=of.SEND_FLOW_REM, instructions=of.meter(1))
        peer.send(in_14(metered.encode(1)) + in_14(of.meter_mod(1, 2, 0, 1)))
        told.append(_without_times(peer.next()))
        peer.send(in_14(of.FlowMod(of.DELETE, of.ALL_TABLES).encode(1)))
        told.append(_without_times(peer.next()))
        heard.append([each.hex() for each in told])
        peer.close()
        other.close()
    assert heard[0] == heard[1]
    assert [each[2:4] for each in heard[0]] == ["1e", "0a", "0b", "0b"]


def group(command: int, kind: int, number: int, buckets: bytes = b"", xid: int = 7) -> bytes:
    """Return a group-mod of OpenFlow 1.4."""
    return in_14(of.group_mod(xid, command, kind, number, buckets))


_BUCKETS = of.bucket(of.output(2), 3) + of.bucket(of.set_queue(4) + of.output(1), 1)
_ADD_OR_MODIFY = 0x8000
REQUESTS = {
    "groups": group(0, of.SELECT_GROUP, 1, _BUCKETS, 1)
    + group(0, of.SELECT_GROUP, 1, b"", 2)
    + group(1, 0, 1, of.bucket(of.output(3)), 3)
    + group(_ADD_OR_MODIFY, 0, 1, b"", 4)
    + group(_ADD_OR_MODIFY, of.FAST_FAILOVER, 2, of.bucket(of.output(1), 0, 1), 5)
    + group(of.DELETE_GROUP, 0, 77, b"", 6)
    + group(of.DELETE_GROUP, 0, 1, b"", 7)
    + group(of.DELETE_GROUP, 0, of.GROUP_ALL, b"", 8),
    "meters": b"".join(
        in_14(of.meter_mod(xid, command, flags, meter, bands))
        for xid, command, flags, meter, bands in (
            (1, 0, 1, 1, of.band(1, 1000)),
            (2, 0, 1, 1, of.band(1, 1000)),
            (3, 1, 5, 1, of.band(1, 2000, 20)),
            (4, 2, 3, 1, b""),
            (5, 2, 0, of.METER_ALL, b""),
        )
    ),
    "a bundle": in_bundle(group(0, 0, 5, of.bucket(of.output(3)), 9)),
    "a bundle that fails": in_bundle(group(0, 0, 5, b"", 9)) + in_bundle(group(0, 0, 5, b"", 10)),
}


@pytest.mark.parametrize("requests", REQUESTS.values(), ids=REQUESTS)
def test_requests_are_forwarded_as_by_one_bridge(
    comparison: Comparison, targets: tuple[str, str], requests: bytes
) -> None:
    chosen = mask(11, 3)
    choice = struct.pack("!II", _NICIRA, 27) + chosen
    heard: list[list[list[str]]] = []
    for world, target in zip((comparison.ours, comparison.reference), targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        sender, other, old, deaf, slave = (Peer(target, frame(0, version=v), v) for v in (5, 5, 4, 5, 5))
        sender.send(message(of.SET_ASYNC, chosen))
        other.send(message(of.SET_ASYNC, chosen))
        old.send(frame(of.EXPERIMENTER, choice))
        slave.send(role(_SLAVE, 1 << 63) + message(of.SET_ASYNC, mask(10, 1) + mask(11, 2)))
        peers = (sender, other, old, deaf, slave)
        for peer in peers:
            peer.answers()
        sender.send(requests)
        heard.append([peer.answers() for peer in peers])
        for peer in peers:
            peer.close()
    assert heard[0] == heard[1]
    assert any(heard[0][1])
    assert any(heard[0][2])
    assert not heard[0][3]


_TO_CONTROLLER = of.output(of.CONTROLLER, 0xFFFF)
_PACKET = bytes.fromhex("ffffffffffff0200000000010800") + bytes(46)
CAUSES = {
    "rule": in_14(of.FlowMod(cookie=5, priority=3, instructions=of.apply_actions(_TO_CONTROLLER)).encode(1)),
    "action set": in_14(of.FlowMod(cookie=5, priority=3, instructions=of.write_actions(_TO_CONTROLLER)).encode(1)),
    "group": group(0, 0, 1, of.bucket(_TO_CONTROLLER))
    + in_14(of.FlowMod(cookie=5, priority=3, instructions=of.apply_actions(of.group_action(1))).encode(1)),
    "no match": in_14(of.FlowMod(instructions=of.apply_actions(_TO_CONTROLLER)).encode(1)),
    "packet-out": message(
        of.PACKET_OUT, struct.pack("!IIH6x", of.NO_BUFFER, 1, len(_TO_CONTROLLER)) + _TO_CONTROLLER + _PACKET
    ),
}
"""Actions that make a packet go to controllers; the last one needs no packet of a host."""
_FORMAT2 = struct.pack("!III", _NICIRA, 16, 2)
HEARERS = {
    "1.0": (1, b"", CAUSES),
    "1.3": (4, b"", CAUSES),
    "1.3 with nxt_packet_in2": (4, frame(of.EXPERIMENTER, _FORMAT2), CAUSES),
    "1.3 with a mask": (4, frame(of.SET_ASYNC, struct.pack("!6I", 2, 0, 7, 7, 0, 0)), set(CAUSES) - {"no match"}),
    "1.4": (5, b"", CAUSES),
    "1.4 with nxt_packet_in2": (5, message(of.EXPERIMENTER, _FORMAT2), CAUSES),
    "1.4 for actions": (5, message(of.SET_ASYNC, mask(1, 1 << 1)), {"rule"}),
    "1.4 for action sets": (5, message(of.SET_ASYNC, mask(1, 1 << 3)), {"action set"}),
    "1.4 for groups": (5, message(of.SET_ASYNC, mask(1, 1 << 4)), {"group"}),
    "1.4 for packet-outs": (5, message(of.SET_ASYNC, mask(1, 1 << 5)), {"packet-out"}),
}
"""Controllers: their version, their choice, and what they hear of."""


@pytest.mark.parametrize("cause", CAUSES)
def test_packet_ins_have_the_reasons_of_one_bridge(
    comparison: Comparison, targets: tuple[str, str], cause: str
) -> None:
    heard: list[dict[str, list[str]]] = []
    for world, target in zip((comparison.ours, comparison.reference), targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        peers: dict[str, Peer] = {}
        for name, (version, choice, _) in HEARERS.items():
            peers[name] = Peer(target, frame(0, version=version), version)
            peers[name].send(frame(of.SET_CONFIG, struct.pack("!HH", 0, 0xFFFF), version) + choice)
            assert peers[name].answers() == []
        sender = connect(target)
        sender.send(CAUSES[cause])
        assert sender.answers() == []
        if cause != "packet-out":
            # Open vSwitch may have cached the flow of the last test's packet only after it had sent the packet-in.
            world.wires.purge()
            world.wires.inject(world.places[1], _PACKET)
        told = {name: [peer.next().hex()] for name, peer in peers.items() if cause in HEARERS[name][2]}
        heard.append({name: told.get(name, []) + peer.answers() for name, peer in peers.items()})
        for peer in (sender, *peers.values()):
            peer.close()
    assert heard[0] == heard[1]


def _without_times(removed: bytes) -> bytes:
    """Return a flow_removed without the duration."""
    return removed[:20] + bytes(8) + removed[28:]


@pytest.mark.parametrize("shown_in", [4, 5])
def test_rules_are_shown_with_their_importance(comparison: Comparison, targets: tuple[str, str], shown_in: int) -> None:
    """OpenFlow 1.3 has padding there."""
    to = [of.apply_actions(of.output(port)) for port in (1, 2, 3)]
    rules = (
        important(0xBEEF, of.FlowMod(priority=1)),
        important(7, of.FlowMod(priority=2, instructions=to[0])),
        important(9, of.FlowMod(of.MODIFY, priority=2, instructions=to[1])),
        important(0, of.FlowMod(priority=1, flags=of.RESET_COUNTS, instructions=to[2])),
        b"\4" + important(8, of.FlowMod(priority=3))[1:],
        in_bundle(important(5, of.FlowMod(priority=4))),
    )
    shown: list[list[list[str]]] = []
    for world, target in zip((comparison.ours, comparison.reference), targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        writer, reader = connect(target), Peer(target, frame(0, version=shown_in), version=shown_in)
        old = Peer(target, frame(0))
        states: list[list[str]] = []
        for rule in rules:
            peer = old if rule[0] == 4 else writer
            peer.send(rule)
            peer.answers()
            reader.send(frame(of.MULTIPART_REQUEST, of.flow_request(1, of.FLOW)[8:], shown_in))
            states.append(_rules(reader.answers()))
        shown.append(states)
        for peer in (writer, reader, old):
            peer.close()
    assert shown[0] == shown[1]


def _rules(answers: list[str]) -> list[str]:
    """Return the rules of replies, without their durations."""
    data = b"".join(bytes.fromhex(answer)[16:] for answer in answers)
    rules: list[str] = []
    while data:
        length = int.from_bytes(data[:2])
        rules.append((data[:4] + data[12:length]).hex())
        data = data[length:]
    return sorted(rules)
