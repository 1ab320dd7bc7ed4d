"""Simulated datapaths: dpctl's output for a server with known traffic.

Written from docs/architecture.md's table of rules of ``edge`` and ovs-actions(7), not from the parser's code.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

HEAD = "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0)"
ETHER = "packet_type(ns=0,id=0),eth(src=02:00:00:00:00:04/00:00:00:00:00:00,dst=02:00:00:00:00:01/00:00:00:00:00:00)"
IPV4 = "eth_type(0x0800),ipv4(src=10.0.0.4/0.0.0.0,dst=10.0.0.1/0.0.0.0,proto=1/0,tos=0/0,ttl=64/0,frag=no)"


def flow_line(
    ufid: str,
    in_port: str,
    recirculation: int,
    vid: int | None,
    packets: int,
    octets: int,
    actions: str,
    *,
    mask: str = "",
    idle_s: float = 0.421,
    tunnel: int | None = None,
) -> str:
    """Return a line of ``dpctl/dump-flows -m --names``."""
    identity = f"{recirculation:#x}" if recirculation else "0"
    tagged = IPV4 if vid is None else f"eth_type(0x8100),vlan(vid={vid}{mask},pcp=0),encap({IPV4})"
    beside = "" if tunnel is None else f"tunnel(tun_id={tunnel:#x},dst=0.0.0.1,ttl=0/0,flags(+key)),"
    used = f"{idle_s:.3f}s" if packets else "never"
    return (
        f"ufid:{ufid}, {beside}{HEAD},recirc_id({identity}),dp_hash(0/0),in_port({in_port}),{ETHER},{tagged}, "
        f"packets:{packets}, bytes:{octets}, used:{used}, dp:ovs, actions:{actions}, dp-extra-info:miniflow_bits(4,1)"
    )


def port_block(number: int, name: str, rx: tuple[int, int], tx: tuple[int, int]) -> str:
    """Return an interface as in ``dpctl/show -s``: packets and bytes each way."""
    return (
        f"  port {number}: {name}\n"
        f"    RX packets:{rx[0]} errors:0 dropped:0 overruns:0 frame:0\n"
        f"    TX packets:{tx[0]} errors:0 dropped:0 aborted:0 carrier:0\n"
        f"    collisions:0\n"
        f"    RX bytes:{rx[1]} ({rx[1] / 1024:.1f} KiB)  TX bytes:{tx[1]}\n"
    )


@dataclass
class Cached:
    """A flow of a datapath; it does not count the packet that created it."""

    in_port: str
    recirculation: int
    vid: int | None
    actions: str
    packets: int = -1
    octets: int = 0
    idle_s: float = 0.0
    ufid: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass
class DataPath:
    """One switch's flows and counters."""

    flows: dict[tuple[str, int, int | None, str], Cached] = field(default_factory=dict)
    counters: dict[str, list[int]] = field(default_factory=dict)  # rx packets, rx bytes, tx packets, tx bytes

    def hit(self, in_port: str, recirculation: int, vid: int | None, actions: str, packets: int, size: int) -> None:
        """Add packets of one size to a flow."""
        key = (in_port, recirculation, vid, actions)
        flow = self.flows.setdefault(key, Cached(in_port, recirculation, vid, actions))
        first = flow.packets < 0
        flow.packets += packets
        flow.octets += size * (packets - first)

    def enter(self, interface: str, packets: int, size: int) -> None:
        """Count packets that enter at an interface."""
        self._count(interface, 0, packets, size)

    def leave(self, interface: str, packets: int, size: int) -> None:
        """Count packets that leave by an interface."""
        self._count(interface, 2, packets, size)

    def _count(self, interface: str, at: int, packets: int, size: int) -> None:
        row = self.counters.setdefault(interface, [0, 0, 0, 0])
        row[at] += packets
        row[at + 1] += packets * size

    def call(self, command: str, *arguments: str) -> str:
        """Answer as ovs-vswitchd does; see `nfagent.monitor.switches.Control`."""
        if command == "dpctl/dump-flows":
            lines = [
                flow_line(
                    each.ufid,
                    each.in_port,
                    each.recirculation,
                    each.vid,
                    each.packets,
                    each.octets,
                    each.actions,
                    idle_s=each.idle_s,
                )
                for each in self.flows.values()
            ]
            return "\n".join(["flow-dump from the main thread:", *lines, ""])
        assert (command, arguments) == ("dpctl/show", ("-s",))
        ports = (
            port_block(number, name, (row[0], row[1]), (row[2], row[3]))
            for number, (name, row) in enumerate(self.counters.items())
        )
        return "netdev@ovs-netdev:\n  lookups: hit:21 missed:5 lost:0\n  flows: 5\n" + "".join(ports)

    def close(self) -> None:
        """See `nfagent.monitor.switches.Control`."""


@dataclass(frozen=True)
class Home:
    """The home of a virtual port; ``executor`` None is the home."""

    number: int
    switch: str
    executor: str | None = None

    @property
    def interface(self) -> str:
        return f"if{self.number}"

    @property
    def deliver(self) -> int:
        return self.number

    @property
    def ingress(self) -> int | None:
        return None if self.executor in (None, self.switch) else 1000 + self.number


HUB = "hypervisor"


class Server:
    """Switches in a star, and the effects on each of a port's packets."""

    def __init__(self, homes: Iterable[Home]) -> None:
        self.homes = {home.number: home for home in homes}
        self.paths = {name: DataPath() for name in (HUB, "snic0", "snic1")}

    def pcie(self, here: str, there: str) -> str:
        """Return the port at ``here`` that leads toward ``there``."""
        return f"pcie-{there}" if here == HUB else "pf0hpf"

    def send(self, source: int, target: int, packets: int, size: int) -> None:
        """Send packets from port to port through every switch on the path."""
        home, goal = self.homes[source], self.homes[target]
        at, interface, recirculation = home.switch, home.interface, 0
        self.paths[at].enter(interface, packets, size)
        if home.ingress is not None and home.executor is not None:
            came, at = at, self._cross(at, home.executor, interface, home.ingress, packets, size)
            interface, recirculation = self.pcie(at, came), 77 + source
            anew = "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0),pop_nsh()"
            actions = f"pop_vlan,{anew},recirc({recirculation:#x})"
            self.paths[at].hit(interface, 0, home.ingress, actions, packets, size + 4)
        if goal.switch == at:
            self.paths[at].hit(interface, recirculation, None, goal.interface, packets, size)
        else:
            came, at = at, self._cross(at, goal.switch, interface, goal.deliver, packets, size, recirculation)
            actions = f"pop_vlan,{goal.interface}"
            self.paths[at].hit(self.pcie(at, came), 0, goal.deliver, actions, packets, size + 4)
        self.paths[goal.switch].leave(goal.interface, packets, size)

    def _cross(
        self, at: str, to: str, interface: str, vid: int, packets: int, size: int, recirculation: int = 0
    ) -> str:
        """Carry tagged packets over one or two links; return the last switch."""
        first = to if at == HUB else HUB
        out = self.pcie(at, to)
        self.paths[at].hit(interface, recirculation, None, f"push_vlan(vid={vid},pcp=0),{out}", packets, size)
        self.paths[at].leave(out, packets, size + 4)
        self.paths[first].enter(self.pcie(first, at), packets, size + 4)
        if first != to:
            self.paths[HUB].hit(self.pcie(HUB, at), 0, vid, self.pcie(HUB, to), packets, size + 4)
            self.paths[HUB].leave(self.pcie(HUB, to), packets, size + 4)
            self.paths[to].enter(self.pcie(to, HUB), packets, size + 4)
        return to
