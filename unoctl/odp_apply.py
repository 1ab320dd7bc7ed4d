"""Carries out data-path actions on the bytes of a packet and tells what comes out.

The model is Open vSwitch 3.1's userspace datapath (odp_execute_actions, dp_netdev_execute_cb). What cannot be known
from the bytes, such as the verdict of a meter or the address that NAT picks, is not guessed: it becomes a condition on
the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from server.errors import ActionSyntaxError
from server.openvswitch.odp_actions import Term, to_number
from unoctl import odp_set
from unoctl.packet import (
    ETH_LENGTH,
    MPLS_TYPES,
    PACKET_ETHERNET,
    TYPE_IPV4,
    TYPE_IPV6,
    TYPE_NSH,
    TYPE_VLAN,
    VLAN_TYPES,
    Packet,
)

# Next-protocol numbers of an NSH header (RFC 8300).
_NSH_NEXT = {TYPE_IPV4: 1, TYPE_IPV6: 2, PACKET_ETHERNET: 3, TYPE_NSH: 4}
_NSH_TYPE = {number: packet_type for packet_type, number in _NSH_NEXT.items()}


@dataclass(frozen=True)
class Event:
    """Something that comes out of a list of actions, in their order.

    Attributes:
        data: the bytes at that point.
        conditions: what has to hold for it to happen with these bytes; empty: it always does.
    """

    data: bytes
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class Output(Event):
    """The packet leaves through a data-path port."""

    port: int


@dataclass(frozen=True)
class PacketIn(Event):
    """The packet, or its first ``max_len`` bytes, goes to the controllers; ``reason`` as in OFPT_PACKET_IN."""

    reason: int
    cookie: int
    controller_id: int
    max_len: int


@dataclass(frozen=True)
class Recirculation(Event):
    """The packet goes through the datapath again; ``hashed``: the id's continuation depends on a hash of it."""

    id: int
    packet: Packet
    hashed: bool
    tracked: bool


@dataclass(frozen=True)
class Elsewhere(Event):
    """The packet goes where its bytes cannot be followed: a tunnel, a sampler, an unknown action."""

    action: str


@dataclass(frozen=True)
class Lost(Event):
    """The datapath drops the packet here."""

    reason: str


def run(actions: Sequence[Term], packet: Packet) -> list[Event]:
    """Carry out ``actions`` on ``packet``, which changes.

    Raises:
        ActionSyntaxError: an argument is missing or does not parse.
    """
    machine = _Machine(packet)
    machine.run(actions)
    return machine.events


