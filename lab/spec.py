"""The description of an emulated server."""

import dataclasses
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

from lab.errors import SpecError
from server.names import HOME, NAME_MAX_BYTES, PORT_MAX, PORT_MIN

Substrate = Literal["netns", "dummy"]
Meters = Literal["per-executor", "gather"]
LinkKind = Literal["vlan", "pcie", "tcp"]
"""Of a PCIe link: VLAN tags on any device, ports of type ``pcie`` that share memory, or such ports over TCP."""

HYPERVISOR = "hypervisor"
TENANT_MTU = 1500
PCIE_MTU = 1600  # a full tenant frame and the flow-id's tag
SPEED_MIN = 0.001  # the kernel's least quota and longest period

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*$")
_SUBNET = ipaddress.ip_network("10.0.0.0/24")


@dataclass(frozen=True)
class SwitchSpec:
    """One switch. ``uplink`` and ``downlink`` name the two ends of an sNIC's PCIe link; the hypervisor has neither.

    Attributes:
        uplink: the port on the sNIC, BlueField's ``pf0hpf``.
        downlink: the port on the hypervisor, ``pcie-snicK``.
        link: how the link carries flow-ids; None: ``pcie`` if the Open vSwitch here can and nothing caps the link, else
            ``vlan``.
    """

    name: str
    uplink: str | None = None
    downlink: str | None = None
    link: LinkKind | None = None


@dataclass(frozen=True)
class InterfaceSpec:
    """A host's interface: the switch it is plugged into and its name there."""

    switch: str
    name: str


@dataclass(frozen=True)
class HostSpec:
    """A VM, an NF's host, or a host behind a wire.

    Attributes:
        interfaces: all with the same MAC address; the first is active (has the IP address) at the start. Inside the
            host they are ``eth0``, ``eth1``, ...
        address: IPv4 address with prefix length.
    """

    name: str
    interfaces: tuple[InterfaceSpec, ...]
    address: str
    mac: str


@dataclass(frozen=True)
class SlotSpec:
    """A place for one network function: a namespace with interfaces on a switch, without address and virtual port.

    Attributes:
        name: of the namespace.
        interfaces: their names on the switch; inside they are ``eth0``, ``eth1``.
        speed: part of a core that its functions get, as `lab.quota` sets it; None: no limit.
    """

    name: str
    switch: str
    interfaces: tuple[str, ...]
    speed: float | None = None


@dataclass(frozen=True)
class PortSpec:
    """A virtual port: its number, its name, and its home."""

    number: int
    name: str
    switch: str
    interface: str


