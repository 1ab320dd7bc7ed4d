"""The wanted layout of one switch, from server.toml and docs/architecture.md, "Bridges and ports"."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from server.config import ServerConfig

DatapathType = Literal["netdev", "dummy", "system"]


@dataclass(frozen=True)
class Interface:
    """An interface to attach to a bridge.

    Attributes:
        name: at most 15 bytes.
        type: Open vSwitch's interface type; "" is an existing network device.
        options: of that type.
        ofport: the requested OpenFlow port number; None: the switch chooses.
        mtu: for types whose MTU Open vSwitch sets itself; None leaves it alone.
        shaped_elsewhere: keep the device's queueing discipline, which Open vSwitch would otherwise remove.
    """

    name: str
    type: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    ofport: int | None = None
    mtu: int | None = None
    shaped_elsewhere: bool = False

    def columns(self) -> dict[str, object]:
        """Return the columns of OVSDB's table Interface."""
        columns: dict[str, object] = {"type": self.type, "options": dict(self.options)}
        if self.ofport is not None:
            columns["ofport_request"] = self.ofport
        if self.mtu is not None:
            columns["mtu_request"] = self.mtu
        return columns


@dataclass(frozen=True)
class Layout:
    """The ports that a switch's two bridges should have.

    Attributes:
        virtual_ports: numbers of *all* virtual ports of the server, wherever their homes are.
        pcie: the PCIe ports of edge.
        physical: the interfaces, on edge, of the virtual ports homed at this switch.
    """

    virtual_ports: tuple[int, ...] = ()
    pcie: tuple[Interface, ...] = ()
    physical: tuple[Interface, ...] = ()

    @classmethod
    def of(cls, config: ServerConfig, switch: str, interfaces: Mapping[str, Interface] | None = None) -> Self:
        """Return the layout of ``switch`` according to ``config``.

        Args:
            config: the server.
            switch: name of one of its switches.
            interfaces: type and options of the interfaces that are not plain network devices, by name.
        """
        special = interfaces or {}
        return cls(
            virtual_ports=tuple(port.number for port in config.port),
            pcie=tuple(special.get(port.interface, Interface(port.interface)) for port in config.pcie_ports(switch)),
            physical=tuple(
                special.get(port.interface, Interface(port.interface)) for port in config.port if port.switch == switch
            ),
        )
