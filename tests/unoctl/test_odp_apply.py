"""The interpreter on bytes, beside scapy's own idea of the packets. The test beside real Open vSwitch is elsewhere."""

from typing import Any, TypeVar

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData

from server.errors import ActionSyntaxError
from server.openvswitch.odp_actions import parse
from unoctl import checksums
from unoctl.errors import PacketError
from unoctl.odp_apply import Elsewhere, Event, Lost, Output, PacketIn, Recirculation, run
from unoctl.packet import Packet

ETHER = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
E = TypeVar("E", bound=Event)


def events(actions: str, frame: Any) -> list[Event]:
    return run(parse(actions), Packet.received(bytes(frame)))


def sent(actions: str, frame: Any) -> list[tuple[int, bytes]]:
    return [(event.port, event.data) for event in events(actions, frame) if isinstance(event, Output)]


def only(kind: type[E], found: list[Event]) -> E:
    (event,) = (event for event in found if isinstance(event, kind))
    return event


def test_crc32c_of_the_check_string() -> None:
    assert checksums.crc32c(b"123456789") == bytes.fromhex("839206e3")


def test_incremental_checksum_as_in_rfc_1624() -> None:
    assert checksums.update16(0xDD2F, 0x5555, 0x3285) == 0x0000


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
            "set(nd(target=2001::9,sll=02:00:00:00:00:09)),1",
            IPv6(src="2001::1", dst="2001::2")
            / ICMPv6ND_NS(tgt="2001::2")
            / ICMPv6NDOptSrcLLAddr(lladdr="02:0:0:0:0:1"),
            IPv6(src="2001::1", dst="2001::2")
            / ICMPv6ND_NS(tgt="2001::9")
            / ICMPv6NDOptSrcLLAddr(lladdr="02:0:0:0:0:9"),
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
    frame = ETHER / IP(src="10.0.0.1") / TCP()
    right = bytearray(bytes(frame))
    wrong = bytearray(right)
    wrong[50:52] = checksums.update16(int.from_bytes(right[50:52], "big"), 0, 5).to_bytes(2, "big")
    ((_, from_right),) = sent("set(ipv4(src=1.1.1.1)),1", right)
    ((_, from_wrong),) = sent("set(ipv4(src=1.1.1.1)),1", wrong)
    assert from_wrong[50:52] == checksums.update16(int.from_bytes(from_right[50:52], "big"), 0, 5).to_bytes(2, "big")


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


def test_length_decides() -> None:
    frame = bytes(ETHER / IP() / bytes(66))
    assert sent("check_pkt_len(size=99,gt(1),le(2)),3", frame) == [(1, frame), (3, frame)]
    assert sent("check_pkt_len(size=100,gt(1),le(2))", frame) == [(2, frame)]


def test_packet_in_carries_what_was_asked_for() -> None:
    actions = "userspace(pid=0,controller(reason=1,dont_send=0,rule_cookie=0x1f,controller_id=0,max_len=20)),3"
    frame = bytes(ETHER / IP() / b"payload")
    event = only(PacketIn, events(actions, frame))
    assert (event.reason, event.cookie, event.data) == (1, 0x1F, frame[:20])
    traced = actions.replace("dont_send=0", "dont_send=1")  # as a trace without side effects has it
    assert only(PacketIn, events(traced, frame)).data == frame[:20]


def test_what_cannot_be_known_is_a_condition() -> None:
    found = events("meter(2),ct(nat),set(ipv4(ttl=9)),sample(sample=50.0%,actions(4)),1", ETHER / IP() / b"x")
    sampled, last = (event for event in found if isinstance(event, Output))
    assert last.conditions == (
        "data-path meter 2 lets it pass",
        "connection tracking leaves the addresses as they are (nat)",
    )
    assert sampled.conditions == (*last.conditions, "sampled (50.0%)")


def test_an_unknown_action_is_told_and_doubted() -> None:
    found = events("levitate(height=3),1", ETHER / IP() / b"x")
    assert only(Elsewhere, found).action == "levitate(height=3)"
    assert only(Output, found).conditions == ("'levitate' leaves the bytes as they are",)


def test_recirculation_looks_anew() -> None:
    frame = bytes(ETHER / Dot1Q(vlan=3) / Dot1Q(vlan=4) / IP() / b"x")
    found = only(Recirculation, events("pop_vlan,recirc(0x2)", frame))
    assert (found.id, found.hashed, found.packet.l3, found.packet.l4) == (2, False, 18, 38)


def test_nsh_there_and_back() -> None:
    frame = bytes(ETHER / IP() / b"x")
    push = "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x1,c2=0x0,c3=0x0,c4=0x0)"
    (_, data), (_, back) = sent(
        f"{push},push_eth(src=00:00:00:00:00:00,dst=02:00:00:00:00:07),1,pop_eth,pop_nsh(),2", frame
    )
    assert data[:14].hex() == "020000000007000000000000894f"
    assert data[14:22].hex() == "0fc60103001234ff"
    assert data[38:] == frame
    assert back == frame


def test_an_explicit_drop_ends_it() -> None:
    found = events("1,drop,2", ETHER / IP() / b"x")
    assert [type(event) for event in found] == [Output, Lost]


def test_headers_that_are_cut_off_are_left_alone() -> None:
    frame = bytes(ETHER / IP(proto=6) / b"short")
    assert sent("set(tcp(dst=99)),1", frame) == [(1, frame)]


def test_a_frame_has_an_ethernet_header() -> None:
    with pytest.raises(PacketError, match="5 bytes are no Ethernet frame"):
        Packet.received(b"12345")


def test_a_value_that_does_not_parse() -> None:
    with pytest.raises(ActionSyntaxError, match=r"src of 'ipv4\(src=10\.0\.0\)' is '10\.0\.0'"):
        events("set(ipv4(src=10.0.0)),1", ETHER / IP() / b"x")
