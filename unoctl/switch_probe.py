"""Asks one switch's ovs-vswitchd, over its control socket, what ``unoctl trace`` has to know."""

from collections.abc import Sequence
from functools import cached_property

from server.config import ServerConfig, SwitchConfig
from server.errors import ConfigError
from server.openvswitch import dpif, openflow_tools
from server.openvswitch.dpif import Datapath, DatapathPort
from unoctl import packet_input
from unoctl.errors import TraceError

TRACED_BRIDGE = "edge"


class SwitchProbe:
    """One switch during one trace: its ports are asked for once.

    Args:
        server: names the configuration file in errors.
        switch: needs its ``control``.

    Raises:
        ConfigError: no control socket is configured.
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
    def datapath(self) -> Datapath:
        """The datapath that the switch's ``edge`` bridge is on.

        Raises:
            TraceError: there is no such bridge.
            ToolError: ovs-vswitchd does not answer.
        """
        for datapath in dpif.parse_show(openflow_tools.appctl(self._control, "dpif/show")):
            if any(port.bridge == TRACED_BRIDGE for port in datapath.ports):
                return datapath
        raise TraceError(f"switch {self.name} has no bridge {TRACED_BRIDGE}; unoctl plumb makes it")

    @cached_property
    def vlan_limit(self) -> int:
        """How many VLAN tags its datapath looks behind."""
        text = openflow_tools.appctl(self._control, "dpif/show-dp-features", TRACED_BRIDGE)
        return dpif.parse_vlan_limit(text)

    def port(self, interface: str) -> DatapathPort:
        """An interface on ``edge``.

        Raises:
            TraceError: it is not there.
        """
        port = self.datapath.find(TRACED_BRIDGE, interface)
        if port is None:
            there = ", ".join(port.name for port in self.datapath.ports if port.bridge == TRACED_BRIDGE)
            raise TraceError(
                f"interface {interface} is not on bridge {TRACED_BRIDGE} of {self.name}; there are: {there}"
            )
        return port

    def trace(self, ofport: int, data: bytes, metadata: str = "", ct_next: Sequence[str] = ()) -> str:
        """Return ofproto/trace of a frame at a port of ``edge``.

        The frame is described, never handed over: given its bytes, ofproto/trace sends packet-ins and learns addresses.

        Args:
            ofport: where it came in.
            data: the frame.
            metadata: what its bytes do not tell, in flow syntax with a comma behind each field.
            ct_next: connection states.

        Raises:
            TraceError: flow syntax cannot describe the frame.
            ToolError: the switch does not answer.
        """
        options = [option for state in ct_next for option in ("--ct-next", state)]
        flow = f"in_port={ofport},{metadata}{packet_input.as_parsed(data, self.vlan_limit)}"
        return openflow_tools.appctl(self._control, "ofproto/trace", TRACED_BRIDGE, flow, *options)
