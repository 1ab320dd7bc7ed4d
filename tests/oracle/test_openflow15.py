"""OpenFlow 1.5: replies, errors and notifications byte for byte as one bridge's, and stock ovs-ofctl."""

import struct
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.dialects import messages15 as m
from tests.oracle.dialects.messages15 import (
    ALL_BUCKETS,
    FIRST_BUCKET,
    INSERT_BUCKET,
    LAST_BUCKET,
    REMOVE_BUCKET,
    bucket,
    copy_field,
    meter,
    prop,
    selection,
)
from tests.oracle.ofctl import ofctl
from tests.oracle.peer import Peer, ask, frame, in_version
from tests.oracle.test_openflow14 import MESSAGES as SHARED
from tests.oracle.test_openflow14 import role, without_identity
from tests.oracle.world import clear_messages

_NICIRA, _ONF = 0x2320, 0x4F4E4600
_MASTER, _SLAVE = 2, 3
_MODIFY = 1
"""The command to change features of some tables, and to keep those of others."""


def message(kind: int, body: bytes = b"", xid: int = 7) -> bytes:
    """Return a message of OpenFlow 1.5."""
    return frame(kind, body, m.VERSION, xid)


def in_15(messages: bytes) -> bytes:
    """Return messages of earlier versions that are the same in OpenFlow 1.5."""
    return in_version(messages, m.VERSION)


def multipart(kind: int, body: bytes = b"") -> bytes:
    """Return a multipart request."""
    return message(of.MULTIPART_REQUEST, struct.pack("!HH4x", kind, 0) + body)


def table_features(
    table: int, command: int, properties: bytes = b"", *, name: bytes = b"", entries: int = 1000000
) -> bytes:
    """Return an entry of a request that changes features of tables."""
    head = struct.pack("!HBBI32sQQII", 64 + len(properties), table, command, 0, name, 0, 0, 0, entries)
    return head + properties


def flow_mod(instructions: bytes, *fields: of.Oxm, **kwargs: int) -> bytes:
    """Return a flow-mod."""
    return in_15(of.FlowMod(instructions=instructions, fields=fields, **kwargs).encode(9))


def set_field(name: str, value: int, mask: int) -> bytes:
    """Return an action that sets bits of a field."""
    return of.set_field((name, value, mask))


def group_mod(
    command: int, kind: int = 0, *buckets: bytes, group: int = 1, place: int = ALL_BUCKETS, properties: bytes = b""
) -> bytes:
    """Return a group-mod."""
    body = m.group_mod(command, kind, *buckets, group=group, place=place, properties=properties)
    return message(of.GROUP_MOD, body)


def packet_out(fields: bytes, actions: bytes, data: bytes = b"") -> bytes:
    """Return a packet-out."""
    return message(of.PACKET_OUT, m.packet_out(fields, actions, data))


OUTPUT = of.output(2)
IN_PORT = of.oxm(("in_port", 1, None))
REG0, IP_SRC, NXM_IP_SRC = (
    struct.pack("!HBB", 1, 0, 4),
    struct.pack("!HBB", 0x8000, 22, 4),
    struct.pack("!HBB", 0, 14, 4),
)
IP = ("eth_type", 0x800, None)
_WRITES = (of.PACKET_OUT, of.FLOW_MOD, of.GROUP_MOD, of.PORT_MOD, of.TABLE_MOD, of.METER_MOD)
_LOAD = struct.pack("!HHIHHIQ", 0xFFFF, 24, _NICIRA, 7, 31, 0x00010004, 1)
_MOVE = struct.pack("!HHIHHHH", 0xFFFF, 24, _NICIRA, 6, 32, 0, 0) + NXM_IP_SRC + REG0
_ONF_COPY = struct.pack("!HHIH2xHHH2x", 0xFFFF, 32, _ONF, 3200, 32, 0, 0) + NXM_IP_SRC + REG0 + bytes(4)


def clone(actions: bytes) -> bytes:
    """Return Nicira's action with others inside."""
    return struct.pack("!HHIH6x", 0xFFFF, 16 + len(actions), _NICIRA, 42) + actions


def ct(actions: bytes) -> bytes:
    """Return Nicira's action with others inside."""
    return struct.pack("!HHIHHIHB3xH", 0xFFFF, 24 + len(actions), _NICIRA, 35, 1, 0, 0, 0xFF, 0) + actions


