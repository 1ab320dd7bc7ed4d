"""A learning switch for OpenFlow 1.5, on os-ken: it floods through a group, into which it inserts the ports."""

# os-ken creates its event classes on import, so type checkers cannot see them.
# pyright: reportAttributeAccessIssue=false

from typing import Any, ClassVar

from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet.ethernet import ethernet
from os_ken.lib.packet.packet import Packet
from os_ken.ofproto import ofproto_v1_5

FLOOD = 1


class LearningSwitch(OSKenApp):
    """The application; it knows one switch."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_5.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.port_of: dict[str, int] = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def switch_connected(self, event: Any) -> None:
        """Create the group, and ask for the ports."""
        datapath = event.msg.datapath
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        datapath.send_msg(parser.OFPGroupMod(datapath, ofp.OFPGC_ADD, ofp.OFPGT_ALL, FLOOD, ofp.OFPG_BUCKET_ALL, []))
        datapath.send_msg(parser.OFPPortDescStatsRequest(datapath))

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, MAIN_DISPATCHER)
    def ports_listed(self, event: Any) -> None:
        """Insert the ports into the group, and then ask for packets that meet no other rule."""
        datapath = event.msg.datapath
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        for port in event.msg.body:
            if port.port_no <= ofp.OFPP_MAX:
                bucket = parser.OFPBucket(port.port_no, [parser.OFPActionOutput(port.port_no)], [])
                command, place = ofp.OFPGC_INSERT_BUCKET, ofp.OFPG_BUCKET_LAST
                datapath.send_msg(parser.OFPGroupMod(datapath, command, ofp.OFPGT_ALL, FLOOD, place, [bucket]))
        to_controller = parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)
        self.add_flow(datapath, 0, parser.OFPMatch(), to_controller)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event: Any) -> None:
        """Learn the sender's port, forward the packet, and install a flow for the next ones."""
        message = event.msg
        datapath, in_port = message.datapath, message.match["in_port"]
        parser = datapath.ofproto_parser
        frame: Any = Packet(message.data).get_protocol(ethernet)
        self.port_of[frame.src] = in_port
        out_port = self.port_of.get(frame.dst)
        action = parser.OFPActionGroup(FLOOD) if out_port is None else parser.OFPActionOutput(out_port)
        if out_port is not None:
            self.add_flow(datapath, 1, parser.OFPMatch(in_port=in_port, eth_dst=frame.dst), action)
        match = parser.OFPMatch(in_port=in_port)
        datapath.send_msg(
            parser.OFPPacketOut(datapath, message.buffer_id, match=match, actions=[action], data=message.data)
        )

    def add_flow(self, datapath: Any, priority: int, match: Any, action: Any) -> None:
        """Install a flow of one action."""
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        instructions = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [action])]
        datapath.send_msg(parser.OFPFlowMod(datapath, priority=priority, match=match, instructions=instructions))
