"""Messages of OpenFlow 1.0, and Nicira's for it."""

import struct

from hypothesis import strategies as st

from tests.oracle import frames, pools, rules
from tests.oracle import openflow as of
from tests.oracle.dialects import messages10 as m
from tests.oracle.dialects import nicira as nx
from tests.oracle.draws import freezing, nicira
from tests.oracle.draws.model import Draw, Model
from tests.oracle.draws.packets import PACKET_OUT_PORTS, packet
from tests.oracle.openflow import FlowMod, Oxm

_SHAPES: tuple[tuple[tuple[tuple[str, int], ...], tuple[str, ...]], ...] = (
    ((), ()),
    ((("eth_type", frames.IPV4),), ("ip_dscp", "ipv4_src", "ipv4_dst", "ip_proto")),
    ((("eth_type", frames.IPV4), ("ip_proto", frames.TCP)), ("tcp_src", "tcp_dst", "ipv4_src", "ipv4_dst")),
    ((("eth_type", frames.IPV4), ("ip_proto", frames.UDP)), ("udp_src", "udp_dst", "ipv4_dst", "ip_dscp")),
    ((("eth_type", frames.IPV4), ("ip_proto", frames.ICMP)), ("icmp_type", "icmp_code")),
    ((("eth_type", frames.ARP),), ("arp_op", "arp_spa", "arp_tpa")),
    ((("eth_type", frames.IPV6),), ("ip_dscp", "ip_proto")),
    ((("eth_type", frames.IPV6), ("ip_proto", frames.TCP)), ("tcp_src", "tcp_dst", "ip_dscp")),
    ((("eth_type", frames.LLDP),), ()),
)
_ANYWHERE = ("in_port", "in_port", "eth_src", "eth_dst", "vlan_vid")
_PREFIXES = (0xFFFFFF00, 0xFF000000, 0xF0000000)
_OF_PROTOCOLS = ["nw_src", "nw_dst", "nw_tos", "dec_ttl", "tp_src", "tp_dst"]
_VENDOR_ACTION = 0xFFFF
_TRANSPORT = {frames.TCP: ("tcp_src", "tcp_dst"), frames.UDP: ("udp_src", "udp_dst")}


def match(draw: Draw, model: Model) -> tuple[Oxm, ...]:
    """Draw a match that OpenFlow 1.0 can say.

    Known difference: no tag is a rule of its own there, so others' matches on it are not drawn with it.
    """
    fixed, optional = draw(st.sampled_from(_SHAPES))
    taken = {name for name, _ in fixed}
    items: list[Oxm] = []
    for name in draw(st.lists(st.sampled_from(_ANYWHERE), max_size=2, unique=True)):
        tags = (0, 0x1000 | 10, 0x1000 | 20) if model.is_old else (0x1000 | 10, 0x1000 | 20)
        items.append((name, draw(st.sampled_from(tags if name == "vlan_vid" else pools.VALUES[name])), None))
        if name == "vlan_vid" and items[-1][1] and draw(st.booleans()):
            items.append(("vlan_pcp", draw(st.sampled_from(pools.VALUES["vlan_pcp"])), None))
    items += [(name, value, None) for name, value in fixed]
    for name in draw(st.lists(st.sampled_from(optional), max_size=2, unique=True)) if optional else []:
        if name in taken:
            continue
        value, mask = draw(st.sampled_from(pools.VALUES[name])), None
        if name in ("ipv4_src", "ipv4_dst", "arp_spa", "arp_tpa") and draw(st.integers(0, 2)) == 0:
            mask = draw(st.sampled_from(_PREFIXES))
        items.append((name, value if mask is None else value & mask, mask))
    return tuple(items)


def _is_sayable(fields: tuple[Oxm, ...], model: Model) -> bool:
    names = {name for name, _, _ in fields}
    known = {name for fixed, optional in _SHAPES for name in (*(each for each, _ in fixed), *optional)}
    has_masks = any(
        mask is not None and (name not in ("ipv4_src", "ipv4_dst", "arp_spa", "arp_tpa") or mask not in _PREFIXES)
        for name, _, mask in fields
    )
    lacks_tag = "vlan_pcp" in names and not any(name == "vlan_vid" and value & 0x1000 for name, value, _ in fields[:-1])
    is_known = names <= {*known, *_ANYWHERE, "vlan_pcp"} and len(names) == len(fields)
    return is_known and not has_masks and not lacks_tag and (model.is_old or not _is_untagged(fields))


def _is_untagged(fields: tuple[Oxm, ...]) -> bool:
    return any(name == "vlan_vid" and value == 0 for name, value, _ in fields)


