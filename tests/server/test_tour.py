"""``uno-lab tour`` succeeds after any kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.directory import ENVIRONMENT
from lab.server import Lab
from server.processes import wait_gone

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(900)]

UNO_LAB = (sys.executable, "-c", "from lab.cli import main; main()")
VICTIMS = ("supervisor", "oneswitchd", "controller", "ovs-vswitchd", "ovsdb-server", "tour")


def run_tour() -> dict:
    done = subprocess.run([*UNO_LAB, "tour", "--format=json"], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def pids_of(lab_dir: Path, tour: "subprocess.Popen[str]") -> dict[str, int]:
    """Return the process ids of all parts of a kept tour."""
    state = Lab.attach("tour").state
    found = {"supervisor": state.pid, "tour": tour.pid, **state.switches[0].processes}
    for child in Path(f"/proc/{tour.pid}/task/{tour.pid}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if "oneswitchd" in command[0]:
            found["oneswitchd"] = int(child)
        if any(word.endswith("run_os_ken.py") for word in command):
            found["controller"] = int(child)
    return found


def kill_in_a_kept_tour(lab_dir: Path, victim: str) -> None:
    with subprocess.Popen([*UNO_LAB, "tour", "--keep"], stdout=subprocess.PIPE, text=True) as tour:
        assert tour.stdout is not None
        for line in tour.stdout:
            if "keeps running" in line:
                break
        pids = pids_of(lab_dir, tour)
        assert set(pids) == set(VICTIMS)
        os.kill(pids.pop(victim), signal.SIGKILL)
        if victim not in ("tour", "supervisor"):
            tour.send_signal(signal.SIGINT)
        tour.stdout.read()
    for name, pid in pids.items():
        assert wait_gone(pid, timeout_s=60.0), f"{name} outlived the tour"


def check_all_hold(result: dict) -> None:
    assert result["holds"]
    assert len(result["checks"]) == 5
    moves = [check["figures"] for check in result["checks"] if "lost" in check["figures"]]
    assert [(move["lost"], move["duplicated"]) for move in moves] == [(0, 0), (0, 0)]


@pytest.fixture(autouse=True)
def own_labs(lab_dir: Path) -> None:
    assert os.environ[ENVIRONMENT] == str(lab_dir)


def test_the_tour_succeeds_after_its_supervisor_was_killed(lab_dir: Path) -> None:
    kill_in_a_kept_tour(lab_dir, "supervisor")
    check_all_hold(run_tour())


@pytest.mark.soak
@pytest.mark.parametrize("victim", VICTIMS)
def test_the_tour_succeeds_after_any_kill(lab_dir: Path, victim: str) -> None:
    kill_in_a_kept_tour(lab_dir, victim)
    check_all_hold(run_tour())
    check_all_hold(run_tour())
