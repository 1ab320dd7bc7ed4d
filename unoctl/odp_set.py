"""``set(...)`` actions on the bytes of a packet.

Each function changes the packet as odp_execute_masked_set_action() of Open vSwitch 3.1 does: a header that is not there
or is cut off is left alone, checksums follow incrementally.
"""

from collections.abc import Callable

from server.openvswitch.odp_actions import Term
from unoctl import checksums
from unoctl.odp_fields import Masked, ethernet, hexadecimal_mask, ipv4, ipv6, number, read
from unoctl.packet import (
    EXTENSIONS,
    FRAGMENT,
    IPV6_LENGTH,
    PACKET_ETHERNET,
    PROTO_ICMPV6,
    PROTO_TCP,
    PROTO_UDP,
    ROUTING,
    Packet,
    extension_length,
)

TCP_MIN, UDP_LENGTH, SCTP_LENGTH, ICMP_LENGTH, ND_LENGTH = 20, 8, 12, 8, 24
_ND_OPTION_LENGTH = 8
_SOURCE_LINK, _TARGET_LINK = 1, 2
Fields = dict[str, Masked]


def apply(term: Term, packet: Packet) -> str | None:
    """Carry out ``set(term)``.

    Args:
        term: what stands in the brackets of ``set``.
        packet: changed in place.

    Returns:
        None, or for people why the bytes are no longer certain.

    Raises:
        ActionSyntaxError: a value does not parse.
    """
    action = _ACTIONS.get(term.name)
    if action is None:
        return f"set({term}) is not understood here"
    return action(term, packet)


def _eth(term: Term, packet: Packet) -> None:
    if packet.packet_type != PACKET_ETHERNET:
        return
    fields = read(term, {"dst": ethernet, "src": ethernet})
    for name, offset in (("dst", 0), ("src", 6)):
        _overwrite(packet, offset, 6, fields.get(name))


def _arp(term: Term, packet: Packet) -> None:
    if packet.l3 is None:
        return
    fields = read(term, {"op": number(16), "sip": ipv4, "tip": ipv4, "sha": ethernet, "tha": ethernet})
    for name, offset, size in (("op", 6, 2), ("sha", 8, 6), ("sip", 14, 4), ("tha", 18, 6), ("tip", 24, 4)):
        _overwrite(packet, packet.l3 + offset, size, fields.get(name))


def _ipv4(term: Term, packet: Packet) -> None:
    if packet.l3 is None:
        return
    fields = read(term, {"src": ipv4, "dst": ipv4, "tos": number(8), "ttl": number(8)})
    for name, offset in (("src", 12), ("dst", 16)):
        _ipv4_address(packet, packet.l3 + offset, fields.get(name))
    for name, offset in (("tos", 1), ("ttl", 8)):
        _ipv4_byte(packet, packet.l3, offset, fields.get(name))


def _ipv4_address(packet: Packet, offset: int, field: Masked | None) -> None:
    old, new = _change(packet, offset, 4, field)
    if old == new or packet.l3 is None:
        return
    _transport_checksum(packet, packet.data[packet.l3 + 9], old, new)
    _update(packet, packet.l3 + 10, old, new)
    packet.data[offset : offset + 4] = new


def _ipv4_byte(packet: Packet, start: int, offset: int, field: Masked | None) -> None:
    old, new = _change(packet, start + offset, 1, field)
    if old == new:
        return
    # The checksum covers 16-bit words: a byte at an odd offset is the lower half of one.
    before, after = (b"\0" + old, b"\0" + new) if offset % 2 else (old + b"\0", new + b"\0")
    _update(packet, start + 10, before, after)
    packet.data[start + offset : start + offset + 1] = new


def _ipv6(term: Term, packet: Packet) -> None:
    start = packet.l3
    if start is None or len(packet.data) < start + IPV6_LENGTH:
        return
    kinds = {"src": ipv6, "dst": ipv6, "tclass": number(8), "label": number(20), "hlimit": number(8)}
    fields = read(term, kinds)
    protocol, routed, update = _ipv6_upper(packet)
    for name, offset, covered in (("src", 8, update), ("dst", 24, update and not routed)):
        old, new = _change(packet, start + offset, 16, fields.get(name))
        if old != new and covered:
            _transport_checksum(packet, protocol, old, new)
        packet.data[start + offset : start + offset + 16] = new
    word = int.from_bytes(packet.data[start : start + 4], "big")
    if tclass := fields.get("tclass"):
        word = (word & 0xF00FFFFF) | tclass.onto(word >> 20 & 0xFF) << 20
    if label := fields.get("label"):
        word = (word & 0xFFF00000) | label.onto(word & 0xFFFFF)
    packet.put(start, word, 4)
    _overwrite(packet, start + 7, 1, fields.get("hlimit"))


