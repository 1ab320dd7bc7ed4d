"""Data-path ports and their interfaces: reads ``ovs-appctl dpif/show`` and ``dpif/show-dp-features``."""

import re
from dataclasses import dataclass

from server.errors import TextError

_DATAPATH = re.compile(r"^(\S+)@(\S+):")
_BRIDGE = re.compile(r"^  (\S+):\s*$")
_PORT = re.compile(r"^    (\S+) (\d+)/(\d+|none): \((.*)\)\s*$")
_VLANS = re.compile(r"^Max VLAN headers: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class DatapathPort:
    """One interface: its bridge, its OpenFlow port, its data-path port (None for a patch port)."""

    bridge: str
    name: str
    ofport: int
    number: int | None
    kind: str


@dataclass(frozen=True)
class Datapath:
    """One datapath of a switch."""

    name: str
    ports: tuple[DatapathPort, ...]

    def by_number(self, number: int) -> DatapathPort | None:
        """Return the interface of a data-path port."""
        return next((port for port in self.ports if port.number == number), None)

    def find(self, bridge: str, name: str) -> DatapathPort | None:
        """Return an interface on a bridge."""
        return next((port for port in self.ports if (port.bridge, port.name) == (bridge, name)), None)


def parse_show(text: str) -> list[Datapath]:
    """Parse the datapaths in the output of ``dpif/show``.

    Raises:
        TextError: a port precedes any datapath or bridge.
    """
    found: list[tuple[str, list[DatapathPort]]] = []
    bridge: str | None = None
    for line in text.splitlines():
        if match := _DATAPATH.match(line):
            found.append((match.group(2), []))
            bridge = None
        elif match := _BRIDGE.match(line):
            bridge = match.group(1)
        elif match := _PORT.match(line):
            if bridge is None or not found:
                raise TextError(f"dpif/show: {line.strip()!r} belongs to no bridge; expected DATAPATH: BRIDGE: PORT")
            name, ofport, number, kind = match.groups()
            odp = None if number == "none" else int(number)
            found[-1][1].append(DatapathPort(bridge, name, int(ofport), odp, kind.split(":")[0]))
    return [Datapath(name, tuple(ports)) for name, ports in found]


def parse_vlan_limit(text: str) -> int:
    """Parse the number of VLAN tags the datapath looks behind from ``dpif/show-dp-features``; default 1."""
    match = _VLANS.search(text)
    return int(match.group(1)) if match else 1