@dataclass(frozen=True)
class LabSpec:
    """A server, its hosts and its virtual ports.

    Attributes:
        switches: the hypervisor first.
        substrate: ``netns`` (network namespaces and veth) or ``dummy`` (Open vSwitch's dummy devices, frames by API).
        pcie_mbps: bandwidth of each PCIe link and direction in Mb/s; None is unlimited.
        static_arp: each host knows the others' MAC addresses from the start.
        controllers: OpenFlow controllers to write into server.toml.
        listen: further addresses where oneswitchd listens besides its unix socket, for server.toml.
        executor: the switch that runs the ports' pipelines, for server.toml.
        meters: whether meters gather all ports at one switch, for server.toml.
        slots: places for network functions, for `lab.agent`; see `with_slots`.
        ovs: where the Open vSwitch to run is installed; None: as `lab.programs.search_path` finds it.
        plain: one bridge ``br0`` on the only switch instead of virt and edge; see `reference`.

    Example:
        >>> [host.name for host in LabSpec.demo().hosts]
        ['vm1', 'vm2', 'nf1', 'out1']
    """

    switches: tuple[SwitchSpec, ...]
    hosts: tuple[HostSpec, ...]
    ports: tuple[PortSpec, ...]
    substrate: Substrate = "netns"
    pcie_mbps: float | None = None
    static_arp: bool = False
    controllers: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    plain: bool = False
    executor: str = HOME
    meters: Meters = "per-executor"
    slots: tuple[SlotSpec, ...] = ()
    ovs: str | None = None

    @classmethod
    def demo(cls, **options: Any) -> Self:
        """One hypervisor, one sNIC; VMs 1 and 2, an NF's host 3 on the sNIC, a host 4 behind the sNIC's wire ``p0``.

        ``vm2`` also has ``pf0vf0`` on the sNIC, to move to. ``options`` are further fields of `LabSpec`.
        """
        return cls(
            switches=_star(1),
            hosts=(
                _host(1, "vm1", (HYPERVISOR, "vm1")),
                _host(2, "vm2", (HYPERVISOR, "vm2"), ("snic0", "pf0vf0")),
                _host(3, "nf1", ("snic0", "pf0vf1")),
                _host(4, "out1", ("snic0", "p0")),
            ),
            ports=(
                PortSpec(1, "vm1", HYPERVISOR, "vm1"),
                PortSpec(2, "vm2", HYPERVISOR, "vm2"),
                PortSpec(3, "nf1", "snic0", "pf0vf1"),
                PortSpec(4, "out1", "snic0", "p0"),
            ),
            **options,
        )

    @classmethod
    def star(cls, snics: int = 1, hosts_per_switch: int = 1, *, mobile: bool = False, **options: Any) -> Self:
        """One hypervisor, ``snics`` sNICs, ``hosts_per_switch`` hosts on each; ports are numbered in that order.

        Args:
            snics: number of sNICs, from 0.
            hosts_per_switch: number of hosts on each switch, from 0.
            mobile: each host has an interface on every switch, so that its port can move anywhere.
            options: further fields of `LabSpec`.
        """
        switches = _star(snics)
        hosts, ports = [], []
        for index, home in enumerate(switches):
            for local in range(hosts_per_switch):
                number = index * hosts_per_switch + local + 1
                vf = number - 1 if mobile else local
                places = [(home.name, _interface(home, number, vf))]
                if mobile:
                    others = [switch for switch in switches if switch is not home]
                    places += [(switch.name, _interface(switch, number, vf)) for switch in others]
                name = f"vm{number}" if home.name == HYPERVISOR else f"nf{number}"
                hosts.append(_host(number, name, *places))
                ports.append(PortSpec(number, name, *places[0]))
        return cls(switches, tuple(hosts), tuple(ports), **options)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore what `to_json` returned."""
        return cls(
            **{
                **data,
                "switches": tuple(SwitchSpec(**item) for item in data["switches"]),
                "hosts": tuple(
                    HostSpec(**{**item, "interfaces": tuple(InterfaceSpec(**each) for each in item["interfaces"])})
                    for item in data["hosts"]
                ),
                "ports": tuple(PortSpec(**item) for item in data["ports"]),
                "controllers": tuple(data["controllers"]),
                "listen": tuple(data["listen"]),
                "slots": tuple(SlotSpec(**{**item, "interfaces": tuple(item["interfaces"])}) for item in data["slots"]),
            }
        )

    def with_slots(self, per_switch: int, interfaces: int = 1, snic_speed: float | None = None) -> Self:
        """Add slots for network functions on each switch.

        Args:
            per_switch: number of slots on each switch.
            interfaces: of each slot, 1 or 2.
            snic_speed: of a slot on an sNIC: a core there does this part of the work of one of this machine.
        """
        slots = list(self.slots)
        for switch in self.switches:
            first = sum(slot.switch == switch.name for slot in slots) + 1
            for number in range(first, first + per_switch):
                ends = tuple(f"nf{number}" + "ab"[end] * (interfaces > 1) for end in range(interfaces))
                speed = snic_speed if switch.uplink is not None else None
                slots.append(SlotSpec(f"{switch.name}.nf{number}", switch.name, ends, speed))
        return dataclasses.replace(self, slots=tuple(slots))

    def with_links(self, *types: LinkKind) -> Self:
        """Set the types of the sNICs' links, in order; the last one is that of all further sNICs. None: as they are."""
        if not types:
            return self
        hub, *snics = self.switches
        kinds = [*types, *types[-1:] * len(snics)]
        changed = [dataclasses.replace(snic, link=kind) for snic, kind in zip(snics, kinds, strict=False)]
        return dataclasses.replace(self, switches=(hub, *changed))

    def plugged(self, switch: str) -> list[str]:
        """Return the names of hosts' and slots' interfaces on a switch."""
        hosts = [each.name for host in self.hosts for each in host.interfaces if each.switch == switch]
        return hosts + [name for slot in self.slots if slot.switch == switch for name in slot.interfaces]

    def to_json(self) -> dict[str, Any]:
        """Convert to plain lists, dicts, strings and numbers."""
        return dataclasses.asdict(self)

    def reference(self) -> Self:
        """Return the same hosts and port numbers on one plain Open vSwitch bridge, for comparison.

        Each host has one interface, at the only switch, with its port's name.
        """
        home = {(port.switch, port.interface): port for port in self.ports}
        hosts = []
        for host in self.hosts:
            port = next((home[key] for each in host.interfaces if (key := (each.switch, each.name)) in home), None)
            if port is not None:
                hosts.append(dataclasses.replace(host, interfaces=(InterfaceSpec(HYPERVISOR, port.name),)))
        return dataclasses.replace(
            self,
            switches=(SwitchSpec(HYPERVISOR),),
            hosts=tuple(hosts),
            ports=tuple(PortSpec(port.number, port.name, HYPERVISOR, port.name) for port in self.ports),
            pcie_mbps=None,
            plain=True,
            slots=(),
        )

    def check(self) -> None:
        """Raise `SpecError` if this server is impossible."""
        names = [each.name for each in (*self.switches, *self.hosts, *self.slots)]
        _no_duplicates("name of a switch, host or slot", names)
        for name in names:
            if not _NAME.match(name):
                raise SpecError(f"{name!r} cannot name a switch, host or slot: use letters, digits, '_', '.' and '-'")
        if not self.switches or self.switches[0].uplink is not None:
            raise SpecError("the first switch must be the hypervisor, which has no uplink")
        self._check_interfaces()
        self._check_ports()
        if self.plain and len(self.switches) != 1:
            raise SpecError(f"a plain bridge has one switch, not {len(self.switches)}: use reference()")
        if self.pcie_mbps is not None and self.pcie_mbps <= 0:
            raise SpecError(f"pcie_mbps is {self.pcie_mbps}; expected more than 0 Mb/s, or None for no limit")
        if self.pcie_mbps is not None and any(switch.link in ("pcie", "tcp") for switch in self.switches):
            raise SpecError("links of type pcie are not devices, so pcie_mbps cannot cap them: choose one of the two")
        for host in self.hosts:
            _check_address(host)
        for slot in self.slots:
            if slot.speed is not None and not SPEED_MIN <= slot.speed <= 1:
                raise SpecError(
                    f"slot {slot.name}: speed {slot.speed:g}; expected {SPEED_MIN:g} to 1 of a core, or None"
                )
        if self.slots and (self.substrate != "netns" or self.plain):
            raise SpecError("slots are for network functions behind oneswitchd: use the substrate netns, and not plain")

    def _check_interfaces(self) -> None:
        plugged = [(each.switch, each.name) for host in self.hosts for each in host.interfaces]
        plugged += [(slot.switch, name) for slot in self.slots for name in slot.interfaces]
        for switch in self.switches[1:]:
            if switch.uplink is None or switch.downlink is None:
                raise SpecError(f"sNIC {switch.name}: uplink and downlink must be named")
            plugged += [(switch.name, switch.uplink), (self.switches[0].name, switch.downlink)]
        _no_duplicates("interface", [f"{name} on {switch}" for switch, name in plugged])
        known = {switch.name for switch in self.switches}
        for switch, name in plugged:
            if switch not in known:
                raise SpecError(
                    f"interface {name}: unknown switch {switch!r}; expected one of {', '.join(sorted(known))}"
                )
            if len(name.encode()) > NAME_MAX_BYTES:
                raise SpecError(f"interface {name!r}: at most {NAME_MAX_BYTES} bytes are allowed")

    def _check_ports(self) -> None:
        _no_duplicates("port number", [port.number for port in self.ports])
        plugged = {each for host in self.hosts for each in host.interfaces}
        for port in self.ports:
            if not PORT_MIN <= port.number <= PORT_MAX:
                raise SpecError(f"port number {port.number}: expected {PORT_MIN} to {PORT_MAX}")
            if InterfaceSpec(port.switch, port.interface) not in plugged:
                raise SpecError(f"port {port.number}: no host has an interface {port.interface} on {port.switch}")


