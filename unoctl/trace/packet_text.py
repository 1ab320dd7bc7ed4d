"""Packets as text: PACKET of ``unoctl trace``, and Open vSwitch's flow syntax."""

import re

from server.errors import ToolError, UsageError
from server.openvswitch import openflow_tools
from unoctl.flow_text import split_terms
from unoctl.trace.model import TraceError
from unoctl.trace.packet import ETH_LENGTH, VLAN_TYPES

_HEX = re.compile(r"^(0x)?[0-9a-fA-F\s:]+$")
_NETWORK = re.compile(r"^(ip|ipv4|ipv6|tcp6?|udp6?|sctp6?|icmp6?|igmp|(dl|eth)_type=0x0?(800|86dd))$", re.IGNORECASE)
# Fields that ovs-ofctl parse-packet prints but ofproto/trace does not take.
_INNER = re.compile(r"^(vlan_tci1|dl_vlan1|dl_vlan_pcp1|mpls_lse\d)=")
_TRANSPORT = re.compile(r"^(tcp|udp|sctp)6?$")


def to_bytes(text: str) -> bytes:
    """Return the frame that ``text`` means, hexadecimal or in flow syntax; UsageError if it is neither.

    Fields left out are zero, except the TTL.
    """
    if _HEX.match(text):
        digits = re.sub(r"[\s:]", "", text.removeprefix("0x"))
        if len(digits) % 2 or len(digits) < 2 * ETH_LENGTH:
            raise UsageError(f"PACKET has {len(digits)} hex digits; expected two a byte, at least {ETH_LENGTH} bytes")
        return bytes.fromhex(digits)
    terms = split_terms(text)
    names = {term.partition("=")[0] for term in terms}
    if "in_port" in names:
        raise UsageError("PACKET names in_port; the port is given before it: unoctl trace V PACKET")
    if any(map(_NETWORK.match, terms)) and not names & {"nw_ttl", "ip_ttl", "hlimit"}:
        terms.append("nw_ttl=64")
    try:
        return openflow_tools.compose_packet(_with_named_ports(terms))
    except ToolError as error:
        raise UsageError(
            f"PACKET '{text}' is not a packet: {error}; expected hex bytes or for example "
            "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_dst=80"
        ) from error


def _with_named_ports(terms: list[str]) -> str:
    """Write ``tp_src`` and ``tp_dst`` as those of the transport protocol that is named."""
    protocol = next((match.group(1) for match in map(_TRANSPORT.match, terms) if match), "tp")
    return ",".join(re.sub(r"^tp_(src|dst)=", rf"{protocol}_\1=", term) for term in terms)


def describe(frame: bytes) -> str:
    """Return the frame in flow syntax, as Open vSwitch prints it; "" where it cannot."""
    try:
        text = openflow_tools.run_binary(["ovs-ofctl", "parse-packet"], stdin=frame).decode(errors="replace")
    except ToolError:
        return ""
    return text.strip().partition("\n")[0].partition(" ")[0]


def as_parsed(frame: bytes, vlan_limit: int) -> str:
    """Describe the frame for ofproto/trace, as a datapath parses it that looks behind ``vlan_limit`` VLAN tags."""
    terms = [term for term in split_terms(describe(frame)) if not _INNER.match(term)]
    types = [int.from_bytes(frame[at : at + 2], "big") for at in (12, 16, 20)]
    tags = next((count for count, kind in enumerate(types) if kind not in VLAN_TYPES), len(types))
    if tags > vlan_limit and vlan_limit < 2:
        # The datapath takes everything behind the last tag that it parses for a payload of that Ethernet type.
        known = ("dl_src=", "dl_dst=", *(("dl_vlan=", "dl_vlan_pcp=") if vlan_limit else ()))
        return ",".join([*(term for term in terms if term.startswith(known)), f"dl_type={types[vlan_limit]:#06x}"])
    if tags > 1 or not terms:
        raise TraceError("Open vSwitch's flow syntax cannot describe this packet")
    if "icmp6" in terms:
        # Only one of the two link-layer addresses exists in each kind of neighbour message.
        absent = "nd_sll=" if "icmp_type=136" in terms else "nd_tll="
        terms = [re.sub(r"^icmp_", "icmpv6_", term) for term in terms if not term.startswith(absent)]
    return _with_named_ports(terms)
