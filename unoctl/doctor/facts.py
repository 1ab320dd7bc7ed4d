"""State shared by the checks of one run: each item is requested once, and its error is remembered."""

from functools import cached_property

from server.config import ServerConfig, SwitchConfig
from server.errors import ConfigError, ServerError
from server.oneswitchd.answers import Status, VirtualPort
from server.oneswitchd.client import Client
from server.openvswitch import openflow_tools, ovsdb_text
from server.openvswitch.ovsdb_text import Database
from unoctl import flow_text
from unoctl.flow_text import Flow

# Some of doctor's peers may be dead; a switch that needs longer than this counts as dead.
ASK_TIMEOUT_S = 3.0


class SwitchFacts:
    """One switch, queried over its sockets. Properties raise ServerError if it does not answer."""

    def __init__(self, server: ServerConfig, switch: SwitchConfig) -> None:
        self.server = server
        self.switch = switch
        self._problems: dict[str, ServerError | None] = {}

    def problem(self, name: str) -> ServerError | None:
        """Return the error of a property of this class; None: it is available."""
        if name not in self._problems:
            self._problems[name] = None
            try:
                getattr(self, name)
            except ServerError as error:
                self._problems[name] = error
        return self._problems[name]

    @property
    def name(self) -> str:
        """The switch's name."""
        return self.switch.name

    @cached_property
    def database(self) -> Database:
        """Return its bridges and interfaces in OVSDB."""
        if self.switch.ovsdb is None:
            raise ConfigError(f"{self.server.path}: [[switch]] {self.name} has no ovsdb")
        text = openflow_tools.vsctl(
            self.switch.ovsdb, *ovsdb_text.LIST_COMMAND, tls=self.server.oneswitchd.tls, timeout_s=ASK_TIMEOUT_S
        )
        return ovsdb_text.parse(text)

    @cached_property
    def version(self) -> str:
        """Return the version that its ovs-vswitchd reports."""
        if self.switch.control is None:
            raise ConfigError(f"{self.server.path}: [[switch]] {self.name} has no control")
        return openflow_tools.appctl(self.switch.control, "version", timeout_s=ASK_TIMEOUT_S)

    @cached_property
    def virt_ports(self) -> dict[str, int | None]:
        """Return the ports of ``virt`` over OpenFlow, name to number."""
        return self._port_numbers("virt")

    @cached_property
    def edge_ports(self) -> dict[str, int | None]:
        """Return the ports of ``edge`` over OpenFlow, name to number."""
        return self._port_numbers("edge")

    def _port_numbers(self, bridge: str) -> dict[str, int | None]:
        text = openflow_tools.show(self.switch.target(bridge), self.server.oneswitchd.tls, ASK_TIMEOUT_S)
        return flow_text.parse_port_numbers(text)


class Facts:
    """The server and oneswitchd."""

    def __init__(self, server: ServerConfig) -> None:
        self.server = server
        self.switches = [SwitchFacts(server, switch) for switch in server.switch]

    @cached_property
    def status(self) -> Status:
        """Oneswitchd's status."""
        with Client.of(self.server.oneswitchd, ASK_TIMEOUT_S) as client:
            return client.status()

    @cached_property
    def mapped(self) -> list[VirtualPort]:
        """Return the virtual ports, from oneswitchd."""
        with Client.of(self.server.oneswitchd, ASK_TIMEOUT_S) as client:
            return client.ports()

    @cached_property
    def ports(self) -> list[VirtualPort]:
        """Return the virtual ports: from oneswitchd, or the configured ones if it does not answer."""
        try:
            return self.mapped
        except ServerError:
            return [
                VirtualPort(number=port.number, name=port.shown_name, switch=port.switch, interface=port.interface)
                for port in self.server.port
            ]

    @cached_property
    def virtual_flows(self) -> list[Flow]:
        """Return the controllers' rules, over oneswitchd's management socket."""
        return flow_text.parse_flows(
            openflow_tools.dump_flows(self.server.management_target(), self.server.oneswitchd.tls)
        )
