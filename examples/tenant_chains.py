"""Service chains for OpenFlow 1.3, on os-ken: each tenant's traffic passes the tenant's own functions, both ways.

As service_chain.py, a learning switch that knows functions by the names of their ports. A chain is a list of functions:
those in line have two ports, A+B, and the last one, such as a load balancer, has one. Traffic for a tenant's addresses
(VIPs) enters the first function at A, leaves it at B, and so on to the last one; answers from the VIPs take the same
way back. While a function of a chain is missing, nothing reaches its VIPs: no packet evades a firewall.

    examples/run_os_ken.py --config-file chains.conf examples/tenant_chains.py --ofp-tcp-listen-port 6633

    # chains.conf: addresses, and then the functions' ports
    [DEFAULT]
    chains = 10.0.0.100 10.0.0.101 via nf1000+nf1001 nf1002+nf1003 nf1004, 10.0.0.200 via nf1005+nf1006 nf1007

Ports in line are nobody's address: the switch does not learn there, and floods only to the other ports, by group 1.
"""

# os-ken creates its event classes on import, so type checkers cannot see them.
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

from os_ken import cfg
from os_ken.lib.packet.ether_types import ETH_TYPE_ARP, ETH_TYPE_IP
from os_ken.ofproto import ofproto_v1_3
from service_chain import CHAIN, RECEIVERS, SENDERS, ServiceChain, add_rule

cfg.CONF.register_opts([cfg.ListOpt("chains", default=[], help="VIPs via functions' ports; A+B is in line")])

TO_VIP, FROM_LAST, NOT_OURS, IN_CHAIN = 10, 20, 25, 30
NOT_LEARNT = 2
FLOOD_GROUP = 1
ALL_BITS = 2**64 - 1


@dataclass(frozen=True)
class Hop:
    """A function: names of its ports toward the clients and toward the VIPs, which are the same for the last one."""

    outside: str
    inside: str


@dataclass(frozen=True)
class Chain:
    """The hops to some addresses; the rules of a chain carry its cookie."""

    cookie: int
    vips: tuple[str, ...]
    hops: tuple[Hop, ...]

    @classmethod
    def parse(cls, cookie: int, text: str) -> Self:
        """Read ``VIP... via A+B... LAST``."""
        vips, via, hops = text.partition(" via ")
        names = [hop.partition("+") for hop in hops.split()]
        if not via or not names or any(not plus for _, plus, _ in names[:-1]) or names[-1][1]:
            raise ValueError(f"chain {text!r}: expected VIP... via A+B... LAST, such as 10.0.0.1 via nf1+nf2 nf3")
        return cls(cookie, tuple(vips.split()), tuple(Hop(a, b or a) for a, _, b in names))

    @property
    def in_line(self) -> set[str]:
        """Return the names of the ports of functions in line."""
        return {name for hop in self.hops[:-1] for name in (hop.outside, hop.inside)}

    @property
    def names(self) -> set[str]:
        """Return the names of all its ports."""
        return {name for hop in self.hops for name in (hop.outside, hop.inside)}


