"""OpenFlow 1.3 messages as bytes, written from the specification; deliberately without oneswitchd's codec.

Builders accept malformed input too (unknown ports, bad tables, missing prerequisites): refusals are also compared.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

VERSION = 4

# message types
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER = 0, 1, 2, 3, 4
FEATURES_REQUEST, FEATURES_REPLY, GET_CONFIG_REQUEST, GET_CONFIG_REPLY, SET_CONFIG = 5, 6, 7, 8, 9
PACKET_IN, FLOW_REMOVED, PORT_STATUS, PACKET_OUT = 10, 11, 12, 13
FLOW_MOD, GROUP_MOD, PORT_MOD, TABLE_MOD = 14, 15, 16, 17
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 18, 19, 20, 21
QUEUE_GET_CONFIG_REQUEST, QUEUE_GET_CONFIG_REPLY, ROLE_REQUEST, ROLE_REPLY = 22, 23, 24, 25
GET_ASYNC_REQUEST, GET_ASYNC_REPLY, SET_ASYNC, METER_MOD = 26, 27, 28, 29

ONF, BUNDLE_CONTROL, BUNDLE_ADD = 0x4F4E4600, 2300, 2301
BUNDLE_OPEN, BUNDLE_CLOSE, BUNDLE_COMMIT, BUNDLE_DISCARD = 0, 2, 4, 6
BUNDLE_ATOMIC, BUNDLE_ORDERED = 1, 2

# reserved ports, groups, meters
CT = 35
"""Subtype of Nicira's action."""
LEARN_ACTIONS = 16, 45
LEARN_REMOVED, LEARN_DELETE, LEARN_RESULT = 1, 2, 4
IN_PORT, TABLE, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL = (0xFFFFFFF8 + i for i in range(7))
ANY = ALL_IDS = NO_BUFFER = 0xFFFFFFFF
LINK_DOWN, LIVE = 1, 4
GROUP_ALL = 0xFFFFFFFC
METER_ALL = 0xFFFFFFFF
ALL_TABLES = 0xFF

# multipart types
DESC, FLOW, AGGREGATE, TABLES, PORT_STATS, QUEUE, GROUP, GROUP_DESC, GROUP_FEATURES, METER, METER_CONFIG = range(11)
METER_FEATURES, TABLE_FEATURES, PORT_DESC = 11, 12, 13

ADD, MODIFY, MODIFY_STRICT, DELETE, DELETE_STRICT = range(5)
DELETE_GROUP = 2
ROLE_NO_CHANGE, ROLE_EQUAL, ROLE_MASTER, ROLE_SLAVE = range(4)
SEND_FLOW_REM, CHECK_OVERLAP, RESET_COUNTS, NO_PKT_COUNTS, NO_BYT_COUNTS = 1, 2, 4, 8, 16
SELECT_GROUP, FAST_FAILOVER = 1, 3

MASK64 = (1 << 64) - 1


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    """Return a whole message."""
    return struct.pack("!BBHI", VERSION, kind, 8 + len(body), xid) + body


def padded(data: bytes) -> bytes:
    """Pad ``data`` to a multiple of eight bytes."""
    return data + bytes(-len(data) % 8)


@dataclass(frozen=True)
class Field:
    """An OXM field: class, number, bytes, and bits where fewer than its bytes have."""

    name: str
    oxm_class: int
    number: int
    size: int
    bits: int
    maskable: bool = False


_BASIC = 0x8000
_NXM_1 = 1

