"""Computes the traffic matrix of virtual ports from the data paths' counters.

A packet is executed once, at one switch, and leaves it with the number of its output port: at that port's interface, or
with the flow-id DELIVER(W) into a PCIe link. So the cached flows of the executing switches give the traffic between all
ports, and packets that arrive over a PCIe link are not counted again.

A packet that a rule carries for a network function (docs/offload.md) does not enter the function's interface: it is
rewritten on the way to it, and goes on as if the function had sent it. As the rule writes the function's MAC address as
the source, such a flow is known by it, and counts as traffic to the function and from it.

A cached flow does not count the packet that created it (lib/dpif-netdev.c, handle_packet_upcall; the kernel's data path
likewise), so each new flow gets one more. Packets between the last dump and the removal of a flow that was not idle for
10 s, as after a change of rules, are missing. The counters of the interfaces show how many.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nfagent.measurement import Rate
from nfagent.monitor.layout import Layout, SwitchLayout
from nfagent.monitor.megaflows import Effect, Megaflow, outcome
from nfagent.monitor.port_counters import PortCounters
from server.names import MULTICAST_IDS

_TAG = 4  # bytes of a VLAN tag
_UNKNOWN_SIZE = 64  # assumed bytes of an unknown packet
_MAX_IDLE_S = 10.0  # Open vSwitch's default for other_config:max-idle
_FEW = 1000.0  # bytes per second: below this a relative error means nothing


@dataclass(frozen=True)
class Snapshot:
    """A switch's counters.

    Attributes:
        flows_at, counters_at: times in seconds of a steady clock.
        flows: by key.
        counters: by interface.
    """

    flows_at: float
    flows: Mapping[tuple[str, str], Megaflow]
    counters_at: float
    counters: Mapping[str, PortCounters]


@dataclass(frozen=True)
class PortRates:
    """Counters of an interface: into the switch, and out of it."""

    rx: Rate
    tx: Rate


@dataclass
class Traffic:
    """Sums of bytes and packets per second; Mbps come last.

    Attributes:
        pairs: bytes and packets per second, by virtual ports, from -> to.
        carried: Mbps that rules carried for a network function, by its virtual port.
    """

    pairs: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    carried: dict[int, float] = field(default_factory=dict)

    def add(self, source: int, target: int, octets: float, packets: float) -> None:
        """Add to a pair."""
        before = self.pairs.get((source, target), (0.0, 0.0))
        self.pairs[source, target] = (before[0] + octets, before[1] + packets)

    def carry(self, source: int | None, function: int, octets: float, packets: float) -> None:
        """Add packets that a rule carried for a function; ``source`` None: another switch counts where they entered."""
        self.carried[function] = self.carried.get(function, 0.0) + octets * 8 / 1e6
        if source is not None:
            self.add(source, function, octets, packets)

    def received(self, left: Mapping[int, Rate]) -> dict[int, float]:
        """Return the Mbps for each virtual port: those that left by its interface, and those that rules carried."""
        return {port: rate.mbps + self.carried.get(port, 0.0) for port, rate in left.items()}

    def matrix(self) -> dict[tuple[int, int], Rate]:
        """Convert to the form of `nfagent.measurement.Measurement`."""
        return {pair: Rate(octets * 8 / 1e6, packets) for pair, (octets, packets) in self.pairs.items() if packets > 0}


def attribute(traffic: Traffic, layout: Layout, switch: str, before: Snapshot, after: Snapshot) -> None:
    """Add one switch's executed traffic between two samples."""
    here = layout.switches[switch]
    owners = _owners(layout, here, after.flows)
    seconds = after.flows_at - before.flows_at
    if seconds <= 0:
        return
    for flow in after.flows.values():
        done = outcome(flow.actions)
        if done is None:
            continue
        source = _source(here, owners, flow)
        sender = _sender(layout, source, done)
        if sender is None:
            continue
        octets, packets = _grown(before.flows.get(flow.key), flow, seconds)
        if not packets:
            continue
        if sender != source:
            octets -= packets * _TAG if flow.vid is not None and flow.tunnel is None else 0
            traffic.carry(source, sender, octets / seconds, packets / seconds)
        for interface, flow_id in done.outputs:
            for target in _targets(layout, here, interface, flow_id, sender):
                traffic.add(sender, target, octets / seconds, packets / seconds)