class TenantChains(ServiceChain):
    """The application."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.chains = [Chain.parse(cookie, text) for cookie, text in enumerate(cfg.CONF.chains, 1)]
        self.ports: dict[str, int] = {}

    def flood(self, datapath: Any) -> list[Any]:
        """Flood by the group, which gets its ports once they are listed; until then, nothing reaches the VIPs."""
        self.ports = {}
        self.write_group(datapath, datapath.ofproto.OFPGC_DELETE)
        self.write_group(datapath, datapath.ofproto.OFPGC_ADD)
        for chain in self.chains:
            self.shut(datapath, chain)
        return [datapath.ofproto_parser.OFPActionGroup(FLOOD_GROUP)]

    def port_is_there(self, datapath: Any, port: Any) -> None:
        """Flood to a new port, or open the chains that it completes."""
        name = port.name.decode()
        if self.ports.get(name) == port.port_no:
            return
        self.ports[name] = port.port_no
        if any(name in chain.in_line for chain in self.chains):
            add_rule(datapath, SENDERS, NOT_LEARNT, {"in_port": port.port_no}, [], then=CHAIN)
        self.write_group(datapath, datapath.ofproto.OFPGC_MODIFY)
        for chain in self.chains:
            if name in chain.names and chain.names <= self.ports.keys():
                self.open(datapath, chain)

    def port_is_gone(self, datapath: Any, port: Any) -> None:
        """Flood no more to a port, and close the chains that it was part of."""
        name = port.name.decode()
        self.ports.pop(name, None)
        self.write_group(datapath, datapath.ofproto.OFPGC_MODIFY)
        for chain in self.chains:
            if name in chain.names:
                self.shut(datapath, chain)
                self.logger.info("chain %d: %s has gone", chain.cookie, name)

    def open(self, datapath: Any, chain: Chain) -> None:
        """Lead packets for the VIPs from hop to hop, and answers from the last hop back."""
        hops = [(self.ports[hop.outside], self.ports[hop.inside]) for hop in chain.hops]
        last = hops[-1][0]
        for vip in chain.vips:
            for there, back in matches(vip):
                for (_, inside), (outside, _) in pairwise(hops):
                    self.lead(datapath, chain, {"in_port": inside, **there}, outside)
                    self.lead(datapath, chain, {"in_port": outside, **back}, inside)
                self.lead(datapath, chain, {"in_port": hops[0][0], **back}, None)
        for port in {each for hop in hops[:-1] for each in hop}:
            add_rule(datapath, CHAIN, NOT_OURS, {"in_port": port}, [], cookie=chain.cookie)
        add_rule(datapath, CHAIN, FROM_LAST, {"in_port": last}, [], then=RECEIVERS, cookie=chain.cookie)
        # Last of all, because from now on packets enter.
        output = datapath.ofproto_parser.OFPActionOutput(hops[0][0])
        for vip in chain.vips:
            for there, _ in matches(vip):
                add_rule(datapath, CHAIN, TO_VIP, there, [output])
        way = " -> ".join(f"{self.ports[hop.outside]} {hop.outside}" for hop in chain.hops)
        self.logger.info("chain %d: %s -> ports %s", chain.cookie, ", ".join(chain.vips), way)

    def lead(self, datapath: Any, chain: Chain, match: dict[str, Any], port: int | None) -> None:
        """Send packets of a chain to a port; None: to their receiver."""
        actions = [] if port is None else [datapath.ofproto_parser.OFPActionOutput(port)]
        then = RECEIVERS if port is None else None
        add_rule(datapath, CHAIN, IN_CHAIN, match, actions, then=then, cookie=chain.cookie)

    def shut(self, datapath: Any, chain: Chain) -> None:
        """Let nothing reach the VIPs, and remove the chain's other rules."""
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        for vip in chain.vips:
            for there, _ in matches(vip):
                add_rule(datapath, CHAIN, TO_VIP, there, [])
        fields = {"command": ofp.OFPFC_DELETE, "table_id": CHAIN, "out_port": ofp.OFPP_ANY, "out_group": ofp.OFPG_ANY}
        datapath.send_msg(parser.OFPFlowMod(datapath, cookie=chain.cookie, cookie_mask=ALL_BITS, **fields))

    def write_group(self, datapath: Any, command: int) -> None:
        """Write the group of the ports to which packets are flooded."""
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        in_line = set[str]().union(*(chain.in_line for chain in self.chains))
        ports = sorted(number for name, number in self.ports.items() if name not in in_line)
        buckets = [parser.OFPBucket(actions=[parser.OFPActionOutput(number)]) for number in ports]
        datapath.send_msg(parser.OFPGroupMod(datapath, command, ofp.OFPGT_ALL, FLOOD_GROUP, buckets))


def matches(vip: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the matches of packets to and from a VIP: IP, and the ARP that precedes it."""
    ip, arp = {"eth_type": ETH_TYPE_IP}, {"eth_type": ETH_TYPE_ARP}
    return [(ip | {"ipv4_dst": vip}, ip | {"ipv4_src": vip}), (arp | {"arp_tpa": vip}, arp | {"arp_spa": vip})]
