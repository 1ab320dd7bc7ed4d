"""oneswitchd as a process in front of real Open vSwitch instances: restarts, slow peers, TLS, the state file.

Other tests check what the rules do to packets.
"""

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab import Lab
from lab.control_plane import Oneswitchd, free_port
from server.errors import ApiRefusedError, ConfigError, ServerError
from server.oneswitchd.answers import Status
from server.oneswitchd.client import Client
from unoctl.cli import app

SETTLE_S = 60.0
HELLO = bytes([4, 0, 0, 8, 0, 0, 0, 1])


@contextlib.contextmanager
def started(lab: Lab) -> Iterator[Oneswitchd]:
    """oneswitchd on the lab's configuration."""
    with Oneswitchd(lab.server_toml) as daemon, daemon.client:
        # A client that connects too early leaks a socket, which pytest reports.
        wait_for("the first line of the log", lambda: daemon.require_running() or "waits for" in last_start(daemon.log))
        yield daemon


def last_start(log: Path) -> str:
    """Return the log since the last end of a daemon."""
    return log.read_text().rpartition("ending")[2]


@pytest.fixture
def daemon(lab: Lab) -> Iterator[Oneswitchd]:
    """oneswitchd with both switches connected."""
    with started(lab) as daemon:
        daemon.wait_up()
        yield daemon


def wait_for(what: str, holds: Callable[[], object]) -> None:
    """Poll for something that has no event."""
    deadline = time.monotonic() + SETTLE_S
    while not holds():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.01)


