"""Ethernet frames from the fields of a match, with defaults for the others."""

import struct
from collections.abc import Mapping, Sequence

IPV4, ARP, VLAN, QINQ, IPV6, MPLS, LLDP = 0x0800, 0x0806, 0x8100, 0x88A8, 0x86DD, 0x8847, 0x88CC
ICMP, TCP, UDP, ICMPV6, SCTP = 1, 6, 17, 58, 132

Values = Mapping[str, int]
"""Field name to value, as in `openflow.FIELDS`, and ``length``: of the frame, at least."""


def frame(values: Values, tags: Sequence[tuple[int, int]] = (), labels: Sequence[int] = ()) -> bytes:
    """Return an Ethernet frame.

    Args:
        values: fields that are not the default.
        tags: VLAN tags, outermost first: TPID and TCI.
        labels: MPLS label stack entries (label, class, TTL; the bottom bit is set here), outermost first.
    """
    ethertype = values.get("eth_type", IPV4)
    data = values.get("eth_dst", 0x020000000002).to_bytes(6, "big")
    data += values.get("eth_src", 0x020000000001).to_bytes(6, "big")
    data += b"".join(struct.pack("!HH", tpid, tci) for tpid, tci in tags)
    inner = IPV4 if ethertype == MPLS else ethertype
    data += struct.pack("!H", MPLS if labels else ethertype)
    for index, label in enumerate(labels):
        data += struct.pack("!I", label & ~0x100 | (0x100 if index == len(labels) - 1 else 0))
    data += payload(inner, values)
    return data + bytes(max(0, values.get("length", 60) - len(data)))


def payload(ethertype: int, values: Values) -> bytes:
    """Return the bytes after the Ethernet type."""
    if ethertype == IPV4:
        return ipv4(values)
    if ethertype == IPV6:
        return ipv6(values)
    if ethertype == ARP:
        return arp(values)
    return bytes(range(32))


def ipv4(values: Values) -> bytes:
    protocol = values.get("ip_proto", UDP)
    fragment = values.get("fragment", 0)
    inner = transport(protocol, values) if not fragment & 0x1FFF else bytes(range(24))
    tos = values.get("ip_dscp", 0) << 2 | values.get("ip_ecn", 0)
    source, destination = values.get("ipv4_src", 0x0A000001), values.get("ipv4_dst", 0x0A000002)
    ttl = values.get("nw_ttl", 64)
    filler = bytes(max(0, values.get("length", 60) - 34 - len(inner)))
    head = struct.pack(
        "!BBHHHBBHII", 0x45, tos, 20 + len(inner + filler), 7, fragment, ttl, protocol, 0, source, destination
    )
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + inner + filler


def ipv6(values: Values) -> bytes:
    protocol = values.get("ip_proto", UDP)
    inner = transport(ICMPV6 if protocol == ICMP else protocol, values)
    traffic_class = values.get("ip_dscp", 0) << 2 | values.get("ip_ecn", 0)
    first = 6 << 28 | traffic_class << 20 | values.get("ipv6_flabel", 0)
    head = struct.pack("!IHBB", first, len(inner), ICMPV6 if protocol == ICMP else protocol, values.get("nw_ttl", 64))
    source = values.get("ipv6_src", 0xFD000000000000000000000000000001).to_bytes(16, "big")
    destination = values.get("ipv6_dst", 0xFD000000000000000000000000000002).to_bytes(16, "big")
    return head + source + destination + inner


def transport(protocol: int, values: Values) -> bytes:
    if protocol == TCP:
        ports = struct.pack("!HH", values.get("tcp_src", 1000), values.get("tcp_dst", 80))
        return ports + struct.pack("!IIBBHHH", 1, 2, 0x50, 0x10, 512, 0, 0) + b"tcp"
    if protocol == UDP:
        ports = struct.pack("!HH", values.get("udp_src", 1000), values.get("udp_dst", 53))
        return ports + struct.pack("!HH", 12, 0) + b"udp!"
    if protocol in (ICMP, ICMPV6):
        kind = values.get("icmp_type", values.get("icmpv6_type", 8 if protocol == ICMP else 128))
        head = struct.pack("!BBHI", kind, values.get("icmp_code", 0), 0, 1)
        return head[:2] + struct.pack("!H", checksum(head)) + head[4:] + b"\0\0"
    return bytes(range(16))


def arp(values: Values) -> bytes:
    head = struct.pack("!HHBBH", 1, IPV4, 6, 4, values.get("arp_op", 1))
    source = values.get("eth_src", 0x020000000001).to_bytes(6, "big")
    sender, target = values.get("arp_spa", 0x0A000001), values.get("arp_tpa", 0x0A000002)
    return head + source + struct.pack("!I", sender) + bytes(6) + struct.pack("!I", target)


def checksum(data: bytes) -> int:
    """Return the Internet checksum."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
