"""The catalog of this server: kinds, flavors, locations, port numbers, quotas."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nfagent.config import AgentConfig, QuotaConfig
from nfagent.errors import InvalidError, LaunchError
from nfagent.model import Flavor, InstancePort, Kind
from server.config import ServerConfig

_LIST_S = 10.0
_NF_PORTS = (1, 2)  # one-armed, or a bump in the wire


@dataclass(frozen=True)
class Catalog:
    """Everything that can be deployed, and where.

    Attributes:
        locations: names of the switches, the hypervisor first.
        port_numbers: available to instances.
        server: the server's own part of MAC addresses; 3 bytes.
        project_files: directory with a directory of files for each project; None: there is none.
    """

    kinds: dict[str, Kind]
    flavors: dict[str, Flavor]
    locations: tuple[str, ...]
    port_numbers: tuple[int, ...]
    quota: QuotaConfig
    server: bytes
    project_files: Path | None = None

    @classmethod
    def of(cls, config: AgentConfig, server: ServerConfig) -> "Catalog":
        """Build the catalog of a configuration.

        Raises:
            LaunchError: the program ``nf`` exists but does not list its kinds.
        """
        mapped = {port.number for port in server.port}
        numbers = range(config.port_numbers.first, config.port_numbers.last + 1)
        own = [kind.kind() for kind in config.kind]
        return cls(
            kinds={kind.name: kind for kind in (*nf_kinds(config.nf, config.nf_backend), *own)},
            flavors=config.flavors(),
            locations=tuple(switch.name for switch in server.switch),
            port_numbers=tuple(number for number in numbers if number not in mapped),
            quota=config.quota,
            project_files=None if config.project_files is None else Path(config.project_files),
            server=hashlib.sha256(server.oneswitchd.datapath_id.encode()).digest()[:3],
        )

    @property
    def home(self) -> str:
        """Where instances start if nothing decides: the hypervisor."""
        return self.locations[0]

    def kind(self, name: str, field: str = "kind") -> Kind:
        """Find a kind by name.

        Raises:
            InvalidError: it is unknown.
        """
        if name not in self.kinds:
            known = ", ".join(sorted(self.kinds)) or "none at all"
            raise InvalidError(
                "kind-unknown", f"unknown kind {name!r} of network function; expected one of {known}", field
            )
        return self.kinds[name]

    def flavor(self, name: str, field: str = "flavor") -> Flavor:
        """Find a flavor by name.

        Raises:
            InvalidError: it is unknown.
        """
        if name not in self.flavors:
            known = ", ".join(self.flavors)
            raise InvalidError("flavor-unknown", f"unknown flavor {name!r}; expected one of {known}", field)
        return self.flavors[name]

    def location(self, name: str, field: str) -> str:
        """Check a location's name and return it.

        Raises:
            InvalidError: it is unknown.
        """
        if name not in self.locations:
            known = ", ".join(self.locations)
            raise InvalidError("location-unknown", f"unknown location {name!r}; expected one of {known}", field)
        return name

    def free_ports(self, taken: Iterable[int], count: int) -> tuple[InstancePort, ...]:
        """Return the lowest free ports, fewer than ``count`` if not enough are free."""
        used = set(taken)
        free = (number for number in self.port_numbers if number not in used)
        return tuple(self._port(number) for number, _ in zip(free, range(count), strict=False))

    def _port(self, number: int) -> InstancePort:
        # Locally administered, constant for a port's life, and different on other servers.
        mac = bytes([0x02, *self.server, number >> 8, number & 0xFF])
        return InstancePort(number, f"nf{number}", mac.hex(":"))


def nf_kinds(program: str, backend: str = "auto") -> list[Kind]:
    """Return the kinds of the program ``nf``, with its packet backend; none if it is not installed.

    Raises:
        LaunchError: it exists but does not list its kinds.
    """
    # Look beside this Python first: there it is installed together with this agent.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    found = shutil.which(program, path=path) if program else None
    if found is None:
        return []
    try:
        done = subprocess.run(
            [found, "list", "--format", "json"], capture_output=True, text=True, timeout=_LIST_S, check=True
        )
        listed = json.loads(done.stdout)
        return [
            _nf_kind(
                found,
                backend,
                each["kind"],
                each["summary"],
                offloaded_ports=each.get("offloaded_ports", 0),
                files=tuple(each.get("files", ())),
            )
            for each in listed
        ]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"{found} list --format json does not list its kinds: {error}") from error


def _nf_kind(
    program: str, backend: str, name: str, summary: str, *, offloaded_ports: int, files: tuple[str, ...]
) -> Kind:
    command = (program, "run", name, "--config", "{config}", "{ports}", "--control", "{control}", "--backend", backend)
    words: dict[int, tuple[str, ...]] = {0: (), 1: ("{offload}",)}
    offload = words.get(offloaded_ports, ("{offload_ports}",))
    check = (program, "check", name, "--config", "{config}", "--ports", "{ports}")
    return Kind(name, summary, True, _NF_PORTS, (*command, "--workers", "{workers}", *offload), check, files)
