"""``unoctl trace``: follows a packet from a virtual port over every switch to where it leaves.

At each switch ofproto/trace says which rules the packet hits and which data-path actions follow; those are carried out
on the bytes (:mod:`unoctl.odp_apply`). What leaves at a PCIe port comes in at the switch at its other end, and so on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from server.config import PciePort, ServerConfig
from server.errors import ToolError
from server.names import MULTICAST_VIDS
from server.oneswitchd.answers import VirtualPort
from server.openvswitch import odp_actions
from server.openvswitch.dpif import DatapathPort
from unoctl import odp_apply, packet_input
from unoctl.errors import TraceError
from unoctl.odp_apply import Event, Lost, Output, PacketIn, Recirculation
from unoctl.packet import TYPE_VLAN, Packet
from unoctl.recirculation import Continuation, Variant
from unoctl.switch_probe import SwitchProbe
from unoctl.trace_model import (
    Again,
    Branch,
    Crossing,
    Dropped,
    Elsewhere,
    Exit,
    FlowId,
    Outcome,
    Pass,
    Stage,
    Stopped,
    ToController,
    Trace,
)
from unoctl.trace_text import Translation, drop_reason, parse

# A packet that visits more switches than this, one after the other, is taken for one that never leaves.
MAX_STAGES = 8
# OFPP_LOCAL as Open vSwitch numbers it inside.
LOCAL = 0xFFFE
MAX_RECIRCULATIONS = 8
# How OFPT_PACKET_IN numbers its reasons (OpenFlow 1.3.5, 7.4.1; 3 to 5 from later versions, which OVS uses inside).
REASONS = ("no match", "action", "invalid TTL", "action set", "group", "packet-out")


@dataclass(frozen=True)
class _Place:
    """Where in the tree: the switch, the data-path port the packet came in at, and what came before."""

    probe: SwitchProbe
    in_port: DatapathPort
    path: tuple[tuple[str, int, bytes], ...]
    recirculations: int = 0

    def again(self) -> "_Place":
        return _Place(self.probe, self.in_port, self.path, self.recirculations + 1)


@dataclass(frozen=True)
class _Asked:
    """One translation out of the answer it came in; ``ask`` repeats the question."""

    sections: list[Translation]
    index: int
    ask: Callable[[], list[Translation]]

    @property
    def translation(self) -> Translation:
        return self.sections[self.index]

    def repeat(self) -> Translation:
        sections = self.ask()
        if self.index >= len(sections):
            raise ToolError("the rules changed while the packet was traced; trace again")
        return sections[self.index]


class Tracer:
    """Traces packets over one server.

    Args:
        server: its switches need ``control``.
        ports: the virtual ports, for names and flow-ids.
        ct_next: connection states for ofproto/trace's ``--ct-next``, in turn at each switch.
    """

    def __init__(self, server: ServerConfig, ports: Sequence[VirtualPort], ct_next: Sequence[str] = ()) -> None:
        self._server = server
        self._ports = ports
        self._ct_next = ct_next
        self._probes: dict[str, SwitchProbe] = {}

    def trace(self, port: VirtualPort, data: bytes, notes: tuple[str, ...] = ()) -> Trace:
        """Follow a frame that comes in at a virtual port.

        Raises:
            TraceError: the port's interface is not on its switch.
            ToolError: the port's switch does not answer. (Of a later switch: the trace says so and stops there.)
            PacketError: the frame is too short.
        """
        stage = self._stage(port.switch, port.interface, data, (), ())
        return Trace(port.number, port.name, data, packet_input.describe(data), stage, notes)

    def _stage(
        self,
        switch: str,
        interface: str,
        data: bytes,
        conditions: tuple[str, ...],
        path: tuple[tuple[str, int, bytes], ...],
    ) -> Stage:
        probe = self._probe(switch)
        in_port = probe.port(interface)

        def ask() -> list[Translation]:
            return parse(probe.trace(in_port.ofport, data, ct_next=self._ct_next))

        place = _Place(probe, in_port, (*path, (switch, in_port.ofport, data)))
        packet = Packet.received(data, probe.vlan_limit)
        packet.conditions = conditions
        return Stage(switch, interface, in_port.ofport, data, self._pass(place, _Asked(ask(), 0, ask), packet))

    def _probe(self, switch: str) -> SwitchProbe:
        if switch not in self._probes:
            self._probes[switch] = SwitchProbe(self._server, self._server.find_switch(switch))
        return self._probes[switch]

    def _pass(self, place: _Place, asked: _Asked, packet: Packet) -> Pass:
        translation = asked.translation
        actions = odp_actions.parse(translation.actions or "")
        before = packet.clone()
        if packet.inner_labels and any(step.text.startswith("pop_mpls") for step in translation.steps):
            reason = "pop_mpls: ofproto/trace cannot be told of the labels below the first"
            return Pass(translation, (Stopped(before.sent(), before.conditions, f"not followed: {reason}"),))
        events = odp_apply.run(actions, packet)
        if not events:
            reason = "its actions send it nowhere" if actions else drop_reason(translation)
            return Pass(translation, (Dropped(before.sent(), before.conditions, reason),))
        return Pass(translation, tuple(self._outcome(place, asked, event) for event in events))

    def _outcome(self, place: _Place, asked: _Asked, event: Event) -> Outcome:
        switch, data, conditions = place.probe.name, event.data, event.conditions
        if isinstance(event, Recirculation):
            return self._again(place, asked, event)
        if isinstance(event, Output):
            return self._output(place, event)
        if isinstance(event, PacketIn):
            reason = REASONS[event.reason] if event.reason < len(REASONS) else str(event.reason)
            return ToController(data, conditions, switch, reason, event.cookie, event.controller_id, event.max_len)
        if isinstance(event, Lost):
            return Dropped(data, conditions, event.reason)
        action = event.action if isinstance(event, odp_apply.Elsewhere) else type(event).__name__
        return Elsewhere(data, conditions, action)

    def _output(self, place: _Place, event: Output) -> Outcome:
        switch = place.probe.name
        port = place.probe.datapath.by_number(event.port)
        if port is None:
            reason = f"data-path port {event.port} of {switch} has just gone; trace again"
            return Stopped(event.data, event.conditions, reason)
        for pcie in self._server.pcie_ports(switch):
            if pcie.interface == port.name:
                return self._crossing(place, event, pcie)
        owner = self._owner(switch, port.name)
        return Exit(
            event.data,
            event.conditions,
            switch,
            port.name,
            port.ofport == LOCAL,
            owner.number if owner else None,
            owner.name if owner else None,
            packet_input.describe(event.data),
        )

    def _owner(self, switch: str, interface: str) -> VirtualPort | None:
        for port in self._ports:
            ends = [(port.switch, port.interface)]
            if port.move:
                ends.append((port.move.switch, port.move.interface))
            if (switch, interface) in ends:
                return port
        return None

    def _crossing(self, place: _Place, event: Output, pcie: PciePort) -> Outcome:
        try:
            stage = self._next_stage(place, event, pcie)
        except (ToolError, TraceError) as error:
            return Stopped(event.data, event.conditions, f"{pcie.peer_switch} cannot be asked: {error}")
        if isinstance(stage, Stopped):
            return stage
        return Crossing(
            event.data,
            event.conditions,
            place.probe.name,
            pcie.interface,
            pcie.peer_switch,
            pcie.peer_interface,
            self._flow_id(event.data),
            stage,
        )

    def _next_stage(self, place: _Place, event: Output, pcie: PciePort) -> Stage | Stopped:
        peer = self._probe(pcie.peer_switch).port(pcie.peer_interface)
        here = (pcie.peer_switch, peer.ofport, event.data)
        if here in place.path:
            reason = f"the packet is back at {pcie.peer_switch} as it was: its rules send it in a loop"
            return Stopped(event.data, event.conditions, reason)
        if len(place.path) >= MAX_STAGES:
            reason = f"the packet has crossed {len(place.path) - 1} PCIe links and still does not leave: a loop"
            return Stopped(event.data, event.conditions, reason)
        return self._stage(pcie.peer_switch, pcie.peer_interface, event.data, event.conditions, place.path)

    def _flow_id(self, data: bytes) -> FlowId | None:
        if len(data) < 18 or int.from_bytes(data[12:14], "big") != TYPE_VLAN:
            return None
        vid = int.from_bytes(data[14:16], "big") & 0xFFF
        for port in self._ports:
            if port.flow_id == vid:
                return FlowId(vid, f"DELIVER({port.name})")
            if port.ingress_id == vid:
                return FlowId(vid, f"INGRESS({port.name})")
        return FlowId(vid, "MULTICAST" if vid in MULTICAST_VIDS else "unknown: no port has it")

    def _again(self, place: _Place, asked: _Asked, event: Recirculation) -> Outcome:
        if place.recirculations >= MAX_RECIRCULATIONS:
            reason = f"recirculated {MAX_RECIRCULATIONS} times at {place.probe.name}"
            return Stopped(event.data, event.conditions, reason)
        for index, section in enumerate(asked.sections):
            if section.recirc_id == event.id and index != asked.index:
                following = _Asked(asked.sections, index, asked.ask)
                translated = self._pass(place.again(), following, event.packet.clone())
                return Again(event.data, event.conditions, section.resumed, (Branch(1, 1, translated),))
        if event.packet.packet_type:
            reason = f"a packet of type {event.packet.packet_type:#06x} without Ethernet header is recirculated"
            return Stopped(event.data, event.conditions, reason)
        try:
            branches = self._continued(place, asked, event)
        except (ToolError, TraceError) as error:
            return Stopped(event.data, event.conditions, f"cannot be followed: {error}")
        why = "a hash of the packet decides" if event.hashed else "Open vSwitch looks at the packet anew"
        return Again(event.data, event.conditions, why, branches)

    def _continued(self, place: _Place, asked: _Asked, event: Recirculation) -> tuple[Branch, ...]:
        continuation = Continuation(
            place.probe,
            asked.repeat,
            event.id,
            asked.translation.actions or "",
            place.in_port.ofport,
            "".join(_metadata(event)),
            event.data,
        )
        variants = continuation.by_hash() if event.hashed else [continuation.plain()]
        return tuple(self._branch(place, event, variant) for variant in variants)

    def _branch(self, place: _Place, event: Recirculation, variant: Variant) -> Branch:
        packet = event.packet.clone()
        if variant.share != variant.shares:
            chosen = f"its hash is one of {variant.share} in {variant.shares}"
            packet.conditions = (*packet.conditions, chosen)
        translated = self._pass(place.again(), _Asked([variant.translation], 0, variant.ask), packet)
        return Branch(variant.share, variant.shares, translated)


def _metadata(event: Recirculation) -> Iterator[str]:
    """What ofproto/trace cannot read from the bytes of a recirculated packet."""
    if event.tracked:
        yield "ct_state=0x21,"  # new, tracked
    if event.packet.mark:
        yield f"pkt_mark={event.packet.mark:#x},"
    if event.packet.priority:
        yield f"skb_priority={event.packet.priority:#x},"
