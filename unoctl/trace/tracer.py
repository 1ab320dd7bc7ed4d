"""Follows a packet from a virtual port through every switch to where it leaves.

ofproto/trace reports the rules that the packet hits at a switch and the data-path actions, which are carried out on
the bytes. A packet that leaves at a PCIe port enters the switch at the other end.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from server.config import PciePort, ServerConfig
from server.errors import ActionSyntaxError, ToolError
from server.names import MULTICAST_VIDS
from server.oneswitchd.answers import VirtualPort
from server.openvswitch import odp_actions
from server.openvswitch.dpif import DatapathPort
from unoctl.trace import packet_text
from unoctl.trace.actions import Execution
from unoctl.trace.model import (
    Branch,
    Crossing,
    Dropped,
    Exit,
    FlowId,
    NotFollowed,
    Outcome,
    Pass,
    Recirculated,
    Stage,
    Trace,
    TraceError,
)
from unoctl.trace.packet import TYPE_VLAN, Packet
from unoctl.trace.recirculation import Continuation, Variant
from unoctl.trace.switch_probe import TRACED_BRIDGE, SwitchProbe
from unoctl.trace.translation import drop_reason

# A packet that visits more switches than this is in a loop.
MAX_STAGES = 8
MAX_RECIRCULATIONS = 8
# OFPP_LOCAL as Open vSwitch numbers it internally.
LOCAL = 0xFFFE
_TRACKED = re.compile(r"\bct_\w+=[^,]+,")


class Tracer:
    """Traces packets over one server.

    Args:
        server: its switches need ``control``.
        ports: the virtual ports, for names and flow-ids.
        ct_next: connection states for ofproto/trace's ``--ct-next``, in turn at each switch.
    """

    def __init__(self, server: ServerConfig, ports: Sequence[VirtualPort], ct_next: Sequence[str] = ()) -> None:
        self.server = server
        self.ports = ports
        self._ct_next = ct_next
        self._probes: dict[str, SwitchProbe] = {}

    def trace(self, port: VirtualPort, data: bytes, notes: tuple[str, ...] = ()) -> Trace:
        """Follow a frame that enters at a virtual port.

        Raises:
            TraceError: the port's interface is not on its switch, or flow syntax cannot describe the frame.
            ToolError: the port's switch does not answer.
        """
        stage = self.stage(port.switch, port.interface, data, (), ())
        return Trace(port.number, port.name, data, packet_text.describe(data), stage, notes)

    def stage(
        self, switch: str, interface: str, data: bytes, conditions: tuple[str, ...], path: tuple["_Visit", ...]
    ) -> Stage:
        """Follow a frame from an interface of a switch; ``path``: the visits before.

        Raises:
            TraceError, ToolError: as :meth:`trace`.
        """
        probe = self.probe(switch)
        in_port = probe.port(interface)

        def ask() -> list[Pass]:
            return probe.trace(in_port.ofport, data, ct_next=self._ct_next)

        visit = _Visit(self, probe, in_port, data, path, ask, ask())
        packet = Packet.received(data, probe.vlan_limit, conditions)
        return Stage(switch, TRACED_BRIDGE, interface, in_port.ofport, data, visit.translated(packet))

    def probe(self, switch: str) -> SwitchProbe:
        """Return a switch's probe, which lasts for the trace."""
        if switch not in self._probes:
            self._probes[switch] = SwitchProbe(self.server, self.server.find_switch(switch))
        return self._probes[switch]


