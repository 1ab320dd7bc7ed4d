"""server.toml: the one file that describes a server.

oneswitchd, ``unoctl``, plumbing and the lab read it; docs/architecture.md is the contract. An unknown, mistyped or
duplicate key raises `ConfigError`, which names file, line and key.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints

from server.addresses import ApiAddress, Connect, Listen, Remote, TcpAddress, UnixAddress
from server.config_faults import KeyPath, fault_at, parse_model, read_text
from server.errors import ConfigError
from server.names import EDGE, HOME, MULTICAST_PORT, NAME_MAX_BYTES, PORT_MAX, PORT_MIN, VIRT, LinkType
from server.toml_dump import dump_document

DEFAULT_PATH = Path("/etc/oneswitch/server.toml")
ENVIRONMENT = "ONESWITCH_CONFIG"
_RESERVED = re.compile(rf"({VIRT}|{EDGE})(-\d+|-mc)?$")

Conflict = tuple[KeyPath, str]
"""The key that is in conflict with another one, and the problem."""

T = TypeVar("T")


def default_path() -> Path:
    """Return the default file: ``$ONESWITCH_CONFIG``, else /etc/oneswitch/server.toml."""
    return Path(os.environ.get(ENVIRONMENT) or DEFAULT_PATH)


def _check_interface(name: str) -> str:
    size = len(name.encode())
    if size > NAME_MAX_BYTES:
        raise ValueError(f"{name!r} has {size} bytes; Linux and OpenFlow allow at most {NAME_MAX_BYTES}")
    if not name or name in (".", "..") or any(char.isspace() or char in "/:" for char in name):
        raise ValueError(f"{name!r} is not an interface name: spaces, '/' and ':' are not allowed")
    return name


InterfaceName = Annotated[str, AfterValidator(_check_interface)]
SwitchName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
PortNumber = Annotated[int, Field(ge=PORT_MIN, le=PORT_MAX)]
LogLevel = Literal["off", "error", "warn", "info", "debug", "trace"]

_QUEUES_MAX = 64  # of a port of type pcie


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TlsConfig(_Section):
    """``[oneswitchd.tls]``: PEM files, needed by ``ssl:`` and ``pssl:`` addresses only."""

    private_key: str
    certificate: str
    ca_certificate: str


class OneswitchdConfig(_Section):
    """``[oneswitchd]``: the daemon's own addresses and files. ``api_token_file`` belongs to an API on TCP.

    ``stateful``: whether all ports execute at one switch, ``gather_at``, while rules keep state that they share;
    ``meters``: whether meters need that, too.
    """

    datapath_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{16}$")]
    executor: SwitchName = HOME
    stateful: Literal["gather", "refuse"] = "gather"
    gather_at: SwitchName | None = None
    meters: Literal["per-executor", "gather"] = "per-executor"
    listen: list[Listen] = []
    controllers: list[Connect] = []
    api: ApiAddress = "unix:/run/oneswitch/oneswitchd.sock"
    api_token_file: str | None = None
    offload: UnixAddress | None = None
    state: str | None = None
    journal: str | None = None
    audit_s: Annotated[int, Field(ge=0, le=86400)] = 30
    log: LogLevel = "info"
    tls: TlsConfig | None = None


class LinkConfig(_Section):
    """The names of a PCIe link's two ports: on the hypervisor's edge bridge and on the sNIC's.

    ``type``: how it carries flow-ids; None: `server.openvswitch.links` decides. ``path``: the socket by which two ports
    of type ``pcie`` find each other; None: beside the hypervisor's database. ``address``: the IP address of the
    hypervisor and the TCP port by which they find each other instead, if they are on two machines. ``queues``: how many
    receive queues PMD threads poll at each port of type ``pcie``; None: the main thread polls its only one.
    """

    hypervisor: InterfaceName
    local: InterfaceName
    type: LinkType | None = None
    path: str | None = None
    address: TcpAddress | None = None
    queues: Annotated[int, Field(ge=1, le=_QUEUES_MAX)] | None = None


class SwitchConfig(_Section):
    """``[[switch]]``: one Open vSwitch. ``link`` is None on the first one, the hypervisor, only."""

    name: SwitchName
    virt: Connect
    edge: Connect
    ovsdb: Remote | None = None
    control: str | None = None
    link: LinkConfig | None = None

    def target(self, bridge: str) -> str:
        """Return the OpenFlow target of ``virt`` or ``edge``."""
        return self.virt if bridge == VIRT else self.edge


class PortConfig(_Section):
    """``[[port]]``: one virtual port and its interface.

    ``executor``: the switch that runs its pipeline, or `HOME`; None: the default of ``[oneswitchd]``.
    """

    number: PortNumber
    switch: SwitchName
    interface: InterfaceName
    name: InterfaceName | None = None
    executor: SwitchName | None = None

    @property
    def shown_name(self) -> str:
        """Return the name that controllers see: ``name``, or the interface's name."""
        return self.interface if self.name is None else self.name


