"""agent.toml: what an agent deploys, where, and for whom. docs/nfagent.md is the contract.

An unknown, mistyped or duplicate key raises `ConfigError`, which names file, line and key.
"""

import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from nfagent import model
from nfagent.clients import Role
from server.config import InterfaceName, ServerConfig, SwitchName
from server.config_faults import fault_at, parse_model, read_text
from server.errors import ConfigFaultError
from server.names import PORT_MAX, PORT_MIN

SOCKET_PATH_MAX = 107  # sun_path without its NUL

DEFAULT_PATH = Path("/etc/nfagent/agent.toml")
ENVIRONMENT = "NFAGENT_CONFIG"

Where = tuple[str | int, ...]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Words = Annotated[list[str], Field(min_length=1)]
Cores = Annotated[float, Field(strict=False, ge=0.001, le=10_000)]
Seconds = Annotated[float, Field(strict=False, ge=0.05, le=3600)]
Anonymous = Literal["nobody", "tenant", "reader", "operator", "admin"]


def default_path() -> Path:
    """Return the default file: ``$NFAGENT_CONFIG``, else /etc/nfagent/agent.toml."""
    return Path(os.environ.get(ENVIRONMENT) or DEFAULT_PATH)


def _listen(value: str) -> str:
    kind, _, rest = value.partition(":")
    host, _, port = rest.rpartition(":")
    if kind == "unix" and rest.startswith("/"):
        return value
    if kind in ("tcp", "tls") and host and port.isdecimal() and int(port) < 65536:
        return value
    raise ValueError(
        f"{value!r} is not an address; expected unix:/PATH, tcp:HOST:PORT or tls:HOST:PORT (port 0: any free one)"
    )


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is not an absolute path")
    return value


def _web_address(value: str) -> str:
    found = urlsplit(value)
    is_near = found.hostname in ("localhost", "127.0.0.1", "::1")
    if not found.hostname or not (found.scheme == "https" or (found.scheme == "http" and is_near)):
        raise ValueError(f"{value!r} is not an https address (http: on this machine only)")
    return value.rstrip("/")


def _path_or_web_address(value: str) -> str:
    return value if value.startswith("/") else _web_address(value)


