"""Processes die or are stopped while the switch carries connections of a load balancer."""

import os
import signal
from collections.abc import Callable

import pytest

from lab.control_plane import Oneswitchd
from tests.nfagent.world import wait_until
from tests.offload.conftest import PPS, World

pytestmark = pytest.mark.namespaces


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


def _kill(world: World, victim: str) -> Callable[[], None]:
    """Kill a process; return the way to start it again."""
    if victim == "nfagent":
        world.agent.kill()
        return world.agent.start
    if victim == "oneswitchd":
        world.oneswitchd.stop(signal.SIGKILL)

        def start() -> None:
            world.oneswitchd = Oneswitchd(world.lab.server_toml)
            world.oneswitchd.__enter__()

        return start
    switch = world.lab.switch(victim)
    switch.kill("ovs-vswitchd")
    return lambda: switch.start("ovs-vswitchd")


def _stop(world: World, victim: str) -> Callable[[], None]:
    """Stop a process; return the way to continue it."""
    if victim in ("nfagent", "oneswitchd"):
        pid = world.agent.pid if victim == "nfagent" else world.oneswitchd.pid
    else:
        pid = next(each for each in world.lab.state.switches if each.name == victim).processes["ovs-vswitchd"]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("end", [_kill, _stop])
@pytest.mark.parametrize("victim", ["nfagent", "oneswitchd", "hypervisor", "snic0"])
def test_no_rule_is_left_over(world: World, victim: str, end: Callable[[World, str], Callable[[], None]]) -> None:
    wait_until(world.is_steady)
    again = end(world, victim)
    world.more_packets(2 * PPS)
    again()
    wait_until(world.is_steady)
    lost, *others = world.fate()
    assert others == [0, 0]
    # Without its ovs-vswitchd, a switch of the lab forwards nothing.
    assert lost == 0 or victim in ("hypervisor", "snic0")
