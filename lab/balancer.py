"""A load balancer that nfagent deployed on a lab, between a host behind the wire and a VM that has all backends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.flow_frames import Service
from lab.flow_stream import FlowStream
from lab.function import Function, ofctl
from lab.server import Lab
from lab.spec import LabSpec

CLIENTS, BACKENDS = "out1", "vm1"
_ADDRESS, _PORT = "192.0.2.1", 53


def balancer_spec(**options: Any) -> LabSpec:
    """A server with two slots for network functions on each switch."""
    return LabSpec.demo(static_arp=True, **options).with_slots(2)


class Balancer(Function):
    """An active l4lb, with rules that send it the traffic of `CLIENTS` and forward its output to `BACKENDS`.

    Flows get the ten backends in turn, so a flow whose state was lost most likely gets another one.

    Args:
        lab: of `balancer_spec`.
        oneswitchd: the oneswitchd of the lab.
        agent: the agent of the lab.
        flows: capacity of its tables.
        mode: how it reaches the backends: ``ipip`` or ``nat``.
        backends: the host that has all backends.
        pin: its location; None: the agent decides.
        more: further keys of its configuration.

    Attributes:
        number: number of its virtual port.
        service: destination of the traffic.

    Raises:
        StartError: it did not become active.
    """

    def __init__(
        self,
        lab: Lab,
        oneswitchd: Oneswitchd,
        agent: AgentProcess,
        flows: int,
        mode: str = "ipip",
        more: Mapping[str, Any] | None = None,
        *,
        backends: str = BACKENDS,
        pin: str | None = None,
    ) -> None:
        config = _config(lab.host(backends).mac, flows, mode) | dict(more or {})
        super().__init__(agent, {"name": "lb", "kind": "l4lb", "ports": 1, "config": config, "pin": pin})
        self._lab, self._mode, self._backends = lab, mode, backends
        self.number: int = self.ports[0]["number"]
        self.flows = flows
        self.service = Service(self.ports[0]["mac"], _ADDRESS, _PORT)
        ports = {port.name: port.number for port in lab.state.ports}
        ofctl(lab, oneswitchd, "add-flow", f"in_port={ports[CLIENTS]},actions=output:{self.number}")
        ofctl(lab, oneswitchd, "add-flow", f"in_port={self.number},actions=output:{ports[backends]}")
        self.await_active()

    def traffic(self, directory: Path, *, renewed: bool = False) -> FlowStream:
        """Start traffic of all flows, silent at first, once the load balancer knows its port's address."""
        ends = (self._lab, CLIENTS, self._backends, self.service, self.flows)
        return FlowStream(*ends, directory, self._mode, renewed=renewed)


def _config(mac: str, flows: int, mode: str) -> dict[str, Any]:
    addresses = [f"10.0.1.{number}" for number in range(10, 20)]
    backends = [{"name": f"b{index}", "address": address} for index, address in enumerate(addresses)]
    vip = {"name": "dns", "address": _ADDRESS, "port": _PORT, "protocol": "udp", "mode": mode}
    return {
        "interfaces": [{"addresses": ["10.0.1.2/24"], "gateways": ["10.0.1.1"]}],
        "neighbours": [{"address": address, "mac": mac} for address in ("10.0.1.1", *addresses)],
        "vips": [vip | {"algorithm": "round-robin", "backends": backends}],
        "timeouts": {"udp": "15m"},  # one round of a million flows takes that long
        "tables": {
            "connections_ipv4": max(4096, flows + flows // 8),
            "connections_ipv6": 64,
            "sessions": 64,
            "fragments": 64,
            "neighbours": 64,
            "vips": 4,
            "backends": 16,
        },
    }
