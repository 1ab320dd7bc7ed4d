"""Follows a packet from a virtual port through every switch to where it leaves.

At each switch, ofproto/trace reports rules and data-path actions, which are carried out on the packet's bytes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from server.config import PciePort, ServerConfig
from server.errors import ActionSyntaxError, ToolError
from server.names import MULTICAST_IDS
from server.oneswitchd.answers import VirtualPort
from server.openvswitch import odp_actions
from server.openvswitch.dpif import DatapathPort
from unoctl.trace import packet_text
from unoctl.trace.actions import Execution
from unoctl.trace.model import Branch, Outcome, Pass, Stage, Trace, TraceError
from unoctl.trace.packet import TYPE_VLAN, Packet
from unoctl.trace.recirculation import Continuation, identities
from unoctl.trace.switch_probe import TRACED_BRIDGE, SwitchProbe
from unoctl.trace.translation import drop_reason

MAX_STAGES = 8  # a packet that visits more switches is in a loop
MAX_RECIRCULATIONS = 8
LOCAL = 0xFFFE  # OFPP_LOCAL as Open vSwitch numbers it internally
_TRACKED = re.compile(r"\bct_\w+=[^,]+,")


class Tracer:
    """Traces packets over one server with these virtual ports.

    ``ct_next`` are connection states for ofproto/trace's ``--ct-next``, in turn at each switch.
    """

    def __init__(self, server: ServerConfig, ports: Sequence[VirtualPort], ct_next: Sequence[str] = ()) -> None:
        self.server = server
        self.ports = ports
        self.probe = cache(lambda switch: SwitchProbe(server, server.find_switch(switch)))
        self._ct_next = ct_next

    def trace(self, port: VirtualPort, data: bytes, notes: tuple[str, ...] = ()) -> Trace:
        """Follow a frame that enters at a virtual port; TraceError or ToolError if its switch cannot be asked."""
        stage = self.stage(port.switch, port.interface, Packet.received(data), ())
        return Trace(port.number, port.name, data, packet_text.describe(data), stage, notes)

    def stage(self, switch: str, interface: str, sent: Packet, path: tuple["_Visit", ...]) -> Stage:
        """Follow a packet from an interface of a switch; ``path``: the visits before."""
        probe, data = self.probe(switch), sent.sent()
        in_port = probe.port(interface)
        beside = f"tun_id={sent.tunnel:#x}," if sent.tunnel else ""
        ask = partial(probe.trace, in_port.ofport, data, beside, ct_next=self._ct_next)
        visit = _Visit(self, probe, in_port, data, path, ask, ask(), tunnel=sent.tunnel)
        packet = Packet.received(data, probe.vlan_limit, sent.conditions, sent.tunnel)
        return Stage(switch, TRACED_BRIDGE, interface, in_port.ofport, data, visit.translated(packet))


@dataclass(frozen=True)
class _Visit:
    """A packet at a switch, after those on its ``path``; ``ask`` repeats the trace with these translations."""

    tracer: Tracer
    probe: SwitchProbe
    in_port: DatapathPort
    data: bytes
    path: tuple["_Visit", ...]
    ask: Callable[[], list[Pass]]
    translations: list[Pass]
    index: int = 0
    recirculations: int = 0
    tunnel: int = 0

    @property
    def name(self) -> str:
        return self.probe.name

    def translated(self, packet: Packet) -> Pass:
        """Return the translation at ``index`` with the outcomes of its actions on the packet."""
        found = self.translations[self.index]
        before = packet.clone()
        try:
            if packet.inner_labels and any(step.text.startswith(("push_mpls", "pop_mpls")) for step in found.steps):
                raise TraceError("push_mpls or pop_mpls on a packet with several MPLS labels")
            actions = odp_actions.parse(found.datapath_actions or "")
        except (ActionSyntaxError, TraceError) as error:
            return replace(found, outcomes=(self._not_followed(before, str(error)),))
        reason = "its actions send it nowhere" if actions else drop_reason(found)
        return replace(found, outcomes=Execution(packet, self).run(actions) or (Outcome.dropped(before, reason),))

    def _not_followed(self, packet: Packet, reason: str) -> Outcome:
        return Outcome.not_followed(packet, self.name, reason)

    def output(self, packet: Packet, port: int) -> Outcome:
        found = self.probe.datapath.by_number(port)
        if found is None:
            return self._not_followed(packet, f"data-path port {port} disappeared during the trace; trace again")
        for pcie in self.tracer.server.pcie_ports(self.name):
            if pcie.interface == found.name:
                return self._crossing(packet, pcie, beside=found.kind.startswith("pcie"))
        owner = self._owner(found.name)
        local, number, name = found.ofport == LOCAL, owner and owner.number, owner and owner.name
        headline = f"exit at {found.name} of {self.name}, which is not a virtual port"
        if local:
            headline = f"{self.name}'s own port of bridge {found.name} (LOCAL)"
        elif owner:
            headline = f"exit at port {number} {name}, interface {found.name} of {self.name}"
        details = {"switch": self.name, "interface": found.name, "local": local, "port": number, "name": name}
        return Outcome.of(packet, "exit", headline, **details, flow=packet_text.describe(packet.sent()))

    def _owner(self, interface: str) -> VirtualPort | None:
        for port in self.tracer.ports:
            if any(end and (end.switch, end.interface) == (self.name, interface) for end in (port, port.move)):
                return port
        return None

    def _crossing(self, packet: Packet, pcie: PciePort, *, beside: bool) -> Outcome:
        """Cross a PCIe link; ``beside``: it carries the flow-id beside the packet, not in a tag."""
        data, peer, path = packet.sent(), pcie.peer_switch, (*self.path, self)
        sent = replace(packet, tunnel=packet.tunnel if beside else 0)
        try:
            in_port = self.tracer.probe(peer).port(pcie.peer_interface)
            arriving = (in_port, peer, data, sent.tunnel)
            if any((visit.in_port, visit.name, visit.data, visit.tunnel) == arriving for visit in path):
                return self._not_followed(packet, f"the packet returns to {peer} unchanged: its rules form a loop")
            if len(path) >= MAX_STAGES:
                return self._not_followed(packet, f"the packet has crossed {len(self.path)} PCIe links: a loop")
            stage = self.tracer.stage(peer, pcie.peer_interface, sent, path)
        except (ToolError, TraceError) as error:
            return self._not_followed(packet, f"{peer} cannot be asked: {error}")
        tagged = packet.u16(14) & 0xFFF if packet.u16(12) == TYPE_VLAN else None
        number = (packet.tunnel or None) if beside else tagged
        key = "tun_id" if beside else "vid"
        flow_id = None if number is None else {key: number, "meaning": self._meaning(number)}
        tag = f"flow-id {number} = {flow_id['meaning']}" if flow_id else "no flow-id"
        headline = f"PCIe {pcie.interface} -- {pcie.peer_interface} of {peer}, {tag}"
        ends = {"interface": pcie.interface, "peer_switch": peer, "peer_interface": pcie.peer_interface}
        return Outcome.of(packet, "pcie", headline, switch=self.name, **ends, flow_id=flow_id, stage=stage)

    def _meaning(self, flow_id: int) -> str:
        for port in self.tracer.ports:
            if flow_id in (port.flow_id, port.ingress_id):
                return f"DELIVER({port.name})" if flow_id == port.flow_id else f"INGRESS({port.name})"
        return "MULTICAST" if flow_id in MULTICAST_IDS else "unknown: no port has it"

    def recirculate(self, packet: Packet, identity: int, hashed: bool) -> Outcome:
        if self.recirculations >= MAX_RECIRCULATIONS:
            return self._not_followed(packet, f"the packet was recirculated {MAX_RECIRCULATIONS} times")
        again = replace(self, recirculations=self.recirculations + 1)
        why = "a hash of the packet decides" if hashed else "Open vSwitch parses the packet again"
        try:
            for index, translation in enumerate(self.translations):
                if translation.recirc_id == identity and index != self.index:
                    why = translation.resumed or ""
                    branches = (Branch(1, 1, replace(again, index=index).translated(packet.clone())),)
                    break
            else:
                branches = again._branches(packet, identity, hashed)
        except (ToolError, TraceError) as error:
            return self._not_followed(packet, f"recirculation: {error}")
        return Outcome.of(packet, "recirculated", f"recirculated: {why}", why=why, branches=branches)

    def _branches(self, packet: Packet, identity: int, hashed: bool) -> tuple[Branch, ...]:
        translation = self.translations[self.index]
        # Of the metadata, Open vSwitch keeps all but these with the id.
        lost = "".join(_TRACKED.findall(translation.flow)) + (f"pkt_mark={packet.mark:#x}," if packet.mark else "")
        trace = partial(self.probe.trace, self.in_port.ofport, packet.sent(), lost)
        continuation = Continuation(trace, self._repeat, identity, identities(translation).index(identity))
        variants = continuation.variants(hashed)
        shares = sum(map(len, variants))
        return tuple(self._branch(packet, continuation, variant, shares) for variant in variants)

    def _branch(self, packet: Packet, continuation: Continuation, variant: list[str], shares: int) -> Branch:
        packet = packet.clone()
        if len(variant) != shares:
            packet.conditions += (f"its hash is one of {len(variant)} in {shares}",)
        ask = partial(continuation.ask, variant[0])
        visit = replace(self, ask=ask, translations=ask(), index=0)
        return Branch(len(variant), shares, visit.translated(packet))

    def _repeat(self) -> Pass:
        translations = self.ask()
        if self.index >= len(translations):
            raise ToolError("the rules changed during the trace; trace again")
        return translations[self.index]
