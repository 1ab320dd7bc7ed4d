"""A learning switch for OpenFlow 1.3, on os-ken.

It learns which port each Ethernet address is behind from the packets that the switch sends up, and installs one flow
per (in_port, eth_dst) that it has seen; idle flows expire. It knows nothing about servers or smart NICs: it runs
against oneswitchd exactly as against any other OpenFlow 1.3 switch.

    examples/run_os_ken.py examples/learning_switch.py --ofp-tcp-listen-port 6633
"""

# os-ken creates its event classes on import, so type checkers cannot see them.
# pyright: reportAttributeAccessIssue=false

from typing import Any, ClassVar

from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet.ethernet import ethernet
from os_ken.lib.packet.packet import Packet
from os_ken.ofproto import ofproto_v1_3

IDLE_TIMEOUT_S = 30
TABLE_MISS_PRIORITY = 0
FLOW_PRIORITY = 1
# 802.1D keeps these addresses (LLDP, spanning tree, pause frames) between neighbours: a switch never forwards them.
LINK_LOCAL_PREFIX = "01:80:c2:00:00:0"


class LearningSwitch(OSKenApp):
    """The application; one table of addresses for each switch."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.port_of: dict[int, dict[str, int]] = {}

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def switch_changed(self, event: Any) -> None:
        """Set a switch up after its features reply."""
        datapath = event.datapath
        if event.state == MAIN_DISPATCHER:
            ofp, parser = datapath.ofproto, datapath.ofproto_parser
            self.port_of[datapath.id] = {}
            # Send table misses to the controller whole, because packets buffered in a switch are lost when it restarts.
            to_controller = parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)
            add_flow(datapath, TABLE_MISS_PRIORITY, parser.OFPMatch(), to_controller, idle_timeout_s=0)
            datapath.send_msg(parser.OFPPortDescStatsRequest(datapath))
        elif datapath.id is not None:
            self.logger.info("switch %016x: disconnected", datapath.id)

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, MAIN_DISPATCHER)
    def ports_listed(self, event: Any) -> None:
        """Print the switch and its ports."""
        message = event.msg
        ports = ", ".join(
            f"{port.port_no} {port.name.decode()}"
            for port in sorted(message.body, key=lambda port: port.port_no)
            if port.port_no <= message.datapath.ofproto.OFPP_MAX
        )
        self.logger.info("switch %016x: ports %s", message.datapath.id, ports or "none")

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event: Any) -> None:
        """Learn the sender's port, forward the packet, and install a flow for the next ones."""
        message = event.msg
        datapath, in_port = message.datapath, message.match["in_port"]
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        frame: Any = Packet(message.data).get_protocol(ethernet)
        if frame is None or frame.dst.startswith(LINK_LOCAL_PREFIX):
            return
        port_of = self.port_of.setdefault(datapath.id, {})
        last_port = port_of.get(frame.src)
        if last_port is not None and last_port != in_port:
            # Delete flows toward the old port: they never idle out while anyone sends to this address.
            delete_flows(datapath, parser.OFPMatch(eth_dst=frame.src), last_port)
        port_of[frame.src] = in_port

        out_port = port_of.get(frame.dst, ofp.OFPP_FLOOD)
        output = parser.OFPActionOutput(out_port)
        if out_port != ofp.OFPP_FLOOD:
            match = parser.OFPMatch(in_port=in_port, eth_dst=frame.dst)
            add_flow(datapath, FLOW_PRIORITY, match, output, IDLE_TIMEOUT_S)
        datapath.send_msg(
            parser.OFPPacketOut(datapath, message.buffer_id, in_port, [output], _data_unless_buffered(message))
        )


def add_flow(datapath: Any, priority: int, match: Any, action: Any, idle_timeout_s: int) -> None:
    """Install a flow with one action in table 0 of a switch."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    instructions = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [action])]
    datapath.send_msg(
        parser.OFPFlowMod(
            datapath, priority=priority, match=match, instructions=instructions, idle_timeout=idle_timeout_s
        )
    )


def delete_flows(datapath: Any, match: Any, out_port: int) -> None:
    """Delete the flows of table 0 that match and output to a port."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    datapath.send_msg(
        parser.OFPFlowMod(datapath, command=ofp.OFPFC_DELETE, match=match, out_port=out_port, out_group=ofp.OFPG_ANY)
    )


def _data_unless_buffered(message: Any) -> bytes | None:
    return message.data if message.buffer_id == message.datapath.ofproto.OFP_NO_BUFFER else None
