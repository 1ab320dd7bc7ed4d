"""Carries out data-path actions on the bytes of a packet.

The model is Open vSwitch 3.1's userspace datapath (odp_execute_actions(), dp_netdev_execute_cb()). Facts that the
bytes do not tell, such as a meter's verdict, become conditions. An action that is not in the table ends the list.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from server.errors import ActionSyntaxError
from server.openvswitch.odp_actions import Term, to_number
from unoctl.trace.model import Dropped, NotFollowed, Outcome, ToController, TraceError
from unoctl.trace.packet import ETH_LENGTH, MPLS_TYPES, TYPE_VLAN, VLAN_TYPES, Packet
from unoctl.trace.set_field import set_field

# Reasons of OFPT_PACKET_IN (OpenFlow 1.3.5, 7.4.1); those from 3 on are Open vSwitch's own, of later versions.
REASONS = ("no match", "action", "invalid TTL", "action set", "group", "packet-out", "no match", "no match")
_WHOLE = 0xFFFF


class Switch(Protocol):
    """The switch around the datapath."""

    @property
    def name(self) -> str: ...

    def output(self, packet: Packet, port: int) -> Outcome:
        """Return the outcome of an output to a data-path port."""
        ...

    def recirculate(self, packet: Packet, identity: int, hashed: bool) -> Outcome:
        """Return the outcome of ``recirc(identity)``, which a hash of the packet precedes if ``hashed``."""
        ...


class Execution:
    """One list of actions on one packet."""

    def __init__(self, packet: Packet, switch: Switch) -> None:
        self.outcomes: list[Outcome] = []
        self._packet = packet
        self._switch = switch
        self._hashed = False

    def run(self, actions: Sequence[Term]) -> tuple[Outcome, ...]:
        """Carry out the actions, and return their outcomes."""
        for term in actions:
            try:
                if term.name == "drop":
                    self.outcomes.append(
                        Dropped(self._packet.sent(), self._packet.conditions, "an explicit drop action")
                    )
                    break
                self._one(term)
            except (TraceError, ActionSyntaxError) as error:
                self._not_followed(str(error))
                break
        return tuple(self.outcomes)

    def _one(self, term: Term) -> None:
        if term.name.isdecimal():
            self.outcomes.append(self._switch.output(self._packet, int(term.name)))
            self._packet.cut = 0
        elif term.name in _ACTIONS:
            _ACTIONS[term.name](self, term)
        elif term.name in _COPYING:
            self._not_followed(f"action {term}")
        elif term.name not in _WITHOUT_EFFECT:
            raise TraceError(f"action {term}")

    def _not_followed(self, reason: str) -> None:
        packet = self._packet
        self.outcomes.append(NotFollowed(packet.sent(), packet.conditions, self._switch.name, reason))

    def _require(self, condition: str) -> None:
        if condition not in self._packet.conditions:
            self._packet.conditions = (*self._packet.conditions, condition)

    def _set(self, term: Term) -> None:
        for inner in term.inner or ():
            set_field(inner, self._packet)

    def _push_vlan(self, term: Term) -> None:
        tag = term.number("vid", 0) | term.number("pcp", 0) << 13
        self._packet.resize(12, (term.number("tpid", TYPE_VLAN) << 16 | tag).to_bytes(4, "big"))

    def _pop_vlan(self, _term: Term) -> None:
        if self._packet.u16(12) in VLAN_TYPES and len(self._packet.data) >= ETH_LENGTH + 4:
            self._packet.resize(12, remove=4)

    def _push_mpls(self, term: Term) -> None:
        packet = self._packet
        if packet.network is None or term.number("eth_type") not in MPLS_TYPES:
            raise TraceError(f"action {term}")
        if packet.mpls is None:
            packet.mpls = packet.network
        self._set_ethertype(packet.mpls, term)
        label = term.number("label") << 12 | term.number("tc") << 9 | term.number("bos") << 8 | term.number("ttl")
        packet.resize(packet.mpls, label.to_bytes(4, "big"))

    def _pop_mpls(self, term: Term) -> None:
        packet = self._packet
        if packet.mpls is None or len(packet.data) < packet.mpls + 4:
            raise TraceError(f"action {term}: the packet has no complete label")
        last = not packet.inner_labels
        self._set_ethertype(packet.mpls, term)
        packet.resize(packet.mpls, remove=4)
        if last:
            packet.mpls = None

    def _set_ethertype(self, behind: int, term: Term) -> None:
        at = behind - 2 if self._packet.u16(12) in VLAN_TYPES else 12
        self._packet.data[at : at + 2] = term.number("eth_type").to_bytes(2, "big")

    def _clone(self, term: Term) -> None:
        self.outcomes += Execution(self._packet.clone(), self._switch).run(term.inner or ())
        self._packet.cut = 0

    def _trunc(self, term: Term) -> None:
        self._packet.cut = max(len(self._packet.data) - max(_argument(term), ETH_LENGTH), 0)

    def _userspace(self, term: Term) -> None:
        asked = term.child("controller")
        if asked is None:
            self._not_followed(f"action {term}")
        else:
            reason, limit = asked.number("reason"), asked.number("max_len", _WHOLE)
            packet, data = self._packet, self._packet.sent()
            self.outcomes.append(
                ToController(
                    data if limit == _WHOLE else data[:limit],
                    packet.conditions,
                    self._switch.name,
                    REASONS[reason] if reason < len(REASONS) else str(reason),
                    f"{asked.number('rule_cookie', 0):#x}",
                    asked.number("controller_id", 0),
                    limit,
                )
            )
        self._packet.cut = 0

    def _meter(self, term: Term) -> None:
        self._require(f"data-path meter {_argument(term)} lets it pass")

    def _hash(self, _term: Term) -> None:
        self._hashed = True

    def _recirc(self, term: Term) -> None:
        again = self._packet.clone()
        again.parse()
        self.outcomes.append(self._switch.recirculate(again, _argument(term), self._hashed))

    def _ct(self, term: Term) -> None:
        if term.child("nat") is not None:
            self._require("connection tracking leaves the addresses as they are (nat)")


def _argument(term: Term) -> int:
    if not term.inner or len(term.inner) != 1:
        raise ActionSyntaxError(f"'{term}' lacks its number; expected for example {term.name}(1)")
    return to_number(term.inner[0].name, f"the argument of '{term}'")


_ACTIONS: dict[str, Callable[[Execution, Term], None]] = {
    "set": Execution._set,
    "push_vlan": Execution._push_vlan,
    "pop_vlan": Execution._pop_vlan,
    "push_mpls": Execution._push_mpls,
    "pop_mpls": Execution._pop_mpls,
    "clone": Execution._clone,
    "trunc": Execution._trunc,
    "userspace": Execution._userspace,
    "meter": Execution._meter,
    "hash": Execution._hash,
    "recirc": Execution._recirc,
    "ct": Execution._ct,
}
_WITHOUT_EFFECT = ("ct_clear",)
# They work on a copy: the packet itself goes on as it is.
_COPYING = ("sample",)
