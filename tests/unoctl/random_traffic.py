"""Random packets and random rules that fit them, from a seeded generator.

Packets come from a small set of shapes with small pools of values, so that rules meet them; rules are in Open vSwitch's
syntax, with whatever rewrites the shape allows.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_RR
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.packet import Packet, Raw

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "192.168.255.7", "255.255.255.255", "0.0.0.0")
ADDRESSES6 = ("2001::1", "2001:db8::2", "fe80::1", "ff02::1:ff00:2", "::")
PORTS = (0, 1, 80, 443, 65535)


@dataclass(frozen=True)
class Shape:
    """A kind of packet: how Open vSwitch matches it, how to make one, which rewrites it allows."""

    name: str
    match: str
    make: Callable[[random.Random], Packet]
    rewrites: tuple[Callable[[random.Random], str], ...]


def payload(rng: random.Random) -> Packet:
    return Raw(rng.randbytes(rng.choice((0, 1, 2, 7, 46, 101))))


def _pick(values: Sequence[Any]) -> Callable[[random.Random], Any]:
    return lambda rng: rng.choice(values)


def _field(name: str, values: Sequence[Any], masks: Sequence[str] = ()) -> Callable[[random.Random], str]:
    """``set_field`` with one of the values, and with one of the masks half of the time."""

    def action(rng: random.Random) -> str:
        mask = f"/{rng.choice(masks)}" if masks and rng.random() < 0.5 else ""
        return f"set_field:{rng.choice(values)}{mask}->{name}"

    return action


ETHERNET = (
    _field("eth_src", MACS[:2], ("ff:ff:ff:00:00:00", "00:00:00:00:ff:0f")),
    _field("eth_dst", MACS, ("01:00:00:00:00:00",)),
)
IPV4 = (
    *ETHERNET,
    _field("ip_src", ADDRESSES, ("255.0.0.0", "0.0.255.1", "255.255.255.128")),
    _field("ip_dst", ADDRESSES, ("0.255.0.255",)),
    _field("ip_dscp", (0, 1, 46, 63)),
    _field("ip_ecn", (0, 1, 3)),
    _field("nw_ttl", (1, 2, 64, 255)),
    _pick(("dec_ttl",)),
)
IPV6 = (
    *ETHERNET,
    _field("ipv6_src", ADDRESSES6, ("ffff::", "::ffff:0", "ffff:ffff:ffff::")),
    _field("ipv6_dst", ADDRESSES6, ("::1",)),
    _field("ipv6_label", (0, 3, 0xFFFFF), ("0x0ff0f",)),
    _field("ip_dscp", (0, 46)),
    _field("ip_ecn", (0, 2)),
    _field("nw_ttl", (1, 2, 64, 255)),
    _pick(("dec_ttl",)),
)
TAGS = (
    _field("vlan_vid", (0x1001, 0x1FFE, 0x1064)),
    _field("vlan_pcp", (0, 5, 7)),
    _pick(("pop_vlan",)),
)


def _ports(protocol: str) -> tuple[Callable[[random.Random], str], ...]:
    return (_field(f"{protocol}_src", PORTS, ("0xff00", "0x0001")), _field(f"{protocol}_dst", PORTS, ("0x00f0",)))


def _ip(rng: random.Random, **more: Any) -> Packet:
    options = [IPOption_RR(pointer=4, routers=["1.2.3.4"])] if rng.random() < 0.2 else []
    return IP(
        src=rng.choice(ADDRESSES),
        dst=rng.choice(ADDRESSES),
        ttl=rng.choice((2, 3, 64, 255)),
        tos=rng.choice((0, 3, 184)),
        options=options,
        **more,
    )


def _ip6(rng: random.Random, upper: Packet) -> Packet:
    header = IPv6(
        src=rng.choice(ADDRESSES6),
        dst=rng.choice(ADDRESSES6),
        hlim=rng.choice((2, 64, 255)),
        tc=rng.choice((0, 3, 184)),
        fl=rng.choice((0, 0x12345)),
    )
    extensions = {
        0: (),
        1: (IPv6ExtHdrHopByHop(),),
        2: (IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(addresses=["2001::7"], segleft=1)),
        3: (IPv6ExtHdrRouting(addresses=["2001::7"], segleft=0),),
        4: (IPv6ExtHdrFragment(offset=0, m=1, id=7),),
        5: (IPv6ExtHdrFragment(offset=9, m=0, id=7),),
    }[rng.choice((*[0] * 10, 1, 2, 3, 4, 5))]
    packet: Packet = header
    for extension in extensions:
        packet = packet / extension
    return packet / upper


def _fragment6(rng: random.Random) -> Packet:
    header = IPv6(src=rng.choice(ADDRESSES6), dst=rng.choice(ADDRESSES6))
    fragment = IPv6ExtHdrFragment(offset=rng.choice((0, 9)), m=rng.choice((0, 1)), id=7, nh=rng.choice((6, 17, 58)))
    return header / fragment / Raw(rng.randbytes(40))


def _udp(rng: random.Random) -> Packet:
    checksum = {"chksum": 0} if rng.random() < 0.2 else {}
    return UDP(sport=rng.choice(PORTS), dport=rng.choice(PORTS), **checksum) / payload(rng)


def _tcp(rng: random.Random) -> Packet:
    options = [("MSS", 1460)] if rng.random() < 0.5 else []
    return TCP(sport=rng.choice(PORTS), dport=rng.choice(PORTS), flags=rng.choice("SAF"), options=options) / payload(
        rng
    )


def _sctp(rng: random.Random) -> Packet:
    return SCTP(sport=rng.choice(PORTS), dport=rng.choice(PORTS)) / SCTPChunkData(data=rng.randbytes(6))


def _neighbour(rng: random.Random) -> Packet:
    target, address = rng.choice(ADDRESSES6), rng.choice(MACS)
    if rng.random() < 0.5:
        message = ICMPv6ND_NS(tgt=target) / ICMPv6NDOptSrcLLAddr(lladdr=address)
    else:
        message = ICMPv6ND_NA(tgt=target) / ICMPv6NDOptDstLLAddr(lladdr=address)
    return IPv6(src=rng.choice(ADDRESSES6), dst=rng.choice(ADDRESSES6), hlim=255) / message


def _arp(rng: random.Random) -> Packet:
    return ARP(
        op=rng.choice((1, 2)),
        psrc=rng.choice(ADDRESSES),
        pdst=rng.choice(ADDRESSES),
        hwsrc=MACS[0],
        hwdst=rng.choice(MACS),
    )


def _tagged(rng: random.Random) -> Packet:
    tags: Packet = Dot1Q(vlan=rng.choice((1, 100, 4095)), prio=rng.choice((0, 5)), id=rng.choice((0, 1)))
    if rng.random() < 0.4:
        tags = tags / Dot1Q(vlan=7)
    return tags / _ip(rng) / _udp(rng)


def _label_stack(rng: random.Random) -> Packet:
    words = [rng.getrandbits(20) << 12 | rng.choice((2, 64)) for _ in range(rng.choice((1, 2, 3)))]
    words[-1] |= 1 << 8
    return Raw(b"".join(word.to_bytes(4, "big") for word in words) + bytes(IP() / UDP() / payload(rng)))


SHAPES: tuple[Shape, ...] = (
    Shape("tcp", "tcp", lambda rng: _ip(rng) / _tcp(rng), (*IPV4, *_ports("tcp"))),
    Shape("udp", "udp", lambda rng: _ip(rng) / _udp(rng), (*IPV4, *_ports("udp"))),
    Shape("sctp", "sctp", lambda rng: _ip(rng) / _sctp(rng), (*IPV4, *_ports("sctp"))),
    Shape("icmp", "icmp", lambda rng: _ip(rng) / ICMP(type=rng.choice((0, 8))) / payload(rng), IPV4),
    Shape("ip", "ip", lambda rng: _ip(rng, proto=rng.choice((4, 6, 17, 50, 132))) / payload(rng), IPV4),
    Shape("ip fragment", "ip", lambda rng: _ip(rng, flags=1, frag=rng.choice((0, 3)), proto=17) / payload(rng), IPV4),
    Shape("tcp6", "tcp6", lambda rng: _ip6(rng, _tcp(rng)), (*IPV6, *_ports("tcp"))),
    Shape("udp6", "udp6", lambda rng: _ip6(rng, _udp(rng)), (*IPV6, *_ports("udp"))),
    Shape("icmp6", "icmp6", lambda rng: _ip6(rng, ICMPv6EchoRequest(data=b"abc")), IPV6),
    Shape("ipv6", "ipv6", lambda rng: _ip6(rng, payload(rng)), IPV6),
    Shape("ipv6 fragment", "ipv6", _fragment6, IPV6),
    Shape(
        "neighbour",
        "icmp6,icmp_type={kind},icmp_code=0",
        _neighbour,
        IPV6[:7],
    ),
    Shape(
        "arp",
        "arp",
        _arp,
        (
            *ETHERNET,
            _field("arp_op", (1, 2, 255)),
            _field("arp_spa", ADDRESSES, ("255.0.0.0",)),
            _field("arp_tpa", ADDRESSES),
            _field("arp_sha", MACS, ("ff:00:ff:00:ff:00",)),
            _field("arp_tha", MACS),
        ),
    ),
    Shape("vlan", "vlan_tci=0x1000/0x1000", _tagged, (*ETHERNET, *TAGS)),
    Shape(
        "mpls",
        "mpls",
        _label_stack,
        (
            *ETHERNET,
            _field("mpls_label", (0, 3, 0xFFFFF)),
            _field("mpls_tc", (0, 7)),
            _pick(("set_mpls_ttl(9)", "dec_mpls_ttl")),
        ),
    ),
    Shape("other", "dl_type=0x1234", payload, ETHERNET),
)


@dataclass(frozen=True)
class Case:
    """One packet and the rule for it, which matches it by a source address that no other case has."""

    name: str
    frame: bytes
    match: str
    actions: str


def case(
    rng: random.Random, index: int, outputs: Sequence[str], extra: Sequence[str] = (), tails: Sequence[str] = ()
) -> Case:
    """A random case.

    Args:
        rng: the generator.
        index: makes the packet's Ethernet source address.
        outputs: actions that send, of which some are put between the rewrites.
        extra: further actions that may stand anywhere.
        tails: ways to end, one of which every fourth rule gets.
    """
    shape = rng.choice(SHAPES)
    source = f"06:00:00:00:{index >> 8:02x}:{index & 255:02x}"
    upper = shape.make(rng)
    layer = Ether(src=source, dst=rng.choice(MACS))
    if shape.name == "other":
        layer.type = 0x1234
    elif shape.name == "mpls":
        layer.type = 0x8847
    frame = bytes(layer / upper)
    if rng.random() < 0.2:
        frame += bytes(rng.choice((1, 6, 30)))
    actions: list[str] = []
    names = {"kind": "135"}
    if shape.name == "neighbour" and frame[54] == 136:
        names = {"kind": "136"}
    for _ in range(rng.randint(1, 6)):
        choice = rng.random()
        if choice < 0.5:
            actions.append(rng.choice(shape.rewrites)(rng).format(**names))
        elif choice < 0.6 and extra:
            actions.append(rng.choice(extra))
        else:
            actions.append(rng.choice(outputs))
    # A popped tag leaves a packet that the rule's match says nothing about.
    if "pop_vlan" in actions:
        actions = actions[: actions.index("pop_vlan") + 1]
    actions.append(rng.choice(tails if tails and rng.random() < 0.25 else outputs))
    match = f"dl_src={source},{shape.match.format(**names)}"
    return Case(f"{shape.name}: {','.join(actions)}", frame, match, ",".join(actions))
