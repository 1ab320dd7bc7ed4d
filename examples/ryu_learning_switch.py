"""The learning switch of learning_switch.py, on Ryu 4.34, the origin of os-ken.

Ryu's last release is from 2019 and needs Python 3.9 and old packages: docs/controllers.md has the recipe.

    ryu-manager examples/ryu_learning_switch.py --ofp-tcp-listen-port 6633
"""

# Ryu is installed in its own environment, which a type checker of this one cannot see.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any, ClassVar

from ryu.base.app_manager import RyuApp
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.lib.packet.ethernet import ethernet
from ryu.lib.packet.packet import Packet
from ryu.ofproto import ofproto_v1_3

IDLE_TIMEOUT_S = 30


class LearningSwitch(RyuApp):
    """The application; one table of addresses for each switch."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.port_of: dict[int, dict[str, int]] = {}

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def switch_connected(self, event: Any) -> None:
        """Send packets that match no flow to the controller, whole."""
        datapath = event.datapath
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        self.port_of[datapath.id] = {}
        to_controller = parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)
        add_flow(datapath, 0, parser.OFPMatch(), to_controller)
        self.logger.info("switch %016x: connected", datapath.id)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event: Any) -> None:
        """Learn the sender's port, forward the packet, and install a flow for the next ones."""
        message = event.msg
        datapath, in_port = message.datapath, message.match["in_port"]
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        frame = Packet(message.data).get_protocol(ethernet)
        if frame is None or frame.dst.startswith("01:80:c2:00:00:0"):
            return
        port_of = self.port_of.setdefault(datapath.id, {})
        last_port = port_of.get(frame.src)
        if last_port is not None and last_port != in_port:
            # Delete flows toward the old port: they never idle out while anyone sends to this address.
            old = parser.OFPMatch(eth_dst=frame.src)
            command = {"command": ofp.OFPFC_DELETE, "out_port": last_port, "out_group": ofp.OFPG_ANY}
            datapath.send_msg(parser.OFPFlowMod(datapath, match=old, **command))
        port_of[frame.src] = in_port

        out_port = port_of.get(frame.dst, ofp.OFPP_FLOOD)
        output = parser.OFPActionOutput(out_port)
        if out_port != ofp.OFPP_FLOOD:
            add_flow(datapath, 1, parser.OFPMatch(in_port=in_port, eth_dst=frame.dst), output, IDLE_TIMEOUT_S)
        data = message.data if message.buffer_id == ofp.OFP_NO_BUFFER else None
        datapath.send_msg(parser.OFPPacketOut(datapath, message.buffer_id, in_port, [output], data))


def add_flow(datapath: Any, priority: int, match: Any, action: Any, idle_timeout_s: int = 0) -> None:
    """Install a flow with one action in table 0 of a switch."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    instructions = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [action])]
    flow = parser.OFPFlowMod(
        datapath, priority=priority, match=match, instructions=instructions, idle_timeout=idle_timeout_s
    )
    datapath.send_msg(flow)
