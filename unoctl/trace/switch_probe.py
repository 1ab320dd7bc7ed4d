"""Asks the ovs-vswitchd of one switch, over its control socket; nothing changes on the switch."""

from collections.abc import Sequence
from functools import cached_property

from server.config import ServerConfig, SwitchConfig
from server.errors import ConfigError
from server.openvswitch import dpif
from server.openvswitch.openflow_tools import appctl
from unoctl.trace import packet_text, translation
from unoctl.trace.model import Pass, TraceError

TRACED_BRIDGE = "edge"


class SwitchProbe:
    """One switch during one trace; its ports are read once.

    Its methods raise TraceError for a bridge, port or packet that cannot be traced, ToolError for a silent switch.
    """

    def __init__(self, server: ServerConfig, switch: SwitchConfig) -> None:
        if switch.control is None:
            raise ConfigError(
                f"{server.path}: [[switch]] {switch.name} has no control; trace needs the ovs-appctl target of its "
                'ovs-vswitchd, for example control = "/run/openvswitch/ovs-vswitchd.ctl"'
            )
        self.name = switch.name
        self._control = switch.control

    @cached_property
    def datapath(self) -> dpif.Datapath:
        """The datapath of the switch's ``edge`` bridge."""
        for datapath in dpif.parse_show(appctl(self._control, "dpif/show")):
            if any(port.bridge == TRACED_BRIDGE for port in datapath.ports):
                return datapath
        raise TraceError(f"switch {self.name} has no bridge {TRACED_BRIDGE}; unoctl plumb makes it")

    @cached_property
    def vlan_limit(self) -> int:
        """The number of VLAN tags that its datapath looks behind."""
        return dpif.parse_vlan_limit(appctl(self._control, "dpif/show-dp-features", TRACED_BRIDGE))

    def port(self, interface: str) -> dpif.DatapathPort:
        """Return an interface on ``edge``."""
        port = self.datapath.find(TRACED_BRIDGE, interface)
        if port is None:
            there = ", ".join(port.name for port in self.datapath.ports if port.bridge == TRACED_BRIDGE)
            raise TraceError(
                f"interface {interface} is not on bridge {TRACED_BRIDGE} of {self.name}; there are: {there}"
            )
        return port

    def trace(
        self, ofport: int, data: bytes, metadata: str = "", recirculated: str = "", ct_next: Sequence[str] = ()
    ) -> list[Pass]:
        """Trace a frame from a port of ``edge``, with further fields in flow syntax, each followed by a comma.

        Flow syntax describes the frame: given its bytes, ofproto/trace sends packet-ins and learns addresses.
        """
        options = [option for state in ct_next for option in ("--ct-next", state)]
        flow = f"in_port={ofport},{recirculated}{metadata}{packet_text.as_parsed(data, self.vlan_limit)}"
        return translation.parse(appctl(self._control, "ofproto/trace", TRACED_BRIDGE, flow, *options))
