"""uno-lab as its users see it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.programs import environment

UNO_LAB = [sys.executable, "-c", "from lab.cli import main; main()"]

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def uno_lab(lab_dir: Path) -> Cli:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*UNO_LAB, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment())

    return run


@pytest.mark.namespaces
def test_a_lab_is_started_listed_shown_used_and_ended(uno_lab: Cli, lab_dir: Path) -> None:
    up = uno_lab("up", "--detach", "--static-arp")
    assert up.returncode == 0, up.stderr
    assert str(lab_dir / "uno" / "server.toml") in up.stdout
    assert "starting Open vSwitch: hypervisor, snic0" in up.stderr
    assert "\x1b" not in up.stdout + up.stderr
    assert "uno" in uno_lab("list").stdout
    shown = json.loads(uno_lab("show", "--format=json").stdout)
    assert [host["name"] for host in shown["hosts"]] == ["vm1", "vm2", "nf1", "out1"]
    again = uno_lab("up", "--detach")
    assert again.returncode == 1
    assert f"lab uno is already running (process {shown['pid']}); end it with: uno-lab down uno" in again.stderr
    assert uno_lab("exec", "uno", "vm1", "hostname", "-I").stdout.split() == ["10.0.0.1"]
    assert uno_lab("exec", "uno", "vm1", "sh", "-c", "exit 5").returncode == 5
    nobody = uno_lab("exec", "uno", "vm9", "true")
    assert nobody.returncode == 1
    assert "no host 'vm9'" in nobody.stderr
    assert uno_lab("down").returncode == 0
    assert json.loads(uno_lab("list", "--format=json").stdout) == []
    assert uno_lab("down").returncode == 1


@pytest.mark.namespaces
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_lab_in_the_foreground(lab_dir: Path, number: signal.Signals) -> None:
    # Tests in the background may inherit an ignored SIGINT.
    command = ["env", "--default-signal=INT", *UNO_LAB, "up", "--name", "front", "--format=json"]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment(), **pipes) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("ready"):
                break
        process.send_signal(number)
        assert "ending lab front" in process.stderr.read()
    assert process.returncode == 0
    assert not (lab_dir / "front").exists()


@pytest.mark.namespaces
def test_the_foreground_command_ends_with_its_lab(lab_dir: Path) -> None:
    command = [*UNO_LAB, "up", "--format=json", "--switches=1", "--hosts=0"]
    with subprocess.Popen(
        command, text=True, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("ready"):
                break
        os.kill(json.loads((lab_dir / "uno" / "lab.json").read_text())["pid"], signal.SIGKILL)
        _, err = process.communicate()
    assert process.returncode == 1
    assert "lab uno has ended" in err


def test_a_dummy_lab_with_several_snics_starts(uno_lab: Cli) -> None:
    arguments = (
        "--substrate=dummy",
        "--switches=3",
        "--hosts=1",
        "--detach",
        "--format=json",
        "--controller=tcp:127.0.0.1",
    )
    up = uno_lab("up", "--name=d", *arguments)
    assert up.returncode == 0, up.stderr
    state = json.loads(up.stdout)
    assert [switch["name"] for switch in state["switches"]] == ["hypervisor", "snic0", "snic1"]
    assert 'controllers = ["tcp:127.0.0.1"]' in Path(state["server_toml"]).read_text()
    assert "run no programs" in uno_lab("exec", "d", "vm1", "true").stderr
    assert uno_lab("down", "d").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("up", "--spec=demo", "--hosts=3"), "leave out --spec demo"),
        (("up", "--name=a/b"), "lab name 'a/b'"),
        (("up", "--pcie-mbps=-1"), "pcie_mbps is -1.0; expected more than 0"),
        (("up", "--hosts=300"), "at most 254 hosts"),
        (("down", "nobody"), "lab 'nobody' is not running"),
        (("show", "nobody"), "lab 'nobody' is not running"),
        (("exec", "nobody", "vm1", "true"), "lab 'nobody' is not running"),
    ],
)
def test_mistakes_are_explained_in_one_message(uno_lab: Cli, arguments: tuple[str, ...], problem: str) -> None:
    done = uno_lab(*arguments)
    assert done.returncode == 1
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
