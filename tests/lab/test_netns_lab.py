"""A lab in network namespaces, as the current user."""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.directory import LabDirectory, running_labs
from lab.errors import ControlError, LabNameError, LabNotRunningError, LabRunningError, StartError
from lab.server import Lab
from lab.spec import HostSpec, InterfaceSpec, LabSpec
from server.config import ServerConfig
from server.openvswitch.bridges import Plumbing
from server.processes import start_time

pytestmark = pytest.mark.namespaces

Members = Callable[[str], list[int]]


def ping(lab: Lab, source: str, target: str, *more: str, patience_s: int = 5) -> bool:
    address = lab.host(target).address.partition("/")[0]
    done = lab.exec(source, ["ping", "-c", "1", "-w", str(patience_s), *more, address], check=False)
    return done.returncode == 0


def pid_namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def await_gone(members: Members, namespace: str, timeout_s: float = 60.0) -> list[int]:
    deadline = time.monotonic() + timeout_s
    while (left := members(namespace)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def test_every_host_reaches_every_other(demo: Lab) -> None:
    names = [host.name for host in demo.state.hosts]
    pairs = [(source, target) for source in names for target in names if source != target]
    assert [pair for pair in pairs if not ping(demo, *pair)] == []


def test_full_size_frames_fit_through_pcie_with_the_flow_id(demo: Lab) -> None:
    assert ping(demo, "vm1", "nf1", "-M", "do", "-s", "1472")
    if demo.state.links[0].type == "pcie":  # not a device; the id adds no bytes
        return
    links = json.loads(demo.exec("snic0", ["ip", "-json", "link", "show", "pf0hpf"]).stdout)
    assert links[0]["mtu"] == 1600


def test_tcp_passes_without_stalling(demo: Lab) -> None:
    server = "import socket; s=socket.create_server(('',5001)); print('up',flush=True); c=s.accept()[0]; n=0\n"
    server += "while d:=c.recv(65536): n+=len(d)\nprint(n)"
    client = "import socket; c=socket.create_connection(('10.0.0.3',5001)); c.sendall(bytes(5_000_000))"
    with demo.popen("nf1", ["python3", "-c", server], stdout=subprocess.PIPE, text=True) as receiving:
        assert receiving.stdout is not None
        assert receiving.stdout.readline() == "up\n"
        demo.exec("vm1", ["python3", "-c", client], timeout_s=30)
        assert receiving.communicate(timeout=30)[0] == "5000000\n"


def test_hosts_send_no_ipv6_noise(demo: Lab) -> None:
    """Hosts have no IPv6 addresses, so idle hosts send nothing."""
    for host in demo.state.hosts:
        addresses = json.loads(demo.exec(host.name, ["ip", "-json", "addr"]).stdout)
        assert not any(each["family"] == "inet6" for link in addresses for each in link["addr_info"])


def test_lab_json_describes_the_lab(demo: Lab) -> None:
    state = demo.state
    assert start_time(state.pid) == state.start_time
    for switch in state.switches:
        assert set(switch.processes) == {"ovsdb-server", "ovs-vswitchd"}
        for daemon, pid in switch.processes.items():
            assert Path(f"/proc/{pid}/comm").read_text().strip() == daemon
            assert pid_namespace(pid) == pid_namespace(state.pid) != pid_namespace(os.getpid())
    # the documented way in from outside works
    vm2 = demo.host("vm2")
    enter = ["nsenter", f"--net={vm2.netns}", *(["-U", f"-t{state.pid}"] if state.user_namespace else [])]
    shown = subprocess.run([*enter, "ip", "-json", "link"], capture_output=True, text=True, check=True)
    macs = {each["ifname"]: each["address"] for each in json.loads(shown.stdout)}
    assert [macs[each.name] for each in vm2.interfaces] == [vm2.mac, vm2.mac]


def test_server_toml_works_from_outside_the_lab(demo: Lab) -> None:
    config = ServerConfig.load(demo.server_toml)
    assert config == demo.config
    assert [(port.number, port.switch, port.interface) for port in config.port] == [
        (1, "hypervisor", "vm1"),
        (2, "hypervisor", "vm2"),
        (3, "snic0", "pf0vf1"),
        (4, "snic0", "p0"),
    ]
    for switch in config.switch:
        with Plumbing(switch) as plumbing:
            state = plumbing.describe()
        for number in (1, 2, 3, 4):
            port = state.find(f"virt-{number}")
            assert port is not None
            assert port.ofport == number
        shown = subprocess.run(
            ["ovs-ofctl", "-OOpenFlow13", "show", switch.virt], capture_output=True, text=True, check=True
        )
        assert "65024(virt-mc)" in shown.stdout
        assert "edge" in demo.switch(switch.name).appctl("dpif/show")


def test_target_interfaces_are_on_edge(demo: Lab) -> None:
    with Plumbing(demo.config.find_switch("snic0")) as plumbing:
        assert plumbing.attach("pf0vf0") is False


def test_the_active_interface_moves_with_address_and_neighbours(demo: Lab) -> None:
    assert ping(demo, "vm2", "vm1")
    moved = demo.activate("vm2", "snic0")
    try:
        assert (moved.name, moved.port) == ("eth1", "pf0vf0")
        assert demo.host("vm2").active == "eth1"
        links = json.loads(demo.exec("vm2", ["ip", "-json", "-4", "addr", "show", "scope", "global"]).stdout)
        assert [link["ifname"] for link in links] == ["eth1"]
        known = demo.exec("vm2", ["ip", "neigh", "show", "dev", "eth1"]).stdout
        assert "10.0.0.1" in known
        assert ping(demo, "vm2", "vm1")
        assert demo.activate("vm2", "snic0").name == "eth1"
    finally:
        demo.activate("vm2", "hypervisor")
    assert ping(demo, "vm1", "vm2")


def test_a_pcie_link_breaks_and_recovers(demo: Lab) -> None:
    demo.unlink("snic0")
    try:
        assert not demo.state.links[0].up
        assert not ping(demo, "vm1", "nf1", patience_s=1)
        assert ping(demo, "nf1", "out1")
        shown = subprocess.run(
            ["ovs-ofctl", "-OOpenFlow13", "dump-ports-desc", str(demo.state.switches[0].edge)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "LINK_DOWN" in shown.stdout.partition("(pcie-snic0)")[2].partition("speed")[0]
    finally:
        demo.relink("snic0")
    assert ping(demo, "vm1", "nf1")


def test_a_killed_daemon_can_be_restarted(demo: Lab, plain_forwarding: Callable[[Lab], None]) -> None:
    switch = demo.switch("snic0")
    before = dict(demo.state.switches[1].processes)
    switch.kill("vswitchd")
    assert set(demo.state.switches[1].processes) == {"ovsdb-server"}
    with pytest.raises(ControlError, match="ovs-vswitchd of snic0 is not running"):
        switch.kill("ovs-vswitchd")
    switch.start("vswitchd")
    with pytest.raises(ControlError, match="is already running"):
        switch.start("vswitchd")
    switch.kill("ovsdb-server", signal.SIGTERM)
    switch.start("ovsdb-server")
    after = demo.state.switches[1].processes
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())
    plain_forwarding(demo)
    assert ping(demo, "vm1", "nf1")


def test_a_daemon_that_dies_by_itself_is_noticed(demo: Lab) -> None:
    os.kill(demo.state.switches[1].processes["ovs-vswitchd"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while "ovs-vswitchd" in demo.state.switches[1].processes:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    demo.switch("snic0").start("vswitchd")


def test_unknown_hosts_and_switches_are_named(demo: Lab) -> None:
    for request, problem in (
        (lambda: demo.exec("vm9", ["true"]), "no host 'vm9'; it has vm1, vm2, nf1, out1"),
        (lambda: demo.switch("snic9"), "no switch 'snic9'; it has hypervisor, snic0"),
        (lambda: demo.switch("snic0").kill("ovsd"), "unknown daemon 'ovsd'; expected ovsdb-server, ovs-vswitchd"),
        (lambda: demo.switch("snic0").kill("vswitchd", signal.SIGSTOP), "signal 'SIGSTOP' does not end a process"),
        (lambda: demo.unlink("hypervisor"), "unknown sNIC 'hypervisor'; expected snic0"),
        (lambda: demo.activate("vm1", "snic0"), "host vm1 has no interface on snic0; it has one on hypervisor"),
        (demo.wires, "frames are injected in dummy only"),
    ):
        with pytest.raises(ControlError, match=problem):
            request()


def test_programs_in_hosts_get_signals_and_results(demo: Lab) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        demo.exec("vm1", ["sh", "-c", "echo no >&2; exit 7"])
    assert (caught.value.returncode, caught.value.stderr) == (7, "no\n")
    script = "trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.01; done"
    with demo.popen("vm1", ["sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.communicate(timeout=10)[0] == "told\n"
    assert process.returncode == 3
    with pytest.raises(subprocess.TimeoutExpired):
        demo.exec("vm1", ["sleep", "100"], timeout_s=0.2)
    assert "sleep" not in demo.exec("vm1", ["ps", "-eo", "comm"]).stdout


def test_an_attached_client_leaves_the_lab_running(demo: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNO_LAB_DIR", str(demo.directory.parent))
    with Lab.attach(demo.name) as again:
        assert again.exec("vm1", ["hostname", "-I"]).stdout.split() == ["10.0.0.1"]
    assert demo.state.pid
    with pytest.raises(LabNotRunningError, match=f"lab 'other' is not running in .*; running: {demo.name}"):
        Lab.attach("other")


# ---- start and end


def test_ending_a_lab_leaves_nothing(lab_dir: Path, members: Members) -> None:
    with Lab(LabSpec.star(1, 1), "one").start() as lab:
        namespace = pid_namespace(lab.state.pid)
        assert len(members(namespace)) == 5  # the supervisor and two daemons for each switch
    assert await_gone(members, namespace) == []
    assert not (lab_dir / "one").exists()
    lab.down()


def test_killing_the_supervisor_leaves_nothing(lab_dir: Path, members: Members) -> None:
    with Lab(LabSpec.star(1, 1), "one").start() as lab:
        state = lab.state
        namespace = pid_namespace(state.pid)
        said = subprocess.PIPE
        with lab.popen("vm1", ["sh", "-c", "echo inside; exec sleep 1000"], stdout=said, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "inside\n"
            os.kill(state.pid, signal.SIGKILL)
            assert process.wait(10) == -signal.SIGKILL
        assert await_gone(members, namespace) == []
        for host in state.hosts:
            assert not Path(str(host.netns)).exists()
        with pytest.raises(LabNotRunningError):
            _ = lab.state
        assert (lab_dir / "one" / "lab.json").exists()
        # its remains do not prevent a restart
        with Lab(LabSpec.star(1, 1), "one").start() as again:
            assert again.state.pid != state.pid
            assert ping(again, "vm1", "vm1")


def test_a_new_lab_removes_the_remains_of_killed_ones(lab_dir: Path) -> None:
    with Lab(LabSpec.star(0, 0)).start() as alive, Lab(LabSpec.star(0, 0)).start() as dead:
        os.kill(dead.state.pid, signal.SIGKILL)
        dead.wait()
        (lab_dir / "notours").mkdir()
        with Lab(LabSpec.star(0, 0)).start() as third:
            left = {entry.name for entry in lab_dir.iterdir() if entry.is_dir()}
            assert left == {alive.name, third.name, "notours"}
            assert alive.state.pid


def test_a_lab_ends_with_its_owner(lab_dir: Path, members: Members) -> None:
    code = "import sys,time; from lab import Lab,LabSpec\n"
    code += "lab=Lab(LabSpec.star(0,1),'owned').start(); print(lab.state.pid,flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as owner:
        assert owner.stdout is not None
        namespace = pid_namespace(int(owner.stdout.readline()))
        owner.kill()
    assert await_gone(members, namespace) == []


def test_a_detached_lab_outlives_its_parent(lab_dir: Path, members: Members) -> None:
    code = "from lab import Lab,LabSpec; Lab(LabSpec.star(0,1),'free').start(detach=True)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path.cwd())
    namespace = pid_namespace(Lab.attach("free").state.pid)
    Lab.attach("free").down()
    assert await_gone(members, namespace) == []
    assert running_labs() == []


def test_two_labs_side_by_side(lab_dir: Path, plain_forwarding: Callable[[Lab], None]) -> None:
    with Lab(LabSpec.star(1, 1), "a").start() as a, Lab(LabSpec.star(1, 1), "b").start() as b:
        assert [state.name for state in running_labs()] == ["a", "b"]
        plain_forwarding(a)
        assert ping(a, "vm1", "nf2")
        assert not ping(b, "vm1", "nf2", patience_s=1)  # same addresses, another server
        plain_forwarding(b)
        assert ping(b, "vm1", "nf2")
        a.down()
        assert ping(b, "vm1", "nf2")
    assert running_labs() == []


def test_a_name_is_used_by_one_lab_only(lab_dir: Path) -> None:
    with Lab(LabSpec.star(0, 1), "one").start() as first:
        with pytest.raises(LabRunningError, match=f"lab one is already running \\(process {first.state.pid}\\)"):
            Lab(LabSpec.star(0, 1), "one").start()
        assert first.exec("vm1", ["true"]).returncode == 0


def test_one_of_two_simultaneous_starts_succeeds(lab_dir: Path) -> None:
    labs = [Lab(LabSpec.star(0, 0), "one") for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        results = [pool.submit(lab.start) for lab in labs]
        errors = [error for result in results if (error := result.exception()) is not None]
    assert [type(error) for error in errors] == [LabRunningError] * 3
    for lab in labs:
        lab.__exit__(None, None, None)
    assert running_labs() == []


def test_a_failed_start_leaves_nothing(lab_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = lab_dir / "broken-programs" / "ovs-vswitchd"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("UNO_OVS_PREFIX", raising=False)
    with pytest.raises(StartError):
        Lab(LabSpec.star(0, 1), "broken").start()
    assert not (lab_dir / "broken").exists()
    assert running_labs() == []


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "x" * 33])
def test_impossible_names_are_refused(lab_dir: Path, name: str) -> None:
    with pytest.raises(LabNameError, match="up to 32 letters"):
        LabDirectory(name)


def test_too_long_a_directory_is_refused(lab_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNO_LAB_DIR", str(lab_dir / ("x" * 60)))
    with pytest.raises(LabNameError, match="107 bytes for a socket's path"):
        Lab(LabSpec.star(0, 1), "one").start()


def test_a_reused_process_id_is_not_mistaken_for_the_lab(lab_dir: Path) -> None:
    with Lab(LabSpec.star(0, 0), "one").start() as lab:
        state = lab.state
        state.pid, state.start_time = os.getpid(), 1
        path = lab_dir / "one" / "lab.json"
        text = path.read_text()
        state.write()
        assert LabDirectory("one").state() is None
        path.write_text(text)


def test_static_arp_works_with_more_hosts(lab_dir: Path) -> None:
    spec = LabSpec.star(1, 2, static_arp=True)
    with Lab(spec).start() as lab:
        known = lab.exec("vm1", ["ip", "neigh"]).stdout
        assert known.count("PERMANENT") == 3


def test_a_cap_on_the_pcie_link_holds_even_after_a_crash(lab_dir: Path) -> None:
    with Lab(LabSpec.star(1, 1, pcie_mbps=50)).start() as lab:
        assert lab.state.links[0].mbps == 50
        lab.switch("snic0").kill("vswitchd")
        lab.switch("snic0").start("vswitchd")
        for switch, port in (("hypervisor", "pcie-snic0"), ("snic0", "pf0hpf")):
            assert "tbf" in lab.exec(switch, ["tc", "qdisc", "show", "dev", port]).stdout


def test_a_host_may_have_two_interfaces_on_a_switch(lab_dir: Path) -> None:
    spec = LabSpec.star(0, 1)
    host = HostSpec(
        "two", (InterfaceSpec("hypervisor", "a"), InterfaceSpec("hypervisor", "b")), "10.0.0.9/24", "02:00:00:00:00:09"
    )
    with Lab(LabSpec(spec.switches, (*spec.hosts, host), spec.ports)).start() as lab:
        assert [each.name for each in lab.host("two").interfaces] == ["eth0", "eth1"]
