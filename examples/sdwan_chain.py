"""UNO's SD-WAN chain for OpenFlow 1.3, on os-ken: firewall, IPsec gateways, asset monitor, between two sites (UNO 2.3).

Virtual wires: whatever comes out of one hop of a chain that nfagent has deployed goes into the next one, both ways, and
nowhere else. The hops at the ends are ports of the server, where the sites are. A function has two ports and is entered
at the first; one that `turned` names, such as the gateway of the other site, at the second. While a port is
missing, nothing passes there: no packet evades the firewall or the encryption.

    unoctl nf chain deploy sites sdwan.toml           # docs/chains.md has the file
    examples/run_os_ken.py --config-file chain.conf examples/sdwan_chain.py --ofp-tcp-listen-port 6633

    # chain.conf
    [DEFAULT]
    agent = http://127.0.0.1:8774
    chain = sites
    turned = gateway-b
"""

# os-ken creates its event classes on import, so type checkers cannot see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import deployed_chain
from deployed_chain import EventChain, Hop
from os_ken import cfg
from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3
from service_chain import add_rule, delete_rules

cfg.CONF.register_opts([cfg.ListOpt("turned", default=[], help="functions that are entered at their last port")])

TABLE, WIRE = 0, 1


class SdwanChain(OSKenApp):
    """The application."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.datapath: Any = None
        self.ports: set[int] = set()
        self.hops: tuple[Hop, ...] = ()
        deployed_chain.follow(self)

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def switch_changed(self, event: Any) -> None:
        """Ask a switch for its ports after its features reply."""
        self.datapath = event.datapath if event.state == MAIN_DISPATCHER else None
        if self.datapath is not None:
            delete_rules(self.datapath, TABLE)
            self.datapath.send_msg(self.datapath.ofproto_parser.OFPPortDescStatsRequest(self.datapath))

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, MAIN_DISPATCHER)
    def ports_listed(self, event: Any) -> None:
        """Learn the ports."""
        ports = {port.port_no: port.name.decode() for port in event.msg.body}
        listed = ", ".join(f"{number} {name}" for number, name in sorted(ports.items()))
        self.logger.info("switch %016x: ports %s", event.msg.datapath.id, listed or "none")
        self.ports = set(ports)
        self.wire(self.ports)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port_changed(self, event: Any) -> None:
        """Handle a new, changed or deleted port."""
        message = event.msg
        number, ofp = message.desc.port_no, message.datapath.ofproto
        if message.reason == ofp.OFPPR_DELETE:
            self.ports.discard(number)
            delete_rules(self.datapath, TABLE, in_port=number)
            delete_rules(self.datapath, TABLE, out_port=number)
        elif number not in self.ports:
            self.ports.add(number)
            self.wire({number})

    @set_ev_cls(EventChain)
    def chain_changed(self, event: EventChain) -> None:
        """Wire another chain."""
        self.hops = event.hops
        if self.datapath is not None:
            delete_rules(self.datapath, TABLE)
            self.wire(self.ports)

    def wire(self, new: set[int]) -> None:
        """Install the rules of the wires that have one of these ports, if their other end is there, too."""
        wires = list(legs(self.hops, cfg.CONF.turned))
        for ends in wires:
            if not new.isdisjoint(ends) and self.ports.issuperset(ends):
                for source, target in (ends, ends[::-1]):
                    output = self.datapath.ofproto_parser.OFPActionOutput(target)
                    add_rule(self.datapath, TABLE, WIRE, {"in_port": source}, [output])
        if wires and all(self.ports.issuperset(ends) for ends in wires):
            self.logger.info("chain: wired %s", ", ".join(f"{one}-{other}" for one, other in wires))


def legs(hops: Sequence[Hop], turned: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the two ports of the wire from each hop to the next."""
    through = [hop.numbers[::-1] if hop.name in turned else hop.numbers for hop in hops]
    for before, after in pairwise(through):
        yield before[-1], after[0]
