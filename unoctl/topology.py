"""The server as its configuration file describes it, in the words of docs/architecture.md.

The file itself is read and checked by :mod:`server.config`; this module keeps what unoctl asks of it: which switch
is the hub, which interface is a PCIe port, where the management socket is. Nothing here does I/O but :func:`load`.
"""

from dataclasses import dataclass, field
from pathlib import Path

from server.config import ServerConfig, SwitchConfig
from server.errors import ConfigError
from server.openvswitch.openflow_tools import Tls

BRIDGES = ("virt", "edge")
# From here on a tag means MULTICAST; oneswitchd takes several in turn while the list of ports changes.
FIRST_MULTICAST_VID = 4087
MULTICAST_PORT = 65024
MAX_PORT_NUMBER = 65023


@dataclass(frozen=True)
class PcieLink:
    """The PCIe link of one sNIC: interface names on the two ``edge`` bridges."""

    hypervisor: str
    local: str


@dataclass(frozen=True)
class Switch:
    """One Open vSwitch: OpenFlow targets of its two bridges, OVSDB and ovs-appctl targets (None: not configured)."""

    name: str
    virt: str
    edge: str
    ovsdb: str | None
    control: str | None
    link: PcieLink | None

    def target(self, bridge: str) -> str:
        """OpenFlow target of ``virt`` or ``edge``."""
        return self.virt if bridge == "virt" else self.edge


@dataclass(frozen=True)
class PciePort:
    """One end of a PCIe link, seen from a switch: its own interface, and the interface at the other end."""

    interface: str
    peer_switch: str
    peer_interface: str


@dataclass(frozen=True)
class ConfiguredPort:
    """A ``[[port]]`` of the file."""

    number: int
    name: str
    switch: str
    interface: str


@dataclass(frozen=True)
class Server:
    """One server: oneswitchd's addresses, the switches (the first is the hub), the configured ports.

    ``source`` is the file as plumbing reads it, for handing on to plumbing.
    """

    path: Path
    datapath_id: str
    api: str
    listen: tuple[str, ...]
    controllers: tuple[str, ...]
    switches: tuple[Switch, ...]
    ports: tuple[ConfiguredPort, ...]
    tls: Tls | None = None
    source: ServerConfig | None = field(default=None, compare=False, repr=False)
    api_token_file: str | None = None

    @property
    def hub(self) -> Switch:
        """The hypervisor, to which every PCIe link leads."""
        return self.switches[0]

    def switch(self, name: str) -> Switch:
        """The switch of this name.

        Raises:
            ConfigError: there is none.
        """
        for switch in self.switches:
            if switch.name == name:
                return switch
        known = ", ".join(switch.name for switch in self.switches)
        raise ConfigError(f"{self.path}: no switch is named '{name}'; expected one of {known}")

    def pcie_ports(self, name: str) -> tuple[PciePort, ...]:
        """The PCIe ports on ``edge`` of a switch: one on an sNIC, one per sNIC on the hub."""
        ports: list[PciePort] = []
        for switch in self.switches[1:]:
            if switch.link is None:
                continue
            if name == self.hub.name:
                ports.append(PciePort(switch.link.hypervisor, switch.name, switch.link.local))
            elif name == switch.name:
                ports.append(PciePort(switch.link.local, self.hub.name, switch.link.hypervisor))
        return tuple(ports)

    def toward(self, here: str, there: str) -> PciePort:
        """The PCIe port on ``here`` through which ``there`` is reached: over the hub, if neither is the hub."""
        for port in self.pcie_ports(here):
            if port.peer_switch == there or here != self.hub.name:
                return port
        raise ConfigError(f"{self.path}: no PCIe link leads from {here} to {there}; add a link to [[switch]] {there}")

    def management_target(self) -> str:
        """An active target for oneswitchd's own OpenFlow listener: a ``punix:`` socket before ``ptcp:``.

        Raises:
            ConfigError: ``listen`` names neither.
        """
        for method in self.listen:
            if method.startswith("punix:"):
                return "unix:" + method.removeprefix("punix:")
        for method in self.listen:
            if method.startswith("ptcp:"):
                port, _, host = method.removeprefix("ptcp:").partition(":")
                return f"tcp:{host or '127.0.0.1'}:{port or '6653'}"
        raise ConfigError(
            f"{self.path}: [oneswitchd] listen has no punix: or ptcp: method for management; "
            'add for example "punix:/run/oneswitch/oneswitchd.mgmt"'
        )


def load(path: Path) -> Server:
    """Read a server.toml.

    Raises:
        ConfigError: the file cannot be read or is wrong; the text names file, line and key.
    """
    config = ServerConfig.load(path)
    daemon = config.oneswitchd
    return Server(
        path=path,
        datapath_id=daemon.datapath_id,
        api=daemon.api,
        listen=tuple(daemon.listen),
        controllers=tuple(daemon.controllers),
        switches=tuple(_switch(entry) for entry in config.switch),
        ports=tuple(
            ConfiguredPort(entry.number, entry.shown_name, entry.switch, entry.interface) for entry in config.port
        ),
        tls=Tls(daemon.tls.private_key, daemon.tls.certificate, daemon.tls.ca_certificate) if daemon.tls else None,
        source=config,
        api_token_file=daemon.api_token_file,
    )


def _switch(entry: SwitchConfig) -> Switch:
    link = PcieLink(entry.link.hypervisor, entry.link.local) if entry.link else None
    return Switch(entry.name, entry.virt, entry.edge, entry.ovsdb, entry.control, link)
