"""The example controllers act as learning switches: on one Open vSwitch bridge, and on a server's one switch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.control_plane import Daemon, free_port
from tests.examples.switches import ROOT, Switch, one_bridge, one_server, ryu_manager, wait_for

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
OTHERS = {1: {2, 3, 4}, 3: {1, 2, 4}}


def command_line(framework: str, version: str = "1.3") -> list[str]:
    """Return the command of a learning switch; skip the test if it is not installed."""
    if framework == "os-ken":
        app = {
            "1.0": "tests/examples/openflow10_switch.py",
            "1.3": "examples/learning_switch.py",
            "1.5": "tests/examples/openflow15_switch.py",
        }[version]
        return [sys.executable, str(ROOT / "examples/run_os_ken.py"), str(ROOT / app)]
    apps = {
        "1.0": "ryu.app.simple_switch",
        "1.3": str(ROOT / "examples/ryu_learning_switch.py"),
        "1.4": "ryu.app.simple_switch_14",
        "1.5": "ryu.app.simple_switch_15",
    }
    return [str(ryu_manager()), apps[version]]


@pytest.fixture(params=[one_bridge, one_server])
def switches(request: pytest.FixtureRequest) -> Callable[[str], contextlib.AbstractContextManager[Switch]]:
    return request.param


@pytest.fixture(params=["os-ken", "ryu"])
def switch(request: pytest.FixtureRequest, switches: Callable, tmp_path: Path) -> Iterator[Switch]:
    """A switch, with an example in charge of it."""
    port = free_port()
    command = [*command_line(request.param), "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port)]
    with Daemon("controller", command, tmp_path) as controller, switches(f"tcp:127.0.0.1:{port}") as switch:
        wait_for("the table-miss flow", lambda: "CONTROLLER:65535" in switch.flows())
        yield switch
        controller.require_running()


@pytest.mark.parametrize(
    ("framework", "version"), [("os-ken", "1.0"), ("os-ken", "1.5"), ("ryu", "1.0"), ("ryu", "1.4"), ("ryu", "1.5")]
)
def test_applications_for_other_versions_learn(
    framework: str, version: str, switches: Callable, tmp_path: Path
) -> None:
    """Those for OpenFlow 1.0 rely on packets without a rule."""
    port = free_port()
    command = [*command_line(framework, version), "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port)]
    with Daemon("controller", command, tmp_path) as controller, switches(f"tcp:127.0.0.1:{port}") as switch:
        wait_for("a flooded frame", lambda: switch.leaves_by(1, A, B) >= OTHERS[1])
        assert switch.ports_of(3, B, A, {1}) == {1}
        assert switch.ports_of(1, A, B, {3}) == {3}
        flows = switch.flows()
        assert flows.count(f"dl_dst={A}") == flows.count(f"dl_dst={B}") == 1
        controller.require_running()


def test_the_example_floods_learns_and_installs_flows(switch: Switch) -> None:
    assert switch.ports_of(1, A, B, OTHERS[1]) == OTHERS[1], "an unknown address is flooded, not sent back"
    assert switch.ports_of(3, B, A, {1}) == {1}, "a learned address gets its packets alone"
    assert switch.ports_of(1, A, B, {3}) == {3}

    flows = switch.flows()
    for match in (f"in_port=3,dl_dst={A}", f"in_port=1,dl_dst={B}"):
        assert match in flows
    assert flows.count("idle_timeout=30") == 2


def test_link_local_frames_stay_on_their_link(switch: Switch) -> None:
    assert switch.ports_of(1, A, "01:80:c2:00:00:0e", set()) == set()
    # The controller handles packets in order: after this one it has seen the first.
    assert switch.ports_of(1, B, A, OTHERS[1]) == OTHERS[1], "their sender's address is not learned"


def test_the_example_follows_an_address_to_another_port(switch: Switch) -> None:
    switch.ports_of(1, A, B, OTHERS[1])
    switch.ports_of(3, B, A, {1})
    switch.ports_of(4, A, B, {3})
    # Open vSwitch's cache uses a deleted flow for some more milliseconds.
    switch.wires.purge()
    assert switch.ports_of(3, B, A, {4}) == {4}, "the flow to the old port is deleted"
