"""The tenants: their addresses, web servers and clients, and the functions that their traffic passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from lab.demo.site import BALANCER, DATA_VIP, OUTSIDE, SECOND, WEB_VIP, Site, balancer_config
from lab.errors import ControlError
from lab.function import Function
from lab.server import Lab
from lab.signatures import own_signatures

FIRST_PORT = 1000
SLOTS = 6, 2
"""On each switch: all functions fit on one, and those in line have two interfaces."""

_PORTS_OF = {"firewall": 2, "monitor": 2, "lb": 1}
_KINDS = "/api/v1/kinds"
_ROOM = {"hosts": 1024, "findings": 2048, "connections": 1024, "history_bytes": 1 << 16}
_ENOUGH = 1_000_000
"""Packets of a source in a second: a limiter that stands in for the firewall drops nothing."""


@dataclass(frozen=True)
class Tenant:
    """A tenant.

    Attributes:
        client: the host of its visitors.
        webs: its web servers.
        sink: the receiver of its UDP service.
        web_vip, data_vip: addresses of its services.
        balancer: the load balancer's own address.
    """

    name: str
    client: str
    webs: tuple[str, ...]
    sink: str
    web_vip: str
    data_vip: str
    balancer: str


TENANTS = (
    Tenant("acme", OUTSIDE, ("web1", "web2"), "web2", WEB_VIP, DATA_VIP, BALANCER),
    Tenant("beta", SECOND, ("web3",), "web3", "10.0.0.110", "10.0.0.111", "10.0.0.60"),
)


@dataclass(frozen=True)
class Deployed:
    """A tenant's functions, in the order in which packets from outside pass them."""

    tenant: Tenant
    firewall: Function
    monitor: Function
    lb: Function

    @property
    def functions(self) -> tuple[Function, ...]:
        """Return all."""
        return self.firewall, self.monitor, self.lb


def controller() -> tuple[str, list[str]]:
    """Return the controller of all chains, by the ports that the functions will get."""
    numbers = count(FIRST_PORT)
    chains = []
    for tenant in TENANTS:
        hops = ["+".join(f"nf{next(numbers)}" for _ in range(ports)) for ports in _PORTS_OF.values()]
        chains.append(f"{tenant.web_vip} {tenant.data_vip} via {' '.join(hops)}")
    return "tenant_chains.py", [f"chains = {', '.join(chains)}"]


def deploy(site: Site) -> list[Deployed]:
    """Order all functions from the agent, and the chains; wait until they are active.

    Raises:
        StartError, ControlError: something was refused, or did not become active.
    """
    answer = site.agent.client.get(_KINDS).json()
    kinds = {each["name"] for each in answer["kinds"]}
    files = own_signatures(site.lab.directory)
    found = [_ordered(site, tenant, kinds, files) for tenant in TENANTS]
    for deployed in found:
        for function in deployed.functions:
            function.await_active()
        hops = [{"instance": function.id} for function in deployed.functions]
        made = site.agent.client.post("/api/v1/chains", json={"name": deployed.tenant.name, "hops": hops})
        if made.is_error:
            raise ControlError(f"the chain of {deployed.tenant.name} was refused: {made.text}")
    return found


def _ordered(site: Site, tenant: Tenant, kinds: set[str], files: Path) -> Deployed:
    def order(role: str, kind: str, config: dict[str, Any]) -> Function:
        name = f"{tenant.name}-{role}"
        return Function(site.agent, {"name": name, "kind": kind, "ports": _PORTS_OF[role], "config": config})

    firewall = order("firewall", *guard(tenant, kinds))
    monitor = order("monitor", "assets", {"signatures": str(files), **_ROOM})
    return Deployed(tenant, firewall, monitor, order("lb", "l4lb", _balancing(site.lab, tenant)))


def guard(tenant: Tenant, kinds: set[str]) -> tuple[str, dict[str, Any]]:
    """Return the kind and the configuration of a tenant's first function: a limiter where there is no firewall."""
    if "firewall" not in kinds:
        return "limiter", {"packets": _ENOUGH}
    rules = [_allow("web", tenant.web_vip, "tcp", 80), _allow("data", tenant.data_vip, "udp", 40000)]
    return "firewall", {"default": "drop", "zones": {"outside": {"ports": [0]}}, "rules": rules}


def _allow(name: str, vip: str, protocol: str, port: int) -> dict[str, Any]:
    wanted = {"destination": [vip], "protocols": [protocol], "ports": [port]}
    return {"name": name, "from": ["outside"], "action": "allow", **wanted}


def _balancing(lab: Lab, tenant: Tenant) -> dict[str, Any]:
    addresses = {"own": tenant.balancer, "web_vip": tenant.web_vip, "data_vip": tenant.data_vip}
    return balancer_config(lab, tenant.webs, tenant.sink, **addresses)


def strangers(found: Sequence[str], tenant: Tenant, lab: Lab) -> list[str]:
    """Return addresses that a tenant's monitor knows, but that are not the tenant's: none should be."""
    own = {lab.host(tenant.client).ip, tenant.web_vip, tenant.data_vip, tenant.balancer}
    return sorted(set(found) - own)
