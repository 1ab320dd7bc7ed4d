"""Actions, instructions, groups and meters, drawn from the pools."""

from hypothesis import strategies as st

from tests.oracle import frames, pools
from tests.oracle import openflow as of
from tests.oracle.draws import nicira
from tests.oracle.draws.learning import learn_action

_MAX_LENGTHS = (0, 64, 0xFFE5, 0xFFFF)
_SETTABLE = (
    *("eth_dst", "eth_src", "vlan_vid", "vlan_pcp", "ip_dscp", "ip_ecn", "ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst"),
    *("udp_dst", "icmp_type", "arp_op", "arp_spa", "ipv6_src", "ipv6_dst", "mpls_label", "mpls_tc", "metadata", "reg0"),
    "tunnel_id",
)
POP_VLAN, DEC_NW_TTL, DEC_MPLS_TTL, COPY_TTL_OUT, COPY_TTL_IN, POP_PBB = 18, 24, 16, 11, 12, 27
PUSH_VLAN, PUSH_MPLS, POP_MPLS, PUSH_PBB = 17, 19, 20, 26
SET_MPLS_TTL, SET_NW_TTL = 15, 23

_USUAL_PORTS = (*pools.PORTS, of.IN_PORT, of.CONTROLLER, of.FLOOD, of.ALL)
ODD_PORTS = (*pools.UNKNOWN_PORTS, of.ANY, 0, 0xFFFFFF00, 65024, 65280)


@st.composite
def port(draw: st.DrawFn) -> int:
    """Draw an output port, mostly an existing one."""
    return draw(st.sampled_from(ODD_PORTS if draw(st.integers(0, 19)) == 0 else _USUAL_PORTS))


@st.composite
def output(draw: st.DrawFn) -> bytes:
    number = draw(port())
    return of.output(number, draw(st.sampled_from(_MAX_LENGTHS)) if number == of.CONTROLLER else 0)


@st.composite
def set_field(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from(_SETTABLE))
    item = draw(pools.oxm(name))
    if draw(st.integers(0, 9)):
        item = item[0], item[1], None
    return of.set_field(item)


def _fitting_fields(ethertype: int | None, protocol: int | None) -> tuple[str, ...]:
    names = ("eth_dst", "eth_src", "metadata", "reg0", "tunnel_id")
    if ethertype in (frames.IPV4, frames.IPV6):
        names += ("ip_dscp", "ip_ecn")
        names += ("ipv4_src", "ipv4_dst") if ethertype == frames.IPV4 else ("ipv6_src", "ipv6_dst")
        names += {frames.TCP: ("tcp_src", "tcp_dst"), frames.UDP: ("udp_dst",)}.get(protocol or 0, ())
    if ethertype == frames.ARP:
        names += ("arp_op", "arp_spa", "arp_tpa")
    if ethertype == frames.MPLS:
        names += ("mpls_label", "mpls_tc")
    return names


@st.composite
def fitting_action(draw: st.DrawFn, ethertype: int | None, protocol: int | None, vlan: int | None) -> bytes:
    """Draw a rewrite that the match allows."""
    kinds = ["set", "set", "push_vlan", "push_mpls"]
    if ethertype in (frames.IPV4, frames.IPV6):
        kinds += ["dec_ttl", "set_ttl"]
    if ethertype == frames.MPLS:
        kinds += ["pop_mpls", "dec_mpls", "set_mpls"]
    if vlan:
        kinds += ["pop_vlan", "vlan_vid", "vlan_pcp"]
    match draw(st.sampled_from(kinds)):
        case "set":
            name = draw(st.sampled_from(_fitting_fields(ethertype, protocol)))
            item = draw(pools.oxm(name))
            return of.set_field(item)
        case "push_vlan":
            tag = of.ethertype_action(PUSH_VLAN, draw(st.sampled_from((frames.VLAN, frames.QINQ))))
            return tag + draw(st.sampled_from((b"", of.set_field(("vlan_vid", 0x1000 | 10, None)))))
        case "push_mpls":
            return of.ethertype_action(PUSH_MPLS, frames.MPLS) + of.set_field(("mpls_label", 17, None))
        case "pop_mpls":
            return of.ethertype_action(POP_MPLS, draw(st.sampled_from((frames.IPV4, frames.MPLS, frames.IPV6))))
        case "dec_mpls":
            return of.plain_action(DEC_MPLS_TTL)
        case "set_mpls":
            return of.ttl_action(SET_MPLS_TTL, draw(st.sampled_from((0, 1, 64))))
        case "dec_ttl":
            return of.plain_action(DEC_NW_TTL)
        case "set_ttl":
            return of.ttl_action(SET_NW_TTL, draw(st.sampled_from((1, 2, 64))))
        case "pop_vlan":
            return of.plain_action(POP_VLAN)
        case "vlan_vid":
            return of.set_field(("vlan_vid", draw(st.sampled_from((0x1000 | 10, 0x1000 | 20))), None))
        case _:
            return of.set_field(("vlan_pcp", draw(st.sampled_from((0, 3))), None))


@st.composite
def odd_action(draw: st.DrawFn) -> bytes:
    """Draw an action that may not fit, may be unsupported, or malformed."""
    kind = draw(st.integers(0, 7))
    if kind <= 2:
        return draw(set_field())
    if kind == 3:
        return of.plain_action(
            draw(st.sampled_from((POP_VLAN, DEC_NW_TTL, DEC_MPLS_TTL, COPY_TTL_OUT, COPY_TTL_IN, POP_PBB)))
        )
    if kind == 4:
        ethertypes = (frames.VLAN, frames.QINQ, frames.MPLS, 0x8848, 0x1234)
        actions = (PUSH_VLAN, PUSH_MPLS, POP_MPLS, PUSH_PBB)
        return of.ethertype_action(draw(st.sampled_from(actions)), draw(st.sampled_from(ethertypes)))
    if kind == 5:
        return of.set_queue(draw(st.sampled_from((0, 1))))
    if kind == 6:
        return of.group_action(draw(st.sampled_from((9, of.GROUP_ALL, of.ANY, 0xFFFFFD00))))
    return draw(
        st.sampled_from((b"\x00\x63\x00\x08\0\0\0\0", b"\0\0\0\x08\0\0\0\1", b"\xff\xff\0\x10\0\0\0\x63" + bytes(8)))
    )


