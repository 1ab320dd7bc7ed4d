"""A learning switch for OpenFlow 1.0, on os-ken, in the manner of Ryu's simple_switch: it relies on table misses."""

# os-ken creates its event classes on import, so type checkers cannot see them.
# pyright: reportAttributeAccessIssue=false

from typing import Any, ClassVar

from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet.ethernet import ethernet
from os_ken.lib.packet.packet import Packet
from os_ken.ofproto import ofproto_v1_0


class LearningSwitch(OSKenApp):
    """The application; it knows one switch."""

    OFP_VERSIONS: ClassVar = [ofproto_v1_0.OFP_VERSION]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.port_of: dict[str, int] = {}

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event: Any) -> None:
        """Learn the sender's port, forward the packet, and install a flow for the next ones."""
        message = event.msg
        datapath = message.datapath
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        frame: Any = Packet(message.data).get_protocol(ethernet)
        self.port_of[frame.src] = message.in_port
        out_port = self.port_of.get(frame.dst, ofp.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out_port)]
        if out_port != ofp.OFPP_FLOOD:
            match = parser.OFPMatch(in_port=message.in_port, dl_src=frame.src, dl_dst=frame.dst)
            datapath.send_msg(parser.OFPFlowMod(datapath, match, 0, ofp.OFPFC_ADD, actions=actions))
        datapath.send_msg(
            parser.OFPPacketOut(
                datapath, buffer_id=message.buffer_id, in_port=message.in_port, actions=actions, data=message.data
            )
        )