# ---- actions


def actions(
    draw: Draw,
    model: Model,
    fields: tuple[Oxm, ...] | None = None,
    table: int = 0,
    *,
    sets_ports: bool = True,
    odd: bool = True,
) -> bytes:
    """Draw actions for packets that match ``fields``, or of a packet-out.

    Of two errors, which one is told is not compared; without ``odd``, there is none.
    Known difference: set_tp_* is refused in a packet-out of a packet of IP with another protocol.
    """
    kinds = _OF_PROTOCOLS if fields is not None and sets_ports else _OF_PROTOCOLS[:4]
    fields = fields or ()
    exact = {name: value for name, value, mask in fields if mask is None}
    is_tagged = any(name == "vlan_vid" and value for name, value, _ in fields)
    result, has_error = b"", not odd
    for kind in draw(st.lists(st.integers(0 if odd else 1, 23), max_size=4)):
        may_fail = False
        if model.stateful and draw(st.integers(0, 4)) == 0:
            made = _stateful(draw, table)
            may_fail = exact.get("eth_type") not in (frames.IPV4, frames.IPV6)
        elif kind == 0:
            return _odd(draw)
        elif kind <= 3:
            made = nicira.action(draw, nicira.later_tables(table))
        elif kind <= 10:
            made = _rewrite(draw, exact, is_tagged, model, kinds)
        elif kind == 11:
            number = draw(st.sampled_from((*pools.PORTS, of.IN_PORT, 7)))
            made, may_fail = m.enqueue(number, draw(st.sampled_from((0, 1)))), number not in pools.PORTS
        else:
            number = draw(rules.port())
            max_len = draw(st.sampled_from((0, 64, 0xFFFF))) if number == of.CONTROLLER else 0
            made, may_fail = m.output(number, max_len), number in rules.ODD_PORTS
        if not (may_fail and has_error):
            result += made
        has_error |= may_fail
    return model.note(result)


def _of_rule(draw: Draw, model: Model, fields: tuple[Oxm, ...], table: int, *, sets_ports: bool = True) -> bytes:
    """Draw the actions of a rule, which may send to a group that does not exist, as their only error."""
    if not model.groups or draw(st.integers(0, 5)):
        return actions(draw, model, fields, table, sets_ports=sets_ports)
    group = m.group(draw(st.sampled_from((*model.groups, *model.groups, 9))))
    return group + actions(draw, model, fields, table, sets_ports=sets_ports, odd=False)


def _stateful(draw: Draw, table: int) -> bytes:
    if draw(st.booleans()):
        return m.output(of.NORMAL)
    later = nicira.later_tables(table)
    return of.ct(draw(st.booleans()), draw(st.sampled_from((0, 0, 1))), draw(st.sampled_from((None, *later))))


def _rewrite(draw: Draw, exact: dict[str, int], is_tagged: bool, model: Model, kinds: list[str]) -> bytes:
    kinds = ["dl_src", "dl_dst", *kinds]
    if exact.get("eth_type") == frames.IPV4:
        kinds += _OF_PROTOCOLS[:4] * 2
        kinds += _OF_PROTOCOLS[4:] * 2 * (exact.get("ip_proto") in _TRANSPORT)
    if model.is_old:  # known difference: they read otherwise over later versions
        kinds += ["vlan_vid", "vlan_pcp", *["strip"] * (1 + is_tagged)]
    match draw(st.sampled_from(kinds)):
        case "dl_src" | "dl_dst" as kind:
            return m.set_address(4 if kind == "dl_src" else 5, draw(st.sampled_from(pools.VALUES["eth_dst"])))
        case "nw_src" | "nw_dst" as kind:
            return m.set_nw(6 if kind == "nw_src" else 7, draw(st.sampled_from(pools.VALUES["ipv4_dst"])))
        case "nw_tos":
            return m.set_byte(8, draw(st.sampled_from((0, 40))))
        case "dec_ttl":
            return nx.action(18, bytes(6))
        case "tp_src" | "tp_dst" as kind:
            return m.set_number(9 if kind == "tp_src" else 10, draw(st.sampled_from((53, 80, 1000))))
        case "vlan_vid":
            return m.set_number(1, draw(st.sampled_from((10, 20))))
        case "vlan_pcp":
            return m.set_byte(2, draw(st.sampled_from((0, 3))))
        case _:
            return m.strip_vlan()


