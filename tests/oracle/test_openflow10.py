"""OpenFlow 1.0 on the management socket: stock ovs-ofctl without options, and replies byte for byte as one bridge's."""

import struct
import time
from collections.abc import Iterator

import pytest

from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.ofctl import ofctl
from tests.oracle.peer import Peer, ask, frame

_NICIRA = 0x2320
_PATIENCE_S, _OLD_S = 30.0, 2
_IP_PACKET = bytes.fromhex("ffffffffffff0200000000010800450000140000000040000000") + bytes([10, 0, 0, 1, 10, 0, 0, 2])
_STATS_REQUEST, _FLOW, _TABLE, _PORT, _QUEUE, _PORT_DESC = 16, 1, 3, 4, 5, 13
_VENDOR, _SET_FLOW_FORMAT = 4, 12
_NONE, _ALL = 0xFFFF, 0xFFFC

ACTIONS = (
    "drop",
    "output:2",
    "output:2,controller:100,in_port",
    "mod_vlan_vid:5,output:2",
    "mod_vlan_pcp:3,output:2",
    "strip_vlan,output:2",
    "mod_dl_src:00:00:00:00:00:01,mod_dl_dst:00:00:00:00:00:02,output:2",
    "mod_nw_src:1.2.3.4,mod_nw_dst:4.3.2.1,mod_nw_tos:32,mod_tp_src:80,mod_tp_dst:81,output:2",
    "enqueue:2:3,output:1",
    "set_queue:3,output:2",
    "set_tunnel:5,output:2,set_tunnel64:6,output:1",
    "dec_ttl,output:2",
    "mod_nw_ttl:3,output:2",
    "resubmit(,4),resubmit:2",
    "load:7->NXM_NX_REG1[],move:NXM_NX_REG1[]->NXM_NX_REG2[],output:NXM_NX_REG1[]",
    "push_mpls:0x8847,output:2",
    "note:01.02.03",
    "clone(output:1,mod_nw_tos:32),output:2",
    "exit",
)
"""Actions of OpenFlow 1.0 and Nicira's, of rules for TCP."""

ACTIONS13 = (
    "group:1",
    "goto_table:3",
    "write_metadata:5",
    "meter:1,output:2",
    "write_actions(output:2)",
    "set_field:7->reg1,output:2",
    "set_field:1.2.3.4->ip_src,set_field:80->tcp_dst,set_field:3->ip_dscp,output:2",
    "set_field:00:00:00:00:00:01->eth_dst,in_port",
    "set_field:0xabcdef->tun_id,output:1",
    "set_queue:3,output:2,pop_queue",
    "push_mpls:0x8847,set_field:9->mpls_label,output:2",
    "push_vlan:0x8100,set_field:4101->vlan_vid,output:2",
)
"""Actions and instructions that only OpenFlow 1.3 has."""

MATCHES = (
    "tcp,in_port=1,dl_vlan=5,dl_vlan_pcp=3,nw_tos=32,tp_src=80",
    "arp,arp_op=1,arp_spa=1.2.3.0/24",
    "icmp,icmp_type=3,icmp_code=1",
    "tcp6,ipv6_src=::1",
    "dl_vlan_pcp=3",
    "sctp,tp_src=9",
    "metadata=5,reg0=1/1",
    "mpls,mpls_label=5",
    "dl_src=00:00:00:00:00:01/01:00:00:00:00:00",
    "dl_src=01:02:03:04:05:06,dl_dst=06:05:04:03:02:01",
    "ip,nw_ecn=1,nw_ttl=3",
    "tun_id=5,tcp,tcp_flags=+syn",
    "ct_state=+trk,ip",
    "in_port=LOCAL",
    "ip,nw_dst=10.0.0.0/255.0.255.0",
    "icmp6,icmp_type=135,nd_target=::2",
    "ip_frag=later,ip",
    "tcp,tp_src=0x10/0xfff0",
)

