"""``uno-lab kill``, ``stop``, ``start`` and ``power`` on a running lab with its daemons."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.control_plane import Daemon, find_installed, free_port
from lab.directory import LabDirectory
from lab.programs import environment
from server.processes import PROC
from tests.nfagent.world import wait_until

pytestmark = pytest.mark.namespaces
MODULES = {"uno-lab": "from lab.cli import main; main()", "unoctl": "from unoctl.cli import app; app()"}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(lab_dir: Path) -> Iterator[Run]:
    """Start a lab with oneswitchd and nfagent; run commands on it."""

    def command(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", MODULES[program], *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment())

    with ExitStack() as stack:
        port = str(free_port())
        up = command("uno-lab", "up", "--detach", "--slots=1", "--slot-wires=2", f"--port={port}")
        assert up.returncode == 0, up.stderr
        assert f"http://127.0.0.1:{port}/dashboard" in up.stderr
        stack.callback(command, "uno-lab", "down")
        home = lab_dir / "uno"
        config, agent = str(home / "server.toml"), str(home / "nfagent/agent.toml")
        for name, argv in (
            ("oneswitchd", [str(find_installed("oneswitchd")), "--config", config]),
            ("nfagent", [sys.executable, "-m", "nfagent", "serve", "--config", agent]),
        ):
            ended = command("uno-lab", "wait", name)
            assert (ended.returncode, f"{name} is not running" in ended.stderr) == (1, True), ended.stderr
            stack.callback(Daemon(name, argv, home).stop)
            waited = command("uno-lab", "wait", name)
            assert (waited.returncode, f"{name} is ready" in waited.stderr) == (0, True), waited.stderr
        yield command


def _state(pid: int) -> str:
    stat = (PROC / str(pid) / "stat").read_text()
    return stat[stat.rindex(")") + 2]


def _vswitchd() -> int | None:
    switch = next(each for each in LabDirectory("uno").require_state().switches if each.name == "snic0")
    return switch.processes.get("ovs-vswitchd")


def test_parts_are_killed_hang_and_come_back(run: Run, tmp_path: Path) -> None:
    first = _vswitchd()
    assert first is not None
    assert run("uno-lab", "stop", "snic0").stderr == (
        f"ovs-vswitchd of snic0 (process {first}) hangs; let it go on: uno-lab start snic0\n"
    )
    assert _state(first) == "T"
    assert run("uno-lab", "start", "snic0").returncode == 0
    assert _state(first) != "T"
    assert "bring it back: uno-lab start snic0" in run("uno-lab", "kill", "snic0").stderr
    assert _vswitchd() is None
    assert "is not running" in run("uno-lab", "kill", "snic0").stderr
    assert run("uno-lab", "start", "snic0").stderr == "ovs-vswitchd of snic0 runs again\n"
    assert _vswitchd() not in (None, first)

    (tmp_path / "limit.toml").write_text("packets = 5\n")
    deployed = run("unoctl", "nf", "deploy", "lim", "--kind", "limiter", "--with", f"{tmp_path}/limit.toml")
    assert deployed.returncode == 0, deployed.stderr

    def pid() -> int | None:
        return json.loads(run("unoctl", "nf", "show", "lim", "--format=json").stdout)["placement"]["pid"]

    before = pid()
    assert "nfagent starts it again" in run("uno-lab", "kill", "lim").stderr
    wait_until(lambda: pid() not in (None, before))

    assert "hangs" in run("uno-lab", "stop", "oneswitchd").stderr
    assert "goes on" in run("uno-lab", "start", "oneswitchd").stderr
    assert "start it again" in run("uno-lab", "kill", "oneswitchd").stderr
    unknown = run("uno-lab", "kill", "nothing")
    assert (unknown.returncode, "unknown part 'nothing' of lab uno; expected a switch," in unknown.stderr) == (1, True)
    assert "unknown daemon 'ovs' of snic0" in run("uno-lab", "kill", "snic0/ovs").stderr


def test_a_smart_nic_loses_its_power_and_gets_it_back(run: Run) -> None:
    assert run("uno-lab", "power", "snic0", "off").stderr == "snic0 has no power\n"
    assert _vswitchd() is None
    assert not LabDirectory("uno").require_state().links[0].up
    assert run("uno-lab", "power", "snic0", "on").stderr == "snic0 has power\n"
    assert _vswitchd() is not None
    assert run("uno-lab", "power", "hypervisor", "off").returncode == 1
