"""The lab as an ordinary user; if root runs the tests, as another user."""

import shutil

import pytest

from tests.lab.test_netns_lab import await_gone

pytestmark = pytest.mark.namespaces

UP_AND_PING = """
import os, pathlib, subprocess
from lab import Lab, LabSpec
from lab.traffic import Stream
assert os.geteuid() != 0 or {inner_root}
with Lab(LabSpec.demo()).start() as lab:
    state = lab.state
    assert state.user_namespace is not {inner_root}
    for switch in state.switches:
        subprocess.run(["ovs-ofctl", "-OOpenFlow13", "add-flow", switch.edge, "actions=NORMAL"], check=True)
    for target in ("10.0.0.2", "10.0.0.3", "10.0.0.4"):
        lab.exec("vm1", ["ping", "-c1", "-w5", target])
    lab.activate("vm2", "snic0")
    lab.exec("vm1", ["ping", "-c1", "-w5", "10.0.0.2"])
    with Stream(lab, "vm1", "nf1", count=200) as stream:
        report = stream.wait()
    assert (report.sent, report.lost) == (200, 0), report
    print("notes:", "; ".join(state.notes))
    pid = state.pid
assert not pathlib.Path(f"/proc/{{pid}}").exists()
print("done")
"""


def test_a_user_starts_a_lab_pings_and_moves_a_port(run_as_user) -> None:
    done = run_as_user(UP_AND_PING.format(inner_root=False))
    assert done.returncode == 0, done.stderr
    assert "net.core.rmem_default" in done.stdout
    assert "done" in done.stdout


def test_losses_come_from_small_receive_buffers_only(run_as_user) -> None:
    code = """
import subprocess
from lab import Lab, LabSpec
from lab.traffic import Stream
with Lab(LabSpec.demo(static_arp=True)).start() as lab:
    for switch in lab.state.switches:
        subprocess.run(["ovs-ofctl", "-OOpenFlow13", "add-flow", switch.edge, "actions=NORMAL"], check=True)
    with Stream(lab, "vm1", "nf1", rate=50_000, count=50_000) as stream:
        report = stream.wait()
    overflowed = [sum(lab.switch(switch.name).overflowed().values()) for switch in lab.state.switches]
    print(report.lost - report.overflowed - sum(overflowed))
"""
    done = run_as_user(code)
    assert done.returncode == 0, done.stderr
    assert -10 <= int(done.stdout) <= 0, "the stream's end markers may be among the dropped frames"


def test_a_user_deploys_a_network_function(run_as_user) -> None:
    code = """
import pathlib, sys, tempfile, time
from lab import Lab, LabSpec
from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
kind = {"name": "still", "command": ["sleep", "100000"], "ports": [1, 1]}
with Lab(LabSpec.demo().with_slots(1)).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
    oneswitchd.wait_up()
    with AgentProcess(lab, lab.directory / "nfagent", {"kind": [kind]}) as agent:
        made = agent.client.post("/api/v1/instances", json={"name": "one", "kind": "still"}).json()["id"]
        shown = lambda: agent.client.get(f"/api/v1/instances/{made}").json()
        while shown()["status"] == "building":
            time.sleep(0.05)
        assert shown()["status"] == "active", shown()
print("done")
"""
    done = run_as_user(code)
    if "is not installed" in done.stderr:
        pytest.skip(f"that user may not run this project's programs: {done.stderr.splitlines()[-1]}")
    assert done.stdout == "done\n", done.stderr


def test_killing_the_supervisor_leaves_nothing(run_as_user, members) -> None:
    code = """
import os, signal, pathlib
from lab import Lab, LabSpec
lab = Lab(LabSpec.star(1, 1)).start()
pid = lab.state.pid
print(pathlib.Path(f"/proc/{pid}/ns/pid").readlink(), flush=True)
os.kill(pid, signal.SIGKILL)
lab.wait()
lab.down()
"""
    done = run_as_user(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pid:[")
    assert await_gone(members, done.stdout.strip()) == []


def test_a_lab_starts_without_a_new_proc_mount(run_as_user) -> None:
    """As in a container that hides parts of /proc, which another mount would reveal."""
    hide = "mount -t tmpfs none /proc/tty || exit 9; exec"
    inside = (
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'{hide} unshare -Um --map-root-user "$0" "$@"',
    )
    done = run_as_user(UP_AND_PING.format(inner_root=True), inside=inside)
    if done.returncode == 9:
        pytest.skip("nothing in /proc can be covered here")
    assert done.returncode == 0, done.stderr
    assert "the kernel refuses to mount another /proc" in done.stdout


@pytest.mark.root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_missing_user_namespaces_are_reported(run_as_user) -> None:
    code = """
from lab import Lab, LabSpec
from lab.errors import NamespacesRefusedError
try:
    Lab(LabSpec.demo()).start()
except NamespacesRefusedError as error:
    print(error)
"""
    off = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all"
    done = run_as_user(code, inside=("unshare", "--user", "--map-root-user", "sh", "-c", f'{off} "$0" "$@"'))
    assert done.returncode == 0, done.stderr
    assert "User namespaces are off on this machine: sysctl user.max_user_namespaces is 0" in done.stdout
    assert "substrate dummy" in done.stdout


def test_a_dummy_lab_needs_no_privileges(run_as_user) -> None:
    code = """
from lab import Lab, LabSpec
with Lab(LabSpec.star(1, 1, substrate="dummy")).start() as lab, lab.wires() as wires:
    assert wires.settle() == {}
    print("done")
"""
    done = run_as_user(code)
    assert done.stdout == "done\n", done.stderr