@dataclass(frozen=True)
class PciePort:
    """One end of a PCIe link, seen from a switch: its own interface, and the interface at the other end."""

    interface: str
    peer_switch: str
    peer_interface: str


class ServerConfig(_Section):
    """A whole server.toml.

    Example:
        >>> config = ServerConfig.load(Path("server.toml"))      # doctest: +SKIP
        >>> config.hypervisor.name, [s.name for s in config.snics]  # doctest: +SKIP
        ('hypervisor', ['snic0'])
    """

    oneswitchd: OneswitchdConfig
    switch: Annotated[list[SwitchConfig], Field(min_length=1)]
    port: list[PortConfig] = []
    _path: Path = PrivateAttr(default=Path("server.toml"))

    @property
    def path(self) -> Path:
        """The file that it was read from, for errors."""
        return self._path

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read and check a file.

        Args:
            path: the file; None means `default_path()`.

        Raises:
            ConfigError: the file cannot be read, is not TOML, or breaks the contract.
        """
        path = default_path() if path is None else Path(path)
        return cls.parse(read_text(path), path)

    @classmethod
    def parse(cls, text: str, path: Path = Path("server.toml")) -> Self:
        """Check ``text`` as `load` does; ``path`` appears in errors only."""
        config = parse_model(cls, text, path)
        for where, problem in _conflicts(config):
            raise fault_at(path, text, where, problem)
        config._path = path
        return config

    def dump(self) -> str:
        """Return TOML text that `parse` converts back to an equal configuration."""
        return dump_document(self.model_dump(exclude_none=True))

    @property
    def hypervisor(self) -> SwitchConfig:
        """Return the hub of the star."""
        return self.switch[0]

    @property
    def snics(self) -> list[SwitchConfig]:
        """Return all switches except the hypervisor."""
        return self.switch[1:]

    def find_switch(self, name: str) -> SwitchConfig:
        """Return the switch called ``name``.

        Raises:
            ConfigError: unknown switch; the message lists the known ones.
        """
        for switch in self.switch:
            if switch.name == name:
                return switch
        known = ", ".join(switch.name for switch in self.switch)
        raise ConfigError(f"{self.path}: unknown switch '{name}'; expected one of {known}")

    def pcie_ports(self, switch: str) -> list[PciePort]:
        """Return the PCIe ports on the edge bridge of ``switch``: one on an sNIC, one per sNIC on the hypervisor."""
        found, hub = self.find_switch(switch), self.hypervisor.name
        if found.link is not None:
            return [PciePort(found.link.local, hub, found.link.hypervisor)]
        return [PciePort(snic.link.hypervisor, snic.name, snic.link.local) for snic in self.snics if snic.link]

    def link_path(self, link: LinkConfig) -> str | None:
        """Return the socket of a link of type ``pcie``; None: unknown, as no switch's database is a local socket."""
        if link.path is not None:
            return link.path
        kind, _, path = (self.hypervisor.ovsdb or "").partition(":")
        return str(Path(path).parent / f"{link.hypervisor}.sock") if kind == "unix" else None

    def management_target(self) -> str:
        """Return an active target for oneswitchd's own OpenFlow listener: a ``punix:`` socket before ``ptcp:``.

        Raises:
            ConfigError: ``listen`` names neither.
        """
        for method in self.oneswitchd.listen:
            if method.startswith("punix:"):
                return "unix:" + method.removeprefix("punix:")
        for method in self.oneswitchd.listen:
            if method.startswith("ptcp:"):
                port, _, host = method.removeprefix("ptcp:").partition(":")
                return f"tcp:{host or '127.0.0.1'}:{port or '6653'}"
        raise ConfigError(
            f"{self.path}: [oneswitchd] listen has no punix: or ptcp: method for management; "
            'add for example "punix:/run/oneswitch/oneswitchd.mgmt"'
        )


def _conflicts(config: ServerConfig) -> Iterator[Conflict]:
    """Yield contradictions between entries, each valid by itself, in the order of the file's tables."""
    yield from _duplicates("switch", "name", config.switch, lambda switch: switch.name)
    yield from _same_address(config.switch)
    yield from _link_conflicts(config.switch)
    yield from _duplicates("port", "number", config.port, lambda port: port.number)
    yield from _duplicates("port", "name", config.port, lambda port: port.shown_name)
    yield from _duplicates("port", "interface", config.port, lambda port: f"{port.interface} on {port.switch}")
    for index, switch in enumerate(config.switch):
        if switch.name == HOME:
            yield ("switch", index, "name"), f"{HOME!r} is reserved: as executor it means a port's own switch"
    yield from _executor_conflicts(config, ("oneswitchd", "executor"), config.oneswitchd.executor)
    yield from _gathering_conflicts(config)
    is_tcp, token_file = config.oneswitchd.api.startswith("tcp:"), config.oneswitchd.api_token_file
    if is_tcp and token_file is None:
        problem = "api_token_file is missing: a file with the token that clients of an API on TCP must send"
        yield ("oneswitchd", "api"), problem
    if token_file is not None and not is_tcp:
        problem = "is for an API on TCP; a unix socket is protected by its file mode"
        yield ("oneswitchd", "api_token_file"), problem
    for index, port in enumerate(config.port):
        yield from _port_conflicts(config, index, port)
        yield from _executor_conflicts(config, ("port", index, "executor"), port.executor)


