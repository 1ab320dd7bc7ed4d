"""The example controllers act as learning switches: on one Open vSwitch bridge, and on a server's one switch.

Both are labs of dummy devices: no namespaces, no root; packets go in and come out as bytes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from lab import Lab, LabError, LabSpec
from lab.control_plane import Daemon, Oneswitchd, find_installed, free_port
from lab.wires import Wires

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
# Ports 1 and 2 are on the hypervisor, 3 and 4 on the smart NIC.
SPEC = LabSpec.star(1, 2, substrate="dummy")
OTHERS = {1: {2, 3, 4}, 3: {1, 2, 4}}


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not seen within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.02)


@dataclass
class Switch:
    """The controlled switch.

    Attributes:
        target: its OpenFlow management socket.
    """

    lab: Lab
    wires: Wires
    target: str
    sent: int = 0

    def flows(self) -> str:
        command = ["ovs-ofctl", "-O", "OpenFlow13", "--no-names", "dump-flows", self.target]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout

    def ports_of(self, in_port: int, src: str, dst: str, expected: set[int]) -> set[int]:
        """Send a frame, wait for it at the expected ports, and return the ports by which it left."""
        place = {port.number: (port.switch, port.interface) for port in self.lab.state.ports}
        number = {at: port for port, at in place.items()}
        self.sent += 1
        frame = bytes(Ether(src=src, dst=dst, type=0x1234) / Raw(self.sent.to_bytes(46, "big")))
        self.wires.inject(place[in_port], frame)
        seen: set[int] = set()

        def arrived() -> bool:
            seen.update(number[at] for at, frames in self.wires.settle().items() if frame in frames)
            return seen >= expected

        wait_for(f"frame {self.sent} from port {in_port} at ports {expected}", arrived)
        return seen


def command_line(example: str) -> list[str]:
    """Return the command of an example; skip the test if it is not installed."""
    if example == "os-ken":
        return [sys.executable, str(ROOT / "examples/run_os_ken.py"), str(ROOT / "examples/learning_switch.py")]
    manager = Path(os.environ.get("RYU_MANAGER", ROOT / ".venv/ryu/bin/ryu-manager"))
    if not manager.exists():
        pytest.skip(f"no {manager}: Ryu 4.34 needs a Python 3.9; docs/controllers.md has the recipe")
    return [str(manager), str(ROOT / "examples/ryu_learning_switch.py")]


@contextlib.contextmanager
def one_bridge(controller: str) -> Iterator[Switch]:
    with Lab(SPEC.reference()).start() as lab, lab.wires() as wires:
        state = lab.state.switches[0]
        command = ["ovs-vsctl", f"--db={state.ovsdb}", "--timeout=10", "set-controller", "br0", controller]
        subprocess.run(command, check=True)
        yield Switch(lab, wires, state.virt)


@contextlib.contextmanager
def one_server(controller: str) -> Iterator[Switch]:
    try:
        find_installed("oneswitchd")
    except LabError as error:
        pytest.skip(str(error))
    spec = LabSpec.star(1, 2, substrate="dummy", controllers=(controller,))
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd, lab.wires() as wires:
        oneswitchd.wait_up(controllers=1)
        yield Switch(lab, wires, oneswitchd.management)


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
