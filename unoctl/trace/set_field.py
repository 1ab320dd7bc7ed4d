"""``set(...)`` actions on the bytes of a packet, as odp_execute_masked_set_action() of Open vSwitch 3.1 does them.

Checksums are updated incrementally (RFC 1624, equation 3): a wrong checksum stays wrong by the same amount.
"""

import ipaddress
import re

from server.openvswitch.odp_actions import Term
from unoctl.trace.model import TraceError
from unoctl.trace.packet import Packet

_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE)
_PORTS = {"src": (0, 16), "dst": (16, 16)}
_KIND = {"type": (0, 8), "code": (8, 8)}
# Each header's length without options, and the first bit and the width of each field in it.
_HEADERS = {
    "eth": (14, {"dst": (0, 48), "src": (48, 48)}),
    "mpls": (4, {"label": (0, 20), "tc": (20, 3), "bos": (23, 1), "ttl": (24, 8)}),
    "arp": (28, {"op": (48, 16), "sha": (64, 48), "sip": (112, 32), "tha": (144, 48), "tip": (192, 32)}),
    "ipv4": (20, {"tos": (8, 8), "ttl": (64, 8), "src": (96, 32), "dst": (128, 32)}),
    "ipv6": (40, {"tclass": (4, 8), "label": (12, 20), "hlimit": (56, 8), "src": (64, 128), "dst": (192, 128)}),
    "tcp": (20, _PORTS),
    "udp": (8, _PORTS),
    "sctp": (12, _PORTS),
    "icmp": (8, _KIND),
    "icmpv6": (8, _KIND),
}
# Arguments of set(ipv4()) and set(ipv6()) that no action can change.
_CONSTANT = ("proto", "frag")
# The checksum's offset in each transport header, and the protocol's number in IPv4 and IPv6.
_CHECKSUMS = {"tcp": 16, "udp": 6, "icmp": 2, "icmpv6": 2}
_PROTOCOLS = {6: "tcp", 17: "udp", 58: "icmpv6"}
# Hop-by-hop, routing, fragment, authentication, destination.
_IPV6_EXTENSIONS = (0, 43, 44, 51, 60)


def set_field(term: Term, packet: Packet) -> None:
    """Carry out ``set(term)`` on the packet.

    Raises:
        TraceError: the header or a field is not supported, or the packet lacks the header.
    """
    name = term.name
    if name == "skb_mark":
        packet.mark = _masked((term.inner or (Term("0"),))[0].name, 32, packet.mark)
    elif name not in _HEADERS:
        if name != "skb_priority":
            raise TraceError(f"action set({term})")
    else:
        start = _start(term, packet)
        old = bytes(packet.data[start : start + _HEADERS[name][0]])
        new = _rewritten(term, old)
        packet.data[start : start + len(new)] = new
        if new != old:
            _update_checksums(name, packet, start, old, new)


def _start(term: Term, packet: Packet) -> int:
    name = term.name
    if name == "eth":
        return 0
    start = {"mpls": packet.mpls, "arp": packet.network, "ipv4": packet.network, "ipv6": packet.network}.get(
        name, packet.transport
    )
    padding = packet.padding if start == packet.transport else 0
    length = (packet.data[start + 12] >> 4) * 4 if name == "tcp" and start and start + 12 < len(packet.data) else 0
    if start is None or start + max(length, _HEADERS[name][0]) > len(packet.data) - padding or 0 < length < 20:
        raise TraceError(f"action set({term}): the packet has no complete {name} header")
    extended = packet.network is not None and packet.u16(packet.network) >> 12 == 6 and _extended(packet)
    if extended and (start == packet.transport or term.child("src") or term.child("dst")):
        raise TraceError(f"action set({term}) on a packet with IPv6 extension headers")
    return start


def _extended(packet: Packet) -> bool:
    return packet.data[(packet.network or 0) + 6] in _IPV6_EXTENSIONS


def _rewritten(term: Term, old: bytes) -> bytes:
    """Return the header with the fields of ``set(term)``."""
    fields = _HEADERS[term.name][1]
    bits = len(old) * 8
    header = int.from_bytes(old, "big")
    for item in term.inner or ():
        if item.name in fields:
            first, width = fields[item.name]
            shift, ones = bits - first - width, (1 << width) - 1
            value = _masked(item.value or "", width, header >> shift & ones)
            header = header & ~(ones << shift) | value << shift
        elif item.name not in _CONSTANT:
            raise TraceError(f"action set({term}): field {item.name}")
    return header.to_bytes(len(old), "big")


def _masked(text: str, width: int, old: int) -> int:
    """Return a field after ``VALUE`` or ``VALUE/MASK`` was written onto it."""
    value, found, mask = text.partition("/")
    ones = _number(mask) if found else (1 << width) - 1
    return old & ~ones | _number(value) & ones


def _number(text: str) -> int:
    try:
        if _MAC.fullmatch(text):
            return int(text.replace(":", ""), 16)
        return int(ipaddress.ip_address(text)) if "." in text or ":" in text else int(text, 0)
    except ValueError as error:
        raise TraceError(f"value {text!r} in a set action: {error}") from error


def _update_checksums(name: str, packet: Packet, start: int, old: bytes, new: bytes) -> None:
    if name in _CHECKSUMS:
        _update(packet, name, start, old, new)
    elif name == "sctp":
        _update_sctp(packet, start, old)
    elif name in ("ipv4", "ipv6"):
        addresses, protocol = (slice(12, 20), old[9]) if name == "ipv4" else (slice(8, 40), old[6])
        if name == "ipv4":
            _put(packet, start + 10, _updated(packet.u16(start + 10), old, new))
        upper = _PROTOCOLS.get(protocol)
        if upper and (name, upper) != ("ipv4", "icmpv6") and packet.transport and old[addresses] != new[addresses]:
            length = len(packet.data) - packet.padding - packet.transport
            if length >= (4 if upper == "icmpv6" else _HEADERS[upper][0]):
                _update(packet, upper, packet.transport, old[addresses], new[addresses])


def _update(packet: Packet, protocol: str, start: int, old: bytes, new: bytes) -> None:
    at = start + _CHECKSUMS[protocol]
    stored = packet.u16(at)
    if protocol == "udp" and stored == 0:
        return  # zero means "no checksum"; a sum of zero is sent as all ones
    _put(packet, at, _updated(stored, old, new) or (0xFFFF if protocol == "udp" else 0))


def _updated(checksum: int, old: bytes, new: bytes) -> int:
    total = ~checksum & 0xFFFF
    for index in range(0, len(old), 2):
        total += (~int.from_bytes(old[index : index + 2], "big") & 0xFFFF) + int.from_bytes(
            new[index : index + 2], "big"
        )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _put(packet: Packet, offset: int, value: int) -> None:
    packet.data[offset : offset + 2] = value.to_bytes(2, "big")


def _update_sctp(packet: Packet, start: int, old: bytes) -> None:
    from scapy.layers.sctp import crc32c  # takes half a second to import

    stop = len(packet.data) - packet.padding
    payload = bytes(packet.data[start + 12 : stop])
    before, after = (crc32c(ports + bytes(4) + payload) for ports in (old[:8], bytes(packet.data[start : start + 8])))
    # A wrong checksum stays wrong by the same bits.
    stored = int.from_bytes(old[8:12], "big")
    packet.data[start + 8 : start + 12] = (stored ^ before ^ after).to_bytes(4, "big")
