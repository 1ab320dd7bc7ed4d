"""Nicira's messages, the same in every version: what a controller sends, and notifications as text."""

import struct
from collections.abc import Iterable

VENDOR, _MESSAGE, COOKIE = 0x2320, 4, 16
ROLE_REQUEST, SET_FLOW_FORMAT, FLOW_MOD, FLOW_REMOVED, FLOW_MOD_TABLE_ID, SET_PACKET_IN_FORMAT = 10, 12, 13, 14, 15, 16
PACKET_IN, SET_ASYNC_CONFIG, SET_CONTROLLER_ID = 17, 19, 20
GROUP_MOD, REQUEST_FORWARD = 31, 132
"""Over OpenFlow 1.0 only."""
TLV_TABLE_MOD, TLV_TABLE_REQUEST, SET_ASYNC_CONFIG2, RESUME, CT_FLUSH_ZONE, PACKET_IN2, CT_FLUSH = (
    24,
    25,
    27,
    28,
    29,
    30,
    32,
)
REG_MOVE, REG_LOAD = 6, 7
"""Actions."""
REASON, _CONTINUATION = 5, 8
SORTS_OF_ACTION = (3, 4, 5)
_SORTS = {PACKET_IN: "packet-in", PACKET_IN2: "packet-in", FLOW_REMOVED: "removed"}


def message(version: int, xid: int, subtype: int, body: bytes = b"") -> bytes:
    """Return a message of Nicira's."""
    return struct.pack("!BBHIII", version, _MESSAGE, 16 + len(body), xid, VENDOR, subtype) + body


def action(subtype: int, body: bytes) -> bytes:
    """Return an action of Nicira's, padded."""
    length = 10 + len(body) + -(10 + len(body)) % 8
    return (struct.pack("!HHIH", 0xFFFF, length, VENDOR, subtype) + body).ljust(length, b"\0")


def is_one(frame: bytes) -> bool:
    """Tell whether a message is Nicira's."""
    return frame[1] == _MESSAGE and frame[8:12] == struct.pack("!I", VENDOR)


def sort(frame: bytes) -> str:
    """Tell what a message is; see `openflow13.Sort`."""
    return _SORTS.get(struct.unpack_from("!I", frame, 12)[0], "reply") if is_one(frame) else "reply"


# ---- notifications


def packet_in(frame: bytes) -> str:
    """Describe a packet-in in one of Nicira's formats."""
    subtype, xid = struct.unpack_from("!I", frame, 12)[0], struct.unpack_from("!I", frame, 4)[0]
    if subtype == PACKET_IN:
        return f"xid {xid} nxt_packet_in {frame[16:22].hex()} reason {frame[22]} {frame[23:].hex()}"
    told = [_property(kind, body) for kind, body in properties(frame)]
    return f"xid {xid} nxt_packet_in2 {told}"


def _property(kind: int, body: bytes) -> str:
    if kind == _CONTINUATION:
        return f"{kind} with what continues it"
    return f"{kind} {body.hex()}"


def properties(frame: bytes) -> Iterable[tuple[int, bytes]]:
    """Return the properties of an nxt_packet_in2."""
    at = 16
    while at < len(frame):
        kind, length = struct.unpack_from("!HH", frame, at)
        yield kind, frame[at + 4 : at + length]
        at += length + -length % 8


def is_paused(frame: bytes) -> bool:
    """Tell whether a packet-in can be continued."""
    is_second = is_one(frame) and struct.unpack_from("!I", frame, 12)[0] == PACKET_IN2
    return is_second and any(kind == _CONTINUATION for kind, _ in properties(frame))


def resume(xid: int, paused: bytes) -> bytes:
    """Return a message that continues a paused packet as it is."""
    return message(paused[0], xid, RESUME, paused[16:])


def removed(frame: bytes) -> str:
    """Describe a flow_removed in Nicira's format without its duration."""
    cookie, priority, reason, table = struct.unpack_from("!QHBB", frame, COOKIE)
    idle, length, packets, octets = struct.unpack_from("!HHQQ", frame, 36)
    matched = frame[56 : 56 + length].hex()
    head = f"nxt table+1 {table} priority {priority} match {matched} cookie {cookie:#x} reason {reason}"
    return f"{head} idle {idle} packets {packets} bytes {octets}"


def tlv_map(version: int, xid: int, command: int, *mappings: tuple[int, int, int, int]) -> bytes:
    """Return a change of the fields for tunnels' options: class, type, length, and N of tun_metadataN."""
    body = struct.pack("!H6x", command) + b"".join(struct.pack("!HBBHxx", *each) for each in mappings)
    return message(version, xid, TLV_TABLE_MOD, body)


CT_SOURCE, CT_TARGET, CT_SOURCE_PORT, CT_TARGET_PORT, CT_ICMP_ID, CT_ICMP_TYPE, CT_ICMP_CODE = range(7)
"""Properties of one direction of a connection."""
_CT_ORIGINAL, _CT_REPLY, _CT_ZONE = range(3)


def ct_flush(
    version: int, xid: int, protocol: int, original: bytes = b"", reply: bytes = b"", zone: int | None = None
) -> bytes:
    """Return the message that removes connections; both directions are properties of `ct_property`."""
    body = struct.pack("!B7x", protocol)
    for kind, direction in ((_CT_ORIGINAL, original), (_CT_REPLY, reply)):
        body += struct.pack("!HH4x", kind, 8 + len(direction)) + direction if direction else b""
    body += ct_property(_CT_ZONE, struct.pack("!H2x", zone)) if zone is not None else b""
    return message(version, xid, CT_FLUSH, body)


def ct_property(kind: int, content: bytes) -> bytes:
    """Return a property of a direction."""
    whole = struct.pack("!HH", kind, 4 + len(content)) + content
    return whole + bytes(-len(whole) % 8)
