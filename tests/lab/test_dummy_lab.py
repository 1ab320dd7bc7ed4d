"""Frames in and out of dummy devices."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.errors import ControlError
from lab.server import Lab
from lab.spec import LabSpec
from lab.wires import Place, UnsettledError, Wires
from server.processes import is_running, start_time

BROADCAST = 255


def frame(source: int, target: int, number: int = 0, size: int = 60) -> bytes:
    destination = b"\xff" * 6 if target == BROADCAST else bytes([2, 0, 0, 0, 0, target])
    return (destination + bytes([2, 0, 0, 0, 0, source]) + b"\x08\x00" + number.to_bytes(4, "big")).ljust(size, b"\0")


def place(lab: Lab, port: int) -> Place:
    """Return the home of virtual port ``port``."""
    found = next(each for each in lab.state.ports if each.number == port)
    return found.switch, found.interface


def flows(address: str | None, *rules: str) -> None:
    command = ["ovs-ofctl", "-OOpenFlow13", "add-flows", str(address), "-"]
    subprocess.run(command, input="\n".join(rules), text=True, check=True)


@pytest.fixture
def lab(lab_dir: Path, plain_forwarding: Callable[[Lab], None]) -> Iterator[Lab]:
    with Lab(LabSpec.star(2, 2, substrate="dummy")).start() as lab:
        plain_forwarding(lab)
        yield lab


@pytest.fixture
def wires(lab: Lab) -> Iterator[Wires]:
    with lab.wires() as wires:
        yield wires


def test_a_broadcast_reaches_all_others_once(lab: Lab, wires: Wires) -> None:
    sent = frame(1, BROADCAST)
    wires.inject(place(lab, 1), sent)
    assert wires.settle() == {place(lab, port): [sent] for port in (2, 3, 4, 5, 6)}
    assert wires.settle() == {}


def test_order_and_bytes_are_kept_across_two_pcie_links(lab: Lab, wires: Wires) -> None:
    wires.inject(place(lab, 6), frame(6, BROADCAST))
    wires.settle()
    sent = [frame(3, 6, number, size=60 + number % 1400) for number in range(3000)]
    for each in sent:
        wires.inject(place(lab, 3), each)
    assert wires.settle() == {place(lab, 6): sent}


def test_several_hosts_send_at_once(lab: Lab, wires: Wires) -> None:
    for port in range(1, 7):
        wires.inject(place(lab, port), frame(port, BROADCAST))
    wires.settle()
    for number in range(100):
        for port in range(2, 7):
            wires.inject(place(lab, port), frame(port, 1, number))
    (arrived,) = wires.settle().values()
    assert len(arrived) == 500
    for port in range(2, 7):
        mine = [each for each in arrived if each[11] == port]
        assert mine == [frame(port, 1, number) for number in range(100)]


def test_full_size_frames_cross_the_link_with_a_tag(lab: Lab, wires: Wires) -> None:
    hub, snic = lab.state.switches[0], lab.state.switches[1]
    flows(hub.edge, "priority=9,in_port=vm1,actions=push_vlan:0x8100,set_field:4097->vlan_vid,output:pcie-snic0")
    flows(snic.edge, "priority=9,in_port=pf0hpf,dl_vlan=1,actions=pop_vlan,output:pf0vf0")
    for size in (60, 1514, 1518):  # 1518: a full frame with a tag of its own
        sent = frame(1, 3, size=size)
        wires.inject(place(lab, 1), sent)
        expected = {place(lab, 3): [sent]} if size <= 1514 else {}
        assert wires.settle() == expected


def test_settling_counts_dropped_frames(lab: Lab, wires: Wires) -> None:
    flows(lab.state.switches[0].edge, "priority=9,in_port=vm1,actions=drop")
    wires.inject(place(lab, 1), frame(1, BROADCAST))
    assert wires.settle() == {}


def test_lost_frames_are_named(lab: Lab, wires: Wires) -> None:
    """A dummy device holds 100 frames and counts dropped ones as sent, so settling must fail."""
    flows(lab.state.switches[0].edge, f"priority=9,in_port=vm1,actions={','.join(['vm2'] * 150)}")
    wires.inject(place(lab, 1), frame(1, 2))
    with pytest.raises(UnsettledError, match="100 of 150 frames that hypervisor sent to vm2 arrived"):
        wires.settle(timeout_s=3.0)


def test_impossible_places_and_frames_are_refused(lab: Lab, wires: Wires) -> None:
    with pytest.raises(ControlError, match=r"no interface vm7 on hypervisor; there are .*vm1"):
        wires.inject(("hypervisor", "vm7"), frame(1, 2))
    with pytest.raises(ValueError, match="13 bytes is not an Ethernet frame"):
        wires.inject(place(lab, 1), bytes(13))
    with pytest.raises(ControlError, match="hosts run no programs; use wires"):
        lab.exec("vm1", ["true"])


def test_time_stands_still_until_it_is_warped(lab: Lab, wires: Wires) -> None:
    hub = lab.state.switches[0]
    wires.stop_time()
    flows(hub.virt, "idle_timeout=5,priority=7,in_port=1,actions=drop")

    def rules() -> str:
        done = subprocess.run(
            ["ovs-ofctl", "-OOpenFlow13", "dump-flows", hub.virt], capture_output=True, text=True, check=True
        )
        return done.stdout

    wires.warp(4000)
    assert "priority=7" in rules()
    wires.warp(4000)
    assert "priority=7" not in rules()


def test_statistics_are_complete_after_a_revalidator_purge(lab: Lab, wires: Wires) -> None:
    hub = lab.state.switches[0]
    for number in range(20):
        wires.inject(place(lab, 1), frame(1, BROADCAST, number))
    wires.settle()
    wires.purge()
    done = subprocess.run(
        ["ovs-ofctl", "-OOpenFlow13", "dump-flows", str(hub.edge)], capture_output=True, text=True, check=True
    )
    assert "n_packets=20," in done.stdout


def test_a_lab_works_after_a_crash_of_a_switch(lab: Lab, wires: Wires, plain_forwarding: Callable[[Lab], None]) -> None:
    lab.switch("hypervisor").kill("vswitchd")
    lab.switch("hypervisor").start("vswitchd")
    plain_forwarding(lab)
    wires.reconnect()
    wires.inject(place(lab, 3), frame(3, BROADCAST))
    assert len(wires.settle()) == 5


def test_a_broken_link_can_be_repaired(lab: Lab, wires: Wires) -> None:
    lab.unlink("snic0")
    wires.inject(place(lab, 1), frame(1, BROADCAST))
    assert set(wires.settle()) == {place(lab, port) for port in (2, 5, 6)}
    lab.relink("snic0")
    wires.inject(place(lab, 1), frame(1, BROADCAST))
    assert len(wires.settle()) == 5


def test_mobile_ports_have_a_wire_on_every_switch(lab_dir: Path) -> None:
    with Lab(LabSpec.star(1, 2, substrate="dummy", mobile=True)).start() as lab, lab.wires() as wires:
        assert sorted(wires.places) == [
            (switch, name)
            for switch, names in (
                ("hypervisor", ["vm1", "vm2", "vm3", "vm4"]),
                ("snic0", [f"pf0vf{n}" for n in range(4)]),
            )
            for name in names
        ]


def test_the_reference_bridge_has_the_same_port_numbers(lab_dir: Path) -> None:
    spec = LabSpec.star(2, 2, substrate="dummy", mobile=True)
    with Lab(spec.reference()).start() as lab, lab.wires() as wires:
        assert len(lab.state.switches) == 1
        assert lab.state.server_toml is None
        flows(lab.state.switches[0].virt, *(f"in_port={port},actions=output:{port % 6 + 1}" for port in range(1, 7)))
        for port in range(1, 7):
            sent = frame(port, 9)
            wires.inject(place(lab, port), sent)
            assert wires.settle() == {place(lab, port % 6 + 1): [sent]}


def test_killing_the_supervisor_leaves_nothing(lab_dir: Path) -> None:
    with Lab(LabSpec.star(1, 1, substrate="dummy"), "one").start() as lab:
        pids = [pid for switch in lab.state.switches for pid in switch.processes.values()]
        started = {pid: start_time(pid) for pid in pids}
        assert len(pids) == 4
        os.kill(lab.state.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(when is not None and is_running(pid, when) for pid, when in started.items()):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_lab_ends_with_its_owner(lab_dir: Path) -> None:
    code = "import time; from lab import Lab,LabSpec\n"
    code += "lab=Lab(LabSpec.star(0,1,substrate='dummy')).start(); print(lab.state.pid,flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        started = start_time(pid)
        assert started is not None
        owner.kill()
    deadline = time.monotonic() + 60
    while is_running(pid, started):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_wires_close_cleanly_when_a_switch_is_down(lab: Lab) -> None:
    lab.switch("snic0").kill("vswitchd")
    with pytest.raises(ControlError, match="no daemon answers"), contextlib.closing(Wires(lab.state)):
        pass
