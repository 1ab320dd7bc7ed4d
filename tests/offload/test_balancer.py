"""A load balancer whose heavy connections the switch carries."""

import os
from typing import Any

import pytest

from tests.nfagent.world import wait_until
from tests.offload.conftest import FLOWS, PPS, SHARE, World

pytestmark = pytest.mark.namespaces

MOVES = int(os.environ.get("OFFLOAD_MOVES", "2"))
"""100 moves with 1,000 connections: ``OFFLOAD_MOVES=100 OFFLOAD_FLOWS=1000 OFFLOAD_PPS=5000``."""


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
    # Rules' counts are told once a second.
    wait_until(lambda: world.counted() == world.stream.sent())


def test_a_removed_backend_gets_no_packet_once_its_rules_are_gone(world: World) -> None:
    (vip,) = world.balancer.config["vips"]
    gone, *kept = vip["backends"]
    world.balancer.reconfigure({"vips": [vip | {"backends": kept}]})
    of_it = FLOWS // len(vip["backends"])
    wait_until(lambda: world.status()["offload"]["removals"] >= of_it)
    world.tally.add(world.stream.arrivals())
    first = world.stream.sent()
    world.more_packets(PPS)
    last = bytes(map(int, gone["address"].split(".")))
    assert all(each.backend != last for each in world.stream.arrivals() if each.number >= first)


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
