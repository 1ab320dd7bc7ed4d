"""The example controllers do what a learning switch does, on one Open vSwitch bridge with dummy ports.

Such a bridge needs no namespaces and no root; packets go in and come out as bytes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import PcapReader

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Poll until a condition holds; fail with its name when it does not."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not seen within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.02)


@contextlib.contextmanager
def running(command: list[str], log: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; it dies with this process too."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=env,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Switch:
    """A bridge `br0` with dummy ports p1, p2, ... whose OpenFlow numbers are 1, 2, ..."""

    directory: Path
    ports: int

    @property
    def env(self) -> dict[str, str]:
        directory = str(self.directory)
        return os.environ | {"OVS_RUNDIR": directory, "OVS_LOGDIR": directory, "OVS_DBDIR": directory}

    def call(self, *command: str) -> str:
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def vsctl(self, *arguments: str) -> str:
        return self.call("ovs-vsctl", f"--db=unix:{self.directory}/db.sock", "--timeout=10", *arguments)

    def appctl(self, *arguments: str) -> str:
        return self.call("ovs-appctl", "--target", f"{self.directory}/vswitchd.ctl", *arguments)

    def flows(self) -> list[str]:
        listing = self.call(
            "ovs-ofctl", "-O", "OpenFlow13", "--no-names", "dump-flows", f"unix:{self.directory}/br0.mgmt"
        )
        return listing.splitlines()[1:]

    def connect(self, controller: str) -> None:
        self.vsctl("set-controller", "br0", controller)

    def send(self, port: int, frame: bytes) -> None:
        self.appctl("netdev-dummy/receive", f"p{port}", frame.hex())

    def received(self, port: int) -> list[bytes]:
        path = self.directory / f"p{port}.pcap"
        if not path.exists() or not path.stat().st_size:
            return []
        with PcapReader(str(path)) as packets:
            return [bytes(packet) for packet in packets]


@pytest.fixture
def switch() -> Iterator[Switch]:
    # Not tmp_path: the name of a unix socket has 107 characters at most.
    directory = Path(tempfile.mkdtemp(prefix="uno-examples-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        switch = Switch(directory, ports=3)
        schema = "/usr/share/openvswitch/vswitch.ovsschema"
        switch.call("ovsdb-tool", "create", f"{directory}/conf.db", schema)
        log = directory / "ovs.log"
        stack.enter_context(
            running(["ovsdb-server", f"--remote=punix:{directory}/db.sock", f"{directory}/conf.db"], log, switch.env)
        )
        wait_for("ovsdb-server's socket", (directory / "db.sock").exists)
        switch.vsctl("--no-wait", "init")
        vswitchd = ["ovs-vswitchd", "--enable-dummy", "--disable-system", f"--unixctl={directory}/vswitchd.ctl"]
        stack.enter_context(running([*vswitchd, f"unix:{directory}/db.sock"], log, switch.env))
        switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure")
        for port in range(1, switch.ports + 1):
            name = f"p{port}"
            interface = ["set", "interface", name, "type=dummy", f"ofport_request={port}"]
            switch.vsctl("add-port", "br0", name, "--", *interface, f"options:tx_pcap={directory}/{name}.pcap")
        yield switch


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def command_line(controller: str) -> list[str]:
    """How to run an example; skips the test where that cannot be."""
    if controller == "os-ken":
        return [sys.executable, str(ROOT / "examples/run_os_ken.py"), str(ROOT / "examples/learning_switch.py")]
    manager = Path(os.environ.get("RYU_MANAGER", ROOT / ".venv/ryu/bin/ryu-manager"))
    if not manager.exists():
        pytest.skip(f"no {manager}: Ryu 4.34 needs a Python 3.9; docs/controllers.md has the recipe")
    return [str(manager), str(ROOT / "examples/ryu_learning_switch.py")]


@pytest.fixture(params=["os-ken", "ryu"])
def controlled(request: pytest.FixtureRequest, switch: Switch) -> Iterator[Switch]:
    """The switch, with the example in charge of it."""
    port = free_port()
    command = [*command_line(request.param), "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port)]
    with running(command, switch.directory / "controller.log"):
        switch.connect(f"tcp:127.0.0.1:{port}")
        wait_for("the table-miss flow", lambda: any("CONTROLLER:65535" in flow for flow in switch.flows()))
        yield switch


class Wire:
    """Sends frames that differ, and says which ports each came out of."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.sent = 0

    def ports_of(self, in_port: int, src: str, dst: str, *, expected: set[int]) -> set[int]:
        """Send one frame; wait until it has left by the expected ports; the ports that it left by."""
        self.sent += 1
        frame = bytes(Ether(src=src, dst=dst, type=0x1234) / Raw(self.sent.to_bytes(46, "big")))
        self.switch.send(in_port, frame)

        def seen() -> set[int]:
            return {port for port in range(1, self.switch.ports + 1) if frame in self.switch.received(port)}

        wait_for(f"frame {self.sent} from port {in_port} at ports {expected}", lambda: seen() >= expected)
        return seen()


def test_example_floods_learns_and_installs_flows(controlled: Switch) -> None:
    wire = Wire(controlled)
    assert wire.ports_of(1, A, B, expected={2, 3}) == {2, 3}, "an unknown address is flooded, not sent back"
    assert wire.ports_of(2, B, A, expected={1}) == {1}, "a learned address gets its packets alone"
    assert wire.ports_of(1, A, B, expected={2}) == {2}

    flows = "\n".join(controlled.flows())
    for match in (f"in_port=2,dl_dst={A}", f"in_port=1,dl_dst={B}"):
        assert match in flows
    assert flows.count("idle_timeout=30") == 2


def test_link_local_frames_stay_on_their_link(controlled: Switch) -> None:
    wire = Wire(controlled)
    assert wire.ports_of(1, A, "01:80:c2:00:00:0e", expected=set()) == set()
    # The controller handles packets in order: when this one is through, it has seen the first.
    assert wire.ports_of(1, A, B, expected={2, 3}) == {2, 3}
    assert controlled.received(2) == controlled.received(3)
    assert len(controlled.received(2)) == 1


def test_address_that_moves_is_followed(controlled: Switch) -> None:
    wire = Wire(controlled)
    wire.ports_of(1, A, B, expected={2, 3})
    wire.ports_of(2, B, A, expected={1})
    wire.ports_of(3, A, B, expected={2})
    assert wire.ports_of(2, B, A, expected={3}) == {3}, "the flow toward the old port is gone"
