"""Carries out data-path actions on the bytes of a packet, as Open vSwitch 3.1's odp_execute_actions() does.

Facts that the bytes do not tell, such as a meter's verdict, become conditions.
"""

from collections.abc import Sequence
from typing import Protocol

from server.errors import ActionSyntaxError
from server.openvswitch.odp_actions import Term, to_number
from unoctl.trace.model import Outcome, TraceError
from unoctl.trace.packet import ETH_LENGTH, MPLS_TYPES, TYPE_VLAN, VLAN_TYPES, Packet
from unoctl.trace.set_field import set_field

# Reasons of OFPT_PACKET_IN (OpenFlow 1.3.5, 7.4.1); those from 3 on are Open vSwitch's own, of later versions.
REASONS = ("no match", "action", "invalid TTL", "action set", "group", "packet-out", "no match", "no match")
_WHOLE = 0xFFFF


class Switch(Protocol):
    """The switch around the datapath: it continues what leaves the datapath or enters it again."""

    @property
    def name(self) -> str: ...

    def output(self, packet: Packet, port: int) -> Outcome: ...

    def recirculate(self, packet: Packet, identity: int, hashed: bool) -> Outcome: ...


class Execution:
    """One list of actions on one packet; ``do_X`` carries out X, and an action without a method ends the list."""

    def __init__(self, packet: Packet, switch: Switch) -> None:
        self._outcomes: list[Outcome] = []
        self._packet = packet
        self._switch = switch
        self._hashed = False
        self._in_nsh = False

    def run(self, actions: Sequence[Term]) -> tuple[Outcome, ...]:
        """Carry out the actions, and return their outcomes."""
        try:
            for term in actions:
                self._one(term)
                if term.name == "drop":
                    break
        except (TraceError, ActionSyntaxError) as error:
            self._not_followed(str(error))
        return tuple(self._outcomes)

    def _one(self, term: Term) -> None:
        if self._in_nsh != (term.name == "pop_nsh"):
            raise TraceError("action push_nsh" if self._in_nsh else f"action {term}")
        if term.name.isdecimal():
            self._outcomes.append(self._switch.output(self._packet, int(term.name)))
            self._packet.cut = 0
        elif action := getattr(self, f"do_{term.name}", None):
            action(term)
        else:
            raise TraceError(f"action {term}")

    def _not_followed(self, reason: str) -> None:
        self._outcomes.append(Outcome.not_followed(self._packet, self._switch.name, reason))

    def _require(self, condition: str) -> None:
        if condition not in self._packet.conditions:
            self._packet.conditions += (condition,)

    def do_set(self, term: Term) -> None:
        for inner in term.inner or ():
            set_field(inner, self._packet)

    def do_push_vlan(self, term: Term) -> None:
        tag = term.number("vid", 0) | term.number("pcp", 0) << 13
        self._packet.resize(12, (term.number("tpid", TYPE_VLAN) << 16 | tag).to_bytes(4, "big"))

    def do_pop_vlan(self, _term: Term) -> None:
        if self._packet.u16(12) in VLAN_TYPES and len(self._packet.data) >= ETH_LENGTH + 4:
            self._packet.resize(12, remove=4)

    def do_push_mpls(self, term: Term) -> None:
        packet = self._packet
        if packet.network is None or term.number("eth_type") not in MPLS_TYPES:
            raise TraceError(f"action {term}")
        packet.mpls = packet.network if packet.mpls is None else packet.mpls
        self._set_ethertype(packet.mpls, term)
        label = term.number("label") << 12 | term.number("tc") << 9 | term.number("bos") << 8 | term.number("ttl")
        packet.resize(packet.mpls, label.to_bytes(4, "big"))

    def do_pop_mpls(self, term: Term) -> None:
        packet, more = self._packet, self._packet.inner_labels
        if packet.mpls is None or len(packet.data) < packet.mpls + 4:
            raise TraceError(f"action {term}: the packet has no complete label")
        self._set_ethertype(packet.mpls, term)
        packet.resize(packet.mpls, remove=4)
        packet.mpls = packet.mpls if more else None

    def _set_ethertype(self, behind: int, term: Term) -> None:
        at = behind - 2 if self._packet.u16(12) in VLAN_TYPES else 12
        self._packet.data[at : at + 2] = term.number("eth_type").to_bytes(2, "big")

    def do_push_nsh(self, _term: Term) -> None:
        self._in_nsh = True

    def do_pop_nsh(self, _term: Term) -> None:
        """Remove the header at once: oneswitchd's rules have Open vSwitch parse the packet again in this way."""
        self._in_nsh = False

    def do_clone(self, term: Term) -> None:
        self._outcomes += Execution(self._packet.clone(), self._switch).run(term.inner or ())
        self._packet.cut = 0

    def do_sample(self, term: Term) -> None:
        self._not_followed(f"action {term}")  # a copy; the packet itself continues

    def do_trunc(self, term: Term) -> None:
        self._packet.cut = max(len(self._packet.data) - max(_argument(term), ETH_LENGTH), 0)

    def do_userspace(self, term: Term) -> None:
        asked = term.child("controller")
        if asked is None:
            self._not_followed(f"action {term}")
        else:
            number, limit = asked.number("reason"), asked.number("max_len", _WHOLE)
            reason = REASONS[number] if number < len(REASONS) else str(number)
            details = {"switch": self._switch.name, "reason": reason, "cookie": f"{asked.number('rule_cookie', 0):#x}"}
            details |= {"controller_id": asked.number("controller_id", 0), "max_len": limit}
            sent = self._packet.clone()
            sent.cut = sent.cut if limit == _WHOLE else max(sent.cut, len(sent.data) - limit)
            headline = f"packet-in to the controllers ({reason}, cookie {details['cookie']})"
            self._outcomes.append(Outcome.of(sent, "packet-in", headline, **details))
        self._packet.cut = 0

    def do_drop(self, _term: Term) -> None:
        self._outcomes.append(Outcome.dropped(self._packet, "an explicit drop action"))

    def do_meter(self, term: Term) -> None:
        self._require(f"data-path meter {_argument(term)} lets it pass")

    def do_hash(self, _term: Term) -> None:
        self._hashed = True

    def do_recirc(self, term: Term) -> None:
        again = self._packet.clone()
        again.parse()
        self._outcomes.append(self._switch.recirculate(again, _argument(term), self._hashed))

    def do_ct(self, term: Term) -> None:
        if term.child("nat") is not None:
            self._require("connection tracking leaves the addresses as they are (nat)")

    def do_ct_clear(self, _term: Term) -> None:
        """Leave the packet's bytes as they are."""


def _argument(term: Term) -> int:
    if not term.inner or len(term.inner) != 1:
        raise ActionSyntaxError(f"'{term}' lacks its number; expected for example {term.name}(1)")
    return to_number(term.inner[0].name, f"the argument of '{term}'")
