"""Interfaces, tags and PCIe ports of each switch, mapped to virtual ports.

This is the table of ``edge`` rules in docs/architecture.md, inverted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from server.config import ServerConfig
from server.oneswitchd.answers import VirtualPort


@dataclass
class SwitchLayout:
    """One switch.

    Attributes:
        local: virtual port by interface, of ports with their home here.
        ingress: virtual port by flow-id, INGRESS(V), of ports executed here with their home elsewhere.
        beyond: by PCIe port, the virtual ports that a flood through it reaches.
    """

    local: dict[str, int] = field(default_factory=dict)
    ingress: dict[int, int] = field(default_factory=dict)
    beyond: dict[str, frozenset[int]] = field(default_factory=dict)


@dataclass
class Layout:
    """The server.

    Attributes:
        switches: by name.
        deliver: virtual port by flow-id, DELIVER(V).
        home: switch by virtual port.
        executor: switch that runs its pipeline, by virtual port.
        functions: virtual port by MAC address, of network functions.
    """

    switches: dict[str, SwitchLayout]
    deliver: dict[int, int] = field(default_factory=dict)
    home: dict[int, str] = field(default_factory=dict)
    executor: dict[int, str] = field(default_factory=dict)
    functions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, server: ServerConfig, ports: Iterable[VirtualPort], functions: Mapping[str, int] | None = None
    ) -> "Layout":
        """Build it from server.toml, oneswitchd's ports, and the MAC addresses of network functions."""
        made = cls({switch.name: SwitchLayout() for switch in server.switch}, functions=functions or {})
        for port in ports:
            made._add(port)
        hub = server.switch[0].name
        for switch in server.switch[1:]:
            if switch.link is None:
                continue
            there = frozenset(number for number, home in made.home.items() if home == switch.name)
            made.switches[hub].beyond[switch.link.hypervisor] = there
            made.switches[switch.name].beyond[switch.link.local] = frozenset(made.home) - there
        return made

    def _add(self, port: VirtualPort) -> None:
        self.home[port.number] = port.switch
        self.executor[port.number] = port.executing
        if port.flow_id is not None:
            self.deliver[port.flow_id] = port.number
        places = [(port.switch, port.interface)]
        if port.move is not None:
            places.append((port.move.switch, port.move.interface))
        for switch, interface in places:
            if switch in self.switches:
                self.switches[switch].local[interface] = port.number
        if port.ingress_id is not None:
            # While an executor moves, both process packets.
            for switch in self.switches.values():
                switch.ingress[port.ingress_id] = port.number
