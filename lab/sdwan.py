"""Two sites joined by a chain that nfagent deployed: firewall, a gateway of each site, asset monitor (UNO 2.3)."""

import secrets
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.server import Lab
from lab.spec import HYPERVISOR, HostSpec, InterfaceSpec, LabSpec, PortSpec, SwitchSpec

NAME = "sites"
SNIC = "snic0"
SITE_A, SITE_B = "site-a", "site-b"
PORT_A, PORT_B = 1, 2
"""Of the sites: one behind the sNIC's wire, one on the hypervisor."""

FUNCTIONS = ("firewall", "gateway-a", "gateway-b", "monitor")
TURNED = "gateway-b"
"""The function that is entered at its last port, because that is the one toward its peer."""

BOUND_US = 10
"""One PCIe link: the sites are at its two ends."""

_NET = {SITE_A: "10.1.0", SITE_B: "10.2.0"}
_WAN = {SITE_A: "192.0.2.1", SITE_B: "192.0.2.2"}
_SPI = {SITE_A: 0x1001, SITE_B: 0x2001}
_ROOM = {"hosts": 1024, "findings": 2048, "connections": 1024, "history_bytes": 1 << 16}


def sites_spec(slots: int, **options: Any) -> LabSpec:
    """Return a server between two sites, with slots of two interfaces on each switch."""
    places = {SITE_A: InterfaceSpec(SNIC, "p0"), SITE_B: InterfaceSpec(HYPERVISOR, "vm1")}
    hosts = tuple(
        HostSpec(name, (place,), f"{_NET[name]}.2/24", f"02:00:00:00:00:{number:02x}")
        for number, (name, place) in enumerate(places.items(), 1)
    )
    ports = tuple(
        PortSpec(number, name, place.switch, place.name)
        for number, (name, place) in zip((PORT_A, PORT_B), places.items(), strict=True)
    )
    switches = (SwitchSpec(HYPERVISOR), SwitchSpec(SNIC, "pf0hpf", f"pcie-{SNIC}"))
    return LabSpec(switches, hosts, ports, **options).with_slots(slots, 2)


def chain(lab: Lab, signatures: Path) -> dict[str, Any]:
    """Return the order of the chain, as REST takes it.

    Args:
        lab: of `sites_spec`.
        signatures: the directory with the files of ``assets``.
    """
    keys = {name: secrets.token_hex(36) for name in _SPI}
    kinds = ("firewall", "ipsec", "ipsec", "assets")
    configs = (
        _firewall(),
        _gateway(lab, SITE_A, SITE_B, keys),
        _gateway(lab, SITE_B, SITE_A, keys),
        {"signatures": str(signatures), **_ROOM},
    )
    functions = [
        {"function": {"name": name, "kind": kind, "ports": 2, "config": config}}
        for name, kind, config in zip(FUNCTIONS, kinds, configs, strict=True)
    ]
    return {"name": NAME, "latency_us": BOUND_US, "hops": [{"port": PORT_A}, *functions, {"port": PORT_B}]}


def wires(hops: Iterable[Sequence[int]]) -> list[str]:
    """Return rules that lead packets from each hop to the next one, and back; a hop is its ports, in order."""
    ends = [(before[-1], after[0]) for before, after in pairwise(hops)]
    return [f"in_port={one},actions=output:{other}" for end in ends for one, other in (end, end[::-1])]


def _firewall() -> dict[str, Any]:
    sites = {name: [f"{net}.0/24"] for name, net in _NET.items()}
    both = [
        {"name": f"from {one}", "source": [one], "destination": [other], "protocols": ["udp"], "action": "allow"}
        for one, other in ((SITE_A, SITE_B), (SITE_B, SITE_A))
    ]
    return {"default": "drop", "sets": sites, "rules": both}


def _gateway(lab: Lab, own: str, other: str, keys: dict[str, str]) -> dict[str, Any]:
    tunnel = {
        "name": other,
        "local": _WAN[own],
        "remote": _WAN[other],
        "selectors": [{"local": f"{_NET[own]}.0/24", "remote": f"{_NET[other]}.0/24"}],
        "outbound": [{"spi": _SPI[own], "secret": keys[own], "esn": True}],
        "inbound": [{"spi": _SPI[other], "secret": keys[other], "esn": True}],
    }
    host = lab.host(own)
    return {
        "interfaces": [{"addresses": [f"{_NET[own]}.1/24"]}, {"addresses": [f"{_WAN[own]}/24"]}],
        "neighbours": [{"address": host.ip, "mac": host.mac}],
        "tunnels": [tunnel],
    }