def _odd(draw: Draw) -> bytes:
    """Draw an action that is malformed, or unknown."""
    unknown = b"\x00\x63\x00\x08\0\0\0\0", b"\0\0\0\x10\0\0\0\1", b"\xff\xff\0\x10\0\0\0\x63" + bytes(8)
    numbers = (31 << 6 | 1, 0x00010004, 1), (7, 0x00010004, 256), (7, 0x00070604, 1), (15, 0x00000602, 1)
    loads = (nx.action(nx.REG_LOAD, struct.pack("!HIQ", *each)) for each in numbers)
    return draw(st.sampled_from((*unknown, *loads, m.set_number(1, 0x1FFF), m.set_byte(2, 9), m.set_byte(8, 1))))


# ---- messages


def add_flow(draw: Draw, model: Model) -> bytes:
    """Draw an ADD of a rule, mostly a valid one."""
    known = [rule for rule in model.rules if _is_sayable(rule.fields, model)]
    like = draw(st.sampled_from(known)) if known and draw(st.integers(0, 5)) == 0 else None
    in_nxm = draw(st.integers(0, 2)) == 0
    fields = like.fields if like else draw(pools.match()) if in_nxm else match(draw, model)
    in_nxm = in_nxm and not (model.is_old and _is_untagged(fields))  # two ways to say it
    if not in_nxm and not _is_sayable(fields, model):
        fields = match(draw, model)
    table = draw(st.sampled_from((0, 0, *pools.TABLES))) if model.sender.names_tables else 0
    priority = like.priority if like else draw(st.sampled_from(pools.PRIORITIES))
    flags = draw(st.sampled_from((0, 0, m.SEND_FLOW_REM, m.SEND_FLOW_REM, m.CHECK_OVERLAP)))
    done = freezing.actions(model, table, _of_rule(draw, model, fields, table))
    if not in_nxm and draw(st.integers(0, 19)) == 0:
        # Of two errors in a message, which one is told is not compared.
        flags, done = flags | draw(st.sampled_from((m.EMERGENCY, 8))), m.output(1)
    if not flags & m.CHECK_OVERLAP:
        priority = model.without_overlap(table, priority, fields)
    rule = m.FlowMod10(
        *(of.ADD, priority, fields, done, draw(st.sampled_from(pools.COOKIES))),
        flags=flags,
        table=table,
        nicira=in_nxm,
    )
    model.rules.append(FlowMod(of.ADD, table, priority, fields))
    return rule.encode(model.next_xid())


def change_flows(draw: Draw, model: Model) -> bytes:
    """Draw a MODIFY, which adds a rule if there is none, or DELETE, strict or not."""
    command = draw(st.sampled_from((of.MODIFY, of.MODIFY_STRICT, of.DELETE, of.DELETE_STRICT)))
    modifies = command in (of.MODIFY, of.MODIFY_STRICT)
    known = [rule for rule in model.rules if _is_sayable(rule.fields, model)]
    like = draw(st.sampled_from(known)) if known and draw(st.integers(0, 3)) else None
    fields = like.fields if like else match(draw, model)
    if command == of.DELETE and fields and draw(st.booleans()):
        fields = fields[: draw(st.integers(0, len(fields) - 1))]
    table = (like.table if like else draw(st.sampled_from(pools.TABLES))) if model.sender.names_tables else 0
    priority = like.priority if like else draw(st.sampled_from(pools.PRIORITIES))
    in_nxm = draw(st.integers(0, 2)) == 0 and not (model.is_old and _is_untagged(fields))
    if modifies:
        priority = model.without_overlap(table, priority, fields)
        model.rules.append(FlowMod(of.ADD, table, priority, fields))
    elif in_nxm and draw(st.integers(0, 2)) == 0:
        fields = (*fields, ("cookie", draw(st.sampled_from((1, 2))), draw(st.sampled_from((None, 1, 3)))))
    out_port = draw(st.sampled_from((m.NONE, m.NONE, m.NONE, *pools.PORTS, of.CONTROLLER, of.FLOOD)))
    # Known difference: such ports of rules with a protocol are spelled otherwise over later versions.
    sets_ports = command != of.MODIFY or "ip_proto" in [name for name, _, _ in fields]
    done = _of_rule(draw, model, fields, table, sets_ports=sets_ports) if modifies else b""
    in_table = table if model.sender.names_tables else of.ALL_TABLES
    return m.FlowMod10(
        *(command, priority, fields),
        freezing.actions(model, in_table, done),
        cookie=draw(st.sampled_from((*pools.COOKIES, of.MASK64))),
        flags=draw(st.sampled_from((0, 0, m.SEND_FLOW_REM, m.CHECK_OVERLAP))),
        out_port=out_port,
        table=table if model.sender.names_tables else None,
        nicira=in_nxm,
    ).encode(model.next_xid())