Listen = Annotated[str, AfterValidator(_listen)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Place = Annotated[str, Field(pattern=r"^[^.\[\]]+(\[\])*(\.[^.\[\]]+(\[\])*)*$")]
WebAddress = Annotated[str, AfterValidator(_web_address)]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OidcConfig(_Section):
    """``[api.oidc]``: tokens of an issuer of OpenID Connect.

    Attributes:
        issuer: claim ``iss``.
        audience: must be in the claim ``aud``.
        jwks: the issuer's public keys: a path, or an https address.
        algorithms: allowed ones; asymmetric, so that a public key cannot serve as a secret.
        roles: the roles here, by values of the claim ``role_claim``.
        role_claim, project_claim: claims; ``a.b`` is the member b of a.
        subject_claim: claim with a name for the audit log.
        cacert: authorities to trust at ``jwks``, PEM; None: those of the machine.
    """

    issuer: str
    audience: str
    jwks: Annotated[str, AfterValidator(_path_or_web_address)]
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = ["RS256", "PS256", "ES256", "EdDSA"]
    roles: Annotated[dict[str, Role], Field(min_length=1)]
    role_claim: str = "roles"
    project_claim: str = "project"
    subject_claim: str = "preferred_username"
    cacert: AbsolutePath | None = None


class KeystoneConfig(_Section):
    """``[api.keystone]``: tokens of Keystone.

    Attributes:
        url: such as https://keystone:5000/v3.
        roles: the roles here, by Keystone's.
        project: what names a project here. Names are unique in one domain only.
        cache_s: how long an answer is used; a revoked token works for this long.
        cacert: as for `OidcConfig`.
    """

    url: WebAddress
    roles: Annotated[dict[str, Role], Field(min_length=1)]
    project: Literal["id", "name"] = "id"
    cache_s: Annotated[float, Field(strict=False, ge=0, le=3600)] = 60.0
    cacert: AbsolutePath | None = None


class ApiConfig(_Section):
    """``[api]``.

    Attributes:
        listen: addresses. Access to a unix socket (mode 0600) makes a client an administrator; over TCP, tokens decide.
        certificate, key: PEM files for addresses ``tls:HOST:PORT``.
        tokens: file of tokens; see `nfagent.api.access`.
        anonymous: rights of clients without a token over TCP.
        streams: how many clients may follow events or the dashboard, or wait for migrations, at the same time; each
            takes a thread.
    """

    listen: Annotated[list[Listen], Field(min_length=1)] = ["unix:/run/nfagent/nfagent.sock"]
    certificate: AbsolutePath | None = None
    key: AbsolutePath | None = None
    tokens: AbsolutePath | None = None
    anonymous: Anonymous = "nobody"
    streams: Annotated[int, Field(ge=1, le=1000)] = 16
    oidc: OidcConfig | None = None
    keystone: KeystoneConfig | None = None


class AuditConfig(_Section):
    """``[audit]``: the log of changes and refusals.

    Attributes:
        to: ``file``, ``syslog`` (facility authpriv; journald reads it, too) or ``none``.
        file: path; None: audit.log in ``state``.
        max_mb: size at which it is rotated.
        keep: number of rotated files.
    """

    to: Literal["file", "syslog", "none"] = "file"
    file: AbsolutePath | None = None
    max_mb: Annotated[int, Field(ge=1, le=10_000)] = 20
    keep: Annotated[int, Field(ge=1, le=1000)] = 10


class QuotaConfig(_Section):
    """``[quota]``: limits of each project."""

    instances: Annotated[int, Field(ge=0)] = 200
    ports: Annotated[int, Field(ge=0)] = 400
    workers: Annotated[int, Field(ge=0)] = 400
    chains: Annotated[int, Field(ge=0)] = 200


class PortNumbers(_Section):
    """``[port_numbers]``: the range for instances; the agent skips numbers that server.toml maps."""

    first: Annotated[int, Field(ge=PORT_MIN, le=PORT_MAX)] = 1000
    last: Annotated[int, Field(ge=PORT_MIN, le=PORT_MAX)] = 1999


class KindConfig(_Section):
    """``[[kind]]``: a command that is deployed as is, in addition to the kinds of the program ``nf``."""

    name: Name
    summary: str = ""
    command: Words
    movable: bool = False
    ports: Annotated[list[Annotated[int, Field(ge=0, le=2)]], Field(min_length=2, max_length=2)] = [0, 0]
    files: list[Place] = []

    def kind(self) -> model.Kind:
        """Convert to the model's noun."""
        ports, command = (self.ports[0], self.ports[1]), tuple(self.command)
        return model.Kind(self.name, self.summary, self.movable, ports, command, files=tuple(self.files))


class FlavorConfig(_Section):
    """``[[flavor]]``: a size."""

    name: Name
    workers: Annotated[int, Field(ge=1, le=256)]
    memory_mb: Annotated[int, Field(ge=1)]


class WireConfig(_Section):
    """An interface of a slot: its two ends."""

    edge: InterfaceName
    inside: InterfaceName


class SlotConfig(_Section):
    """``[[location.slot]]``: a place for one process with ports.

    Attributes:
        netns: path of its network namespace on the location's machine; None: the machine's own.
        enter: command prefix instead of ``netns``, to enter more than a network namespace.
    """

    name: Name
    wires: Annotated[list[WireConfig], Field(min_length=1, max_length=2)]
    netns: AbsolutePath | None = None
    enter: Words | None = None

    def slot(self) -> model.Slot:
        """Convert to the model's noun."""
        wires = tuple(model.Wire(wire.edge, wire.inside) for wire in self.wires)
        enter = ["nsenter", f"--net={self.netns}", "--"] if self.netns else self.enter or []
        return model.Slot(self.name, wires, tuple(enter))


class SshConfig(_Section):
    """``[location.ssh]``: a machine reached by ``ssh``.

    Attributes:
        host: destination, as for ``ssh``.
        options: for ``ssh``, such as ``-p 2222``.
        directory: on that machine, for locks, configurations and logs; created if missing.
    """

    host: str
    options: list[str] = []
    directory: AbsolutePath = "/run/nfagent"


class MigrateConfig(_Section):
    """``[migrate]``: how state moves.

    Attributes:
        mode: ``auto``: hand the memory over if both processes are on this machine, otherwise copy it; ``copy``: always
            copy.
        rate_mbps: limit for copying; None: unlimited.
    """

    mode: Literal["auto", "copy"] = "auto"
    rate_mbps: Annotated[int, Field(ge=1)] | None = None


class RecoveryConfig(_Section):
    """``[recovery]``: of instances at disconnected locations, and of hung processes.

    Attributes:
        after_s: seconds until the instances of a disconnected location are started elsewhere.
        hung_after_s: seconds until an unresponsive process is killed and replaced.
    """

    after_s: Annotated[float, Field(strict=False, ge=0.1, le=3600)] = 2.0
    hung_after_s: Annotated[float, Field(strict=False, ge=1, le=3600)] = 8.0


class LocationConfig(_Section):
    """``[[location]]``: how processes run beside a switch; on this machine, or on the one that ``ssh`` names.

    Attributes:
        cores: available to network functions; None: see `nfagent.capacity`.
        memory_mb: available to network functions; None: unlimited.
        pcie_mbps: of an sNIC's PCIe link, each way.
        core_factor: how many of an sNIC's cores do the work of one host core, until measured.
        address: of processes there, as other locations reach them, for copied state; default: the machine that ``ssh``
            names.
    """

    switch: SwitchName
    ssh: SshConfig | None = None
    cores: Cores | None = None
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    pcie_mbps: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    core_factor: Annotated[float, Field(strict=False, ge=0.01, le=100)] | None = None
    address: str | None = None
    slot: list[SlotConfig] = []

    def find_slot(self, name: str) -> model.Slot | None:
        """Find a slot by name."""
        return next((slot.slot() for slot in self.slot if slot.name == name), None)


class MonitorConfig(_Section):
    """``[monitor]``: ``period_s`` is the time between samples."""

    period_s: Seconds = 1.0


class DecideConfig(_Section):
    """``[decide]``: see `placement.damper.Settings`.

    Attributes:
        enabled: False: instances stay where they are, and the optimiser only proposes.
        period_s: time between decisions; a change triggers one earlier.
        window: decisions over which traffic is remembered and savings are counted.
        eps: how much stability may cost, as a fraction of the host's CPU.
        crossing_us: latency of a PCIe link, for chains with a bound.
    """

    enabled: bool = True
    period_s: Seconds = 1.0
    window: Annotated[int, Field(ge=1, le=1000)] = 30
    eps: Annotated[float, Field(strict=False, ge=0, le=1)] = 0.01
    crossing_us: Annotated[int, Field(ge=0, le=1_000_000)] = 10


_FLAVORS = [
    FlavorConfig(name="small", workers=1, memory_mb=256),
    FlavorConfig(name="medium", workers=2, memory_mb=1024),
    FlavorConfig(name="large", workers=4, memory_mb=4096),
]


class AgentConfig(_Section):
    """A complete agent.toml.

    Attributes:
        server: path of server.toml.
        state: directory of the store and of the instances' logs.
        runtime: directory of locks, sockets and configurations of running processes; best on a tmpfs.
        nf: the program ``nf``; "" for none.
        nf_backend: its packet backend; see nfs/README.md.
        project_files: directory with a directory of files for each project.
        location: where instances may run. Switches without an entry have no slots.
    """

    server: AbsolutePath = "/etc/oneswitch/server.toml"
    state: AbsolutePath = "/var/lib/nfagent"
    runtime: AbsolutePath = "/run/nfagent"
    nf: str = "nf"
    nf_backend: Literal["auto", "xdp", "packet"] = "auto"
    project_files: AbsolutePath | None = None
    api: ApiConfig = ApiConfig()
    audit: AuditConfig = AuditConfig()
    quota: QuotaConfig = QuotaConfig()
    migrate: MigrateConfig = MigrateConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    port_numbers: PortNumbers = PortNumbers()
    monitor: MonitorConfig = MonitorConfig()
    decide: DecideConfig = DecideConfig()
    kind: list[KindConfig] = []
    flavor: Annotated[list[FlavorConfig], Field(min_length=1)] = _FLAVORS
    location: list[LocationConfig] = []

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read and check a file; None means `default_path`.

        Raises:
            ConfigError: the file cannot be read, is not TOML, or breaks the contract.
        """
        path = default_path() if path is None else Path(path)
        return cls.parse(read_text(path), path)

    @classmethod
    def parse(cls, text: str, path: Path = Path("agent.toml")) -> Self:
        """Check ``text`` as `load` does; ``path`` appears in errors only."""
        config = parse_model(cls, text, path)
        for where, problem in _conflicts(config):
            raise fault_at(path, text, where, problem)
        return config

    def load_server(self, path: Path) -> ServerConfig:
        """Load the server.toml that this file names.

        Args:
            path: of agent.toml, for errors.

        Raises:
            ConfigError: of either file.
        """
        server = ServerConfig.load(Path(self.server))
        known = [switch.name for switch in server.switch]
        for index, location in enumerate(self.location):
            if location.switch not in known:
                problem = f"{self.server} has no switch {location.switch!r}; it has {', '.join(known)}"
                raise ConfigFaultError(path, None, f"location[{index}].switch", problem)
            if location.switch == known[0] and location.pcie_mbps is not None:
                problem = f"{known[0]} is the hypervisor; set this at the sNICs' locations, which have the PCIe links"
                raise ConfigFaultError(path, None, f"location[{index}].pcie_mbps", problem)
            if location.switch == known[0] and location.core_factor not in (None, 1.0):
                problem = f"{known[0]} is the hypervisor; set this at the sNICs' locations, relative to its cores"
                raise ConfigFaultError(path, None, f"location[{index}].core_factor", problem)
        longest = f"{self.runtime}/{uuid.UUID(int=0)}.{max(known, key=len)}.state"
        if len(longest.encode()) > SOCKET_PATH_MAX:
            problem = (
                f"{self.runtime!r} is too long: a socket's path, such as {longest}, has at most {SOCKET_PATH_MAX} bytes"
            )
            raise ConfigFaultError(path, None, "runtime", problem)
        return server

    def flavors(self) -> dict[str, model.Flavor]:
        """Return the flavors by name."""
        return {each.name: model.Flavor(each.name, each.workers, each.memory_mb) for each in self.flavor}

    def find_location(self, switch: str) -> LocationConfig:
        """Return how processes run beside a switch."""
        return next((each for each in self.location if each.switch == switch), LocationConfig(switch=switch))


def _conflicts(config: AgentConfig) -> Iterator[tuple[Where, str]]:
    """Yield contradictions between keys: where, and what is wrong."""
    yield from _given_twice("kind", [each.name for each in config.kind])
    yield from _given_twice("flavor", [each.name for each in config.flavor])
    yield from _given_twice("location", [each.switch for each in config.location])
    for index, kind in enumerate(config.kind):
        if kind.ports[0] > kind.ports[1]:
            yield ("kind", index, "ports"), f"{kind.ports}: expected the minimum first, then the maximum"
    for index, location in enumerate(config.location):
        yield from _slot_conflicts(("location", index, "slot"), location)
    yield from _open_doors(config.api)
    numbers = config.port_numbers
    if numbers.first > numbers.last:
        yield ("port_numbers", "first"), f"{numbers.first} is above last ({numbers.last})"


def _open_doors(api: ApiConfig) -> Iterator[tuple[Where, str]]:
    for index, listen in enumerate(api.listen):
        kind, _, rest = listen.partition(":")
        if kind == "unix":
            continue
        host = rest.rpartition(":")[0]
        if kind == "tls" and not (api.certificate and api.key):
            yield ("api", "listen", index), f"{listen} needs certificate and key"
        if not (api.tokens or api.oidc or api.keystone) and api.anonymous == "nobody":
            problem = f"{listen} would be unusable: set tokens, or anonymous, oidc or keystone"
            yield ("api", "listen", index), problem
        if api.anonymous != "nobody" and host not in ("localhost", "[::1]") and not host.startswith("127."):
            problem = (
                f"{listen} is not on the loopback interface, where anonymous = {api.anonymous!r} would admit anyone"
            )
            yield ("api", "listen", index), problem


def _slot_conflicts(where: Where, location: LocationConfig) -> Iterator[tuple[Where, str]]:
    wires = Counter(wire.edge for slot in location.slot for wire in slot.wires)
    names = Counter(slot.name for slot in location.slot)
    for index, slot in enumerate(location.slot):
        here = (*where, index)
        if names[slot.name] > 1:
            yield (*here, "name"), f"{slot.name!r} is the name of another slot of {location.switch}"
        if slot.netns and slot.enter:
            yield (*here, "enter"), "excludes netns, because it enters a namespace itself"
        for wire in slot.wires:
            if wires[wire.edge] > 1:
                yield (
                    (*here, "wires"),
                    f"interface {wire.edge!r} is in another slot of {location.switch}, or twice here",
                )


def _given_twice(table: str, names: list[str]) -> Iterator[tuple[Where, str]]:
    for index, name in enumerate(names):
        if name in names[:index]:
            key = "switch" if table == "location" else "name"
            yield (table, index, key), f"{name!r} is given twice"