def _star(snics: int) -> tuple[SwitchSpec, ...]:
    if snics < 0:
        raise SpecError(f"{snics} sNICs; expected 0 or more")
    hub = SwitchSpec(HYPERVISOR)
    return (hub, *(SwitchSpec(f"snic{index}", "pf0hpf", f"pcie-snic{index}") for index in range(snics)))


def _interface(switch: SwitchSpec, number: int, vf: int) -> str:
    return f"vm{number}" if switch.name == HYPERVISOR else f"pf0vf{vf}"


def _host(number: int, name: str, *places: tuple[str, str]) -> HostSpec:
    """Create a host whose addresses follow from its number."""
    if number >= _SUBNET.num_addresses - 1:
        raise SpecError(f"host {name}: {_SUBNET} has no address for host {number}; at most 254 hosts fit")
    address = f"{_SUBNET[number]}/{_SUBNET.prefixlen}"
    mac = f"02:00:00:00:{number >> 8:02x}:{number & 0xFF:02x}"
    return HostSpec(name, tuple(InterfaceSpec(*place) for place in places), address, mac)


def _check_address(host: HostSpec) -> None:
    if not host.interfaces:
        raise SpecError(f"host {host.name}: needs an interface")
    try:
        ipaddress.IPv4Interface(host.address)
    except ValueError as error:
        raise SpecError(f"host {host.name}: address {host.address!r}: {error}") from error
    if not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", host.mac) or int(host.mac[:2], 16) & 1:
        raise SpecError(f"host {host.name}: {host.mac!r} is not a unicast MAC address such as 02:00:00:00:00:01")


def _no_duplicates(what: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise SpecError(f"{what} {value} is given twice")
        seen.add(value)
