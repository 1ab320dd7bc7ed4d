"""The small pools of values for all draws, so that messages and packets interact."""

from hypothesis import strategies as st

from tests.oracle import frames
from tests.oracle import openflow as of
from tests.oracle.openflow import Oxm

PORTS = (1, 2, 3, 4, 5, 6)
UNKNOWN_PORTS = (7, 65023)
TABLES = (0, 1, 2, 3)
PRIORITIES = (0, 1, 100, 32768, 65535)
COOKIES = (0, 1, 2, 0xF0000001, of.MASK64 - 1)
COOKIE_MASKS = (0, 0, 1, 3, of.MASK64)
# The usual numbers of the hidden groups of port 2 and of floods, and that to which one of them steps aside.
HIDDEN_GROUPS = (0xFFFDFFFF, 0xFFFE0002, 0xFFFFFE00)
GROUPS = (1, 2, *HIDDEN_GROUPS)
BUCKETS = (0, 1, 2, 3, 7, 0xFFFFFF00)
METERS = (1, 2, 3)

_MACS = (0x020000000001, 0x020000000002, 0x020000000003, 0xFFFFFFFFFFFF, 0x01005E000001)
_STP = 0x0180C2000000
_IPV4 = (0x0A000001, 0x0A000002, 0x0A000103, 0xE0000001)
_IPV6 = (0xFD000000000000000000000000000001, 0xFD000000000000000000000000000002, 0xFF020000000000000000000000000001)

VALUES: dict[str, tuple[int, ...]] = {
    "in_port": PORTS,
    "metadata": (0, 1, 2, 3),
    "eth_dst": (*_MACS, _STP),
    "eth_src": _MACS[:3],
    "eth_type": (frames.IPV4, frames.ARP, frames.IPV6, frames.MPLS, frames.LLDP),
    "vlan_vid": (0, 0x1000 | 10, 0x1000 | 20, 0x1000),
    "vlan_pcp": (0, 3),
    "ip_dscp": (0, 10),
    "ip_ecn": (0, 1),
    "ip_proto": (frames.ICMP, frames.TCP, frames.UDP, frames.SCTP),
    "ipv4_src": _IPV4[:3],
    "ipv4_dst": _IPV4,
    "tcp_src": (1000, 1001),
    "tcp_dst": (80, 443),
    "udp_src": (1000, 1001),
    "udp_dst": (53, 80),
    "icmp_type": (0, 8),
    "icmp_code": (0, 1),
    "arp_op": (1, 2),
    "arp_spa": _IPV4[:2],
    "arp_tpa": _IPV4[:2],
    "ipv6_src": _IPV6[:2],
    "ipv6_dst": _IPV6,
    "ipv6_flabel": (0, 5),
    "icmpv6_type": (128, 129),
    "mpls_label": (16, 17),
    "mpls_tc": (0, 2),
    "mpls_bos": (0, 1),
    "tunnel_id": (0, 1),
    "reg0": (0, 1, 2),
    "ip_frag": (0, 1, 3),
    "nw_ttl": (0, 1, 2, 64),
    "ct_state": (0, 0x20, 0x21, 0x22, 0x2A, 0x31),
}

MASKS: dict[str, tuple[int, ...]] = {
    "metadata": (1, 3, of.MASK64),
    "eth_dst": (0x010000000000, 0xFFFFFFFFFF00),
    "eth_src": (0xFFFFFFFFFF00,),
    "vlan_vid": (0x1000,),
    "ipv4_src": (0xFFFFFF00, 0xFF000000),
    "ipv4_dst": (0xFFFFFF00, 0xF0000000, 0x00000003),
    "tcp_src": (0xFFFE,),
    "tcp_dst": (0xFF00,),
    "udp_src": (0xFFFE,),
    "udp_dst": (0xFF00,),
    "arp_spa": (0xFFFFFF00,),
    "arp_tpa": (0xFFFFFF00,),
    "ipv6_src": (((1 << 128) - 1) ^ 0xFF,),
    "ipv6_dst": (0xFF << 120,),
    "ipv6_flabel": (0xF,),
    "reg0": (1, 3),
    "ip_frag": (1,),
    "ct_state": (0x20, 0x21, 0x22),
}

