"""A location reached by ssh, with a private sshd on loopback."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.processes import children
from nfagent.checking import lacking
from nfagent.config import SshConfig
from nfagent.control import Control
from nfagent.errors import ControlUnreachableError, LaunchError
from nfagent.launch import Launcher, Task
from nfagent.launch.local import LocalLauncher
from nfagent.launch.ssh import SshLauncher
from tests.nfagent.world import World, processes_of, wait_until
from tests.nfs.wire import nf_program

UNPACKED = Path(__file__).resolve().parents[2] / ".venv/openssh-server/usr/sbin/sshd"
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or (
    str(UNPACKED) if UNPACKED.exists() else ""
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not SSHD, reason="needs sshd, which tools/prepare test unpacks"),
]

_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
"""
# As root, sshd needs a directory in /run and a user; a mount namespace provides them.
_START = """
mount -t tmpfs none /run && mkdir /run/sshd && mount --bind {directory}/passwd /etc/passwd
exec {sshd} -D -e -f {directory}/sshd_config
"""


class Sshd:
    """A private sshd."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("host_key", "key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (directory / "passwd").write_text(
            Path("/etc/passwd").read_text() + "sshd:x:64999:65534::/run/sshd:/usr/sbin/nologin\n"
        )
        (directory / "sshd_config").write_text(_CONFIG.format(directory=directory, port=self.port))
        script = _START.format(directory=directory, sshd=SSHD)
        with (directory / "sshd.log").open("wb") as log:
            self.process = subprocess.Popen(["unshare", "-m", "sh", "-ec", script], stderr=log, start_new_session=True)
        wait_until(self._serves)

    def _serves(self) -> bool:
        assert self.process.poll() is None, (self.directory / "sshd.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def options(self) -> list[str]:
        """Return the options for ssh."""
        options = ["-F", "none", "-p", str(self.port), "-i", str(self.directory / "key")]
        return [*options, "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.directory}/known_hosts"]

    def stop(self) -> None:
        """End it and its connections."""
        if self.process.poll() is None:
            for pid in (*children(self.process.pid), self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def sshd(directory: Path) -> Iterator[Sshd]:
    made = Sshd(directory)
    yield made
    made.stop()


@pytest.fixture
def launcher(sshd: Sshd) -> Iterator[SshLauncher]:
    config = SshConfig(host="root@127.0.0.1", options=sshd.options(), directory=str(sshd.directory / "remote"))
    made = SshLauncher("snic0", config, sshd.directory / "local")
    yield made
    if sshd.process.poll() is None:
        for key in made.all_keys():
            made.stop(key, 0.0)
        _disconnect(sshd.directory / "local")


def _disconnect(runtime: Path) -> None:
    """End the shared connection, which would otherwise persist for a while."""
    end = ["ssh", "-o", f"ControlPath={runtime}/snic0.ssh", "-O", "exit", "root@127.0.0.1"]
    subprocess.run(end, check=True, capture_output=True)


def task(key: str, incarnation: str, *command: str) -> Task:
    return Task(key, incarnation, (), command, '{"it\'s": "a \\"text\\" of $HOME"}', {"NFAGENT_INSTANCE": key})


def test_a_remote_process_is_started_once_found_and_stopped(launcher: SshLauncher) -> None:
    key = f"{uuid.uuid4()}.snic0"
    command = ("sh", "-c", f"trap '' TERM; cat {key}.json; sleep 100000 & wait")
    assert launcher.find(key) is None
    first = launcher.start(task(key, "a", *command))
    assert launcher.start(task(key, "a", *command)) == first
    assert launcher.find(key) == first
    assert launcher.all_keys() == [key]
    wait_until(lambda: "text" in launcher.last_words(key))
    assert launcher.last_words(key) == 'it said: {"it\'s": "a \\"text\\" of $HOME"}'
    part = launcher.read_log(key, None, 16)
    assert part is not None
    assert part.output == b'ext\\" of $HOME"}'
    assert launcher.read_log(key, part.end, 16) == replace(part, output=b"")
    second = launcher.start(task(key, "b", *command))
    assert (second.incarnation, second.pid == first.pid) == ("b", False)
    assert processes_of(key) == [second.pid]
    launcher.stop(key, 0.2)
    assert (launcher.find(key), launcher.all_keys(), processes_of(key)) == (None, [], [])
    launcher.stop(key, 0.2)


def test_a_configuration_is_examined_on_the_other_machine(launcher: SshLauncher, sshd: Sshd) -> None:
    said = 'cat "$0"; echo "nf: $0: $1: cannot be read: No such file" >&2; exit 1'
    config = '{"it\'s": "$HOME"}'
    examined = launcher.examine(("env", "A=1"), ("sh", "-c", said, "{config}", "/etc/a pem"), config)
    assert examined.status == 1
    assert examined.file.startswith(f"{sshd.directory}/remote/check.")
    assert examined.said == f"nf: {examined.file}: /etc/a pem: cannot be read: No such file\n"
    asked = ("sh", "-c", 'cat "$0" >&2', "{config}")
    assert launcher.examine((), asked, config).said == f"{config}\n"
    assert lacking(launcher.examine((), ("/nonexistent/nf",), config), "snic0") == (
        "snic0 lacks the program /nonexistent/nf"
    )
    assert list((sshd.directory / "remote").glob("check.*")) == []


def test_impossible_remote_starts_are_reported(launcher: SshLauncher, sshd: Sshd) -> None:
    with pytest.raises(LaunchError, match=r"it ended at once; it said: .*not found"):
        launcher.start(task("two.snic0", "a", "no-such-program"))
    with pytest.raises(LaunchError, match="no-such-interface"):
        launcher.call((), ["ip", "link", "show", "no-such-interface"])
    _disconnect(sshd.directory / "local")
    sshd.stop()
    with pytest.raises(LaunchError, match=r"snic0 \(ssh root@127\.0\.0\.1\) cannot be reached"):
        launcher.find("two.snic0")


def test_a_remote_process_reaches_the_offload_socket_again_after_a_disconnection(sshd: Sshd) -> None:
    offload, key = sshd.directory / "offload.sock", f"{uuid.uuid4()}.snic0"
    config = SshConfig(host="root@127.0.0.1", options=sshd.options(), directory=str(sshd.directory / "remote"))
    launcher = SshLauncher("snic0", config, sshd.directory / "local", str(offload))
    there = f"{sshd.directory}/remote/{key}.rules"
    assert launcher.places(key, ()).offload == there
    with socket.socket(socket.AF_UNIX) as oneswitchd:
        oneswitchd.bind(str(offload))
        oneswitchd.listen()
        oneswitchd.settimeout(30)
        for _ in range(2):
            launcher.control_path(key)
            with socket.socket(socket.AF_UNIX) as process:
                process.connect(there)
                with oneswitchd.accept()[0] as accepted:
                    process.sendall(b"{}")
                    assert accepted.recv(2) == b"{}"
            _disconnect(sshd.directory / "local")


def test_an_instance_runs_on_another_machine(sshd: Sshd) -> None:
    more = "\n".join(
        [
            "[location.ssh]",
            'host = "root@127.0.0.1"',
            f"options = {sshd.options()}",
            f'directory = "{sshd.directory}/remote"',
        ]
    )
    world = World(sshd.directory, more=more)  # snic0 is the last location in agent.toml
    try:
        made = world.create("far", "toy", pin="snic0", config={"n": 1})
        world.wait_status(made, "active")
        control = Control(sshd.directory / "run" / f"{made['id']}.snic0.sock")
        assert control.ask("config") == {"config": {"n": 1}}
        assert (sshd.directory / "remote" / f"{made['id']}.snic0.json").exists()
        world.operator.patch("/api/v1/instances/far", json={"config": {"n": 2}})
        world.wait(lambda: world.show("far")["config_state"] == "applied")
        pid = world.show("far")["placement"]["pid"]
        world.stop()
        assert processes_of(made["id"]) == [pid]
        world.start()
        assert world.wait_status(made, "active")["placement"]["pid"] == pid
        assert control.ask("config") == {"config": {"n": 2}}
    finally:
        world.close()
        _disconnect(sshd.directory / "run")
    assert processes_of(made["id"]) == []


_SLOT = """
sysctl -qw net.ipv6.conf.default.disable_ipv6=1
ip link add wire type veth peer name eth0 address 02:00:00:00:00:02; ip link set wire up; ip link set eth0 up
echo made; exec sleep 100000
"""
_FRAME = "import socket; s = socket.socket(17, 3); s.bind(('wire', 0)); s.send(bytes.fromhex('{}'))"
# From 192.0.2.1:1 to 192.0.2.2:2, UDP.
_DATAGRAM = "02000000000202000000000108004500001c000000004011f6cd" + "c0000201c0000202" + "0001000200080000"


@contextlib.contextmanager
def slot() -> Iterator[tuple[str, ...]]:
    """Yield the command that enters a network namespace with a veth pair, and without an address."""
    with subprocess.Popen(["unshare", "--net", "sh", "-ec", _SLOT], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"made\n"
            yield ("nsenter", f"--net=/proc/{process.pid}/ns/net", "--")
        finally:
            process.kill()


def forwarding(launcher: Launcher, key: str, enter: tuple[str, ...], *options: str) -> Control:
    """Start a `forward` with one port, `eth0`, in a slot."""
    places = launcher.places(key, ("eth0",))
    files = ("--config", places.config, "--control", places.control)
    command = (nf_program(), "run", "forward", *files, "--port", "eth0", "--backend", "packet", *options)
    launcher.start(Task(key, "a", enter, command, "{}", {}))
    path = launcher.control_path(key)

    def answers() -> bool:
        with contextlib.suppress(ControlUnreachableError):
            return bool(Control(path).ask("status"))
        return False

    wait_until(answers)
    return Control(path)


def test_state_is_copied_to_a_slot_that_only_its_machine_reaches(launcher: SshLauncher, sshd: Sshd) -> None:
    here = LocalLauncher(sshd.directory / "run", sshd.directory / "logs")
    old_key, new_key = f"{uuid.uuid4()}.hypervisor", f"{uuid.uuid4()}.snic0"
    epoch: dict[str, Any] = {"epoch": 1}
    with slot() as enter_old, slot() as enter_new:
        old = forwarding(here, old_key, enter_old)
        try:
            subprocess.run([*enter_old, sys.executable, "-c", _FRAME.format(_DATAGRAM)], check=True)
            wait_until(lambda: old.ask("counters")["flows"] == 1)
            new = forwarding(launcher, new_key, enter_new, "--hold")
            secret = secrets.token_hex(32)
            rings = old.ask("prepare", secret=secret, **epoch)["rings"]
            held = new.ask("hold", mode="copy", secret=secret, listen="tcp:127.0.0.1:0", rings=rings, **epoch)
            old.ask("precopy", to=held["address"], fit_bytes=1 << 16, **epoch)
            with ThreadPoolExecutor(1) as beside:
                taken = beside.submit(new.ask, "commit", **epoch)
                old.ask("give", **epoch)
                taken.result()
            assert new.ask("counters")["flows"] == 1
        finally:
            here.stop(old_key, 0.0)