@st.composite
def stateful_action(draw: st.DrawFn, table: int) -> bytes:
    """Draw an action with state shared by all ports; it never returns to a table, which could loop."""
    kind = draw(st.integers(0, 4))
    if kind <= 1:
        return of.output(of.NORMAL)
    if kind == 2:
        return draw(learn_action())
    later = [each for each in pools.TABLES if each > table]
    return of.ct(draw(st.booleans()), draw(st.sampled_from((0, 0, 1))), draw(st.sampled_from((None, *later))))


@st.composite
def actions(
    draw: st.DrawFn,
    fields: tuple[of.Oxm, ...] = (),
    *,
    most: int = 4,
    groups: tuple[int, ...] = pools.GROUPS,
    table: int = 0,
    stateful: bool = False,
    odd: bool = True,
) -> bytes:
    """A list of actions for packets that match ``fields``, in ``table`` at the latest; mostly valid, or not `odd`.

    Each group is named once (known differences, docs/oracle.md).
    """
    exact = {name: value for name, value, mask in fields if mask is None}
    vlan = next((value for name, value, _ in fields if name == "vlan_vid"), None)
    result = b""
    for kind in draw(st.lists(st.integers(0, 23), max_size=most)):
        if stateful and draw(st.integers(0, 4)) == 0:
            result += draw(stateful_action(table))
        elif kind == 0 and odd:
            result += draw(odd_action())
        elif kind == 1:
            result += nicira.action(draw, nicira.later_tables(table))
        elif kind <= 10:
            result += draw(fitting_action(exact.get("eth_type"), exact.get("ip_proto"), vlan))
        elif kind <= 13 and groups:
            group = draw(st.sampled_from(groups))
            groups = tuple(each for each in groups if each != group)
            result += of.group_action(group)
        else:
            result += draw(output())
    return result


@st.composite
def instructions(
    draw: st.DrawFn,
    table: int,
    fields: tuple[of.Oxm, ...],
    groups: tuple[int, ...],
    meters: tuple[int, ...],
    stateful: bool = False,
) -> bytes:
    """Draw a rule's instructions in the standard's order or, rarely, another."""
    parts = []
    applied, written = (groups, ()) if draw(st.booleans()) else ((), groups)
    if meters and draw(st.integers(0, 4)) == 0:
        parts.append(of.meter(draw(st.sampled_from(meters))))
    if draw(st.integers(0, 9)) < 8:
        parts.append(of.apply_actions(draw(actions(fields, groups=applied, table=table, stateful=stateful))))
    if draw(st.integers(0, 5)) == 0:
        parts.append(of.clear_actions())
    if draw(st.integers(0, 3)) == 0:
        parts.append(of.write_actions(draw(actions(fields, groups=written, table=table, stateful=stateful))))
    if draw(st.integers(0, 3)) == 0:
        mask = draw(st.sampled_from((1, 3, of.MASK64)))
        parts.append(of.write_metadata(draw(st.sampled_from((0, 1, 2, 3))), mask))
    if draw(st.integers(0, 1)) == 0:
        parts.append(of.goto(draw(st.sampled_from([each for each in (1, 2, 3) if each > table] or [3]))))
    if draw(st.integers(0, 19)) == 0:
        # Not table 254, where packets from other switches meet other rules: docs/oracle.md.
        odd = (of.goto(table), of.goto(255), of.meter(9), of.meter(0), b"\0\x63\0\x08\0\0\0\0")
        parts.append(draw(st.sampled_from(odd)))
        parts = draw(st.permutations(parts))
    return b"".join(parts)


@st.composite
def buckets(
    draw: st.DrawFn,
    kind: int,
    chain: tuple[int, ...],
    stateful: bool = False,
    done: st.SearchStrategy[bytes] | None = None,
) -> bytes:
    """Draw buckets of a group of ``kind``; ``chain``: groups that they may name; ``done``: other actions."""
    most = 1 if kind == 2 and draw(st.integers(0, 9)) else 3
    result = b""
    for _ in range(draw(st.integers(1 if kind == 2 else 0, most))):
        weight = draw(st.sampled_from((0, 1, 1, 2))) if kind == of.SELECT_GROUP else 0
        watch_port = watch_group = of.ANY
        if kind == of.FAST_FAILOVER:
            watch_port = draw(st.sampled_from((*pools.PORTS, of.ANY, *pools.UNKNOWN_PORTS)))
            if chain and draw(st.integers(0, 3)) == 0:
                watch_port, watch_group = of.ANY, draw(st.sampled_from(chain))
        last = max(pools.TABLES)  # rules of any table may use the group
        usual = actions((), most=2, groups=chain, table=last, stateful=stateful)
        result += of.bucket(draw(usual if done is None else done), weight, watch_port, watch_group)
    return result


@st.composite
def bands(draw: st.DrawFn) -> bytes:
    """Draw meter bands that pass nothing or everything, as a meter counts per switch."""
    result = b""
    for _ in range(draw(st.integers(0, 2))):
        result += of.band(
            draw(st.sampled_from((1, 1, 1, 2, 0xFFFF))), draw(st.sampled_from((0, 0, 0xFFFFFFFF, 1000000))), 0
        )
    return result