class _Machine:
    """One packet and what has come of it so far. ``alive`` goes false when an action takes the packet for good."""

    def __init__(self, packet: Packet) -> None:
        self.packet = packet
        self.events: list[Event] = []
        self._hashed = False
        self._tracked = False
        self._alive = True

    def run(self, actions: Sequence[Term]) -> None:
        for term in actions:
            if not self._alive:
                return
            self._one(term)

    def _one(self, term: Term) -> None:
        if term.inner is None and term.value is None and term.name.isdecimal():
            self._output(int(term.name))
            return
        step = _STEPS.get(term.name)
        if step is None:
            self._elsewhere(term)
        else:
            step(self, term)

    def _output(self, port: int) -> None:
        self.events.append(Output(self.packet.sent(), self.packet.conditions, port))
        self.packet.cut = 0

    def _elsewhere(self, term: Term) -> None:
        self.events.append(Elsewhere(self.packet.sent(), self.packet.conditions, str(term)))
        self._require(f"'{term.name}' leaves the bytes as they are")

    def _require(self, condition: str) -> None:
        if condition not in self.packet.conditions:
            self.packet.conditions = (*self.packet.conditions, condition)

    def _set(self, term: Term) -> None:
        for inner in term.inner or ():
            if doubt := odp_set.apply(inner, self.packet):
                self._require(doubt)

    def _push_vlan(self, term: Term) -> None:
        tag = term.number("vid", 0) | term.number("pcp", 0) << 13
        tpid = term.number("tpid", TYPE_VLAN)
        self.packet.resize(12, tpid.to_bytes(2, "big") + tag.to_bytes(2, "big"))

    def _pop_vlan(self, _term: Term) -> None:
        packet = self.packet
        if packet.packet_type == PACKET_ETHERNET and len(packet.data) >= 18 and packet.u16(12) in VLAN_TYPES:
            packet.resize(12, remove=4)

    def _push_mpls(self, term: Term) -> None:
        packet, ethertype = self.packet, term.number("eth_type")
        if ethertype not in MPLS_TYPES or packet.l3 is None:
            return
        if packet.mpls is None:
            packet.mpls = packet.l3
        self._set_ethertype(packet.mpls, ethertype)
        packet.resize_labels(packet.mpls, _label(term))

    def _add_mpls(self, term: Term) -> None:
        """``add_mpls`` as printed does not say at which layer; OpenFlow can only ask for the front of the frame."""
        packet, ethertype = self.packet, term.number("eth_type")
        packet.resize_labels(0, _label(term))
        packet.mpls = 0
        packet.packet_type = ethertype

    def _pop_mpls(self, term: Term) -> None:
        packet, ethertype = self.packet, term.number("eth_type")
        if packet.mpls is None or len(packet.data) < packet.mpls + 4:
            return
        start = packet.mpls
        bottom = packet.data[start + 2] & 1
        self._set_ethertype(start, ethertype)
        packet.resize_labels(start, remove=4)
        if bottom:
            packet.mpls = None
        if start == 0:
            packet.packet_type = PACKET_ETHERNET if ethertype == 0x6558 else ethertype

    def _set_ethertype(self, behind: int, ethertype: int) -> None:
        packet = self.packet
        if packet.packet_type == PACKET_ETHERNET and behind >= ETH_LENGTH:
            at = behind - 2 if packet.u16(12) in VLAN_TYPES else 12
            packet.put(at, ethertype, 2)

    def _push_eth(self, term: Term) -> None:
        addresses = b"".join(_mac(term, name) for name in ("dst", "src"))
        self.packet.resize(0, addresses + self.packet.packet_type.to_bytes(2, "big"))
        self.packet.packet_type = PACKET_ETHERNET

    def _pop_eth(self, _term: Term) -> None:
        packet = self.packet
        end = packet.mpls if packet.mpls is not None else packet.l3
        if packet.packet_type != PACKET_ETHERNET or end is None:
            return
        ethertype = packet.u16(end - 2)
        packet.resize(0, remove=end)
        packet.packet_type = ethertype

    def _push_nsh(self, term: Term) -> None:
        packet = self.packet
        header = _nsh_header(term, _NSH_NEXT.get(packet.packet_type, term.number("np", 0)))
        packet.data[0:0] = header
        packet.packet_type = TYPE_NSH
        packet.mpls = packet.l4 = None
        packet.l3 = 0

    def _pop_nsh(self, _term: Term) -> None:
        packet = self.packet
        if packet.packet_type != TYPE_NSH or packet.l3 is None or len(packet.data) < 8:
            return
        following = _NSH_TYPE.get(packet.data[3])
        if following is None:
            self._lose(f"pop_nsh does not know next protocol {packet.data[3]}")
            return
        length = (packet.u16(0) & 0x3F) * 4
        del packet.data[:length]
        packet.packet_type = following
        packet.mpls = packet.l3 = packet.l4 = None

    def _clone(self, term: Term) -> None:
        inner = _Machine(self.packet.clone())
        self.packet.cut = 0
        inner.run(term.inner or ())
        self.events += inner.events

    def _sample(self, term: Term) -> None:
        inner = _Machine(self.packet.clone())
        inner._require(f"sampled ({term.argument('sample')})")
        actions = term.child("actions")
        inner.run((actions.inner if actions else None) or ())
        self.events += inner.events

    def _check_length(self, term: Term) -> None:
        limit = term.number("size")
        size = len(self.packet.sent()) - self.packet.padding
        chosen = term.child("gt" if size > limit else "le")
        inner = _Machine(self.packet.clone())
        inner.run(() if chosen is None else chosen.inner or ())
        self.events += inner.events

    def _trunc(self, term: Term) -> None:
        keep = max(_only_number(term), ETH_LENGTH)
        self.packet.cut = max(len(self.packet.data) - keep, 0)

    def _userspace(self, term: Term) -> None:
        asked = term.child("controller")
        if asked is None:
            self.events.append(Elsewhere(self.packet.sent(), self.packet.conditions, str(term)))
        else:
            # dont_send is 1 in a trace without side effects: what it describes is sent all the same.
            limit = asked.number("max_len", 65535)
            data = self.packet.sent()
            self.events.append(
                PacketIn(
                    data if limit == 65535 else data[:limit],
                    self.packet.conditions,
                    asked.number("reason"),
                    asked.number("rule_cookie", 0),
                    asked.number("controller_id", 0),
                    limit,
                )
            )
        self.packet.cut = 0

    def _meter(self, term: Term) -> None:
        self._require(f"data-path meter {_only_number(term)} lets it pass")

    def _hash(self, _term: Term) -> None:
        self._hashed = True

    def _recirc(self, term: Term) -> None:
        again = self.packet.clone()
        again.extract()
        identity = _only_number(term)
        self.events.append(Recirculation(again.sent(), again.conditions, identity, again, self._hashed, self._tracked))

    def _ct(self, term: Term) -> None:
        self._tracked = True
        if term.child("nat") is not None:
            self._require("connection tracking leaves the addresses as they are (nat)")

    def _ct_clear(self, _term: Term) -> None:
        self._tracked = False

    def _drop(self, _term: Term) -> None:
        self._lose("an explicit drop action")

    def _lose(self, reason: str) -> None:
        self.events.append(Lost(self.packet.sent(), self.packet.conditions, reason))
        self._alive = False

    def _tunnel(self, term: Term) -> None:
        self.events.append(Elsewhere(self.packet.sent(), self.packet.conditions, str(term)))