def _duplicates(table: str, key: str, items: Iterable[T], value: Callable[[T], object]) -> Iterator[Conflict]:
    first: dict[object, int] = {}
    for index, item in enumerate(items):
        seen = first.setdefault(value(item), index)
        if seen != index:
            yield (table, index, key), f"{value(item)!r} is already the {key} of {table}[{seen}]"


def _same_address(switches: list[SwitchConfig]) -> Iterator[Conflict]:
    first: dict[str, str] = {}
    for index, switch in enumerate(switches):
        for key in ("virt", "edge", "ovsdb", "control"):
            address = getattr(switch, key)
            where = f"switch[{index}].{key}"
            if address is not None and first.setdefault(address, where) != where:
                yield ("switch", index, key), f"{address!r} is already {first[address]}"


def _link_conflicts(switches: list[SwitchConfig]) -> Iterator[Conflict]:
    hub = switches[0]
    if hub.link is not None:
        yield (
            ("switch", 0, "link"),
            f"{hub.name!r} is the first switch, the hypervisor, and has no link; only sNICs have",
        )
    taken: dict[str, str] = {}
    for index, switch in enumerate(switches[1:], start=1):
        if switch.link is None:
            expected = f'link = {{ hypervisor = "pcie-{switch.name}", local = "pf0hpf" }}'
            yield ("switch", index, "link"), f"is missing: sNIC {switch.name!r} needs its PCIe link, such as {expected}"
            continue
        for key in ("hypervisor", "local"):
            name = getattr(switch.link, key)
            if _RESERVED.match(name):
                yield ("switch", index, "link", key), _reserved(name)
        path = switch.link.path
        if path is not None and not Path(path).is_absolute():
            yield ("switch", index, "link", "path"), f"{path!r} is not absolute; both switches open it"
        if switch.link.address is not None and path is not None:
            yield ("switch", index, "link", "address"), "is there beside path; a link meets at one of them"
        if switch.link.address is not None and (switch.link.queues or 1) > 1:
            problem = f"is {switch.link.queues}, but a connection over TCP (address) has one: use 1, or leave it out"
            yield ("switch", index, "link", "queues"), problem
        other = taken.setdefault(switch.link.hypervisor, switch.name)
        if other != switch.name:
            yield (
                ("switch", index, "link", "hypervisor"),
                f"{switch.link.hypervisor!r} is already the port toward {other!r}",
            )


def _port_conflicts(config: ServerConfig, index: int, port: PortConfig) -> Iterator[Conflict]:
    names = [switch.name for switch in config.switch]
    if port.switch not in names:
        yield ("port", index, "switch"), f"unknown switch {port.switch!r}; expected one of {', '.join(names)}"
    elif port.interface in [pcie.interface for pcie in config.pcie_ports(port.switch)]:
        yield ("port", index, "interface"), f"{port.interface!r} is the PCIe port of {port.switch!r}"
    elif _RESERVED.match(port.interface):
        yield ("port", index, "interface"), _reserved(port.interface)


def _gathering_conflicts(config: ServerConfig) -> Iterator[Conflict]:
    own = config.oneswitchd
    names = [switch.name for switch in config.switch]
    if own.gather_at is not None and own.gather_at not in names:
        yield ("oneswitchd", "gather_at"), f"unknown switch {own.gather_at!r}; expected one of {', '.join(names)}"
    given = {"gather_at": own.gather_at is not None, "meters": own.meters == "gather"}
    for key, is_given in given.items():
        if is_given and own.stateful == "refuse":
            yield ("oneswitchd", key), 'needs stateful = "gather"'


def _executor_conflicts(config: ServerConfig, key: KeyPath, executor: str | None) -> Iterator[Conflict]:
    names = [switch.name for switch in config.switch]
    if executor is not None and executor not in (HOME, *names):
        yield key, f"unknown switch {executor!r}; expected one of {', '.join(names)}, and {HOME!r}"


def _reserved(name: str) -> str:
    ours = f"{VIRT}, {EDGE}, {VIRT}-N, {EDGE}-N, {VIRT}-{MULTICAST_PORT} and {EDGE}-{MULTICAST_PORT}"
    return f"{name!r} is reserved; plumbing creates {ours} itself"