def _ipv6_upper(packet: Packet) -> tuple[int, bool, bool]:
    """The upper protocol, whether a routing header hides the real destination, and whether checksums follow."""
    start, end = packet.l3, packet.l4
    if start is None or end is None:
        return 0, False, True
    kind, offset, update = packet.data[start + 6], start + IPV6_LENGTH, True
    while kind in EXTENSIONS and end - offset >= 8:
        following, length = packet.data[offset], extension_length(kind, packet.data[offset + 1])
        if kind == FRAGMENT:
            where = packet.u16(offset + 2)
            update = not where & 0xFFF8 and bool(where & 1)
        if kind == ROUTING and packet.data[offset + 3] > 0:
            return kind, True, update
        kind, offset = following, offset + length
    return kind, False, update


def _transport_checksum(packet: Packet, protocol: int, old: bytes, new: bytes) -> None:
    """Follow a change of an address in the pseudo-header."""
    if packet.l4 is None:
        return
    if protocol == PROTO_TCP and packet.l4_size >= TCP_MIN:
        _update(packet, packet.l4 + 16, old, new)
    elif protocol == PROTO_UDP and packet.l4_size >= UDP_LENGTH:
        _update_udp(packet, packet.l4 + 6, old, new)
    elif protocol == PROTO_ICMPV6 and len(new) == 16 and packet.l4_size >= 4:
        _update(packet, packet.l4 + 2, old, new)


def _tcp(term: Term, packet: Packet) -> None:
    if packet.l4 is None or packet.l4_size < TCP_MIN:
        return
    header = (packet.data[packet.l4 + 12] >> 4) * 4
    if TCP_MIN <= header <= packet.l4_size:
        for offset, old, new in _port_changes(term, packet, packet.l4):
            _update(packet, packet.l4 + 16, old, new)
            packet.data[offset : offset + 2] = new


def _udp(term: Term, packet: Packet) -> None:
    if packet.l4 is None or packet.l4_size < UDP_LENGTH:
        return
    counted = packet.u16(packet.l4 + 6) != 0
    for offset, old, new in _port_changes(term, packet, packet.l4):
        if counted:
            _update(packet, packet.l4 + 6, old, new)
        packet.data[offset : offset + 2] = new
    if counted and packet.u16(packet.l4 + 6) == 0:
        packet.put(packet.l4 + 6, 0xFFFF, 2)


def _sctp(term: Term, packet: Packet) -> None:
    if packet.l4 is None or packet.l4_size < SCTP_LENGTH:
        return
    at = packet.l4 + 8
    stored = bytes(packet.data[at : at + 4])
    packet.data[at : at + 4] = bytes(4)
    end = packet.l4 + packet.l4_size
    correct = checksums.crc32c(bytes(packet.data[packet.l4 : end]))
    for offset, _, new in _port_changes(term, packet, packet.l4):
        packet.data[offset : offset + 2] = new
    changed = checksums.crc32c(bytes(packet.data[packet.l4 : end]))
    # A checksum that was wrong stays wrong by the same bits.
    packet.data[at : at + 4] = bytes(a ^ b ^ c for a, b, c in zip(stored, correct, changed, strict=True))


def _port_changes(term: Term, packet: Packet, start: int) -> list[tuple[int, bytes, bytes]]:
    fields = read(term, {"src": number(16), "dst": number(16)})
    changes: list[tuple[int, bytes, bytes]] = []
    for name, offset in (("src", start), ("dst", start + 2)):
        old, new = _change(packet, offset, 2, fields.get(name))
        if old != new:
            changes.append((offset, old, new))
    return changes


def _icmp(term: Term, packet: Packet) -> None:
    if packet.l4 is None or packet.l4_size < ICMP_LENGTH:
        return
    fields = read(term, {"type": number(8), "code": number(8)})
    old = bytes(packet.data[packet.l4 : packet.l4 + 2])
    _overwrite(packet, packet.l4, 1, fields.get("type"))
    _overwrite(packet, packet.l4 + 1, 1, fields.get("code"))
    _update(packet, packet.l4 + 2, old, bytes(packet.data[packet.l4 : packet.l4 + 2]))


def _nd(term: Term, packet: Packet) -> None:
    if packet.l4 is None or packet.l4_size < ND_LENGTH:
        return
    fields = read(term, {"target": ipv6, "sll": ethernet, "tll": ethernet})
    changes = [(packet.l4 + 8, 16, fields.get("target"))]
    option = _link_option(packet, packet.l4 + ND_LENGTH, packet.l4 + packet.l4_size)
    if option is not None:
        kind = "sll" if packet.data[option] == _SOURCE_LINK else "tll"
        changes.append((option + 2, 6, fields.get(kind)))
    for offset, size, field in changes:
        old, new = _change(packet, offset, size, field)
        if old != new:
            _update(packet, packet.l4 + 2, old, new)
            packet.data[offset : offset + size] = new


def _link_option(packet: Packet, offset: int, end: int) -> int | None:
    """The first link-layer address option of a neighbour message."""
    while offset + _ND_OPTION_LENGTH <= end and packet.data[offset + 1]:
        if packet.data[offset] in (_SOURCE_LINK, _TARGET_LINK) and packet.data[offset + 1] == 1:
            return offset
        offset += packet.data[offset + 1] * _ND_OPTION_LENGTH
    return None