COMMANDS = (
    ("mod-flows", "tcp,actions=output:1"),
    ("mod-flows", "tcp,priority=9,actions=output:1"),
    ("--strict", "mod-flows", "priority=77,udp,cookie=9,actions=output:1"),
    ("mod-flows", "udp,cookie=10,actions=mod_nw_tos:32,output:3"),
    ("-OOpenFlow13", "--no-stats", "dump-flows", "udp"),
    ("mod-flows", "cookie=10/-1,actions=output:2"),
    ("mod-flows", "cookie=11/-1,actions=output:2"),
    ("add-flow", "table=3,ip6,idle_timeout=100,hard_timeout=200,send_flow_rem,actions=output:2"),
    ("add-flow", "check_overlap,tcp,priority=9,actions=output:2"),
    ("del-flows", "udp"),
    ("--strict", "del-flows", "tcp,priority=9"),
    ("del-flows", "out_port=2"),
    ("add-flow", "tcp,actions=output:70000"),
    ("set-frags", "drop"),
    ("set-frags", "normal"),
    ("mod-port", "2", "no-forward"),
    ("mod-port", "2", "forward"),
    ("mod-port", "17", "forward"),
    ("ct-flush", "zone=5"),
    ("-OOpenFlow13", "ct-flush", "zone=5"),
    ("ct-flush",),
    ("ct-flush", "ct_nw_src=10.0.0.1,ct_nw_proto=17,ct_tp_src=1"),
    ("-OOpenFlow13", "ct-flush", "ct_nw_src=10.0.0.1,ct_nw_proto=17,ct_tp_src=1"),
    ("packet-out", "in_port=1,packet=ffffffffffff00000000000108000000,actions=output:2"),
)
"""Commands whose results are compared: what they print, and the rules that they leave."""

BROKEN = {
    "type": frame(30, version=1),
    "length": frame(18, b"x", version=1),
    "statistics": frame(_STATS_REQUEST, struct.pack("!HH", 99, 0), version=1),
    "vendor": frame(_VENDOR, struct.pack("!II", 1, 2), version=1),
    "Nicira's subtype": frame(_VENDOR, struct.pack("!II", _NICIRA, 99), version=1),
    "flow format": frame(_VENDOR, struct.pack("!III", _NICIRA, _SET_FLOW_FORMAT, 9), version=1),
    "packet-in format": frame(_VENDOR, struct.pack("!III", _NICIRA, 16, 9), version=1),
    "role": frame(_VENDOR, struct.pack("!III", _NICIRA, 10, 9), version=1),
    "slave": frame(_VENDOR, struct.pack("!III", _NICIRA, 10, 2), version=1)
    + b"".join(frame(kind, bytes(length), version=1) for kind in (13, 14, 15) for length in range(0, 80, 4)),
    "flow-mod command": frame(14, bytes(50) + b"\0\7" + bytes(14), version=1),
    "action": frame(14, bytes(64) + b"\0\x63\0\x08\0\0\0\0", version=1),
    "action's length": frame(14, bytes(64) + b"\0\0\0\x10\0\0\0\0", version=1),
    "emergency": frame(14, bytes(62) + b"\0\4", version=1),
    "flags": frame(14, bytes(62) + b"\0\x08", version=1),
    "packet-out's port": frame(13, struct.pack("!IHH", 0xFFFFFFFF, 0xFFFB, 0), version=1),
    "flush": b"".join(
        frame(_VENDOR, struct.pack("!II", _NICIRA, kind) + bytes(length), version=1, xid=10 + length)
        for kind in (29, 32)
        for length in range(0, 40, 4)
    ),
    "second hello": frame(0, version=1),
    "OpenFlow 1.3": frame(7),
    "echo": frame(2, b"xyz", version=1),
    "configuration": frame(9, struct.pack("!HH", 0, 77), version=1) + frame(7, version=1),
    "queues of port 17": frame(20, struct.pack("!HH", 17, 0), version=1),
}


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    """Both worlds."""
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.fixture
def targets(comparison: Comparison) -> tuple[str, str]:
    """The management sockets of oneswitchd and of a bridge, as targets of ovs-ofctl."""
    return comparison.targets


