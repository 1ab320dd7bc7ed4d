"""A load balancer whose heavy connections the switch carries: deployed by nfagent, under traffic, on real switches."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.agent import AgentProcess
from lab.balancer import Balancer, balancer_spec
from lab.control_plane import Oneswitchd
from lab.flow_stream import FlowStream
from lab.flow_tally import FlowTally
from lab.programs import environment
from lab.server import Lab
from nfagent.control import Control
from tests.nfagent.world import wait_until

FLOWS, PPS = int(os.environ.get("OFFLOAD_FLOWS", "100")), int(os.environ.get("OFFLOAD_PPS", "1000"))
SHARE = 0.99
_ALWAYS = {"begin": 0.0, "stop": 0.0, "heavy_packets_per_s": 1.0, "idle": "60s"}


@dataclass
class World:
    """A load balancer under traffic."""

    lab: Lab
    oneswitchd: Oneswitchd
    agent: AgentProcess
    balancer: Balancer
    stream: FlowStream
    tally: FlowTally

    def place(self) -> str:
        return self.balancer.show()["placement"]["location"]

    def ask(self, word: str) -> dict[str, Any]:
        return Control(self.agent.runtime / f"{self.balancer.id}.{self.place()}.sock").ask(word)

    def status(self) -> dict[str, Any]:
        return self.ask("status")

    def counted(self) -> int:
        """Return the packets to the VIP, by the function's counters."""
        counters = self.ask("counters")
        return sum(value for name, value in counters.items() if name.startswith("vip_packets{"))

    def offloaded(self) -> int:
        """Return the number of flows that rules carry, by the switches."""
        ports = self.oneswitchd.client.status().offload
        return next((each.flows for each in ports if each.port == self.balancer.number), 0)

    def await_rules(self) -> None:
        wait_until(lambda: self.status()["offload"]["flows"] >= FLOWS and self.offloaded() >= FLOWS)

    def rules(self) -> dict[str, int]:
        """Return the number of flows' rules that each switch has."""
        found = {}
        for switch in self.lab.state.switches:
            argv = ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", str(switch.edge)]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=environment(), check=False)
            assert done.returncode == 0, done.stderr
            found[switch.name] = len(re.findall(r"reg1=.*meter:", done.stdout))
        return found

    def is_steady(self) -> bool:
        """Tell whether the switch at the function's place has the rules that it knows, and the other one has none."""
        rules, here = self.rules(), self.place()
        offload = self.status()["offload"]
        return offload["share"] >= SHARE and rules == dict.fromkeys(rules, 0) | {here: offload["flows"]}

    def more_packets(self, count: int) -> None:
        """Let this number of packets be sent."""
        first = self.stream.sent()
        wait_until(lambda: self.stream.sent() >= first + count)

    def fate(self) -> tuple[int, int, int]:
        """Return how many packets were lost, duplicated and sent to another backend so far; it ends the traffic."""
        sent = self.stream.set_rate(0)
        assert self.stream.settle(0.5, 30)
        self.tally.add(self.stream.arrivals())
        return len(self.tally.lost(0, sent)), self.tally.duplicated, self.tally.strayed


@pytest.fixture
def world(lab_dir: Path) -> Iterator[World]:
    with Lab(balancer_spec()).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        with AgentProcess(lab, lab_dir / "agent", {"decide": {"enabled": False}}) as agent:
            balancer = Balancer(lab, oneswitchd, agent, FLOWS, "nat", {"offload": _ALWAYS})
            with balancer.traffic(lab_dir) as stream:
                stream.fill()
                stream.set_rate(PPS)
                made = World(lab, oneswitchd, agent, balancer, stream, FlowTally())
                made.await_rules()
                try:
                    yield made
                finally:
                    made.oneswitchd.stop()  # a test may have started another one