def _nd_ext(term: Term, packet: Packet) -> str | None:
    if packet.l4 is None or packet.l3 is None or packet.l4_size < ND_LENGTH:
        return None
    fields = read(term, {"nd_reserved": number(32), "nd_options_type": number(8)})
    reserved, kind = fields.get("nd_reserved"), fields.get("nd_options_type")
    # The printed form does not tell "set to 0" from "left alone"; the second is by far the more frequent.
    if reserved and reserved.value:
        packet.put(packet.l4 + 4, reserved.value, 4)
    if kind and packet.l4_size > ND_LENGTH:
        packet.put(packet.l4 + ND_LENGTH, kind.value, 1)
    packet.put(packet.l4 + 2, 0, 2)
    segment = bytes(packet.data[packet.l4 : packet.l4 + packet.l4_size])
    pseudo = bytes(packet.data[packet.l3 + 8 : packet.l3 + 40])
    payload = packet.u16(packet.l3 + 4)
    packet.put(packet.l4 + 2, checksums.internet(pseudo + segment, payload + packet.data[packet.l3 + 6]), 2)
    if reserved and not reserved.value:
        return "set(nd_ext) does not say whether it clears the reserved bits"
    return None


def _mpls(term: Term, packet: Packet) -> None:
    if packet.mpls is None or len(packet.data) < packet.mpls + 4:
        return
    kinds = {
        "label": number(20),
        "tc": hexadecimal_mask(3),
        "ttl": number(8),
        "bos": hexadecimal_mask(1),
    }
    word = int.from_bytes(packet.data[packet.mpls : packet.mpls + 4], "big")
    for name, field in read(term, kinds).items():
        shift = {"label": 12, "tc": 9, "bos": 8, "ttl": 0}[name]
        ones = (1 << field.bits) - 1
        word = (word & ~(ones << shift)) | field.onto(word >> shift & ones) << shift
    packet.put(packet.mpls, word, 4)


def _nsh(term: Term, packet: Packet) -> None:
    if packet.l3 is None or len(packet.data) < packet.l3 + 8:
        return
    contexts = {f"c{index}": number(32) for index in range(1, 5)}
    kinds = {"flags": number(8), "ttl": number(8), "spi": number(32), "si": number(8), **contexts}
    fields = read(term, kinds)
    word = packet.u16(packet.l3)
    for name, shift, ones in (("flags", 12, 0x3), ("ttl", 6, 0x3F)):
        if field := fields.get(name):
            word = (word & ~(ones << shift)) | (field.onto(word >> shift & ones) & ones) << shift
    packet.put(packet.l3, word, 2)
    path = int.from_bytes(packet.data[packet.l3 + 4 : packet.l3 + 8], "big")
    if spi := fields.get("spi"):
        path = (path & 0xFF) | (spi.onto(path >> 8) & 0xFFFFFF) << 8
    if si := fields.get("si"):
        path = (path & 0xFFFFFF00) | si.onto(path & 0xFF)
    packet.put(packet.l3 + 4, path, 4)
    if packet.data[packet.l3 + 2] & 0xF == 1 and len(packet.data) >= packet.l3 + 24:
        for index in range(4):
            _overwrite(packet, packet.l3 + 8 + 4 * index, 4, fields.get(f"c{index + 1}"))


def _mark(term: Term, packet: Packet) -> None:
    packet.mark = _metadata(term, packet.mark)


def _priority(term: Term, packet: Packet) -> None:
    packet.priority = _metadata(term, packet.priority)


def _metadata(term: Term, old: int) -> int:
    (inner,) = term.inner or (Term("0"),)
    return number(32)(inner.name).onto(old)


def _no_bytes(_term: Term, _packet: Packet) -> None:
    """Metadata of a tunnel: seen by the tunnel port only."""


def _change(packet: Packet, offset: int, size: int, field: Masked | None) -> tuple[bytes, bytes]:
    old = bytes(packet.data[offset : offset + size])
    if field is None:
        return old, old
    return old, field.onto(int.from_bytes(old, "big")).to_bytes(size, "big")


def _overwrite(packet: Packet, offset: int, size: int, field: Masked | None) -> None:
    old, new = _change(packet, offset, size, field)
    if len(old) == size:
        packet.data[offset : offset + size] = new


def _update(packet: Packet, at: int, old: bytes, new: bytes) -> None:
    packet.put(at, checksums.update_bytes(packet.u16(at), old, new), 2)


def _update_udp(packet: Packet, at: int, old: bytes, new: bytes) -> None:
    """UDP's zero means "no checksum": it stays, and a sum that comes out as zero is sent as all ones."""
    if packet.u16(at) == 0:
        return
    _update(packet, at, old, new)
    if packet.u16(at) == 0:
        packet.put(at, 0xFFFF, 2)


_ACTIONS: dict[str, Callable[[Term, Packet], str | None]] = {
    "eth": _eth,
    "arp": _arp,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "tcp": _tcp,
    "udp": _udp,
    "sctp": _sctp,
    "icmp": _icmp,
    "icmpv6": _icmp,
    "nd": _nd,
    "nd_ext": _nd_ext,
    "mpls": _mpls,
    "nsh": _nsh,
    "skb_mark": _mark,
    "skb_priority": _priority,
    "tunnel": _no_bytes,
}