def _grown(before: Megaflow | None, now: Megaflow, seconds: float) -> tuple[int, int]:
    """Return bytes and packets since the last sample, ``seconds`` ago."""
    # A flow that was removed while idle and recreated has the same key.
    lives = before is not None and before.idle_s + seconds / 2 < _MAX_IDLE_S
    idle = before is not None and (before.packets, before.bytes) == (now.packets, now.bytes) and now.idle_s > seconds
    if before is not None and (lives or idle) and before.packets <= now.packets and before.bytes <= now.bytes:
        return now.bytes - before.bytes, now.packets - before.packets
    size = now.bytes // now.packets if now.packets else _UNKNOWN_SIZE
    return now.bytes + size, now.packets + 1


def _source(here: SwitchLayout, owners: Mapping[int, int], flow: Megaflow) -> int | None:
    """Return the virtual port that a flow's packets came from; None: not executed here."""
    if flow.recirculation in owners:
        return owners[flow.recirculation]
    if flow.in_port in here.local:
        return here.local[flow.in_port]
    if flow.in_port not in here.beyond or flow.recirculation:
        return None
    flow_id = flow.vid if flow.tunnel is None else flow.tunnel
    return here.ingress.get(flow_id) if flow_id is not None else None


def _sender(layout: Layout, source: int | None, done: Effect) -> int | None:
    """Return the virtual port whose packets a flow's packets are now: a function's, if a rule carries them for it."""
    function = layout.functions.get(done.station) if done.station is not None else None
    return source if function is None else function


def _owners(layout: Layout, here: SwitchLayout, flows: Mapping[tuple[str, str], Megaflow]) -> dict[int, int]:
    """Return the source ports by recirculation id.

    Open vSwitch assigns an id to the remaining processing of a packet, including the port by which it enters ``virt``.
    """
    found: dict[int, int] = {}
    waiting = [(flow, done) for flow in flows.values() if (done := outcome(flow.actions)) and done.recirculations]
    while True:
        known = len(found)
        for flow, done in waiting:
            sender = _sender(layout, _source(here, found, flow), done)
            # Several local ports may share an id: then the ingress interface tells more.
            if sender is not None and sender != here.local.get(flow.in_port):
                for identity in done.recirculations:
                    found.setdefault(identity, sender)
        if len(found) == known:
            return found


def _targets(layout: Layout, here: SwitchLayout, interface: str, flow_id: int | None, source: int) -> tuple[int, ...]:
    if interface in here.local:
        return (here.local[interface],)
    if interface not in here.beyond or flow_id is None:
        return ()
    if flow_id in MULTICAST_IDS:
        return tuple(here.beyond[interface] - {source})
    return (layout.deliver[flow_id],) if flow_id in layout.deliver else ()


def port_rates(before: Snapshot, after: Snapshot) -> dict[str, PortRates]:
    """Return the differences for interfaces in both samples, except those recreated in between."""
    found: dict[str, PortRates] = {}
    seconds = after.counters_at - before.counters_at
    for name, now in after.counters.items():
        was = before.counters.get(name)
        if was is None or seconds <= 0 or now.rx_bytes < was.rx_bytes or now.tx_bytes < was.tx_bytes:
            continue
        found[name] = PortRates(
            Rate((now.rx_bytes - was.rx_bytes) * 8 / 1e6 / seconds, (now.rx_packets - was.rx_packets) / seconds),
            Rate((now.tx_bytes - was.tx_bytes) * 8 / 1e6 / seconds, (now.tx_packets - was.tx_packets) / seconds),
        )
    return found


def relative_error(matrix: Mapping[tuple[int, int], Rate], received: Mapping[int, float]) -> float:
    """Return the difference between the matrix and the interfaces' counters, which are independent of it.

    Args:
        matrix: from -> to.
        received: Mbps that left the server at each virtual port, by `Traffic.received`.

    Returns:
        Sum over the ports of |sum of the column - counted|, divided by the sum of counted traffic.
    """
    columns = dict.fromkeys(received, 0.0)
    for (_, target), rate in matrix.items():
        if target in columns:
            columns[target] += rate.mbps
    counted = sum(received.values())
    wrong = sum(abs(columns[port] - mbps) for port, mbps in received.items())
    return wrong / counted if counted > _FEW * 8 / 1e6 else 0.0
