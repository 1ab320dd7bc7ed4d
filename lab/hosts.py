"""Wires and hosts of the netns substrate: veth pairs, addresses, and settings that suppress noise.

Runs inside the lab's namespaces.
"""

import contextlib
import fcntl
import ipaddress
import json
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab import namespaces
from lab.errors import StartError
from lab.programs import find_program
from lab.spec import PCIE_MTU, TENANT_MTU, HostSpec, LabSpec, SlotSpec, SwitchSpec

_SIOCETHTOOL = 0x8946
_ETHTOOL_STXCSUM = 0x17
_NETWORKS = ipaddress.ip_network("192.168.0.0/16")
_NETWORK_BITS = 30
_QUEUE_MS = 50
_BURST_MIN_BYTES = 32 * 1024
_BURSTS_PER_S = 500  # timers refill a token bucket; with less than 1/500 s of traffic it cannot reach its rate


def interface_name(index: int) -> str:
    """Return the name of interface number ``index`` inside a host."""
    return f"eth{index}"


def make_wires(spec: LabSpec) -> None:
    """Create the hosts' veth pairs, each end in its namespace."""
    lines = []
    for host in spec.hosts:
        for index, each in enumerate(host.interfaces):
            inside = f"name {interface_name(index)} netns {host.name} mtu {TENANT_MTU} address {host.mac}"
            lines.append(f"link add name {each.name} netns {each.switch} mtu {TENANT_MTU} type veth peer {inside}")
    for slot in spec.slots:
        for index, name in enumerate(slot.interfaces):
            inside = f"name {interface_name(index)} netns {slot.name} mtu {TENANT_MTU}"
            lines.append(f"link add name {name} netns {slot.switch} mtu {TENANT_MTU} type veth peer {inside}")
    namespaces.ip_batch(lines)


def make_links(spec: LabSpec, snics: Sequence[SwitchSpec]) -> None:
    """Create the veth pairs of the sNICs' PCIe links, cap them and bring them up."""
    hub = spec.switches[0]
    lines = []
    for snic in snics:
        local = f"name {snic.uplink} netns {snic.name} mtu {PCIE_MTU}"
        lines.append(f"link add name {snic.downlink} netns {hub.name} mtu {PCIE_MTU} type veth peer {local}")
    namespaces.ip_batch(lines)
    for switch in (hub, *snics) if snics else ():
        pcie = pcie_ports(snics, switch)
        with namespaces.entered(switch.name):
            namespaces.ip_batch([f"link set dev {name} up" for name in pcie])
            if spec.pcie_mbps is not None:
                for name in pcie:
                    _cap(name, spec.pcie_mbps)


@dataclass(frozen=True)
class Network:
    """The network of a hypervisor and an sNIC whose PCIe ports meet over TCP: the device in both, and the addresses."""

    device: str
    hub: str
    local: str

    @classmethod
    def of(cls, spec: LabSpec, snic: SwitchSpec) -> Self:
        """Return the network of an sNIC; each has its own."""
        index = spec.switches.index(snic)
        first = index << (_NETWORKS.max_prefixlen - _NETWORK_BITS)
        return cls(f"tcp{index}", str(_NETWORKS[first + 1]), str(_NETWORKS[first + 2]))


def make_networks(spec: LabSpec, snics: Sequence[SwitchSpec]) -> None:
    """Create the networks between the hypervisor and sNICs whose PCIe ports meet over TCP."""
    hub = spec.switches[0].name
    for snic in snics:
        network = Network.of(spec, snic)
        device = network.device
        namespaces.ip_batch([f"link add name {device} netns {hub} type veth peer name {device} netns {snic.name}"])
        for switch, address in ((hub, network.hub), (snic.name, network.local)):
            with namespaces.entered(switch):
                namespaces.ip_batch([f"addr add {address}/{_NETWORK_BITS} dev {device}", f"link set dev {device} up"])


def configure_switch(spec: LabSpec, switch: SwitchSpec) -> None:
    """Bring up the switch's ends of the hosts' wires."""
    with namespaces.entered(switch.name):
        _no_ipv6()
        namespaces.ip_batch([f"link set dev {name} up" for name in ["lo", *spec.plugged(switch.name)]])


