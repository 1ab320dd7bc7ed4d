"""OpenFlow 1.0 and Nicira's messages for it as bytes, from fields named as in `openflow.FIELDS`."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tests.oracle import openflow as of
from tests.oracle.dialects import nicira
from tests.oracle.openflow import Oxm

VERSION = 1
VENDOR, PACKET_OUT, FLOW_MOD, PORT_MOD, STATS_REQUEST, STATS_REPLY = 4, 13, 14, 15, 16, 17
BARRIER_REQUEST, BARRIER_REPLY, QUEUE_GET_CONFIG_REQUEST = 18, 19, 20
DESC, FLOW, AGGREGATE, TABLE, PORT, QUEUE, PORT_DESC, STATS_VENDOR = 0, 1, 2, 3, 4, 5, 13, 0xFFFF
NXST_FLOW, NXST_AGGREGATE, NXST_GROUP, NXST_GROUP_DESC, NXST_GROUP_FEATURES = 0, 1, 7, 8, 9
NONE, NO_TAG = 0xFFFF, 0xFFFF
SEND_FLOW_REM, CHECK_OVERLAP, EMERGENCY = 1, 2, 4

_ALL_WILDCARDS = (1 << 22) - 1
_BITS = {
    "in_port": 0,
    "vlan_vid": 1,
    "eth_src": 2,
    "eth_dst": 3,
    "eth_type": 4,
    "ip_proto": 5,
    "arp_op": 5,
    "tcp_src": 6,
    "udp_src": 6,
    "icmp_type": 6,
    "tcp_dst": 7,
    "udp_dst": 7,
    "icmp_code": 7,
    "vlan_pcp": 20,
    "ip_dscp": 21,
}
_PREFIXES = {"ipv4_src": 8, "arp_spa": 8, "ipv4_dst": 14, "arp_tpa": 14}


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    """Return a message."""
    return struct.pack("!BBHI", VERSION, kind, 8 + len(body), xid) + body


def port(number: int) -> int:
    """Return a port's number in 16 bits."""
    return number & 0xFFFF


def match(fields: Iterable[Oxm]) -> bytes:
    """Return an ``ofp_match``; masks must be prefixes of addresses."""
    wildcards, values = _ALL_WILDCARDS, dict[int, int]()
    for name, value, mask in fields:
        if name in _PREFIXES:
            shift = _PREFIXES[name]
            free = 0 if mask is None else (~mask & 0xFFFFFFFF).bit_length()
            wildcards = wildcards & ~(0x3F << shift) | free << shift
            values[shift] = value
        else:
            wildcards &= ~(1 << _BITS[name])
            values[_BITS[name]] = value
    tag = values.get(1, 0)
    return struct.pack(
        "!IH6s6sHBxHBB2xIIHH",
        *(wildcards, port(values.get(0, 0)), values.get(2, 0).to_bytes(6), values.get(3, 0).to_bytes(6)),
        *(tag & 0xFFF if tag or 1 not in values else NO_TAG, values.get(20, 0), values.get(4, 0)),
        *(values.get(21, 0) << 2, values.get(5, 0), values.get(8, 0), values.get(14, 0)),
        *(values.get(6, 0), values.get(7, 0)),
    )


# ---- actions


def output(number: int, max_len: int = 0) -> bytes:
    return struct.pack("!HHHH", 0, 8, port(number), max_len)


def set_number(kind: int, value: int) -> bytes:
    """SET_VLAN_VID (1), SET_TP_SRC (9), SET_TP_DST (10)."""
    return struct.pack("!HHH2x", kind, 8, value)


def set_byte(kind: int, value: int) -> bytes:
    """SET_VLAN_PCP (2), SET_NW_TOS (8)."""
    return struct.pack("!HHB3x", kind, 8, value)


def strip_vlan() -> bytes:
    return struct.pack("!HH4x", 3, 8)


def set_address(kind: int, value: int) -> bytes:
    """SET_DL_SRC (4), SET_DL_DST (5)."""
    return struct.pack("!HH6s6x", kind, 16, value.to_bytes(6))


def set_nw(kind: int, value: int) -> bytes:
    """SET_NW_SRC (6), SET_NW_DST (7)."""
    return struct.pack("!HHI", kind, 8, value)


def enqueue(number: int, queue: int) -> bytes:
    return struct.pack("!HHH6xI", 11, 16, port(number), queue)


# ---- messages


