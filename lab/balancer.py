"""A load balancer that nfagent deployed on a lab, between a host behind the wire and a VM that has all backends."""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.errors import ControlError, StartError
from lab.flow_frames import Service
from lab.flow_stream import FlowStream
from lab.programs import environment
from lab.server import Lab
from lab.spec import LabSpec

CLIENTS, BACKENDS = "out1", "vm1"
_ADDRESS, _PORT = "192.0.2.1", 53
_POLL_S = 0.005
_APPLIED_S = 10.0
_INSTANCES = "/api/v1/instances"


def balancer_spec(**options: Any) -> LabSpec:
    """A server with two slots for network functions on each switch."""
    return LabSpec.demo(static_arp=True, **options).with_slots(2)


class Balancer:
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
        id: id of the instance.
        config: its configuration.
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
        self._lab, self._agent, self._mode, self._backends = lab, agent, mode, backends
        self.config = _config(lab.host(backends).mac, flows, mode) | dict(more or {})
        order = {"name": "lb", "kind": "l4lb", "ports": 1, "config": self.config, "pin": pin}
        answer = agent.client.post(_INSTANCES, json=order)
        if answer.status_code != 202:
            raise StartError(f"no load balancer was deployed: {answer.text}")
        made = answer.json()
        self.id: str = made["id"]
        self.number: int = made["ports"][0]["number"]
        self.flows = flows
        self.service = Service(made["ports"][0]["mac"], _ADDRESS, _PORT)
        ports = {port.name: port.number for port in lab.state.ports}
        for rule in (
            f"in_port={ports[CLIENTS]},actions=output:{self.number}",
            f"in_port={self.number},actions=output:{ports[backends]}",
        ):
            command = ["ovs-ofctl", "-O", "OpenFlow13", "add-flow", oneswitchd.management, rule]
            subprocess.run(command, check=True, timeout=30, env=environment() | {"OVS_RUNDIR": str(lab.directory)})
        self.await_active()

    def show(self) -> dict[str, Any]:
        """Return the instance as the API reports it."""
        return self._agent.client.get(f"{_INSTANCES}/{self.id}").json()

    def reconfigure(self, more: Mapping[str, Any]) -> None:
        """Change keys of its configuration, and wait until it has them.

        Raises:
            ControlError: it was refused.
        """
        self.config |= more
        answer = self._agent.client.patch(f"{_INSTANCES}/{self.id}", json={"config": self.config})
        if answer.status_code not in (200, 202):
            raise ControlError(f"a configuration was refused: {answer.text}")
        deadline = time.monotonic() + _APPLIED_S
        while (shown := self.show())["config_state"] != "applied":
            if time.monotonic() > deadline:
                raise ControlError(f"a configuration is {shown['config_state']} after {_APPLIED_S:g} s")
            time.sleep(_POLL_S)

    def await_active(self, timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait until it is active at its wanted location.

        Raises:
            StartError: the time limit expired.
        """
        deadline = time.monotonic() + timeout_s
        while (shown := self.show())["status"] != "active":
            if time.monotonic() > deadline:
                raise StartError(f"the load balancer is {shown['status']} after {timeout_s:g} s: {shown['reason']}")
            time.sleep(_POLL_S)
        return shown

    def ask(self, target: str) -> int:
        """Request a migration; return its epoch.

        Raises:
            ControlError: it was refused.
        """
        answer = self._agent.client.post("/api/v1/migrations", json={"instance": self.id, "target": target})
        if answer.status_code != 202:
            raise ControlError(f"a migration to {target} was refused: {answer.text}")
        return answer.json()["epoch"]

    def await_end(self, epoch: int, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until a migration has ended; return it.

        Raises:
            TimeoutError: it has not ended.
        """
        deadline = time.monotonic() + timeout_s
        while (shown := self._agent.client.get(f"/api/v1/migrations/{epoch}").json())["outcome"] is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"migration {epoch} is still at {shown['step']!r} after {timeout_s:g} s")
            time.sleep(_POLL_S)
        return shown

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
