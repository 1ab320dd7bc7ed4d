"""Computes the traffic matrix of virtual ports from the data paths' counters.

A packet is executed once, at one switch, and leaves it with the number of its output port: at that port's interface, or
tagged DELIVER(W) into a PCIe link. So the cached flows of the executing switches give the traffic between all ports,
and packets that arrive over a PCIe link are not counted again.

A cached flow does not count the packet that created it (lib/dpif-netdev.c, handle_packet_upcall; the kernel's data path
likewise), so each new flow gets one more. Packets between the last dump and the removal of a flow that was not idle for
10 s, as after a change of rules, are missing. The counters of the interfaces show how many.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nfagent.measurement import Rate
from nfagent.monitor.layout import Layout, SwitchLayout
from nfagent.monitor.megaflows import Megaflow, outcome
from nfagent.monitor.port_counters import PortCounters
from server.names import MULTICAST_VIDS

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
    """

    pairs: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def add(self, source: int, target: int, octets: float, packets: float) -> None:
        """Add to a pair."""
        before = self.pairs.get((source, target), (0.0, 0.0))
        self.pairs[source, target] = (before[0] + octets, before[1] + packets)

    def matrix(self) -> dict[tuple[int, int], Rate]:
        """Convert to the form of `nfagent.measurement.Measurement`."""
        return {pair: Rate(octets * 8 / 1e6, packets) for pair, (octets, packets) in self.pairs.items() if packets > 0}


def attribute(traffic: Traffic, layout: Layout, switch: str, before: Snapshot, after: Snapshot) -> None:
    """Add one switch's executed traffic between two samples."""
    here = layout.switches[switch]
    owners = _owners(here, after.flows)
    seconds = after.flows_at - before.flows_at
    if seconds <= 0:
        return
    for flow in after.flows.values():
        source = _source(here, owners, flow)
        done = outcome(flow.actions) if source is not None else None
        if source is None or done is None:
            continue
        octets, packets = _grown(before.flows.get(flow.key), flow, seconds)
        if packets:
            for interface, vid in done.outputs:
                for target in _targets(layout, here, interface, vid, source):
                    traffic.add(source, target, octets / seconds, packets / seconds)


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
    if flow.in_port in here.local:
        return here.local[flow.in_port]
    if flow.in_port not in here.beyond:
        return None
    if flow.recirculation:
        return owners.get(flow.recirculation)
    return here.ingress.get(flow.vid) if flow.vid is not None else None


def _owners(here: SwitchLayout, flows: Mapping[tuple[str, str], Megaflow]) -> dict[int, int]:
    """Return the source ports by recirculation id, of packets that arrived over a PCIe link.

    Open vSwitch assigns an id to the remaining processing of a packet, including the port by which it enters ``virt``.
    """
    found: dict[int, int] = {}
    waiting = [flow for flow in flows.values() if flow.in_port in here.beyond]
    while True:
        known = len(found)
        for flow in waiting:
            source = _source(here, found, flow)
            done = outcome(flow.actions) if source is not None else None
            if source is not None and done is not None:
                for identity in done.recirculations:
                    found.setdefault(identity, source)
        if len(found) == known:
            return found


def _targets(layout: Layout, here: SwitchLayout, interface: str, vid: int | None, source: int) -> tuple[int, ...]:
    if interface in here.local:
        return (here.local[interface],)
    if interface not in here.beyond or vid is None:
        return ()
    if vid in MULTICAST_VIDS:
        return tuple(here.beyond[interface] - {source})
    return (layout.deliver[vid],) if vid in layout.deliver else ()


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


def relative_error(matrix: Mapping[tuple[int, int], Rate], left: Mapping[int, Rate]) -> float:
    """Return the difference between the matrix and the interfaces' counters, which are independent of it.

    Args:
        matrix: from -> to.
        left: traffic that left the server at each virtual port, by the counters of its interface.

    Returns:
        Sum over the ports of |sum of the column - counted|, divided by the sum of counted traffic.
    """
    columns = dict.fromkeys(left, 0.0)
    for (_, target), rate in matrix.items():
        if target in columns:
            columns[target] += rate.mbps
    counted = sum(rate.mbps for rate in left.values())
    wrong = sum(abs(columns[port] - rate.mbps) for port, rate in left.items())
    return wrong / counted if counted > _FEW * 8 / 1e6 else 0.0