@dataclass(frozen=True)
class FlowMod10:
    """OFPT_FLOW_MOD or, with ``nicira``, NXT_FLOW_MOD; ``table`` only if the connection has chosen so."""

    command: int = of.ADD
    priority: int = 0
    fields: tuple[Oxm, ...] = ()
    actions: bytes = b""
    cookie: int = 0
    idle: int = 0
    hard: int = 0
    flags: int = 0
    out_port: int = NONE
    buffer: int = of.NO_BUFFER
    table: int | None = None
    nicira: bool = False

    def encode(self, xid: int) -> bytes:
        """Return the message."""
        command = self.command | (self.table or 0) << 8
        times = (self.idle, self.hard, self.priority, self.buffer, port(self.out_port), self.flags)
        if self.nicira:
            fields = nx_match(self.fields)
            head = struct.pack("!QHHHHIHHH6x", self.cookie, command, *times, len(fields))
            return nicira.message(VERSION, xid, nicira.FLOW_MOD, head + of.padded(fields) + self.actions)
        head = struct.pack("!QHHHHIHH", self.cookie, command, *times)
        return message(FLOW_MOD, xid, match(self.fields) + head + self.actions)


def packet_out(xid: int, in_port: int, actions: bytes, data: bytes, buffer: int = of.NO_BUFFER) -> bytes:
    head = struct.pack("!IHH", buffer, port(in_port), len(actions))
    return message(PACKET_OUT, xid, head + actions + data)


def group_mod(xid: int, body: bytes) -> bytes:
    """Return Nicira's group-mod, with the body of one of OpenFlow 1.5 but for the actions."""
    return nicira.message(VERSION, xid, nicira.GROUP_MOD, body)


def group(number: int) -> bytes:
    """Return Nicira's action that sends to a group."""
    return nicira.action(40, struct.pack("!2xI", number))


def port_mod(xid: int, number: int, address: bytes, config: int, mask: int) -> bytes:
    return message(PORT_MOD, xid, struct.pack("!H6sIII4x", port(number), address, config, mask, 0))


def stats(xid: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return message(STATS_REQUEST, xid, struct.pack("!HH", kind, flags) + body)


def flow_request(fields: Iterable[Oxm] = (), table: int = of.ALL_TABLES, out_port: int = NONE) -> bytes:
    """Return the body of a request for statistics of flows."""
    return match(fields) + struct.pack("!BxH", table, port(out_port))


def nicira_stats(subtype: int, body: bytes) -> bytes:
    """Return the body of a request for Nicira's statistics."""
    return struct.pack("!II4x", nicira.VENDOR, subtype) + body


def nicira_flow_request(fields: Iterable[Oxm] = (), table: int = of.ALL_TABLES, out_port: int = NONE) -> bytes:
    """Return the body of Nicira's request for statistics of flows."""
    matched = nx_match(fields)
    return struct.pack("!HHB3x", port(out_port), len(matched), table) + of.padded(matched)


# ---- matches in Nicira's form

_NXM = {
    "eth_dst": (0, 1, 6),
    "eth_src": (0, 2, 6),
    "eth_type": (0, 3, 2),
    "ip_proto": (0, 6, 1),
    "ipv4_src": (0, 7, 4),
    "ipv4_dst": (0, 8, 4),
    "tcp_src": (0, 9, 2),
    "tcp_dst": (0, 10, 2),
    "udp_src": (0, 11, 2),
    "udp_dst": (0, 12, 2),
    "icmp_type": (0, 13, 1),
    "icmp_code": (0, 14, 1),
    "arp_op": (0, 15, 2),
    "arp_spa": (0, 16, 4),
    "arp_tpa": (0, 17, 4),
    "tunnel_id": (1, 16, 8),
    "ipv6_src": (1, 19, 16),
    "ipv6_dst": (1, 20, 16),
    "icmpv6_type": (1, 21, 1),
    "ipv6_flabel": (1, 27, 4),
    "ip_ecn": (1, 28, 1),
}
"""Class, number and size of fields that Nicira numbers otherwise than OpenFlow 1.3."""
_NX_COOKIE = (1, 30, 8)


def nx_match(fields: Iterable[Oxm]) -> bytes:
    """Return the fields in Nicira's form, or in that of OpenFlow 1.3 where there is none."""
    return b"".join(_nx_field(each) for each in fields)


def _nx_field(item: Oxm) -> bytes:
    name, value, mask = item
    if name == "in_port":
        return struct.pack("!HBBH", 0, 0, 2, port(value))
    if name == "cookie":
        return _nx_header(_NX_COOKIE, value, mask)
    if name == "ip_dscp":
        return struct.pack("!HBBB", 0, 5 << 1, 1, value << 2)
    return _nx_header(_NXM[name], value, mask) if name in _NXM else of.oxm(item)


def _nx_header(field: tuple[int, int, int], value: int, mask: int | None) -> bytes:
    family, number, size = field
    payload = value.to_bytes(size) + (b"" if mask is None else mask.to_bytes(size))
    return struct.pack("!HBB", family, number << 1 | (mask is not None), len(payload)) + payload
