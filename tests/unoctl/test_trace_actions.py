"""Data-path actions on bytes, compared with scapy's packets. Another test compares them with Open vSwitch."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData

from server.openvswitch.odp_actions import parse
from unoctl.trace.actions import Execution
from unoctl.trace.model import Outcome
from unoctl.trace.packet import Packet

ETHER = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")


@dataclass
class Recorder:
    """A switch that keeps what its datapath outputs and recirculates."""

    name: str = "s1"
    sent: list[tuple[int, bytes, tuple[str, ...]]] = field(default_factory=list)
    recirculated: list[tuple[int, Packet, bool]] = field(default_factory=list)

    def output(self, packet: Packet, port: int) -> Outcome:
        self.sent.append((port, packet.sent(), packet.conditions))
        return Outcome.of(packet, "switch", "")

    def recirculate(self, packet: Packet, identity: int, hashed: bool) -> Outcome:
        self.recirculated.append((identity, packet, hashed))
        return Outcome.of(packet, "switch", "")


def run(actions: str, frame: Any) -> tuple[Recorder, list[Outcome]]:
    """Carry out the actions; return the switch, and the outcomes besides outputs and recirculations."""
    switch = Recorder()
    outcomes = Execution(Packet.received(bytes(frame)), switch).run(parse(actions))
    return switch, [outcome for outcome in outcomes if outcome.type != "switch"]


def sent(actions: str, frame: Any) -> list[tuple[int, bytes]]:
    switch, others = run(actions, frame)
    assert others == []
    return [(port, data) for port, data, _ in switch.sent]


def not_followed(actions: str, frame: Any) -> str:
    """Return the reason why the last outcome is not followed."""
    _, others = run(actions, frame)
    assert others[-1].type == "not-followed"
    return others[-1].details["reason"]


@pytest.mark.parametrize(
    ("actions", "before", "after"),
    [
        (
            "set(ipv4(src=1.1.1.1,ttl=63)),set(tcp(dst=99)),1",
            IP(src="10.0.0.1", dst="10.0.0.2") / TCP(dport=80) / b"odd",
            IP(src="1.1.1.1", dst="10.0.0.2", ttl=63) / TCP(dport=99) / b"odd",
        ),
        (
            "set(ipv4(dst=10.9.0.0/255.255.0.0,tos=0xb8/0xfc)),1",
            IP(dst="10.0.1.2", tos=3) / UDP(sport=4, dport=5) / b"data",
            IP(dst="10.9.1.2", tos=0xBB) / UDP(sport=4, dport=5) / b"data",
        ),
        (
            "set(ipv6(dst=2001::9,hlimit=5,tclass=0x4,label=0x77)),set(udp(src=7)),1",
            IPv6(src="2001::1", dst="2001::2") / UDP(sport=1, dport=2) / b"x",
            IPv6(src="2001::1", dst="2001::9", hlim=5, tc=4, fl=0x77) / UDP(sport=7, dport=2) / b"x",
        ),
        (
            "set(sctp(src=9)),1",
            IP() / SCTP(sport=1, dport=2) / SCTPChunkData(data=b"four"),
            IP() / SCTP(sport=9, dport=2) / SCTPChunkData(data=b"four"),
        ),
        (
            "set(ipv6(src=2001::9)),set(icmpv6(type=129)),1",
            IPv6(src="2001::1", dst="2001::2") / ICMPv6EchoRequest(data=b"abc"),
            IPv6(src="2001::9", dst="2001::2") / ICMPv6EchoRequest(type=129, data=b"abc"),
        ),
        ("set(icmp(type=0,code=3)),1", IP() / ICMP(type=8), IP() / ICMP(type=0, code=3)),
    ],
)
def test_fields_and_their_checksums(actions: str, before: Any, after: Any) -> None:
    assert sent(actions, ETHER / before) == [(1, bytes(ETHER / after))]


def test_arp_and_ethernet_fields() -> None:
    before = ETHER / ARP(op=1, psrc="10.0.0.1", pdst="10.0.0.2")
    after = Ether(dst="02:00:00:00:00:09", src=ETHER.src) / ARP(
        op=2, psrc="10.0.0.9", pdst="10.0.0.2", hwsrc="02:00:00:00:00:07"
    )
    actions = "set(eth(dst=02:00:00:00:00:09)),set(arp(op=2,sip=10.0.0.9,sha=02:00:00:00:00:07)),5"
    before[ARP].hwsrc = "00:00:00:00:00:00"
    before[ARP].hwdst = after[ARP].hwdst
    assert sent(actions, before) == [(5, bytes(after))]


def test_udp_without_checksum_stays_without() -> None:
    frame = bytes(ETHER / IP() / UDP(chksum=0) / b"x")
    ((_, data),) = sent("set(ipv4(src=1.1.1.1)),set(udp(dst=7)),1", frame)
    assert data[40:42] == b"\0\0"


def test_a_wrong_checksum_stays_wrong_by_as_much() -> None:
    right, wrong = (bytes(ETHER / IP(src="10.0.0.1") / TCP(chksum=checksum)) for checksum in (0x1000, 0x1005))
    ((_, from_right),) = sent("set(ipv4(src=1.1.1.1)),1", right)
    ((_, from_wrong),) = sent("set(ipv4(src=1.1.1.1)),1", wrong)
    assert int.from_bytes(from_wrong[50:52], "big") - int.from_bytes(from_right[50:52], "big") == 5


def test_tags_come_and_go() -> None:
    frame = bytes(ETHER / IP() / b"payload")
    tagged = bytes(ETHER / Dot1Q(vlan=7, prio=3) / IP() / b"payload")
    assert sent("push_vlan(vid=7,pcp=3),1,pop_vlan,2", frame) == [(1, tagged), (2, frame)]


def test_an_inner_change_follows_a_tag() -> None:
    ((_, data),) = sent("push_vlan(vid=7,pcp=0),set(ipv4(ttl=9)),1", ETHER / IP(ttl=64) / b"x")
    assert Ether(data)[IP].ttl == 9
    assert Ether(data)[IP].chksum == (ETHER / IP(ttl=9) / b"x").__class__(bytes(ETHER / IP(ttl=9) / b"x"))[IP].chksum


def test_labels_come_and_go() -> None:
    frame = bytes(ETHER / IP() / b"payload")
    actions = (
        "push_mpls(label=5,tc=1,ttl=64,bos=1,eth_type=0x8847),1,set(mpls(label=6/0xfffff,tc=0/0,ttl=0/0,bos=0/0)),2"
    )
    (_, first), (_, second), (_, third) = sent(f"{actions},pop_mpls(eth_type=0x800),3", frame)
    assert first == frame[:12] + b"\x88\x47" + (5 << 12 | 1 << 9 | 1 << 8 | 64).to_bytes(4, "big") + frame[14:]
    assert int.from_bytes(second[14:18], "big") >> 12 == 6
    assert third == frame


def test_clones_do_not_change_the_original() -> None:
    frame = bytes(ETHER / IP(ttl=64) / b"x")
    (_, inner), (_, outer) = sent("clone(set(ipv4(ttl=1)),1),2", frame)
    assert (inner[22], outer) == (1, frame)


def test_truncation_lasts_for_one_output() -> None:
    frame = bytes(ETHER / IP() / bytes(100))
    assert [(port, len(data)) for port, data in sent("trunc(20),1,2,trunc(3),1", frame)] == [
        (1, 20),
        (2, len(frame)),
        (1, 14),
    ]


def test_packet_in_carries_the_bytes_that_were_requested() -> None:
    actions = "userspace(pid=0,controller(reason=1,dont_send=0,rule_cookie=0x1f,controller_id=0,max_len=20)),3"
    frame = bytes(ETHER / IP() / b"payload")
    # dont_send=1 in a trace without side effects.
    for printed in (actions, actions.replace("dont_send=0", "dont_send=1")):
        _, (event,) = run(printed, frame)
        assert (event.type, event.data) == ("packet-in", frame[:20])
        assert (event.details["reason"], event.details["cookie"]) == ("action", "0x1f")


def test_unknown_facts_are_conditions() -> None:
    switch, _ = run("meter(2),ct(nat),set(ipv4(ttl=9)),1", ETHER / IP() / b"x")
    ((_, _, conditions),) = switch.sent
    assert conditions == (
        "data-path meter 2 lets it pass",
        "connection tracking leaves the addresses as they are (nat)",
    )


TCP_FRAME = ETHER / IP() / TCP()
EXTENDED = ETHER / IPv6() / IPv6ExtHdrHopByHop() / UDP()


@pytest.mark.parametrize(
    ("actions", "frame", "reason"),
    [
        ("1,levitate(height=3),2", TCP_FRAME, "action levitate(height=3)"),
        ("1,push_nsh(flags=0,ttl=63),2", TCP_FRAME, "action push_nsh"),
        ("1,pop_nsh(),2", TCP_FRAME, "action pop_nsh()"),
        ("1,set(tunnel(tun_id=0x7b,dst=1.2.3.4)),2", TCP_FRAME, "action set(tunnel(tun_id=0x7b,dst=1.2.3.4))"),
        ("1,set(ipv4(options=1)),2", TCP_FRAME, "action set(ipv4(options=1)): field options"),
        (
            "1,set(udp(dst=9)),2",
            ETHER / IP() / b"short",
            "action set(udp(dst=9)): the packet has no complete udp header",
        ),
        ("1,set(udp(dst=9)),2", EXTENDED, "action set(udp(dst=9)) on a packet with IPv6 extension headers"),
        ("1,set(ipv6(src=::2)),2", EXTENDED, "action set(ipv6(src=::2)) on a packet with IPv6 extension headers"),
        ("1,set(ipv4(src=10.0.0)),2", TCP_FRAME, "value '10.0.0' in a set action: '10.0.0' does not appear to be an"),
    ],
)
def test_an_action_that_is_not_followed_ends_the_list(actions: str, frame: Any, reason: str) -> None:
    assert not_followed(actions, frame).startswith(reason)
    switch, _ = run(actions, frame)
    assert [port for port, _, _ in switch.sent] == [1]


def test_a_sampler_is_not_followed_but_the_packet_is() -> None:
    switch, (sampled,) = run("sample(sample=50.0%,actions(4)),1", TCP_FRAME)
    assert sampled.type == "not-followed"
    assert [(port, conditions) for port, _, conditions in switch.sent] == [(1, ())]


def test_a_hop_limit_changes_below_extension_headers() -> None:
    ((_, data),) = sent("set(ipv6(hlimit=9)),1", EXTENDED)
    assert data[21] == 9


def test_recirculation_parses_the_packet_again() -> None:
    switch, _ = run("pop_vlan,recirc(0x2)", ETHER / Dot1Q(vlan=3) / Dot1Q(vlan=4) / IP() / b"x")
    ((identity, packet, hashed),) = switch.recirculated
    assert (identity, hashed, packet.network, packet.transport) == (2, False, 18, 38)
    switch, _ = run("hash(l4(0)),recirc(0x3)", TCP_FRAME)
    assert [(identity, hashed) for identity, _, hashed in switch.recirculated] == [(3, True)]


def test_a_header_that_is_pushed_and_popped_changes_nothing() -> None:
    frame = bytes(TCP_FRAME)
    switch, others = run("push_nsh(flags=0,ttl=63),pop_nsh(),recirc(0x2)", frame)
    assert others == []
    assert [packet.sent() for _, packet, _ in switch.recirculated] == [frame]


def test_an_explicit_drop_ends_the_list() -> None:
    switch, (dropped,) = run("1,drop,2", TCP_FRAME)
    assert dropped.type == "dropped"
    assert [port for port, _, _ in switch.sent] == [1]
