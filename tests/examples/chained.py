"""A server of dummy devices whose controller leads traffic through network functions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scapy.packet import Packet

from lab import Lab, LabSpec
from lab.control_plane import Oneswitchd, OsKenController, find_installed, free_port
from lab.errors import LabError
from lab.wires import Wires
from tests.examples.switches import ROOT


class Server:
    """A server of dummy devices with the example in charge of it."""

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, wires: Wires, controller: OsKenController) -> None:
        self.lab, self.oneswitchd, self.wires, self.controller = lab, oneswitchd, wires, controller
        self.place = {port.number: (port.switch, port.interface) for port in lab.state.ports}
        self.number = {at: port for port, at in self.place.items()}

    def flows(self) -> str:
        return self.ofctl("dump-flows")

    def ofctl(self, question: str) -> str:
        command = ["ovs-ofctl", "-O", "OpenFlow13", "--no-names", question, self.oneswitchd.management]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout

    def send(self, in_port: int, frame: Packet) -> set[int]:
        """Send a frame into a port; return the ports by which it left."""
        data = bytes(frame)
        self.wires.inject(self.place[in_port], data)
        return {self.number[at] for at, frames in self.wires.settle().items() if data in frames}


@contextmanager
def serving(directory: Path, application: str, settings: str, ports_at_each: int) -> Iterator[Server]:
    """Start an example with its settings, and a server that it controls.

    Args:
        directory: for the controller's files.
        application: the example's file.
        settings: lines of its configuration file.
        ports_at_each: the number of ports of the hypervisor, and of the one smart NIC.
    """
    try:
        find_installed("oneswitchd")
    except LabError as error:
        pytest.skip(str(error))
    port = free_port()
    chain = directory / "chain.conf"
    chain.write_text(f"[DEFAULT]\n{settings}\n")
    spec = LabSpec.star(1, ports_at_each, substrate="dummy", controllers=(f"tcp:127.0.0.1:{port}",))
    with (
        OsKenController(ROOT / "examples" / application, directory, port, ["--config-file", str(chain)]) as controller,
        Lab(spec).start() as lab,
        Oneswitchd(lab.server_toml) as oneswitchd,
        lab.wires() as wires,
    ):
        oneswitchd.wait_up(controllers=1)
        yield Server(lab, oneswitchd, wires, controller)
        controller.require_running()