ACTIONS = {
    "load": _LOAD,
    "move": _MOVE,
    "copy of OpenFlow 1.3": _ONF_COPY,
    "copy": copy_field(32, IP_SRC, REG0),
    "copy with rest": copy_field(32, IP_SRC, REG0)[:-4] + b"\0\0\0\1",
    "copy of too many bits": copy_field(33, IP_SRC, REG0),
    "copy from unknown": copy_field(32, struct.pack("!HBB", 0x8000, 120, 4), REG0),
    "copy to a read-only field": copy_field(8, REG0, struct.pack("!HBB", 0x8000, 20, 1)),
    "short copy": struct.pack("!HHI", m.COPY_FIELD, 8, 0),
    "set bits": set_field("ipv4_dst", 0x0A000000, 0xFF000000),
    "set all bits": set_field("ipv4_dst", 0x0A000001, 0xFFFFFFFF),
    "set bits outside the mask": set_field("ipv4_dst", 0x0B000000, 0x0A000000),
    "set bits of a tag": set_field("vlan_vid", 0x1005, 0x100F),
    "set bits of a tag without presence": set_field("vlan_vid", 5, 0xF),
    "set bits of the protocol": set_field("ip_proto", 5, 0xF),
    "set the port": of.set_field(("in_port", 5, None)),
    "set with rest": of.set_field((*IP[:1], 5, None))[:-1] + b"\1",
    "meter": meter(1),
    "unknown meter": meter(77),
    "meter 0": meter(0),
    "long meter": struct.pack("!HHI8x", m.METER_ACTION, 16, 1),
    "nested load": clone(_LOAD),
    "nested bits": clone(set_field("ipv4_dst", 0x0A000000, 0xFF000000)),
    "tracked meter": ct(meter(1)),
    "unknown type": struct.pack("!HH4x", 30, 8),
}
SPELLED_OTHERWISE = {
    "scattered bits": set_field("ipv4_dst", 0x0A000001, 0xFF0000FF),
    "no bits": set_field("ipv4_dst", 0, 0),
}
"""Actions that earlier versions show otherwise (docs/oracle.md, "Known differences")."""
MESSAGES = {
    **{
        name: in_15(data)
        for name, data in SHARED.items()
        if name not in ("version 1.3", "groups", "slave", "flow-mods")
    },
    "version 1.4": frame(of.BARRIER_REQUEST, version=5) + message(of.BARRIER_REQUEST),
    "slave": role(_SLAVE, 1 << 63).replace(b"\5", bytes([m.VERSION]), 1)
    + b"".join(message(kind, bytes(length), 100 + length) for kind in _WRITES for length in range(0, 65, 4)),
    "groups": multipart(of.GROUP, struct.pack("!I4x", of.GROUP_ALL))
    + multipart(of.GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL))
    + multipart(of.GROUP_DESC)
    + multipart(of.GROUP_DESC, bytes(16)),
    "one group": group_mod(0, 0, bucket(7, OUTPUT), bucket(3))
    + group_mod(0, 0, group=2)
    + b"".join(multipart(of.GROUP_DESC, struct.pack("!I4x", group)) for group in (1, 2, 9)),
    "one port": multipart(of.PORT_DESC)
    + multipart(of.PORT_DESC, bytes(4))
    + b"".join(multipart(of.PORT_DESC, struct.pack("!I4x", port)) for port in (77, 0x10000, 0)),
    "lengths": b"".join(message(kind, bytes(length)) for kind in (13, 14, 15) for length in range(0, 65, 4)),
    "flow-mods": b"".join(
        flow_mod(b"", command=command, table=table, flags=flags)
        for command in (0, 3, 9)
        for table in (0, 254)
        for flags in (0, 0x80)
    ),
    "changes of table features": b"".join(
        multipart(of.TABLE_FEATURES, entries)
        for entries in (
            table_features(2, _MODIFY, name=b"two") + table_features(3, _MODIFY, name=b"three"),
            table_features(2, 0),
            table_features(2, _MODIFY, entries=5),
            *(table_features(2, command) for command in (2, 3, 9)),
            table_features(254, _MODIFY),
            table_features(255, _MODIFY),
            table_features(2, _MODIFY) * 2,
            table_features(2, _MODIFY, prop(99, bytes(4))),
            table_features(2, _MODIFY, prop(2, bytes(4)) * 2),
            table_features(2, _MODIFY, prop(2, bytes(4))),
            table_features(2, _MODIFY)[:-8],
            b"".join(table_features(table, 0, name=b"all") for table in range(254)),
            b"".join(table_features(table, _MODIFY) for table in range(254)),
        )
    ),
    "sums": in_15(of.flow_request(1, of.AGGREGATE)) + in_15(of.flow_request(1, of.AGGREGATE, table=77)),
    "no rules": in_15(of.flow_request(1, of.FLOW, table=77)),
    "meter as instruction": flow_mod(of.meter(1)) + flow_mod(struct.pack("!HHI8x", 6, 16, 1)),
    "meter in the action set": flow_mod(of.write_actions(meter(1))) + flow_mod(of.write_actions(OUTPUT + meter(1))),
    "commands of groups": b"".join(
        group_mod(command, kind, place=place)
        for command in (0, 1, 2, 3, 4, 5, 0x8000, 9)
        for kind in (0, 1, 2, 3, 9)
        for place in (ALL_BUCKETS, FIRST_BUCKET, LAST_BUCKET, 5, 0xFFFFFF01)
    ),
    "lengths of buckets": b"".join(
        group_mod(0, 0, struct.pack("!HHI", length, actions, 1) + bytes(rest), properties=bytes(more))
        for length in (0, 7, 8, 12, 16, 24)
        for actions in (0, 4, 8)
        for rest in (0, 8)
        for more in (0, 8)
    ),
    "numbers of buckets": group_mod(0, 0, bucket(1), bucket(1))
    + group_mod(0, 0, bucket(0xFFFFFF00), group=5)
    + group_mod(0, 0, bucket(0xFFFFFF01), group=6),
    "properties of buckets": b"".join(
        group_mod(0, kind, bucket(0, OUTPUT, each), group=100 + number * 4 + kind)
        for number, each in enumerate(
            (
                prop(0, b"\0\5\0\0"),
                prop(0, b"\0\5"),
                prop(0, b"\0"),
                prop(1, bytes(3) + b"\2"),
                prop(1, bytes(2)),
                prop(1, b"\0\1\0\0"),
                prop(2, bytes(3) + b"\2"),
                prop(7, bytes(4)),
                prop(0xFFFF, bytes(4)),
                prop(0xFFFF, bytes(8)),
                prop(0xFFFF, struct.pack("!II", 5, 5)),
                bytes(8),
            )
        )
        for kind in range(4)
    )
    + b"".join(multipart(of.GROUP_DESC, struct.pack("!I4x", group)) for group in range(100, 150)),
    "properties of groups": b"".join(
        group_mod(command, kind, properties=each)
        for command in (0, 3, 9)
        for kind in (0, 1, 9)
        for each in (
            prop(1, bytes(4)),
            prop(0xFFFF, bytes(4)),
            prop(0xFFFF, bytes(8)),
            selection(b"none"),
            selection(b"hash", vendor=5),
            selection(b"hash", number=2),
            selection(b"x" * 16),
            selection(b"dp_hash", REG0 + bytes(4)),
        )
    ),
    "no port": packet_out(b"", OUTPUT) + packet_out(of.oxm(("metadata", 5, None)), OUTPUT),
    "fields of a packet": packet_out(IN_PORT + of.oxm(IP), OUTPUT) + packet_out(of.oxm(IP) + IN_PORT, OUTPUT),
    "unknown fields": packet_out(struct.pack("!HBBI", 0x8000, 240, 4, 1) + IN_PORT, OUTPUT),
    "odd ports": b"".join(
        packet_out(of.oxm(("in_port", port, None)), OUTPUT)
        for port in (0, 0xFEFF, 0xFF00, 0x10000, of.IN_PORT, of.NORMAL, of.CONTROLLER, of.LOCAL, of.ANY)
    ),
    "fields twice": packet_out(IN_PORT + IN_PORT, OUTPUT),
    "masked port": packet_out(struct.pack("!HBBII", 0x8000, 1, 8, 1, 1), OUTPUT),
    "lengths of actions": b"".join(
        message(of.PACKET_OUT, struct.pack("!IH2xHH8s4x", of.NO_BUFFER, length, 1, 12, IN_PORT) + bytes(rest))
        for length in (4, 8, 16)
        for rest in (0, 8)
    ),
    "lengths of matches": b"".join(
        message(of.PACKET_OUT, struct.pack("!IH2xHH", of.NO_BUFFER, 0, kind, length) + bytes(12))
        for kind in (0, 1, 2)
        for length in (0, 3, 4, 88, 100)
    ),
}
COMMANDS = (
    ("add-meter", "meter=1,kbps,band=type=drop,rate=1000"),
    ("add-flow", "table=2,tcp,tcp_dst=80,cookie=7,actions=set_field:1.2.3.4->ip_dst,output:2"),
    ("add-flow", "in_port=1,actions=meter:1,output:2"),
    ("add-flow", "in_port=2,importance=7,actions=meter:1"),
    ("add-flow", "in_port=3,actions=meter:1,goto_table:2"),
    ("add-flow", "in_port=4,actions=meter:1,write_actions(output:2),write_metadata:5/7"),
    ("add-flow", "tcp,tcp_flags=+syn-ack,actions=drop"),
    ("add-flow", "table=1,reg0=1,reg1=2/3,reg5=7,actions=drop"),
    ("add-flow", "table=1,xreg3=0x1234000000000000/0xffff000000000000,metadata=5,actions=drop"),
    ("add-flow", "table=3,ip,actions=set_field:0x5/0xf->reg0,move:reg0[0..15]->reg1[16..31],output:2"),
    ("add-flow", "table=3,ipv6,actions=set_field:2001:db8::/32->ipv6_dst,load:5->NXM_OF_ETH_SRC[0..15],2"),
    ("add-flow", "table=3,arp,actions=move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],load:2->NXM_OF_ARP_OP[],in_port"),
    ("add-flow", "table=3,tcp,actions=clone(set_field:1.0.0.0/8->ip_src,output:3),resubmit(,4),note:00.01"),
    ("add-flow", "table=3,udp,actions=push_vlan:0x8100,set_field:4101->vlan_vid,set_field:3->vlan_pcp,dec_ttl,2"),
    ("add-flow", "table=3,dl_vlan=5,actions=pop_vlan,controller(max_len=100),set_queue:1,stack_push:reg0"),
    (
        "add-flow",
        "table=3,priority=7,tun_id=5,actions=set_field:7->tun_id,set_field:1.2.3.4->tun_src,multipath(eth_src,50,modulo_n,1,0,reg0)",
    ),
    (
        "add-flow",
        "table=3,sctp,sctp_src=5,actions=set_field:9->sctp_dst,set_field:0x10/0xf0->xreg0,set_field:1->metadata",
    ),
    ("add-flow", "table=3,mpls,actions=set_field:7->mpls_label,pop_mpls:0x800"),
    ("add-flow", "table=3,icmp6,icmp_type=135,nd_target=::1,actions=set_field:00:00:00:00:00:01->nd_sll,output:1"),
    ("add-group", "group_id=1,type=select,bucket=bucket_id:5,weight:3,output:1,bucket=bucket_id:2,output:2"),
    ("add-group", "group_id=2,type=all,bucket=output:1,bucket=output:2,bucket=set_field:5/7->reg0,output:3"),
    ("add-group", "group_id=3,type=ff,bucket=watch_port:1,output:1,bucket=watch_group:1,group:1"),
    ("add-group", "group_id=4,type=indirect,bucket=output:1"),
    ("dump-groups",),
    ("insert-buckets", "group_id=2,command_bucket_id=last,bucket=bucket_id:9,output:4"),
    ("insert-buckets", "group_id=2,command_bucket_id=first,bucket=bucket_id:8,output:4"),
    ("insert-buckets", "group_id=2,command_bucket_id=1,bucket=bucket_id:7,output:4,bucket=bucket_id:17,output:5"),
    ("insert-buckets", "group_id=2,command_bucket_id=77,bucket=bucket_id:27,output:4"),
    ("insert-buckets", "group_id=2,command_bucket_id=1,bucket=bucket_id:7,output:4"),
    ("insert-buckets", "group_id=77,command_bucket_id=last,bucket=bucket_id:9,output:4"),
    ("dump-groups",),
    ("dump-groups", "2"),
    ("remove-buckets", "group_id=2,command_bucket_id=7"),
    ("remove-buckets", "group_id=2,command_bucket_id=7"),
    ("remove-buckets", "group_id=2,command_bucket_id=first"),
    ("remove-buckets", "group_id=2,command_bucket_id=last"),
    ("dump-groups",),
    ("remove-buckets", "group_id=2,command_bucket_id=all"),
    ("remove-buckets", "group_id=77,command_bucket_id=all"),
    ("mod-group", "group_id=4,type=all,bucket=bucket_id:3,output:1,bucket=output:2"),
    ("--may-create", "mod-group", "group_id=5,type=all,bucket=output:1"),
    ("dump-groups", "4"),
    ("dump-groups", "77"),
    ("dump-group-features",),
    ("add-flow", "ip,actions=group:1,goto_table:2"),
    ("mod-flows", "tcp,actions=output:3"),
    ("--no-stats", "dump-flows"),
    ("--no-stats", "dump-flows", "table=1,reg0=1"),
    ("dump-aggregate",),
    ("dump-meters",),
    ("meter-features",),
    ("dump-table-desc",),
    ("dump-table-features",),
    ("get-frags",),
    ("mod-port", "2", "no-forward"),
    ("mod-port", "2", "forward"),
    ("mod-port", "17", "forward"),
    ("packet-out", "in_port=1,packet=ffffffffffff0200000000010800" + "00" * 46 + ",actions=output:2"),
    ("packet-out", "in_port=controller,metadata=5,packet=ffffffffffff0200000000010800" + "00" * 46 + ",actions=table"),
    ("--bundle", "add-flow", "table=5,priority=7,actions=set_field:5/7->reg0,output:1"),
    ("--bundle", "add-group", "group_id=9,type=all,bucket=bucket_id:4,output:1"),
    ("--bundle", "insert-buckets", "group_id=9,command_bucket_id=first,bucket=bucket_id:5,output:4"),
    ("--bundle", "insert-buckets", "group_id=9,command_bucket_id=77,bucket=bucket_id:6,output:4"),
    ("--bundle", "remove-buckets", "group_id=9,command_bucket_id=4"),
    ("dump-groups", "9"),
    ("del-groups",),
    ("del-meters",),
    ("del-flows", "table=3"),
    ("--no-stats", "dump-flows"),
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
    """Connect over OpenFlow 1.5."""
    return Peer(target, frame(0, version=m.VERSION), version=m.VERSION)


def answers(comparison: Comparison, data: bytes) -> list[list[str]]:
    """Ask both, after removing everything."""
    found: list[list[str]] = []
    for world, target in zip((comparison.ours, comparison.reference), comparison.targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        found.append(without_identity(ask(target, data, version=m.VERSION), m.VERSION))
    return found


@pytest.mark.parametrize("data", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_answered_as_by_one_bridge(comparison: Comparison, data: bytes) -> None:
    ours, reference = answers(comparison, data)
    assert ours == reference


@pytest.mark.parametrize("action", [*ACTIONS.values(), *SPELLED_OTHERWISE.values()], ids=[*ACTIONS, *SPELLED_OTHERWISE])
def test_an_action_is_taken_as_by_one_bridge(comparison: Comparison, action: bytes) -> None:
    meters = in_15(of.meter_mod(1, 0, 1, 1, of.band(1, 1000)))
    rules = b"".join(
        flow_mod(instructions, IP, table=table)
        for table, instructions in enumerate((of.apply_actions(action), of.apply_actions(action + OUTPUT)))
    )
    ours, reference = answers(comparison, meters + rules)
    assert ours == reference
    assert rules_of(comparison.targets[0]) == rules_of(comparison.targets[1])
    if action not in SPELLED_OTHERWISE.values():
        assert comparison.ours.dump() == comparison.reference.dump()


def entries(target: str, request: bytes) -> list[bytes]:
    """Return the entries of a reply, sorted."""
    data = b"".join(bytes.fromhex(answer)[16:] for answer in ask(target, request, version=m.VERSION))
    found: list[bytes] = []
    while data:
        length = int.from_bytes(data[:2])
        found.append(data[:length])
        data = data[length:]
    return sorted(found)


def rules_of(target: str) -> list[str]:
    """Return the rules without ages."""
    return [_without_ages(entry, 24).hex() for entry in entries(target, in_15(of.flow_request(1, of.FLOW)))]


def _without_ages(entry: bytes, matched: int) -> bytes:
    """Return a message or an entry with a match, and then statistics, without ages."""
    start = matched + m.padded_length(entry, matched)
    end = start + m.padded_length(entry, start)
    kept = [(number, None if number in m.OXS_AGES else value) for number, value in m.statistics(entry[start:end])]
    return entry[4:start] + repr(kept).encode() + entry[end:]


def test_commands_do_what_they_do_on_one_bridge(comparison: Comparison, targets: tuple[str, str]) -> None:
    answers(comparison, b"")
    for words in COMMANDS:
        # The order of rules of one priority, and of groups, is Open vSwitch's own, and differs between its runs.
        ours, reference = (sorted(ofctl(target, "-OOpenFlow15", *words).splitlines()) for target in targets)
        assert ours == reference, words


def bundle(*messages: bytes, flags: int = 1) -> bytes:
    """Return a bundle of messages."""

    def control(what: int) -> bytes:
        return message(m.BUNDLE_CONTROL, struct.pack("!IHH", 1, what, flags))

    def add(part: bytes) -> bytes:
        return message(m.BUNDLE_ADD, struct.pack("!I2xH", 1, flags) + part, int.from_bytes(part[4:8]))

    return control(of.BUNDLE_OPEN) + b"".join(map(add, messages)) + control(of.BUNDLE_COMMIT)


ADD_GROUP = group_mod(0, 0, bucket(7, OUTPUT), bucket(3))
BUNDLES = {
    "group and buckets": bundle(
        ADD_GROUP, group_mod(INSERT_BUCKET, 0, bucket(5), place=LAST_BUCKET), group_mod(REMOVE_BUCKET, place=7)
    ),
    "unknown bucket": bundle(ADD_GROUP, group_mod(INSERT_BUCKET, 0, bucket(5), place=77)),
    "existing bucket": bundle(ADD_GROUP, group_mod(INSERT_BUCKET, 0, bucket(3), place=FIRST_BUCKET)),
    "unknown group": bundle(group_mod(REMOVE_BUCKET, place=7)),
    "malformed bucket": bundle(ADD_GROUP, group_mod(INSERT_BUCKET, 0, bucket(5, of.output(0xFF00)), place=LAST_BUCKET)),
    "malformed removal": bundle(group_mod(REMOVE_BUCKET, 0, bucket(5), place=7)),
    "rules": bundle(flow_mod(of.apply_actions(set_field("ipv4_dst", 1, 0xFF) + OUTPUT), IP)),
    "malformed rule": bundle(flow_mod(of.apply_actions(_LOAD)), ADD_GROUP),
    "packet-out": bundle(packet_out(IN_PORT, OUTPUT, bytes(60))),
    "packet-out without a port": bundle(packet_out(b"", OUTPUT)),
    "port-mod": bundle(in_15(SHARED["unknown port"]), flags=0),
    "barrier": bundle(message(of.BARRIER_REQUEST)),
    "another version": bundle(frame(of.BARRIER_REQUEST, version=5)),
    "short": bundle(message(of.GROUP_MOD, bytes(8)), message(of.FLOW_MOD), message(of.PACKET_OUT, bytes(4))),
    "other xid": message(m.BUNDLE_ADD, struct.pack("!I2xH", 1, 1) + flow_mod(of.apply_actions(_LOAD)), 99),
    "a slave's": in_15(role(_SLAVE, 1 << 63)) + bundle(flow_mod(of.apply_actions(_LOAD)), ADD_GROUP),
}


@pytest.mark.parametrize("data", BUNDLES.values(), ids=BUNDLES)
def test_a_bundle_is_answered_as_by_one_bridge(comparison: Comparison, targets: tuple[str, str], data: bytes) -> None:
    ours, reference = answers(comparison, data)
    assert ours == reference
    assert rules_of(targets[0]) == rules_of(targets[1])
    shown = [entries(target, multipart(of.GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL))) for target in targets]
    assert shown[0] == shown[1]


def test_buckets_have_the_numbers_of_one_bridge_in_each_version(
    comparison: Comparison, targets: tuple[str, str]
) -> None:
    numbered = group_mod(0, 0, bucket(7, OUTPUT), bucket(3))
    padded = of.group_mod(3, 0, 0, 2, of.bucket(OUTPUT)[:12] + b"\0\0\0\7" + OUTPUT)
    # Other versions number buckets in order, whatever is in their padding.
    padded = padded[:11] + b"\1" + padded[12:]
    answers(comparison, numbered)
    for target in targets:
        assert ask(target, padded) == []
        assert ask(target, b"\5" + padded[1:15] + b"\4" + padded[16:], version=5) == []
    described = multipart(of.GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL))
    assert entries(targets[0], described) == entries(targets[1], described)
    assert comparison.ours.dump() == comparison.reference.dump()
    inserted = of.group_mod(4, INSERT_BUCKET, 0, 1, of.bucket(of.output(3)))
    for request in (
        inserted,
        of.group_mod(5, INSERT_BUCKET, 0, 2, of.bucket(OUTPUT)),
        of.group_mod(6, REMOVE_BUCKET, 0, 1),
    ):
        ours, reference = (ask(target, request) for target in targets)
        assert ours == reference
        assert entries(targets[0], described) == entries(targets[1], described)


def test_notifications_are_those_of_one_bridge(comparison: Comparison, targets: tuple[str, str]) -> None:
    heard: list[list[str]] = []
    for world, target in zip((comparison.ours, comparison.reference), targets, strict=True):
        world.channel.send(clear_messages(1))
        world.channel.barrier()
        peer, other = connect(target), connect(target)
        peer.send(message(of.SET_CONFIG, struct.pack("!HH", 0, 0xFFFF)) + in_15(role(_MASTER, 1 << 63)))
        peer.answers()
        other.send(in_15(role(_MASTER, 1 << 63)))
        other.answers()
        told = [peer.next()]
        peer.send(in_15(role(1, 1 << 63)))
        peer.answers()
        registers = set_field("reg0", 5, 0xF) + set_field("metadata", 7, 0xFF)
        to_controller = of.apply_actions(registers + of.output(of.CONTROLLER, 0xFFFF))
        peer.send(in_15(of.meter_mod(1, 0, 1, 1, of.band(1, 1000))))
        peer.send(flow_mod(to_controller, ("reg0", 0, 1), cookie=5, priority=3, flags=of.SEND_FLOW_REM))
        assert peer.answers() == []
        for _ in range(2):
            world.wires.inject(world.places[1], bytes.fromhex("ffffffffffff0200000000010800") + bytes(46))
            world.wires.settle()
            told.append(peer.next())
            world.wires.purge()
            # The second of Nicira's formats.
            peer.send(message(of.EXPERIMENTER, struct.pack("!III", _NICIRA, 16, 2)))
            assert peer.answers() == []
        peer.send(flow_mod(of.apply_actions(meter(1)), cookie=6, priority=4, flags=of.SEND_FLOW_REM))
        peer.send(in_15(of.meter_mod(1, 2, 0, 1)))
        told.append(_without_ages(peer.next(), 24))
        peer.send(flow_mod(b"", command=of.DELETE, table=of.ALL_TABLES))
        told.append(_without_ages(peer.next(), 24))
        heard.append([each.hex() for each in told])
        peer.close()
        other.close()
    assert heard[0] == heard[1]


def test_a_port_mod_is_told_to_its_sender_too(targets: tuple[str, str]) -> None:
    for target in targets:
        peer = connect(target)
        peer.send(message(of.SET_CONFIG, struct.pack("!HH", 0, 0xFFFF)))
        peer.send(multipart(of.PORT_DESC, struct.pack("!I4x", 2)))
        hw_addr = peer.next()[24:30]
        for config in (0x20, 0):
            peer.send(message(of.PORT_MOD, struct.pack("!I4x6s2xII", 2, hw_addr, config, 0x20)))
            told = peer.next()
            assert (told[1], told[8], told[19], told[48:52]) == (of.PORT_STATUS, 2, 2, struct.pack("!I", config))
            assert peer.answers() == []
        peer.close()