FIELDS = {
    field.name: field
    for field in (
        Field("in_port", _BASIC, 0, 4, 32),
        Field("metadata", _BASIC, 2, 8, 64, maskable=True),
        Field("eth_dst", _BASIC, 3, 6, 48, maskable=True),
        Field("eth_src", _BASIC, 4, 6, 48, maskable=True),
        Field("eth_type", _BASIC, 5, 2, 16),
        Field("vlan_vid", _BASIC, 6, 2, 13, maskable=True),
        Field("vlan_pcp", _BASIC, 7, 1, 3),
        Field("ip_dscp", _BASIC, 8, 1, 6),
        Field("ip_ecn", _BASIC, 9, 1, 2),
        Field("ip_proto", _BASIC, 10, 1, 8),
        Field("ipv4_src", _BASIC, 11, 4, 32, maskable=True),
        Field("ipv4_dst", _BASIC, 12, 4, 32, maskable=True),
        Field("tcp_src", _BASIC, 13, 2, 16, maskable=True),
        Field("tcp_dst", _BASIC, 14, 2, 16, maskable=True),
        Field("udp_src", _BASIC, 15, 2, 16, maskable=True),
        Field("udp_dst", _BASIC, 16, 2, 16, maskable=True),
        Field("icmp_type", _BASIC, 19, 1, 8),
        Field("icmp_code", _BASIC, 20, 1, 8),
        Field("arp_op", _BASIC, 21, 2, 16),
        Field("arp_spa", _BASIC, 22, 4, 32, maskable=True),
        Field("arp_tpa", _BASIC, 23, 4, 32, maskable=True),
        Field("ipv6_src", _BASIC, 26, 16, 128, maskable=True),
        Field("ipv6_dst", _BASIC, 27, 16, 128, maskable=True),
        Field("ipv6_flabel", _BASIC, 28, 4, 20, maskable=True),
        Field("icmpv6_type", _BASIC, 29, 1, 8),
        Field("mpls_label", _BASIC, 34, 4, 20),
        Field("mpls_tc", _BASIC, 35, 1, 3),
        Field("mpls_bos", _BASIC, 36, 1, 1),
        Field("tunnel_id", _BASIC, 38, 8, 64, maskable=True),
        Field("reg0", _NXM_1, 0, 4, 32, maskable=True),
        Field("ip_frag", _NXM_1, 26, 1, 8, maskable=True),
        Field("nw_ttl", _NXM_1, 29, 1, 8),
        Field("ct_state", _NXM_1, 105, 4, 32, maskable=True),
        *(Field(f"tun_metadata{index}", _NXM_1, 40 + index, size, 8 * size) for index, size in enumerate((4, 8, 4))),
    )
}

Oxm = tuple[str, int, int | None]
"""Field name, value, mask (None: exact)."""


def oxm(item: Oxm) -> bytes:
    """Return a match field."""
    name, value, mask = item
    field = FIELDS[name]
    payload = value.to_bytes(field.size, "big")
    if mask is not None:
        payload += mask.to_bytes(field.size, "big")
    return struct.pack("!HBB", field.oxm_class, field.number << 1 | (mask is not None), len(payload)) + payload


def match(items: Iterable[Oxm]) -> bytes:
    """Return an ``ofp_match`` with its padding."""
    fields = b"".join(oxm(item) for item in items)
    return padded(struct.pack("!HH", 1, 4 + len(fields)) + fields)


# ---- actions


def output(port: int, max_len: int = 0) -> bytes:
    return struct.pack("!HHIH6x", 0, 16, port, max_len)


def group_action(group: int) -> bytes:
    return struct.pack("!HHI", 22, 8, group)


def plain_action(kind: int) -> bytes:
    """POP_VLAN (18), DEC_NW_TTL (24), DEC_MPLS_TTL (16), COPY_TTL_OUT (11), COPY_TTL_IN (12), POP_PBB (27)."""
    return struct.pack("!HH4x", kind, 8)


def ethertype_action(kind: int, ethertype: int) -> bytes:
    """PUSH_VLAN (17), PUSH_MPLS (19), POP_MPLS (20), PUSH_PBB (26)."""
    return struct.pack("!HHH2x", kind, 8, ethertype)


def ttl_action(kind: int, ttl: int) -> bytes:
    """SET_MPLS_TTL (15), SET_NW_TTL (23)."""
    return struct.pack("!HHB3x", kind, 8, ttl)


def ct(commit: bool, zone: int, table: int | None) -> bytes:
    """Return Nicira's ct action; the tracked packet continues in ``table``."""
    body = struct.pack("!HIHB3xH", commit, 0, zone, 0xFF if table is None else table, 0)
    return struct.pack("!HHIH", 0xFFFF, 24, 0x2320, CT) + body


