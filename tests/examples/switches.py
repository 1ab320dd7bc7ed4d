"""The switches that controllers are tested with: one Open vSwitch bridge, and a server's one switch.

Both are labs of dummy devices: no namespaces, no root; packets go in and come out as bytes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from lab import Lab, LabError, LabSpec
from lab.control_plane import Oneswitchd, find_installed
from lab.wires import Wires

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
# Ports 1 and 2 are on the hypervisor, 3 and 4 on the smart NIC.
SPEC = LabSpec.star(1, 2, substrate="dummy")


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

    def exchange(
        self, in_port: int, frame: bytes, expected: Callable[[dict[int, list[bytes]]], bool]
    ) -> dict[int, list[bytes]]:
        """Send a frame, and return what left each port until it is as expected."""
        seen = self._send(in_port, frame)

        def arrived() -> bool:
            for port, frames in self._settle().items():
                seen.setdefault(port, []).extend(frames)
            return expected(seen)

        wait_for(f"the effect of {frame.hex()} from port {in_port}", arrived)
        return seen

    def _send(self, in_port: int, frame: bytes) -> dict[int, list[bytes]]:
        """Send a frame, and return what left each port at once."""
        place = {port.number: (port.switch, port.interface) for port in self.lab.state.ports}
        self.wires.inject(place[in_port], frame)
        return self._settle()

    def _settle(self) -> dict[int, list[bytes]]:
        number = {(port.switch, port.interface): port.number for port in self.lab.state.ports}
        return {number[at]: frames for at, frames in self.wires.settle().items()}

    def _next_frame(self, src: str, dst: str) -> bytes:
        self.sent += 1
        return bytes(Ether(src=src, dst=dst, type=0x1234) / Raw(self.sent.to_bytes(46, "big")))

    def ports_of(self, in_port: int, src: str, dst: str, expected: set[int]) -> set[int]:
        """Send a frame, wait for it at the expected ports, and return the ports by which it left."""
        frame = self._next_frame(src, dst)

        def ports(seen: dict[int, list[bytes]]) -> set[int]:
            return {port for port, frames in seen.items() if frame in frames}

        return ports(self.exchange(in_port, frame, lambda seen: ports(seen) >= expected))

    def leaves_by(self, in_port: int, src: str, dst: str) -> set[int]:
        """Send a frame, and return the ports by which any frame left at once."""
        return set(self._send(in_port, self._next_frame(src, dst)))


def ryu_manager() -> Path:
    """Return Ryu's command; skip the test if it is not installed."""
    manager = Path(os.environ.get("RYU_MANAGER", ROOT / ".venv/ryu/bin/ryu-manager"))
    if not manager.exists():
        pytest.skip(f"no {manager}: Ryu 4.34 needs a Python 3.9; docs/controllers.md has the recipe")
    return manager


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