_ANYWHERE = ("in_port", "metadata", "eth_dst", "eth_src", "vlan_vid", "vlan_pcp", "reg0", "tunnel_id", "ct_state")
_SHAPES: tuple[tuple[tuple[tuple[str, int], ...], tuple[str, ...]], ...] = (
    ((), ()),
    ((("eth_type", frames.IPV4),), ("ip_dscp", "ip_ecn", "ipv4_src", "ipv4_dst", "ip_frag", "nw_ttl", "ip_proto")),
    ((("eth_type", frames.IPV4), ("ip_proto", frames.TCP)), ("tcp_src", "tcp_dst", "ipv4_src", "ipv4_dst")),
    ((("eth_type", frames.IPV4), ("ip_proto", frames.UDP)), ("udp_src", "udp_dst", "ipv4_src", "ipv4_dst")),
    ((("eth_type", frames.IPV4), ("ip_proto", frames.ICMP)), ("icmp_type", "icmp_code")),
    ((("eth_type", frames.ARP),), ("arp_op", "arp_spa", "arp_tpa")),
    ((("eth_type", frames.IPV6),), ("ipv6_src", "ipv6_dst", "ipv6_flabel", "ip_dscp", "ip_proto", "nw_ttl")),
    ((("eth_type", frames.IPV6), ("ip_proto", frames.ICMPV6)), ("icmpv6_type",)),
    ((("eth_type", frames.MPLS),), ("mpls_label", "mpls_tc", "mpls_bos")),
    ((("eth_type", frames.LLDP),), ()),
)


@st.composite
def oxm(draw: st.DrawFn, name: str) -> Oxm:
    """Draw a field, exact or masked, with value bits under the mask only."""
    value = draw(st.sampled_from(VALUES[name]))
    if name in MASKS and draw(st.integers(0, 2)) == 0:
        mask = draw(st.sampled_from(MASKS[name]))
        return name, value & mask, mask
    return name, value, None


@st.composite
def match(draw: st.DrawFn) -> tuple[Oxm, ...]:
    """Draw a valid match (prerequisites first)."""
    fixed, optional = draw(st.sampled_from(_SHAPES))
    taken = {name for name, _ in fixed}
    loose = draw(st.lists(st.sampled_from(_ANYWHERE), max_size=2, unique=True))
    inner = draw(st.lists(st.sampled_from(optional), max_size=2, unique=True)) if optional else []
    items: list[Oxm] = [draw(oxm(name)) for name in loose]
    if "vlan_pcp" in loose and "vlan_vid" not in loose:
        items.insert(0, ("vlan_vid", 0x1000, 0x1000))
    items += [(name, value, None) for name, value in fixed]
    items += [draw(oxm(name)) for name in inner if name not in taken]
    return tuple(items)


def fulfilled(fields: tuple[Oxm, ...]) -> tuple[Oxm, ...]:
    """Leave out what lacks its prerequisite, which comes first: the priority of a tag that may not be there."""
    is_tagged = [name == "vlan_vid" and bool(value & 0x1000) for name, value, _ in fields]
    return tuple(item for at, item in enumerate(fields) if item[0] != "vlan_pcp" or any(is_tagged[:at]))


@st.composite
def broken_match(draw: st.DrawFn) -> tuple[Oxm, ...]:
    """Draw a match that may lack prerequisites, repeat a field, or have value bits outside the mask."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    items = []
    for name in names:
        value, mask = draw(st.sampled_from(VALUES[name])), None
        if draw(st.integers(0, 3)) == 0:
            mask = draw(st.sampled_from([*MASKS.get(name, ()), 1, 0]))
        items.append((name, value, mask))
    return tuple(items)


def overlap(one: tuple[Oxm, ...], other: tuple[Oxm, ...]) -> bool:
    """Tell whether a packet can match both, judged by single fields."""
    seen = {name: (value, mask) for name, value, mask in one}
    for name, value, mask in other:
        if name in seen:
            there, its_mask = seen[name]
            common = (of.FIELDS[name].size * 8, its_mask, mask)
            bits = (1 << common[0]) - 1
            bits &= bits if its_mask is None else its_mask
            bits &= bits if mask is None else mask
            if (there ^ value) & bits:
                return False
    return True
