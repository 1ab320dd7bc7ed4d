"""A load balancer whose heavy connections the switch carries: deployed by nfagent, under traffic, on real switches."""

import os
import signal
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
from lab.server import Lab
from nfagent.control import Control
from tests.nfagent.world import wait_until

pytestmark = pytest.mark.namespaces

MOVES = int(os.environ.get("OFFLOAD_MOVES", "2"))
"""100 moves with 1,000 connections: ``OFFLOAD_MOVES=100 OFFLOAD_FLOWS=1000 OFFLOAD_PPS=5000``."""
FLOWS, PPS = int(os.environ.get("OFFLOAD_FLOWS", "100")), int(os.environ.get("OFFLOAD_PPS", "1000"))
SHARE = 0.99
ALWAYS = {"begin": 0.0, "stop": 0.0, "heavy_packets_per_s": 1.0, "idle": "60s"}


@dataclass
class World:
    """A load balancer under traffic."""

    oneswitchd: Oneswitchd
    agent: AgentProcess
    balancer: Balancer
    stream: FlowStream
    tally: FlowTally

    def place(self) -> str:
        return self.balancer.show()["placement"]["location"]

    def status(self) -> dict[str, Any]:
        return Control(self.agent.runtime / f"{self.balancer.id}.{self.place()}.sock").ask("status")

    def offloaded(self) -> int:
        """Return the number of flows that rules carry, by the switches."""
        ports = self.oneswitchd.client.status().offload
        return next((each.flows for each in ports if each.port == self.balancer.number), 0)

    def await_rules(self) -> None:
        wait_until(lambda: self.status()["offload"]["flows"] >= FLOWS and self.offloaded() >= FLOWS)

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
            balancer = Balancer(lab, oneswitchd, agent, FLOWS, "nat", {"offload": ALWAYS})
            with balancer.traffic(lab_dir) as stream:
                stream.fill()
                stream.set_rate(PPS)
                made = World(oneswitchd, agent, balancer, stream, FlowTally())
                made.await_rules()
                yield made


def test_rules_carry_the_connections_also_while_the_function_moves(world: World) -> None:
    # The switch's cache follows its rules within a second.
    wait_until(lambda: world.status()["offload"]["share"] >= SHARE)
    for number in range(MOVES):
        target = ("snic0", "hypervisor")[number % 2]
        ended = world.balancer.await_end(world.balancer.ask(target))
        assert (ended["outcome"], ended["report"]["lost_state"]) == ("done", None)
        world.balancer.await_active()
        world.await_rules()
        wait_until(lambda: world.status()["offload"]["share"] >= SHARE)
    assert world.fate() == (0, 0, 0)


def test_a_removed_backend_gets_no_packet_once_its_rules_are_gone(world: World) -> None:
    (vip,) = world.balancer.config["vips"]
    gone, *kept = vip["backends"]
    world.balancer.reconfigure({"vips": [vip | {"backends": kept}]})
    of_it = FLOWS // len(vip["backends"])
    wait_until(lambda: world.status()["offload"]["removals"] >= of_it)
    world.tally.add(world.stream.arrivals())
    first = world.stream.sent()
    wait_until(lambda: world.stream.sent() > first + PPS)
    last = bytes(map(int, gone["address"].split(".")))
    assert all(each.backend != last for each in world.stream.arrivals() if each.number >= first)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stopped_function_leaves_no_rule(world: World, how: signal.Signals) -> None:
    pid = world.balancer.show()["placement"]["pid"]
    # The agent must not start another one meanwhile, which would adopt nothing, but get rules of its own.
    world.agent.stop()
    os.kill(pid, how)
    wait_until(lambda: world.offloaded() == 0)
    if how == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
    world.agent.start()
    world.balancer.await_active()
    world.await_rules()


def test_the_agent_shows_what_the_rules_carry(world: World) -> None:
    """The traffic matrix has the packets that rules carry; the function's own load does not."""
    lb, client = world.balancer.number, world.agent.client
    load: dict[str, Any] = {}

    def is_seen() -> bool:
        load.update(client.get("/api/v1/load").json())
        to_it = sum(pair["pps"] for pair in load["matrix"] if pair["to"] == lb)
        from_it = sum(pair["pps"] for pair in load["matrix"] if pair["from"] == lb)
        own = load["instances"].get(world.balancer.id)
        if own is None:  # not measured this time
            return False
        carried = own["offload"]["traffic"]["pps"] if own["offload"] else 0
        return min(to_it, from_it, carried) > PPS / 2 and own["traffic"]["pps"] < PPS / 10

    wait_until(is_seen)
    metrics = client.get("/metrics").text
    assert f'nfagent_offload_flows{{instance="{world.balancer.show()["name"]}"' in metrics
    assert world.balancer.show()["offload"]["state"] == "connected"
