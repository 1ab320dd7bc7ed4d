"""``set(...)`` actions on the bytes of a packet, as odp_execute_masked_set_action() of Open vSwitch 3.1 does them.

Checksums are updated incrementally (RFC 1624, equation 3): a wrong checksum stays wrong by the same amount.
"""

import ipaddress

from server.openvswitch.odp_actions import Term
from unoctl.trace.model import TraceError
from unoctl.trace.packet import Packet

_PORTS = {"src": (0, 16), "dst": (16, 16)}
_KIND = {"type": (0, 8), "code": (8, 8)}
_TRANSPORTS = {"tcp": (20, _PORTS), "udp": (8, _PORTS), "sctp": (12, _PORTS), "icmp": (8, _KIND), "icmpv6": (8, _KIND)}
# Each header's length without options, and the first bit and the width of each field in it.
_HEADERS = {
    "eth": (14, {"dst": (0, 48), "src": (48, 48)}),
    "mpls": (4, {"label": (0, 20), "tc": (20, 3), "bos": (23, 1), "ttl": (24, 8)}),
    "arp": (28, {"op": (48, 16), "sha": (64, 48), "sip": (112, 32), "tha": (144, 48), "tip": (192, 32)}),
    "ipv4": (20, {"tos": (8, 8), "ttl": (64, 8), "src": (96, 32), "dst": (128, 32)}),
    "ipv6": (40, {"tclass": (4, 8), "label": (12, 20), "hlimit": (56, 8), "src": (64, 128), "dst": (192, 128)}),
    **_TRANSPORTS,
}
_PCIE = "0.0.0.1"
_CONSTANT = ("proto", "frag")  # arguments that no action can change
# The checksum's offset in each transport header; the protocols whose checksum covers the addresses.
_CHECKSUMS = {"tcp": 16, "udp": 6, "icmp": 2, "icmpv6": 2}
_COVERING = {("ipv4", 6): "tcp", ("ipv4", 17): "udp", ("ipv6", 6): "tcp", ("ipv6", 17): "udp", ("ipv6", 58): "icmpv6"}
_IPV6_EXTENSIONS = (0, 43, 44, 51, 60)  # hop-by-hop, routing, fragment, authentication, destination


def set_field(term: Term, packet: Packet) -> None:
    """Carry out ``set(term)`` on the packet; TraceError if it lacks the header, or the field is not supported."""
    name = term.name
    if name == "skb_mark" and term.inner:
        packet.mark = _masked(term.inner[0].name, 32, packet.mark)
    elif name == "tunnel" and _is_beside(term):
        packet.tunnel = term.number("tun_id", 0)
    elif name in _HEADERS:
        start = _start(term, packet)
        old = bytes(packet.data[start : start + _HEADERS[name][0]])
        new = _rewritten(term, old)
        packet.data[start : start + len(new)] = new
        if new != old:
            _update_checksums(name, packet, start, old, new)
    elif name != "skb_priority":
        raise TraceError(f"action set({term})")


def _is_beside(term: Term) -> bool:
    """Return whether the tunnel id is for a port of type ``pcie``, not for a tunnel (ovs-patches/README.md)."""
    destination = term.child("dst")
    return destination is None or destination.value == _PCIE


def _start(term: Term, packet: Packet) -> int:
    name, network = term.name, packet.network
    lower = {"eth": 0, "mpls": packet.mpls, "arp": network, "ipv4": network, "ipv6": network}
    start = lower.get(name, packet.transport)
    end = len(packet.data) - (packet.padding if name in _TRANSPORTS else 0)
    length = _HEADERS[name][0]
    if name == "tcp" and start is not None and start + length <= end:
        data_offset = (packet.data[start + 12] >> 4) * 4
        length = data_offset if data_offset >= length else len(packet.data)
    if start is None or start + length > end:
        raise TraceError(f"action set({term}): the packet has no complete {name} header")
    extended = network and packet.u16(network) >> 12 == 6 and packet.data[network + 6] in _IPV6_EXTENSIONS
    if extended and (name in _TRANSPORTS or (name == "ipv6" and (term.child("src") or term.child("dst")))):
        raise TraceError(f"action set({term}) on a packet with IPv6 extension headers")
    return start


def _rewritten(term: Term, old: bytes) -> bytes:
    """Return the header with the fields of ``set(term)``."""
    fields = _HEADERS[term.name][1]
    header = int.from_bytes(old, "big")
    for item in term.inner or ():
        if item.name in fields:
            first, width = fields[item.name]
            shift, ones = len(old) * 8 - first - width, (1 << width) - 1
            header = header & ~(ones << shift) | _masked(item.value or "", width, header >> shift & ones) << shift
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
        if text.count(":") == 5 and "::" not in text and "." not in text:  # an Ethernet address
            return int(text.replace(":", ""), 16)
        return int(ipaddress.ip_address(text)) if "." in text or ":" in text else int(text, 0)
    except ValueError as error:
        raise TraceError(f"value {text!r} in a set action: {error}") from error


def _update_checksums(name: str, packet: Packet, start: int, old: bytes, new: bytes) -> None:
    if name in _CHECKSUMS:
        _update(packet, start + _CHECKSUMS[name], old, new, optional=name == "udp")
    elif name == "sctp":
        _update_sctp(packet, start, old)
    elif name in ("ipv4", "ipv6"):
        addresses, protocol = (slice(12, 20), old[9]) if name == "ipv4" else (slice(8, 40), old[6])
        if name == "ipv4":
            _update(packet, start + 10, old, new)
        upper = _COVERING.get((name, protocol))
        if upper and packet.transport is not None and old[addresses] != new[addresses]:
            minimum = 4 if upper == "icmpv6" else _HEADERS[upper][0]
            if packet.transport + minimum <= len(packet.data) - packet.padding:
                at = packet.transport + _CHECKSUMS[upper]
                _update(packet, at, old[addresses], new[addresses], optional=upper == "udp")


def _update(packet: Packet, at: int, old: bytes, new: bytes, optional: bool = False) -> None:
    """Update a checksum after bytes that it covers changed; an optional one is absent if it is zero."""
    stored = packet.u16(at)
    if optional and stored == 0:
        return
    # The one's complement sum of 16-bit words is the remainder of the whole number, with 0xFFFF for zero.
    total = ((~stored & 0xFFFF) - int.from_bytes(old, "big") + int.from_bytes(new, "big")) % 0xFFFF or 0xFFFF
    checksum = ~total & 0xFFFF
    packet.data[at : at + 2] = (0xFFFF if optional and checksum == 0 else checksum).to_bytes(2, "big")


def _update_sctp(packet: Packet, start: int, old: bytes) -> None:
    from scapy.layers.sctp import crc32c  # takes half a second to import

    payload = bytes(packet.data[start + 12 : len(packet.data) - packet.padding])
    before, after = (crc32c(ports + bytes(4) + payload) for ports in (old[:8], bytes(packet.data[start : start + 8])))
    # A wrong checksum stays wrong by the same bits.
    stored = int.from_bytes(old[8:12], "big")
    packet.data[start + 8 : start + 12] = (stored ^ before ^ after).to_bytes(4, "big")