def _label(term: Term) -> bytes:
    word = term.number("label") << 12 | term.number("tc") << 9 | term.number("bos") << 8 | term.number("ttl")
    return word.to_bytes(4, "big")


def _mac(term: Term, name: str) -> bytes:
    text = term.argument(name)
    if text is None:
        raise ActionSyntaxError(f"'{term}' lacks {name}=MAC")
    try:
        return bytes.fromhex(text.replace(":", ""))
    except ValueError as error:
        raise ActionSyntaxError(f"{name} of '{term}' is '{text}'; expected an Ethernet address") from error


def _nsh_header(term: Term, following: int) -> bytes:
    kind = term.number("mdtype", 1)
    if kind == 1:
        metadata = b"".join(term.number(f"c{index}", 0).to_bytes(4, "big") for index in range(1, 5))
    else:
        metadata = bytes.fromhex((term.argument("md2") or "").removeprefix("0x"))
    length = 8 + len(metadata)
    first = term.number("flags", 0) << 12 | term.number("ttl", 63) << 6 | length // 4
    path = term.number("spi", 0) << 8 | term.number("si", 255)
    return first.to_bytes(2, "big") + bytes((kind, following)) + path.to_bytes(4, "big") + metadata


def _only_number(term: Term) -> int:
    if not term.inner or len(term.inner) != 1:
        raise ActionSyntaxError(f"'{term}' lacks its number; expected for example {term.name}(1)")
    return to_number(term.inner[0].name, f"the argument of '{term}'")


_STEPS: dict[str, Callable[[_Machine, Term], None]] = {
    "set": _Machine._set,
    "push_vlan": _Machine._push_vlan,
    "pop_vlan": _Machine._pop_vlan,
    "push_mpls": _Machine._push_mpls,
    "add_mpls": _Machine._add_mpls,
    "pop_mpls": _Machine._pop_mpls,
    "push_eth": _Machine._push_eth,
    "pop_eth": _Machine._pop_eth,
    "push_nsh": _Machine._push_nsh,
    "pop_nsh": _Machine._pop_nsh,
    "clone": _Machine._clone,
    "sample": _Machine._sample,
    "check_pkt_len": _Machine._check_length,
    "trunc": _Machine._trunc,
    "userspace": _Machine._userspace,
    "meter": _Machine._meter,
    "hash": _Machine._hash,
    "recirc": _Machine._recirc,
    "ct": _Machine._ct,
    "ct_clear": _Machine._ct_clear,
    "drop": _Machine._drop,
    "tnl_push": _Machine._tunnel,
    "tnl_pop": _Machine._tunnel,
    "lb_output": _Machine._tunnel,
}