def configure_host(spec: LabSpec, host: HostSpec) -> None:
    """Bring up the host's interfaces; the first gets the address."""
    names = [interface_name(index) for index in range(len(host.interfaces))]
    lines = [f"link set dev {name} up" for name in ["lo", *names]]
    lines.append(f"addr add {host.address} dev {names[0]}")
    if spec.static_arp:
        others = [other for other in spec.hosts if other is not host]
        lines += [f"neigh replace {ip(other)} lladdr {other.mac} dev {names[0]} nud permanent" for other in others]
    with namespaces.entered(host.name):
        _no_ipv6()
        _one_address_on_several_interfaces()
        for name in names:
            _no_tx_offload(name)
        namespaces.ip_batch(lines)


def configure_slot(slot: SlotSpec) -> None:
    """Bring up the slot's interfaces, without addresses: the function has its own."""
    names = [interface_name(index) for index in range(len(slot.interfaces))]
    with namespaces.entered(slot.name):
        _no_ipv6()
        for name in names:
            _no_tx_offload(name)
        namespaces.ip_batch([f"link set dev {name} up" for name in ["lo", *names]])


def activate(host: HostSpec, old: str, new: str) -> None:
    """Move the host's address and ARP entries from interface ``old`` to ``new``, make-before-break."""
    with namespaces.entered(host.name):
        done = subprocess.run(
            [find_program("ip"), "-json", "neigh", "show", "dev", old], capture_output=True, text=True, check=True
        )
        known = [each for each in json.loads(done.stdout or "[]") if "lladdr" in each]
        lines = [f"addr add {host.address} dev {new}"]
        for each in known:
            state = "permanent" if "PERMANENT" in each["state"] else "reachable"
            lines.append(f"neigh replace {each['dst']} lladdr {each['lladdr']} dev {new} nud {state}")
        lines.append(f"addr del {host.address} dev {old}")
        namespaces.ip_batch(lines)


def set_link(snic: SwitchSpec, *, up: bool) -> None:
    """Take the sNIC's end of its PCIe link down or up; the hypervisor's end then loses or regains its carrier."""
    with namespaces.entered(snic.name):
        namespaces.ip_batch([f"link set dev {snic.uplink} {'up' if up else 'down'}"])


def pcie_ports(snics: Sequence[SwitchSpec], switch: SwitchSpec) -> list[str]:
    """Return the names of the ports on ``switch`` of these sNICs' PCIe links."""
    if switch.uplink is not None:
        return [switch.uplink] if switch in snics else []
    return [snic.downlink for snic in snics if snic.downlink is not None]


def ip(host: HostSpec) -> str:
    """Return the host's address without the prefix length."""
    return host.address.partition("/")[0]


# ---- of the namespace that this thread is in


def _no_ipv6() -> None:
    """Suppress router solicitations and the like, if the kernel has IPv6."""
    _sysctls("net/ipv6/conf", ("all", "default"), "disable_ipv6", "1")


def _one_address_on_several_interfaces() -> None:
    """Answer ARP only for the interface's own address: while a port moves, two interfaces have the address."""
    _sysctls("net/ipv4/conf", ("all", "default"), "rp_filter", "0")
    _sysctls("net/ipv4/conf", ("all", "default"), "arp_ignore", "1")


def _sysctls(directory: str, scopes: Sequence[str], key: str, value: str) -> None:
    for scope in scopes:
        # read-only in some containers; the lab still works, with more noise
        with contextlib.suppress(OSError):
            (Path("/proc/sys") / directory / scope / key).write_text(value)


def _no_tx_offload(interface: str) -> None:
    """Make the host compute checksums, because a userspace switch forwards frames unchanged, even unfinished ones."""
    request = struct.pack("II", _ETHTOOL_STXCSUM, 0)
    with _memory(request) as address, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP", interface.encode(), address))


@contextlib.contextmanager
def _memory(content: bytes) -> Iterator[int]:
    import ctypes

    buffer = ctypes.create_string_buffer(content)
    yield ctypes.addressof(buffer)


def _cap(interface: str, mbps: float) -> None:
    rate = int(mbps * 1_000_000)
    burst = max(_BURST_MIN_BYTES, rate // 8 // _BURSTS_PER_S)
    command = [
        find_program("tc"),
        "qdisc",
        "add",
        "dev",
        interface,
        "root",
        "tbf",
        "rate",
        f"{rate}bit",
        "burst",
        f"{burst}",
    ]
    done = subprocess.run([*command, "latency", f"{_QUEUE_MS}ms"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StartError(
            f"PCIe port {interface} cannot be capped at {mbps:g} Mb/s: {done.stderr.strip()}. "
            "The kernel needs the queueing discipline tbf (CONFIG_NET_SCH_TBF); otherwise remove the cap."
        )