def packet_out(draw: Draw, model: Model) -> bytes:
    """Draw a packet-out."""
    done = _up_to_resubmit(actions(draw, model))
    in_port = draw(st.sampled_from(PACKET_OUT_PORTS))
    is_usual = in_port in (*pools.PORTS, of.CONTROLLER)
    buffer = draw(st.sampled_from((of.NO_BUFFER,) * 19 + (5,))) if is_usual else of.NO_BUFFER
    if not is_usual or buffer != of.NO_BUFFER:
        done = m.output(1)  # of two errors, which one is told is not compared
    if draw(st.integers(0, 2)) == 0:
        done += m.output(of.TABLE)
    data, _ = draw(packet(model))
    if _hides_protocol(data):
        done = m.output(1)
    return m.packet_out(model.next_xid(), in_port, done, data, buffer)


def _up_to_resubmit(actions: bytes) -> bytes:
    """Omit what follows a resubmit. Known difference: actions on protocols that the packet lacks are refused there."""
    at = 0
    while at < len(actions):
        kind, length = struct.unpack_from("!HH", actions, at)
        at += length
        if kind == _VENDOR_ACTION and int.from_bytes(actions[at - length + 8 :][:2]) == nicira.RESUBMIT_TABLE:
            break
    return actions[:at]


def _hides_protocol(data: bytes) -> bool:
    """Tell of a known difference: actions on IP in a packet-out of a packet that has it behind two tags are refused."""
    types = [int.from_bytes(data[at : at + 2]) for at in (12, 16, 20)]
    return set(types[:2]) <= {0x8100, 0x88A8} and types[2] in (frames.IPV4, frames.IPV6, frames.MPLS)


def change_switch(draw: Draw, model: Model) -> bytes:
    """Draw a SET_CONFIG."""
    flags, length = draw(st.sampled_from((0, 0, 1, 2, 3, 4))), draw(st.sampled_from((0xFFFF, 128)))
    return m.message(of.SET_CONFIG, model.next_xid(), struct.pack("!HH", flags, length))


def request(draw: Draw, model: Model) -> bytes:
    """Draw a request for statistics or configuration."""
    xid, kind = model.next_xid(), draw(st.integers(0, 9))
    if kind <= 3:
        known = [rule for rule in model.rules if _is_sayable(rule.fields, model)]
        like = draw(st.sampled_from(known)) if known and draw(st.booleans()) else None
        fields = like.fields if like else match(draw, model)
        asked = fields if draw(st.booleans()) else (), draw(st.sampled_from((*pools.TABLES, of.ALL_TABLES, 9)))
        out_port = draw(st.sampled_from((m.NONE, m.NONE, *pools.PORTS, of.CONTROLLER, 7)))
        if draw(st.booleans()):
            return m.stats(xid, draw(st.sampled_from((m.FLOW, m.AGGREGATE))), m.flow_request(*asked, out_port))
        subtype = draw(st.sampled_from((m.NXST_FLOW, m.NXST_AGGREGATE)))
        return m.stats(xid, m.STATS_VENDOR, m.nicira_stats(subtype, m.nicira_flow_request(*asked, out_port)))
    if kind == 4:
        port = draw(st.sampled_from((*pools.PORTS, m.NONE, 7, 0, m.port(of.CONTROLLER))))
        return m.stats(xid, m.PORT, struct.pack("!H6x", port))
    if kind == 5:
        port, queue = draw(st.sampled_from((*pools.PORTS, 7))), draw(st.sampled_from((0, of.ANY)))
        return m.stats(xid, m.QUEUE, struct.pack("!H2xI", port, queue))
    if kind == 6:
        return m.stats(xid, draw(st.sampled_from((m.DESC, m.TABLE, m.PORT_DESC, 6, 99))))
    if kind == 8:
        number = draw(st.sampled_from((*pools.GROUPS, of.GROUP_ALL, 9, of.ANY)))
        subtype = draw(st.sampled_from((m.NXST_GROUP, m.NXST_GROUP_DESC)))
        return m.stats(xid, m.STATS_VENDOR, m.nicira_stats(subtype, struct.pack("!I4x", number)))
    if kind == 7:
        return m.message(of.ECHO_REQUEST, xid, draw(st.sampled_from((b"", b"ping"))))
    others = of.FEATURES_REQUEST, of.GET_CONFIG_REQUEST, m.BARRIER_REQUEST, 10, m.BARRIER_REPLY, 22, 99
    return m.message(draw(st.sampled_from(others)), xid, draw(st.sampled_from((b"", b"", b"ping"))))
