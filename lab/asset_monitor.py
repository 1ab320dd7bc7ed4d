"""An asset monitor that nfagent deployed on a lab: a tap that a controller's groups feed, or in line."""

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

CLIENTS, SERVERS = "out1", "vm1"
_ADDRESS, _PORT = "192.0.2.1", 53
_PAGE = 1000


def monitor_spec(snic_speed: float | None = None, **options: Any) -> LabSpec:
    """A server with two slots of two interfaces on each switch."""
    return LabSpec.demo(static_arp=True, **options).with_slots(2, 2, snic_speed)


class AssetMonitor(Function):
    """An active function of kind ``assets``.

    Args:
        lab: of `monitor_spec`.
        oneswitchd: the oneswitchd of the lab.
        agent: the agent of the lab.
        signatures: the directory with its files.
        ports: 1: a tap; 2: in line.
        more: further keys of its configuration.

    Raises:
        StartError: it did not become active.
    """

    def __init__(
        self,
        lab: Lab,
        oneswitchd: Oneswitchd,
        agent: AgentProcess,
        signatures: Path,
        ports: int,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        config = {"signatures": str(signatures), "tap": ports == 1, **(more or {})}
        super().__init__(agent, {"name": "monitor", "kind": "assets", "ports": ports, "config": config})
        self.lab, self._oneswitchd = lab, oneswitchd
        self._ports = {port.name: port.number for port in lab.state.ports}
        self.await_active()

    def watch(self, source: str, target: str) -> None:
        """Send what comes from a host to another one, and a copy here."""
        number = self._ports[source]
        copies = f"bucket=output:{self._ports[target]},bucket=output:{self.ports[0]['number']}"
        self._ofctl("add-group", f"group_id={number},type=all,{copies}")
        self._ofctl("add-flow", f"in_port={number},actions=group:{number}")

    def stand_between(self, source: str, target: str) -> None:
        """Lead what comes from a host through this function to another one."""
        first, last = (port["number"] for port in self.ports)
        self._ofctl("add-flow", f"in_port={self._ports[source]},actions=output:{first}")
        self._ofctl("add-flow", f"in_port={last},actions=output:{self._ports[target]}")

    def traffic(self, flows: int, directory: Path) -> FlowStream:
        """Start traffic of flows from `CLIENTS` to `SERVERS`, silent at first."""
        service = Service(self.lab.host(SERVERS).mac, _ADDRESS, _PORT)
        return FlowStream(self.lab, CLIENTS, SERVERS, service, flows, directory, "nat")

    def hosts(self) -> list[dict[str, Any]]:
        """Return all hosts that it has found."""
        found: list[dict[str, Any]] = []
        start: int | None = 0
        while start is not None:
            page = self._assets("", start=start, limit=_PAGE)
            found += page["hosts"]
            start = page["next"]
        return found

    def lines(self, after: int = 0) -> list[tuple[int, str]]:
        """Return the numbers and the texts of the lines after a number."""
        found: list[tuple[int, str]] = []
        while True:
            page = self._assets("/lines", after=after, limit=_PAGE)["lines"]
            if not page:
                return found
            found += [(each["number"], each["line"]) for each in page]
            after = found[-1][0]

    def _assets(self, what: str, **query: int) -> dict[str, Any]:
        answer = self.client.get(f"/api/v1/instances/{self.id}/assets{what}", params=query)
        return answer.raise_for_status().json()

    def _ofctl(self, command: str, argument: str) -> None:
        ofctl(self.lab, self._oneswitchd, command, argument)