@dataclass(frozen=True)
class Learn:
    """Nicira's learn action, or with a limit or a result, the second one."""

    specs: tuple[bytes, ...] = ()
    table: int = 1
    priority: int = 100
    cookie: int = 0
    idle: int = 0
    hard: int = 0
    flags: int = 0
    fin_idle: int = 0
    fin_hard: int = 0
    limit: int | None = None
    result: str = ""

    def encode(self) -> bytes:
        """Return the action."""
        subtype = LEARN_ACTIONS[self.limit is not None]
        flags = self.flags | LEARN_RESULT * bool(self.result)
        body = struct.pack(
            "!HHHHQHBxHH",
            *(subtype, self.idle, self.hard, self.priority, self.cookie, flags, self.table),
            *(self.fin_idle, self.fin_hard),
        )
        if self.limit is not None:
            body += struct.pack("!IHH", self.limit, 0, 0)
            body += _nxm(self.result) if self.result else b""
        body += b"".join(self.specs)
        body += bytes(-len(body) % 8)
        return struct.pack("!HHI", 0xFFFF, 8 + len(body), 0x2320) + body


_LEARN_IMMEDIATE, _LEARN_LOAD, _LEARN_OUTPUT = 1 << 13, 1 << 11, 2 << 11


_NXM = {"eth_dst": 1, "eth_src": 2, "eth_type": 3}
"""Fields with another name in NXM, as which Open vSwitch forwards them (known difference)."""


def _nxm(name: str) -> bytes:
    field = FIELDS[name]
    if name in _NXM:
        return struct.pack("!HBB", 0, _NXM[name] << 1, field.size)
    return struct.pack("!HBB", field.oxm_class, field.number << 1, field.size)


def learn_match(target: str, source: str | int) -> bytes:
    """Return what a learned rule matches on: a field, with the value of a field of the packet or a number."""
    field = FIELDS[target]
    return _learned(0, field, source) + _nxm(target) + bytes(2)


def learn_load(target: str, source: str | int) -> bytes:
    """Return what a learned rule sets a field to."""
    return _learned(_LEARN_LOAD, FIELDS[target], source) + _nxm(target) + bytes(2)


def learn_output(source: str) -> bytes:
    """Return where a learned rule outputs to."""
    return _learned(_LEARN_OUTPUT, FIELDS[source], source)


def _learned(kind: int, field: Field, source: str | int) -> bytes:
    if isinstance(source, str):
        return struct.pack("!H", kind | field.bits) + _nxm(source) + bytes(2)
    size = (field.bits + 15) // 16 * 2
    return struct.pack("!H", kind | _LEARN_IMMEDIATE | field.bits) + source.to_bytes(size, "big")


def fin_timeout(idle: int, hard: int) -> bytes:
    """Return Nicira's action that shortens the timeouts of its rule after a FIN."""
    return struct.pack("!HHIHHH2x", 0xFFFF, 16, 0x2320, 19, idle, hard)


def set_queue(queue: int) -> bytes:
    return struct.pack("!HHI", 21, 8, queue)


def set_field(item: Oxm) -> bytes:
    inner = oxm(item)
    length = 4 + len(inner) + -(4 + len(inner)) % 8
    return struct.pack("!HH", 25, length) + padded(b"\0\0\0\0" + inner)[4:]


# ---- instructions


def goto(table: int) -> bytes:
    return struct.pack("!HHB3x", 1, 8, table)


def write_metadata(value: int, mask: int) -> bytes:
    return struct.pack("!HH4xQQ", 2, 24, value, mask)


def write_actions(actions: bytes) -> bytes:
    return struct.pack("!HH4x", 3, 8 + len(actions)) + actions


def apply_actions(actions: bytes) -> bytes:
    return struct.pack("!HH4x", 4, 8 + len(actions)) + actions


def clear_actions() -> bytes:
    return struct.pack("!HH4x", 5, 8)


def meter(meter_id: int) -> bytes:
    return struct.pack("!HHI", 6, 8, meter_id)


# ---- messages


