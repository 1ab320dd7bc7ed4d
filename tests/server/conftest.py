"""Servers with oneswitchd in front, and single switches."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.control_plane import Oneswitchd
from lab.ovs import DAEMONS, OvsSwitch
from lab.programs import environment
from lab.server import Lab
from lab.spec import LabSpec
from lab.wires import Frames, Place, Wires
from server.config import LinkConfig, SwitchConfig


@dataclass
class OneSwitch:
    """A lab with oneswitchd in front of it, all switches connected."""

    lab: Lab
    oneswitchd: Oneswitchd

    def ofctl(self, *arguments: str, target: str | None = None, check: bool = True) -> str:
        """Run ``ovs-ofctl COMMAND TARGET ...``; the default target is the one switch."""
        command, *rest = arguments
        argv = ["ovs-ofctl", "-O", "OpenFlow13", command, target or self.oneswitchd.management, *rest]
        environ = environment() | {"OVS_RUNDIR": str(self.lab.directory)}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=environ, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def add_flows(self, *flows: str) -> None:
        for flow in flows:
            self.ofctl("add-flow", flow)

    def place(self, port: str) -> Place:
        """Return where a virtual port is plugged in now."""
        there = self.oneswitchd.client.find_port(port)
        return there.switch, there.interface

    def exchange(self, wires: Wires, port: str, *frames: bytes) -> dict[str, list[bytes]]:
        """Inject at a virtual port; return the frames that left, by virtual port."""
        for frame in frames:
            wires.inject(self.place(port), frame)
        return self.by_port(wires.settle())

    def by_port(self, frames: Frames) -> dict[str, list[bytes]]:
        names = {(port.switch, port.interface): port.name for port in self.oneswitchd.client.ports()}
        return {names[place]: list(left) for place, left in frames.items()}


Start = Callable[[LabSpec], AbstractContextManager[OneSwitch]]


@pytest.fixture
def start(lab_dir: Path) -> Start:
    """Return a function that starts a server with oneswitchd in front."""

    @contextlib.contextmanager
    def started(spec: LabSpec) -> Iterator[OneSwitch]:
        with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd, oneswitchd.client:
            oneswitchd.wait_up()
            yield OneSwitch(lab, oneswitchd)

    return started


@pytest.fixture
def demo(start: Start) -> Iterator[OneSwitch]:
    """Start the demo's server on the dummy substrate."""
    with start(LabSpec.demo(substrate="dummy")) as one:
        yield one


@pytest.fixture
def ovs(lab_dir: Path) -> Iterator[OvsSwitch]:
    """Start an Open vSwitch with dummy devices and no bridges."""
    switch = OvsSwitch("hypervisor", lab_dir / "ovs", vswitchd_options=("--enable-dummy",))
    switch.create()
    for daemon in DAEMONS:
        switch.launch(daemon)
        switch.await_up(daemon, lambda pid: Path(f"/proc/{pid}").exists())
    yield switch
    for daemon in reversed(DAEMONS):
        switch.kill(daemon)


@pytest.fixture
def switch_config(ovs: OvsSwitch) -> SwitchConfig:
    """Return the entry of `ovs` in server.toml."""
    return SwitchConfig(
        name=ovs.name,
        virt=f"unix:{ovs.management('virt')}",
        edge=f"unix:{ovs.management('edge')}",
        ovsdb=f"unix:{ovs.db_socket}",
        control=str(ovs.control()),
    )


@pytest.fixture
def snic_config(switch_config: SwitchConfig) -> SwitchConfig:
    """Return the same entry as an sNIC."""
    return switch_config.model_copy(update={"link": LinkConfig(hypervisor="pcie-snic0", local="pf0hpf")})
