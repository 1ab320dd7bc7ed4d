"""UNO's datacentre chain for OpenFlow 1.3, on os-ken: firewall, asset monitor, load balancer (UNO 2.3).

As tenant_chains.py, for one chain that nfagent has deployed, and that this application asks nfagent for: traffic for
the VIPs enters the first function, and answers take the same way back. While a function is missing, nothing reaches
the VIPs.

    unoctl nf chain deploy web datacentre.toml        # docs/chains.md has the file
    examples/run_os_ken.py --config-file chain.conf examples/datacentre_chain.py --ofp-tcp-listen-port 6633

    # chain.conf
    [DEFAULT]
    agent = http://127.0.0.1:8774
    chain = web
    vips = 10.0.0.100, 10.0.0.101
"""

# os-ken creates its event classes on import, so type checkers cannot see them.
# pyright: reportAttributeAccessIssue=false

from typing import Any, ClassVar

import deployed_chain
from deployed_chain import EventChain
from os_ken.controller import ofp_event
from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3
from service_chain import SENDERS, add_rule, delete_rules
from tenant_chains import NOT_LEARNT, Chain, Hop, TenantChains


class DatacentreChain(TenantChains):
    """The application."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.chains = [Chain(1, tuple(self.vips), ())]
        self.datapath: Any = None
        deployed_chain.follow(self)

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def switch_changed(self, event: Any) -> None:
        """Set the switch up; see `ServiceChain`."""
        self.datapath = event.datapath if event.state == MAIN_DISPATCHER else None
        super().switch_changed(event)

    @set_ev_cls(EventChain)
    def chain_changed(self, event: EventChain) -> None:
        """Close the old chain, and open the new one if all its ports are there."""
        (old,) = self.chains
        functions = [hop for hop in event.hops if hop.ports]
        self.chains = [Chain(old.cookie, old.vips, tuple(Hop(hop.ports[0], hop.ports[-1]) for hop in functions))]
        (new,) = self.chains
        if self.datapath is None:
            return
        self.shut(self.datapath, old)
        for name in (old.in_line ^ new.in_line) & self.ports.keys():
            if name in new.in_line:
                add_rule(self.datapath, SENDERS, NOT_LEARNT, {"in_port": self.ports[name]}, [], then=1)
            else:
                delete_rules(self.datapath, SENDERS, in_port=self.ports[name])
        self.write_group(self.datapath, self.datapath.ofproto.OFPGC_MODIFY)
        if new.names and new.names <= self.ports.keys():
            self.open(self.datapath, new)