@dataclass(frozen=True)
class FlowMod:
    """OFPT_FLOW_MOD; the match as fields or, malformed, as bytes."""

    command: int = ADD
    table: int = 0
    priority: int = 0
    fields: tuple[Oxm, ...] = ()
    instructions: bytes = b""
    cookie: int = 0
    cookie_mask: int = 0
    idle: int = 0
    hard: int = 0
    flags: int = 0
    out_port: int = ANY
    out_group: int = ANY
    buffer: int = NO_BUFFER

    def encode(self, xid: int) -> bytes:
        head = struct.pack(
            "!QQBBHHHIIIHxx",
            *(self.cookie, self.cookie_mask, self.table, self.command, self.idle, self.hard, self.priority),
            *(self.buffer, self.out_port, self.out_group, self.flags),
        )
        return message(FLOW_MOD, xid, head + match(self.fields) + self.instructions)


def bucket(actions: bytes, weight: int = 0, watch_port: int = ANY, watch_group: int = ANY) -> bytes:
    return struct.pack("!HHII4x", 16 + len(actions), weight, watch_port, watch_group) + actions


def group_mod(xid: int, command: int, kind: int, group: int, buckets: bytes = b"") -> bytes:
    return message(GROUP_MOD, xid, struct.pack("!HBxI", command, kind, group) + buckets)


def meter_mod(xid: int, command: int, flags: int, meter_id: int, bands: bytes = b"") -> bytes:
    return message(METER_MOD, xid, struct.pack("!HHI", command, flags, meter_id) + bands)


def band(kind: int, rate: int, burst: int = 0) -> bytes:
    return struct.pack("!HHII4x", kind, 16, rate, burst)


def packet_out(xid: int, in_port: int, actions: bytes, data: bytes, buffer: int = NO_BUFFER) -> bytes:
    return message(PACKET_OUT, xid, struct.pack("!IIH6x", buffer, in_port, len(actions)) + actions + data)


def bundle_control(xid: int, bundle: int, what: int, flags: int, rest: bytes = b"") -> bytes:
    """Return ONF's message that opens, closes, commits or discards a bundle."""
    return message(EXPERIMENTER, xid, struct.pack("!IIIHH", ONF, BUNDLE_CONTROL, bundle, what, flags) + rest)


def bundle_add(part: bytes, bundle: int, flags: int) -> bytes:
    """Return ONF's message that adds another one, whose xid it takes, to a bundle."""
    head = struct.pack("!IIIHH", ONF, BUNDLE_ADD, bundle, 0, flags)
    return message(EXPERIMENTER, int.from_bytes(part[4:8]), head + part)


def port_mod(xid: int, port: int, hw_addr: bytes, config: int, mask: int) -> bytes:
    return message(PORT_MOD, xid, struct.pack("!I4x6s2xIII4x", port, hw_addr, config, mask, 0))


def table_mod(xid: int, table: int, config: int) -> bytes:
    return message(TABLE_MOD, xid, struct.pack("!B3xI", table, config))


def role_request(xid: int, role: int, generation: int) -> bytes:
    return message(ROLE_REQUEST, xid, struct.pack("!I4xQ", role, generation))


def set_async(xid: int, masks: Iterable[int]) -> bytes:
    """Return SET_ASYNC with masks for three kinds of messages, each for master or equal and for slave."""
    return message(SET_ASYNC, xid, struct.pack("!6I", *masks))


def set_config(xid: int, flags: int, miss_send_len: int) -> bytes:
    return message(SET_CONFIG, xid, struct.pack("!HH", flags, miss_send_len))


def multipart(xid: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return message(MULTIPART_REQUEST, xid, struct.pack("!HH4x", kind, flags) + body)


def flow_request(
    xid: int,
    kind: int,
    *,
    table: int = ALL_TABLES,
    fields: Iterable[Oxm] = (),
    out_port: int = ANY,
    out_group: int = ANY,
    cookie: int = 0,
    cookie_mask: int = 0,
) -> bytes:
    """Return a request for FLOW or AGGREGATE statistics."""
    head = struct.pack("!B3xII4xQQ", table, out_port, out_group, cookie, cookie_mask)
    return multipart(xid, kind, head + match(fields))