def stats(target: str, number: int, body: bytes) -> list[bytes]:
    """Return the bodies of a statistics reply."""
    request = frame(_STATS_REQUEST, struct.pack("!HH", number, 0) + body, version=1)
    return [bytes.fromhex(answer)[12:] for answer in ask(target, request, version=1)]


def flows(target: str) -> tuple[set[bytes], set[bytes]]:
    """Return all rules in the standard and in Nicira's form, without times."""
    standard = set[bytes]()
    for body in stats(target, _FLOW, struct.pack("!I36xBxH", 0x3FFFFF, 0xFF, _NONE)):
        for entry in _entries(body):
            standard.add(entry[:44] + bytes(8) + entry[52:])
    nicira = {entry[:4] + bytes(8) + entry[12:20] + bytes(4) + entry[24:] for entry in nicira_flows(target)}
    return standard, nicira


def nicira_flows(target: str) -> Iterator[bytes]:
    """Return all rules in Nicira's form."""
    request = struct.pack("!II4xHHB3x", _NICIRA, 0, _NONE, 0, 0xFF)
    for body in stats(target, _NONE, request):
        yield from _entries(body[12:])


def durations(target: str) -> dict[int, int]:
    """Return the seconds that rules are old, by their cookie."""
    return {int.from_bytes(entry[24:32]): int.from_bytes(entry[4:8]) for entry in nicira_flows(target)}


def ages(target: str) -> dict[int, tuple[int, int]]:
    """Return the seconds since the last packet and the last change of rules, by their priority; -1: unknown."""
    return {
        int.from_bytes(entry[12:14]): (int.from_bytes(entry[20:22]) - 1, int.from_bytes(entry[22:24]) - 1)
        for entry in nicira_flows(target)
    }


def _entries(data: bytes) -> Iterator[bytes]:
    while data:
        length = int.from_bytes(data[:2])
        yield data[:length]
        data = data[length:]


def clear(target: str) -> None:
    """Delete everything, and add a group and a meter."""
    for words in (
        ("del-flows",),
        ("-OOpenFlow13", "del-groups"),
        ("-OOpenFlow13", "del-meters"),
        ("-OOpenFlow13", "add-group", "group_id=1,type=all,bucket=output:2"),
        ("-OOpenFlow13", "add-meter", "meter=1,kbps,band=type=drop,rate=1000"),
    ):
        said = ofctl(target, *words)
        assert not said, said


@pytest.mark.parametrize("options", [(), ("-OOpenFlow13",)], ids=["1.0", "1.3"])
def test_rules_read_as_on_one_bridge(targets: tuple[str, str], options: tuple[str, ...]) -> None:
    found: list[tuple[set[bytes], set[bytes]]] = []
    for target in targets:
        clear(target)
        actions = ACTIONS13 if options else ACTIONS
        matches = MATCHES if options else (*MATCHES, "vlan_tci=0")
        rules = [f"priority={100 + index},tcp,actions={each}" for index, each in enumerate(actions)]
        rules += [f"table=1,priority={100 + index},{each},actions=drop" for index, each in enumerate(matches)]
        for rule in rules:
            said = ofctl(target, *options, "add-flow", rule)
            assert not said, f"{target}: {rule}: {said}"
        found.append(flows(target))
    ours, reference = found
    assert len(ours[1]) == len(reference[1])
    for mine, theirs in zip(ours, reference, strict=True):
        assert sorted(each.hex() for each in mine - theirs) == sorted(each.hex() for each in theirs - mine)


