"""The choice of how a PCIe link carries flow-ids: beside the packets, between ports of type ``pcie``, or as VLAN tags.

Ports of type ``pcie`` come with the patches of ``ovs-patches/``. They share memory, so both switches must run on one
machine, which is known if both databases are local sockets, or they meet at the address that the link has. Ports that
exist stay as they are, because a change of type interrupts the link.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from server.config import LinkConfig, ServerConfig, SwitchConfig
from server.errors import ConfigError, PlumbingError
from server.names import PCIE_OFPORTS, LinkType
from server.openvswitch.layout import Interface

PCIE: LinkType = "pcie"
_POLLED = "pcie-pmd"  # the same port, polled by PMD threads
VLAN: LinkType = "vlan"


@dataclass(frozen=True)
class SwitchSide:
    """What a switch tells for the choice.

    Attributes:
        types: of interfaces that its Open vSwitch can make.
        ports: the type of each port on ``edge``, by name.
        numbers: OpenFlow port numbers that ports of ``edge`` have or request, by name.
    """

    types: frozenset[str]
    ports: Mapping[str, str]
    numbers: Mapping[str, int]

    @property
    def can(self) -> bool:
        """Tell whether it can make ports of type ``pcie``."""
        return PCIE in self.types

    def having(self, made: Interface) -> "SwitchSide":
        """Return it with a port that will be made."""
        numbers = self.numbers if made.ofport is None else {**self.numbers, made.name: made.ofport}
        return replace(self, numbers=numbers)

    def free_number(self, name: str) -> int | None:
        """Return the number of a port of type ``pcie``: its own, or the lowest free one; None: no more are free."""
        if self.numbers.get(name) in PCIE_OFPORTS:
            return self.numbers[name]
        taken = {number for port, number in self.numbers.items() if port != name}
        return next((number for number in PCIE_OFPORTS if number not in taken), None)


@dataclass(frozen=True)
class LinkChoice:
    """The type of a link, and why."""

    type: LinkType
    reason: str


def choose(server: ServerConfig, snic: SwitchConfig, hub: SwitchSide, local: SwitchSide) -> LinkChoice:
    """Choose the type of an sNIC's link.

    Raises:
        ConfigError: server.toml demands a type that is impossible here.
    """
    link = _link(snic)
    problem = _obstacle(server, snic, hub, local)
    if link.type is not None:
        if link.type == PCIE and problem is not None:
            demand = f'{server.path}: the link of {snic.name} has type = "pcie", but {problem}'
            raise ConfigError(f'{demand}; change that, or leave type out to get "vlan"')
        return LinkChoice(link.type, "server.toml says so")
    there = {side.ports[name] for side, name in ((hub, link.hypervisor), (local, link.local)) if name in side.ports}
    if there and not there & {PCIE, _POLLED}:
        return LinkChoice(VLAN, "its ports exist and are not of type pcie")
    if problem is not None:
        return LinkChoice(VLAN, problem)
    return LinkChoice(PCIE, "both switches can make ports of type pcie")


def port(server: ServerConfig, snic: SwitchConfig, side: SwitchSide, *, at_hub: bool) -> Interface:
    """Return one end of a link of type ``pcie``, to attach to ``edge``.

    Raises:
        PlumbingError: no number is free for it.
    """
    link = _link(snic)
    name = link.hypervisor if at_hub else link.local
    number = side.free_number(name)
    if number is None:
        raise PlumbingError(f"port {name}: all OpenFlow port numbers {PCIE_OFPORTS[0]} to {PCIE_OFPORTS[-1]} are taken")
    meeting = {"path": str(server.link_path(link))} if link.address is None else {"address": link.address}
    options = {**meeting, "role": "listen" if at_hub else "connect"}
    if link.queues is None:
        return Interface(name, PCIE, options, ofport=number)
    return Interface(name, _POLLED, {**options, "n_rxq": str(link.queues)}, ofport=number)


def _link(snic: SwitchConfig) -> LinkConfig:
    if snic.link is None:
        raise ConfigError(f"switch {snic.name} is the hypervisor, which has no link of its own")
    return snic.link


def _obstacle(server: ServerConfig, snic: SwitchConfig, hub: SwitchSide, local: SwitchSide) -> str | None:
    """Return why ports of type ``pcie`` cannot join the switches; None: they can."""
    unable = [switch.name for switch, side in ((server.hypervisor, hub), (snic, local)) if not side.can]
    if unable:
        return f"the Open vSwitch of {' and '.join(unable)} cannot make ports of type pcie"
    addresses = (server.hypervisor.ovsdb, snic.ovsdb)
    link = _link(snic)
    given = link.path is not None or link.address is not None
    if not given and not all(address is not None and address.startswith("unix:") for address in addresses):
        return "the databases are not local sockets, so the switches may be on two machines (link.address joins them)"
    return None
