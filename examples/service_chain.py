"""A service chain for OpenFlow 1.3, on os-ken: packets for a service's address pass a network function first.

A learning switch, plus one rule for each address (VIP): traffic to it enters the virtual port of a function such as a
load balancer, which forwards it to a server of its choice. The application finds that port by name, whenever it appears
or disappears. It does not know whether the function runs on the host or on a smart NIC: the port stays the same.

    examples/run_os_ken.py --config-file chain.conf examples/service_chain.py --ofp-tcp-listen-port 6633

    # chain.conf
    [DEFAULT]
    vips = 10.0.0.100, 10.0.0.101
    network_function = nf1000

Tables of the switch:

    0  known senders continue; packets of others are also copied to the controller, which learns
    1  packets for a VIP go to the network function; packets from it continue
    2  packets to known addresses go to their port, others to all ports

Packets do not wait for the controller: it gets copies, and the switch floods packets to unknown addresses.
"""

# os-ken creates its event classes on import, so type checkers cannot see them.
# pyright: reportAttributeAccessIssue=false

from typing import Any, ClassVar

from os_ken import cfg
from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet.ether_types import ETH_TYPE_ARP, ETH_TYPE_IP
from os_ken.lib.packet.ethernet import ethernet
from os_ken.lib.packet.packet import Packet
from os_ken.ofproto import ofproto_v1_3

cfg.CONF.register_opts(
    [
        cfg.ListOpt("vips", default=[], help="IPv4 addresses whose traffic the network function gets"),
        cfg.StrOpt("network_function", default="", help="name of its virtual port"),
    ]
)

SENDERS, CHAIN, RECEIVERS = 0, 1, 2
LOWEST, VIP_PRIORITY, FROM_FUNCTION_PRIORITY = 0, 10, 20
HEADERS_BYTES = 64
# The controller learns a sender again before the rule for it as a receiver expires.
LEARNT_AGAIN_S, FORGOTTEN_S = 60, 150


class ServiceChain(OSKenApp):
    """The application."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.vips: list[str] = cfg.CONF.vips
        self.network_function: str = cfg.CONF.network_function

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def switch_changed(self, event: Any) -> None:
        """Set a switch up after its features reply."""
        datapath = event.datapath
        if event.state != MAIN_DISPATCHER:
            return
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        to_controller = parser.OFPActionOutput(ofp.OFPP_CONTROLLER, HEADERS_BYTES)
        add_rule(datapath, SENDERS, LOWEST, {}, [to_controller], then=CHAIN)
        add_rule(datapath, CHAIN, LOWEST, {}, [], then=RECEIVERS)
        add_rule(datapath, RECEIVERS, LOWEST, {}, self.flood(datapath))
        datapath.send_msg(parser.OFPPortDescStatsRequest(datapath))

    def flood(self, datapath: Any) -> list[Any]:
        """Return the actions for packets to unknown addresses."""
        return [datapath.ofproto_parser.OFPActionOutput(datapath.ofproto.OFPP_FLOOD)]

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, MAIN_DISPATCHER)
    def ports_listed(self, event: Any) -> None:
        """Learn the ports, possibly including the network function's."""
        message = event.msg
        ports = [port for port in message.body if port.port_no <= message.datapath.ofproto.OFPP_MAX]
        listed = ", ".join(f"{port.port_no} {port.name.decode()}" for port in sorted(ports, key=lambda p: p.port_no))
        self.logger.info("switch %016x: ports %s", message.datapath.id, listed or "none")
        for port in ports:
            self.port_is_there(message.datapath, port)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port_changed(self, event: Any) -> None:
        """Handle a new, changed or deleted port."""
        message = event.msg
        datapath, port = message.datapath, message.desc
        if message.reason != datapath.ofproto.OFPPR_DELETE:
            self.port_is_there(datapath, port)
            return
        delete_rules(datapath, SENDERS, in_port=port.port_no)
        for table in (CHAIN, RECEIVERS):
            delete_rules(datapath, table, out_port=port.port_no)
        self.port_is_gone(datapath, port)

    def port_is_gone(self, datapath: Any, port: Any) -> None:
        """Let the VIPs' traffic continue without the network function, if this was its port."""
        if port.name.decode() == self.network_function:
            delete_rules(datapath, CHAIN, in_port=port.port_no)
            self.logger.info("chain: %s has gone", self.network_function)

    def port_is_there(self, datapath: Any, port: Any) -> None:
        """Redirect the VIPs' traffic to the network function, if this is its port."""
        if port.name.decode() != self.network_function:
            return
        to_function = [datapath.ofproto_parser.OFPActionOutput(port.port_no)]
        add_rule(datapath, CHAIN, FROM_FUNCTION_PRIORITY, {"in_port": port.port_no}, [], then=RECEIVERS)
        for vip in self.vips:
            for match in ({"eth_type": ETH_TYPE_IP, "ipv4_dst": vip}, {"eth_type": ETH_TYPE_ARP, "arp_tpa": vip}):
                add_rule(datapath, CHAIN, VIP_PRIORITY, match, to_function)
        self.logger.info("chain: %s -> port %d %s", ", ".join(self.vips), port.port_no, self.network_function)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event: Any) -> None:
        """Learn which port a sender is behind; the switch has already forwarded the packet."""
        message = event.msg
        datapath, in_port = message.datapath, message.match["in_port"]
        frame: Any = Packet(message.data).get_protocol(ethernet)
        if frame is None or int(frame.src[:2], 16) & 1:
            return
        output = datapath.ofproto_parser.OFPActionOutput(in_port)
        # First how to reach it, then that it is known: otherwise it could be known but unreachable.
        add_rule(datapath, RECEIVERS, 1, {"eth_dst": frame.src}, [output], idle_timeout=FORGOTTEN_S)
        sender = {"in_port": in_port, "eth_src": frame.src}
        add_rule(datapath, SENDERS, 1, sender, [], then=CHAIN, hard_timeout=LEARNT_AGAIN_S)


def add_rule(
    datapath: Any,
    table: int,
    priority: int,
    match: dict[str, Any],
    actions: list[Any],
    then: int | None = None,
    **more: Any,
) -> None:
    """Install a rule: its match, its actions, and the next table."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    instructions = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)] if actions else []
    if then is not None:
        instructions.append(parser.OFPInstructionGotoTable(then))
    rule = {"table_id": table, "priority": priority, "match": parser.OFPMatch(**match), "instructions": instructions}
    datapath.send_msg(parser.OFPFlowMod(datapath, **rule, **more))


def delete_rules(datapath: Any, table: int, out_port: int | None = None, **match: Any) -> None:
    """Delete a table's rules with this match and output port."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    port = ofp.OFPP_ANY if out_port is None else out_port
    fields = {"command": ofp.OFPFC_DELETE, "table_id": table, "match": parser.OFPMatch(**match)}
    datapath.send_msg(parser.OFPFlowMod(datapath, **fields, out_port=port, out_group=ofp.OFPG_ANY))