@dataclass(frozen=True)
class _Visit:
    """A packet at a switch.

    Attributes:
        path: the visits before, at other switches.
        ask: repeats the question whose answer ``translations`` is.
        index: the translation that is followed.
    """

    tracer: Tracer
    probe: SwitchProbe
    in_port: DatapathPort
    data: bytes
    path: tuple["_Visit", ...]
    ask: Callable[[], list[Pass]]
    translations: list[Pass]
    index: int = 0
    recirculations: int = 0

    @property
    def name(self) -> str:
        return self.probe.name

    def translated(self, packet: Packet) -> Pass:
        """Return the translation with the outcomes of its actions on the packet."""
        found = self.translations[self.index]
        before = packet.clone()
        if packet.inner_labels and any(step.text.startswith("pop_mpls") for step in found.steps):
            outcomes = (self._stop(before, "action pop_mpls on a packet with several MPLS labels"),)
            return replace(found, outcomes=outcomes)
        try:
            actions = odp_actions.parse(found.datapath_actions or "")
        except ActionSyntaxError as error:
            return replace(found, outcomes=(self._stop(before, str(error)),))
        outcomes = Execution(packet, self).run(actions)
        if not outcomes:
            reason = "its actions send it nowhere" if actions else drop_reason(found)
            outcomes = (Dropped(before.sent(), before.conditions, reason),)
        return replace(found, outcomes=outcomes)

    def _stop(self, packet: Packet, reason: str) -> NotFollowed:
        return NotFollowed(packet.sent(), packet.conditions, self.name, reason)

    def output(self, packet: Packet, port: int) -> Outcome:
        found = self.probe.datapath.by_number(port)
        if found is None:
            return self._stop(packet, f"data-path port {port} disappeared during the trace; trace again")
        for pcie in self.tracer.server.pcie_ports(self.name):
            if pcie.interface == found.name:
                return self._crossing(packet, pcie)
        owner = self._owner(found.name)
        number, name = (owner.number, owner.name) if owner else (None, None)
        data = packet.sent()
        return Exit(
            data,
            packet.conditions,
            self.name,
            found.name,
            found.ofport == LOCAL,
            number,
            name,
            packet_text.describe(data),
        )

    def _owner(self, interface: str) -> VirtualPort | None:
        for port in self.tracer.ports:
            if (self.name, interface) == (port.switch, port.interface):
                return port
            if port.move and (self.name, interface) == (port.move.switch, port.move.interface):
                return port
        return None

    def _crossing(self, packet: Packet, pcie: PciePort) -> Outcome:
        data, path = packet.sent(), (*self.path, self)
        try:
            peer = self.tracer.probe(pcie.peer_switch).port(pcie.peer_interface)
            if any((visit.in_port, visit.name, visit.data) == (peer, pcie.peer_switch, data) for visit in path):
                return self._stop(packet, f"the packet returns to {pcie.peer_switch} unchanged: its rules form a loop")
            if len(path) >= MAX_STAGES:
                return self._stop(packet, f"the packet has crossed {len(self.path)} PCIe links: its rules form a loop")
            stage = self.tracer.stage(pcie.peer_switch, pcie.peer_interface, data, packet.conditions, path)
        except (ToolError, TraceError) as error:
            return self._stop(packet, f"{pcie.peer_switch} cannot be asked: {error}")
        ends = (self.name, pcie.interface, pcie.peer_switch, pcie.peer_interface)
        return Crossing(data, packet.conditions, *ends, self._flow_id(packet), stage)

    def _flow_id(self, packet: Packet) -> FlowId | None:
        if packet.u16(12) != TYPE_VLAN:
            return None
        vid = packet.u16(14) & 0xFFF
        for port in self.tracer.ports:
            if port.flow_id == vid:
                return FlowId(vid, f"DELIVER({port.name})")
            if port.ingress_id == vid:
                return FlowId(vid, f"INGRESS({port.name})")
        return FlowId(vid, "MULTICAST" if vid in MULTICAST_VIDS else "unknown: no port has it")

    def recirculate(self, packet: Packet, identity: int, hashed: bool) -> Outcome:
        if self.recirculations >= MAX_RECIRCULATIONS:
            return self._stop(packet, f"the packet was recirculated {MAX_RECIRCULATIONS} times")
        again = replace(self, recirculations=self.recirculations + 1)
        for index, translation in enumerate(self.translations):
            if translation.recirc_id == identity and index != self.index:
                branches = (Branch(1, 1, replace(again, index=index).translated(packet.clone())),)
                return Recirculated(packet.sent(), packet.conditions, translation.resumed or "", branches)
        try:
            continuation = self._continuation(packet, identity)
            branches = tuple(again._branch(packet, variant) for variant in continuation.variants(hashed))
        except (ToolError, TraceError) as error:
            return self._stop(packet, f"recirculation: {error}")
        why = "a hash of the packet decides" if hashed else "Open vSwitch parses the packet again"
        return Recirculated(packet.sent(), packet.conditions, why, branches)

    def _continuation(self, packet: Packet, identity: int) -> Continuation:
        translation = self.translations[self.index]
        # Of the metadata, Open vSwitch keeps all but these with the id.
        kept = "".join(_TRACKED.findall(translation.flow)) + (f"pkt_mark={packet.mark:#x}," if packet.mark else "")

        def ask(fields: str) -> list[Pass]:
            return self.probe.trace(self.in_port.ofport, packet.sent(), fields + kept)

        return Continuation(ask, self._repeat, translation.datapath_actions or "", identity)

    def _repeat(self) -> Pass:
        translations = self.ask()
        if self.index >= len(translations):
            raise ToolError("the rules changed during the trace; trace again")
        return translations[self.index]

    def _branch(self, packet: Packet, variant: Variant) -> Branch:
        packet = packet.clone()
        if variant.share != variant.shares:
            packet.conditions += (f"its hash is one of {variant.share} in {variant.shares}",)
        visit = replace(self, ask=variant.ask, translations=variant.ask(), index=0)
        return Branch(variant.share, variant.shares, visit.translated(packet))
