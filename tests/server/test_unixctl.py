"""Commands to a daemon's control socket: answers are unframed and arrive in pieces of any size."""

import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lab.ovs import OvsSwitch
from nfagent.migrate import quiescing
from server.config import SwitchConfig
from server.errors import ToolError
from server.openvswitch.unixctl import Unixctl

RESULTS = ["", "}", "{}", 'a "quoted"} {line}\n', "é" * 100, "{" * 50 + "}" * 50]


@contextmanager
def daemon(folder: Path, answers: list[bytes], *, hangs: bool = False) -> Iterator[Path]:
    """Answer every request with these pieces; then disconnect or stay silent."""
    path = folder / "ctl"
    path.unlink(missing_ok=True)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            for piece in answers:
                connection.sendall(piece)
            if hangs:
                connection.recv(1)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            thread.join()


def answer(number: int, result: str | None, error: str | None = None) -> bytes:
    """Return an answer as Open vSwitch writes it."""
    return json.dumps({"id": number, "result": result, "error": error}, ensure_ascii=False).encode()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_answers_are_assembled_from_pieces(lab_dir: Path, size: int) -> None:
    whole = b"".join(answer(number, text) for number, text in enumerate(RESULTS))
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    with daemon(lab_dir, pieces) as path, closing(Unixctl(path)) as control:
        assert control.call_at_once(*[("say", text) for text in RESULTS]) == RESULTS


def test_errors_are_reported(lab_dir: Path) -> None:
    with (
        daemon(lab_dir, [answer(1, None, "no such command\n")]) as path,
        closing(Unixctl(path)) as control,
        pytest.raises(ToolError, match=r"ctl refused dance: no such command$"),
    ):
        control.call("dance")
    with (
        daemon(lab_dir, [answer(1, "half")[:-1]]) as path,
        closing(Unixctl(path)) as control,
        pytest.raises(ToolError, match=r"ctl did not answer dance: end of file$"),
    ):
        control.call("dance")
    with (
        daemon(lab_dir, [], hangs=True) as path,
        closing(Unixctl(path, 0.2)) as control,
        pytest.raises(ToolError, match=r"ctl did not answer dance: timed out$"),
    ):
        control.call("dance")
    with pytest.raises(ToolError, match="no daemon answers at"):
        Unixctl(lab_dir / "nobody")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process between two turns; what it is asked meanwhile, it finds at once."""
    _await_state(pid, "S")
    os.kill(pid, signal.SIGSTOP)
    try:
        _await_state(pid, "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _await_state(pid: int, state: str) -> None:
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        time.sleep(0.001)


@pytest.mark.parametrize(("before", "level"), [(9, "INFO"), (10, "DBG")])
def test_a_turn_answers_at_most_ten_requests_of_a_connection(
    switch_config: SwitchConfig, before: int, level: str
) -> None:
    """A migration tells turns apart by it (`nfagent.migrate.quiescing`)."""
    path = Path(switch_config.control or "")
    with closing(Unixctl(path)) as first:
        pid = first.peer_pid()
        first.call("vlog/set", "unixctl:file:info")
        with closing(Unixctl(path)) as second:
            second.call("version")
            with stopped(pid):
                many = first.begin(*[("version",)] * before, ("vlog/list",))
                setting = second.begin(("vlog/set", "unixctl:file:dbg"))
            listed = many()[-1]  # the setting belongs to the turn of the first ten
            setting()
    levels = dict(line.split(maxsplit=1) for line in listed.splitlines() if " " in line.strip())
    assert levels["unixctl"].split()[-1] == level


@pytest.fixture
def datapath(switch_config: SwitchConfig) -> SwitchConfig:
    """Return a switch with a data path, whose flows a thread revalidates."""
    add = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]
    subprocess.run(["ovs-vsctl", f"--db={switch_config.ovsdb}", *add], check=True, timeout=30)
    return switch_config


def test_a_switch_whose_client_died_while_it_hung_does_not_stay_paused(
    datapath: SwitchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiescing, "_revalidate", pytest.fail)
    path = Path(datapath.control or "")
    with closing(Unixctl(path)) as control, stopped(control.peer_pid()):
        control.begin(*quiescing.PAUSES)
        control.close()
    for _ in range(2):
        quiescing.SwitchQuiescing([datapath]).wait()
        with closing(Unixctl(path, 10.0)) as control:
            control.call("revalidator/wait")


FRAME = "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x1234)"
ADD_FLOW, BARRIER = 14, 18  # OpenFlow 1.0


def openflow10(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", 1, kind, 8 + len(body), 1) + body


def all_packets_to(port: int) -> bytes:
    """Return an OpenFlow 1.0 flow-mod that replaces the rule for all packets."""
    match = struct.pack("!I36x", 0x3FFFFF)
    rule = struct.pack("!QHHHHIHH", 0, 0, 0, 0, 100, 0xFFFFFFFF, 0xFFFF, 0)
    return openflow10(ADD_FLOW, match + rule + struct.pack("!HHHH", 0, 8, port, 0))


def test_a_flip_that_a_switch_confirms_in_this_turn_is_in_its_caches(datapath: SwitchConfig, ovs: OvsSwitch) -> None:
    """A switch tells its revalidators of changed rules only in its next turn."""
    ports = [word for n in (1, 2, 3) for word in f"-- add-port br0 p{n} -- set interface p{n} type=dummy".split()]
    numbers = [word for n in (1, 2, 3) for word in f"-- set interface p{n} ofport_request={n}".split()]
    subprocess.run(["ovs-vsctl", f"--db={datapath.ovsdb}", *ports[1:], *numbers], check=True, timeout=30)
    with socket.socket(socket.AF_UNIX) as controller, closing(Unixctl(Path(datapath.control or ""))) as control:
        controller.settimeout(10)
        controller.connect(str(ovs.management("br0")))
        controller.sendall(openflow10(0) + all_packets_to(2) + openflow10(BARRIER))
        while controller.recv(1 << 16)[-7] != BARRIER + 1:
            pass
        while not control.call("dpctl/dump-flows").rstrip().endswith("actions:2"):
            control.call("netdev-dummy/receive", "p1", FRAME)
        rules = 9  # the last command of the first turn
        commands: list[tuple[str, ...]] = [*quiescing.AT_ONCE, ("dpctl/dump-flows",)]
        assert commands[rules] == ("version",)
        commands[rules] = ("bridge/dump-flows", "br0")
        ports, left = itertools.cycle((3, 2)), 10
        while left:
            port = next(ports)
            with stopped(control.peer_pid()):
                controller.sendall(all_packets_to(port) + openflow10(BARRIER))
                answers = control.begin(*commands)
            told = answers()
            if f"actions=output:{port}" in told[rules]:  # otherwise it read the commands before the rule
                assert told[-1].rstrip().endswith(f"actions:{port}"), told[-1]
                left -= 1


def test_a_connection_is_closed_once_all_commands_are_answered(lab_dir: Path) -> None:
    path = lab_dir / "daemon.ctl"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        control = Unixctl(path)
        daemon, _ = listener.accept()
        with daemon:
            daemon.settimeout(10)
            control.begin(("one",), ("two",))
            asked = daemon.recv(1 << 16)
            control.close_when_answered()
            answers = [json.dumps({"id": number, "error": None, "result": ""}).encode() for number in (1, 2)]
            daemon.sendall(answers[0])
            daemon.setblocking(False)
            with pytest.raises(BlockingIOError):
                daemon.recv(1)
            daemon.settimeout(10)
            daemon.sendall(answers[1])
            assert (b"two" in asked, daemon.recv(1)) == (True, b"")