def test_rules_have_the_ages_of_one_bridge(comparison: Comparison, targets: tuple[str, str]) -> None:
    """A packet makes one rule young, and a change another."""
    used, changed, left, other = 1, 2, 3, 4
    for target in targets:
        clear(target)
        for priority, match in ((used, "ip"), (changed, "in_port=2,tcp"), (left, "table=3"), (other, "in_port=2")):
            said = ofctl(target, "add-flow", f"{match},priority={priority},actions=output:3")
            assert not said
    for world, target in zip((comparison.ours, comparison.reference), targets, strict=True):
        end = time.monotonic() + _PATIENCE_S
        while min(age for pair in ages(target).values() for age in pair) < _OLD_S:
            assert time.monotonic() < end, ages(target)
        world.wires.inject(world.places[1], _IP_PACKET)
        world.wires.settle()
        ofctl(target, "--strict", "mod-flows", f"in_port=2,tcp,priority={changed},actions=output:1")
        found = ages(target)
        assert found[used][0] < _OLD_S <= found[used][1], found
        assert found[changed][1] < _OLD_S <= found[changed][0], found
        assert min(found[left] + found[other]) >= _OLD_S, found
        ofctl(target, "mod-flows", "in_port=2,cookie=9,actions=output:2")
        assert durations(target)[9] >= _OLD_S
        ofctl(target, "del-flows")


def test_commands_do_what_they_do_on_one_bridge(targets: tuple[str, str]) -> None:
    for target in targets:
        clear(target)
        for rule in ("udp,cookie=1,actions=output:1", "table=2,udp,cookie=2,actions=output:2", "arp,actions=flood"):
            assert not ofctl(target, "add-flow", rule)
    for words in COMMANDS:
        # The order of rules of one priority is Open vSwitch's own.
        printed = [sorted(ofctl(target, *words).splitlines()) for target in targets]
        assert printed[0] == printed[1], words
        ours, reference = (flows(target) for target in targets)
        assert ours == reference, words


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_errors_are_those_of_one_bridge(targets: tuple[str, str], data: bytes) -> None:
    ours, reference = (ask(target, data, version=1) for target in targets)
    assert ours == reference


def test_other_statistics_are_those_of_one_bridge(targets: tuple[str, str]) -> None:
    """The bridge also has the port LOCAL, and other addresses."""
    for target in targets:
        clear(target)
    for number, body, size, mac in (
        (_TABLE, b"", 64, None),
        (_PORT, struct.pack("!H6x", _NONE), 104, None),
        (_QUEUE, struct.pack("!H2xI", _ALL, 0xFFFFFFFF), 32, None),
        (_PORT_DESC, b"", 48, slice(2, 8)),
    ):
        found: list[set[bytes]] = []
        for target in targets:
            entries = set[bytes]()
            for data in stats(target, number, body):
                for at in range(0, len(data), size):
                    entry = bytearray(data[at : at + size])
                    if mac is not None:
                        entry[mac] = bytes(6)
                    if number == _TABLE:
                        entry[48:64] = bytes(16)  # lookups of earlier packets
                    if entry[:2] != b"\xff\xfe":
                        entries.add(bytes(entry))
            found.append(entries)
        assert found[0] == found[1], number


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("form", ["standard", "nxt_packet_in", "nxt_packet_in2"])
def test_monitor_shows_packets(targets: tuple[str, str], form: str, version: int) -> None:
    shown: list[str] = []
    for target in targets:
        clear(target)
        peer = Peer(target, frame(0, version=version), version=version)
        number = {"standard": 0, "nxt_packet_in": 1, "nxt_packet_in2": 2}[form]
        peer.send(frame(9, struct.pack("!HH", 0, 0xFFFF), version=version))
        peer.send(frame(_VENDOR, struct.pack("!III", _NICIRA, 16, number), version=version))
        peer.answers()
        rule = "table=3,in_port=1,cookie=5,actions=load:7->NXM_NX_REG1[],controller"
        assert not ofctl(target, "add-flow", rule)
        packet = "in_port=1,packet=ffffffffffff000000000001080000000000,actions=resubmit(,3)"
        assert not ofctl(target, "packet-out", packet)
        shown.append(peer.next().hex())
        peer.close()
    assert shown[0] == shown[1]