def ofctl(command: str, target: str, *arguments: str, tls: tuple[str, ...] = ()) -> str:
    """Run ovs-ofctl; fail the test if it prints to stderr."""
    argv = ["ovs-ofctl", "-O", "OpenFlow13", *tls, command, target, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def states(status: Status, switch: str) -> tuple[str, str]:
    found = next(each for each in status.switches if each.name == switch)
    return found.virt.state, found.edge.state


def flow_mod(index: int) -> bytes:
    """Adds a rule for one IPv4 destination that outputs to port 2."""
    no = 0xFFFFFFFF
    head = bytes(18) + struct.pack("!HHHIIIHH", 0, 0, 1000, no, no, no, 0, 0)
    match = struct.pack("!HHIHII6x", 1, 18, 0x80000A02, 0x0800, 0x80001804, 0x0B000000 + index)
    actions = struct.pack("!HH4xHHIH6x", 4, 24, 0, 16, 2, 0)
    body = head + match + actions
    return struct.pack("!BBHI", 4, 14, 8 + len(body), index) + body


class Controller:
    """A raw OpenFlow connection after the exchange of HELLOs."""

    def __init__(self, management: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(management.removeprefix("unix:"))
        self.socket.settimeout(SETTLE_S)
        self.socket.sendall(HELLO)
        assert self.message()[1] == 0

    def __enter__(self) -> "Controller":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def message(self) -> bytes:
        head = self.exactly(8)
        return head + self.exactly(int.from_bytes(head[2:4], "big") - 8)

    def exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "oneswitchd has closed the connection"
            data += more
        return data

    def send_while_taken(self, data: bytes, pause_s: float) -> int:
        """Send until nothing has been accepted for ``pause_s``; return the number of accepted bytes."""
        sent, last = 0, time.monotonic()
        self.socket.setblocking(False)
        while sent < len(data) and time.monotonic() < last + pause_s:
            try:
                sent += self.socket.send(data[sent : sent + 65536])
                last = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        self.socket.settimeout(SETTLE_S)
        return sent


def test_a_killed_switch_gets_its_rules_back(lab: Lab, daemon: Oneswitchd) -> None:
    ofctl("add-flow", daemon.management, "priority=7,actions=output:1")
    lab.switch("snic0").kill("ovs-vswitchd")
    wait_for("the loss to be seen", lambda: states(daemon.client.status(), "snic0") == ("down", "down"))
    status = daemon.client.status()
    assert states(status, "hypervisor") == ("up", "up")
    assert all(each.virt.last_error for each in status.switches if each.name == "snic0")
    # Controllers notice nothing.
    ofctl("add-flow", daemon.management, "priority=8,actions=output:2")
    lab.switch("snic0").start("ovs-vswitchd")
    daemon.wait_up()
    virt = next(switch.virt for switch in lab.state.switches if switch.name == "snic0")
    flows = ofctl("dump-flows", virt)
    assert "priority=7" in flows
    assert "priority=8" in flows


def test_oneswitchd_starts_before_the_switches(lab: Lab) -> None:
    for switch in lab.state.switches:
        lab.switch(switch.name).kill("ovs-vswitchd")
    with started(lab) as daemon:
        with Controller(daemon.management) as controller:
            controller.socket.sendall(flow_mod(9) + struct.pack("!BBHI", 4, 20, 8, 0xABCD))
            assert controller.message() == struct.pack("!BBHI", 4, 21, 8, 0xABCD)
        ports = daemon.client.ports()
        assert [port.state for port in ports] == ["down"] * 4
        assert all(port.reason for port in ports)
        for switch in lab.state.switches:
            lab.switch(switch.name).start("ovs-vswitchd")
        daemon.wait_up()
        wait_for("all ports to be up", lambda: {port.state for port in daemon.client.ports()} == {"up"})
        for switch in lab.state.switches:
            assert "nw_dst=11.0.0.9" in ofctl("dump-flows", switch.virt)


def test_a_stopped_switch_slows_controllers_down_and_loses_nothing(lab: Lab, daemon: Oneswitchd) -> None:
    count = 200_000
    data = b"".join(flow_mod(index) for index in range(count))
    pid = next(switch.processes["ovs-vswitchd"] for switch in lab.state.switches if switch.name == "snic0")
    with Controller(daemon.management) as controller:
        os.kill(pid, signal.SIGSTOP)
        try:
            sent = controller.send_while_taken(data, pause_s=0.5)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert sent < len(data) // 2, "oneswitchd did not wait for a switch that acknowledges nothing"
        controller.socket.sendall(data[sent:] + struct.pack("!BBHI", 4, 20, 8, 0xABCD))
        reply = controller.message()
        assert reply == struct.pack("!BBHI", 4, 21, 8, 0xABCD), "no errors, and then the barrier"
    for switch in lab.state.switches:
        assert f"flow_count={count}" in ofctl("dump-aggregate", switch.virt, "ip")


def test_ports_survive_a_restart(lab: Lab, daemon: Oneswitchd) -> None:
    # Port 2's host has a second interface, on the sNIC, to move to.
    daemon.client.move_port(2, "snic0", "pf0vf0", "done", 0)
    daemon.client.delete_port(1)
    for end in (signal.SIGTERM, signal.SIGKILL):
        daemon.stop(end)
        with started(lab) as again:
            again.wait_up()
            ports = {port.number: (port.switch, port.interface) for port in again.client.ports()}
            assert ports == {2: ("snic0", "pf0vf0"), 3: ("snic0", "pf0vf1"), 4: ("snic0", "p0")}


def test_a_failure_to_save_is_reported(lab: Lab, daemon: Oneswitchd) -> None:
    state = Path(str(daemon.config.oneswitchd.state))
    state.mkdir()
    with pytest.raises(ServerError, match="cannot be written"):
        daemon.client.delete_port(1)
    assert 1 not in [port.number for port in daemon.client.ports()]
    state.rmdir()
    daemon.client.delete_port(3)
    assert '"number": 2' in state.read_text()


def test_oneswitchd_ends_during_a_move(lab: Lab, daemon: Oneswitchd) -> None:
    daemon.client.move_port(2, "snic0", "pf0vf0", "flipped", 60_000)
    daemon.stop()
    with started(lab) as again:
        again.wait_up()
        port = again.client.port(2)
        assert port.move is not None
        assert (port.move.stage, port.state) == ("flipped", "up")
        again.client.continue_move(2, "flipped")  # not "done", which waits for the move's delay


@pytest.fixture
def pki(lab: Lab) -> Path:
    """Create keys and certificates of a switch and a controller with ovs-pki."""
    if shutil.which("ovs-pki") is None:
        pytest.skip("ovs-pki is not installed")
    folder = lab.directory / "tls"
    folder.mkdir()
    for arguments in (["init"], ["req+sign", "ctl", "controller"], ["req+sign", "sw", "switch"]):
        command = ["ovs-pki", f"--dir={folder}/pki", f"--log={folder}/log", *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_tls_works_with_switches_and_tools(lab: Lab, pki: Path) -> None:
    snic = next(switch for switch in lab.state.switches if switch.name == "snic0")
    virt, edge, listen = free_port(), free_port(), free_port()
    vsctl = ["ovs-vsctl", f"--db={snic.ovsdb}", "--timeout=10"]
    files = [str(pki / "sw-privkey.pem"), str(pki / "sw-cert.pem"), str(pki / "pki/controllerca/cacert.pem")]
    subprocess.run([*vsctl, "set-ssl", *files], check=True)
    for bridge, port in (("virt", virt), ("edge", edge)):
        subprocess.run([*vsctl, "set-controller", bridge, f"pssl:{port}:127.0.0.1"], check=True)
    text = lab.server_toml.read_text()
    text = text.replace(snic.virt, f"ssl:127.0.0.1:{virt}").replace(str(snic.edge), f"ssl:127.0.0.1:{edge}")
    text = text.replace("listen = [", f'listen = ["pssl:{listen}:127.0.0.1", ', 1)
    text += f"""
[oneswitchd.tls]
private_key = "{pki}/ctl-privkey.pem"
certificate = "{pki}/ctl-cert.pem"
ca_certificate = "{pki}/pki/switchca/cacert.pem"
"""
    lab.server_toml.write_text(text)
    tls = ("-p", files[0], "-c", files[1], "-C", files[2])
    with started(lab) as daemon:
        daemon.wait_up()
        target = f"ssl:127.0.0.1:{listen}"
        assert "dpid:0000000000000001" in ofctl("show", target, tls=tls)
        flows = pki / "flows"
        flows.write_text(
            "".join(f"priority=7,ip,nw_dst=10.1.{i >> 8}.{i & 255},actions=output:3\n" for i in range(3_000))
        )
        ofctl("add-flows", target, str(flows), tls=tls)
        assert ofctl("dump-flows", target, tls=tls).count("nw_dst=") == 3_000
        stranger = ("-p", files[0], "-c", files[1], "-C", str(pki / "pki/switchca/cacert.pem"))
        with pytest.raises(AssertionError, match="Protocol error"):
            ofctl("show", target, tls=stranger)
        with pytest.raises(AssertionError, match="Protocol error"):
            ofctl("show", target.replace("ssl", "tcp"))
        assert "dpid:0000000000000001" in ofctl("show", daemon.management)


def test_the_api_on_tcp_requires_the_token(lab: Lab) -> None:
    text, token = lab.server_toml.read_text(), lab.directory / "token"
    own = next(line for line in text.splitlines() if line.startswith("api = "))
    api = f"tcp:127.0.0.1:{free_port()}"
    token.write_text("a-token-of-some-length\n")
    lab.server_toml.write_text(text.replace(own, f'api = "{api}"\napi_token_file = "{token}"'))
    with started(lab) as daemon:
        wait_for("the API", lambda: _connects(int(api.rpartition(":")[2])))
        with Client(api, token_file=str(token)) as client:
            assert client.status().version
        assert daemon.client.status().version
        with Client(api) as client, pytest.raises(ApiRefusedError, match="Bearer"):
            client.status()
        shown = CliRunner().invoke(app, ["--config", str(lab.server_toml), "show"])
        assert shown.exit_code == 0, shown.output
    with pytest.raises(ConfigError, match="cannot be read"):
        Client(api, token_file="/nonexistent")


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
