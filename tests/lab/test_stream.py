"""Streams through a real lab whose network loses, duplicates and delays frames."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.errors import ControlError
from lab.server import Lab
from lab.spec import LabSpec
from lab.traffic import Stream

pytestmark = pytest.mark.namespaces


def flow(lab: Lab, switch: int, *rules: str) -> None:
    address = str(lab.state.switches[switch].edge)
    command = ["ovs-ofctl", "-OOpenFlow13", "add-flows", address, "-"]
    subprocess.run(command, input="\n".join(rules), text=True, check=True)
    # Otherwise, cached flows of the previous rules would handle packets for some time.
    lab.switch(lab.state.switches[switch].name).appctl("revalidator/purge")


def frames(lab: Lab, host: str, interface: str, way: str) -> int:
    """Return the kernel's packet counter of a host's interface; ``way`` is rx or tx."""
    shown = lab.exec(host, ["ip", "-json", "-stats", "link", "show", "dev", interface]).stdout
    return json.loads(shown)[0]["stats64"][way]["packets"]


def await_frames(lab: Lab, host: str, more: int, interface: str = "eth0", way: str = "rx") -> None:
    """Wait for this number of further frames."""
    deadline, wanted = time.monotonic() + 60, frames(lab, host, interface, way) + more
    while frames(lab, host, interface, way) < wanted:
        assert time.monotonic() < deadline


def reset(lab: Lab) -> None:
    for switch in lab.state.switches:
        subprocess.run(["ovs-ofctl", "-OOpenFlow13", "del-flows", str(switch.edge)], check=True)
    flow(lab, 0, "priority=0,actions=NORMAL")
    flow(lab, 1, "priority=0,actions=NORMAL")


def test_a_clean_network_loses_nothing(demo: Lab) -> None:
    with Stream(demo, "vm1", "nf1", rate=1000, count=1000) as stream:
        report = stream.wait()
    assert (report.sent, report.received, report.lost) == (1000, 1000, 0)
    assert (report.duplicated, report.reordered, report.overflowed) == (0, 0, 0)
    assert report.by_interface == {"eth0": 1000}
    assert report.longest_pause_ms is not None


def test_a_stream_keeps_its_rate(demo: Lab) -> None:
    for _ in range(5):  # a busy machine slows it down at times; nothing speeds it up
        started = time.monotonic()
        with Stream(demo, "vm1", "nf1", rate=5000, count=5000) as stream:
            ready = time.monotonic()
            report = stream.wait()
        ended = time.monotonic()
        assert report.lost == 0
        assert ended - started > 0.9
        if ended - ready < 3:
            return
    pytest.fail("5,000 frames take more than 3 s at 5,000 frames/s, each time")


def test_loss_is_detected(demo: Lab) -> None:
    reset(demo)
    with Stream(demo, "vm1", "nf1", rate=1000) as stream:
        await_frames(demo, "nf1", 100)
        flow(demo, 0, "priority=9,in_port=vm1,udp,actions=drop")
        await_frames(demo, "vm1", 300, way="tx")
        reset(demo)
        await_frames(demo, "nf1", 100)
        report = stream.stop()
    assert report.sent is not None
    assert report.lost is not None
    assert 50 < report.lost < report.sent
    assert report.lost == report.sent - report.received
    assert report.longest_gap_ms > 100


def test_a_stream_over_a_broken_path_ends_with_a_report(demo: Lab) -> None:
    flow(demo, 0, "priority=9,in_port=vm1,udp,actions=drop")
    with Stream(demo, "vm1", "nf1", rate=1000, count=100) as stream:
        report = stream.wait()
    assert (report.sent, report.received, report.lost) == (100, 0, 100)
    reset(demo)


def test_duplicates_are_detected(demo: Lab) -> None:
    flow(demo, 1, "priority=9,in_port=pf0hpf,udp,actions=output:pf0vf1,output:pf0vf1")
    with Stream(demo, "vm1", "nf1", rate=1000, count=300) as stream:
        report = stream.wait()
    assert (report.lost, report.duplicated) == (0, 300)
    reset(demo)


def test_reordering_is_detected(demo: Lab) -> None:
    """Reorder by sending frames on two paths of different delay."""
    # the frame number in the payload cannot be matched, so the two paths are used in turn:
    # frames wait in a stopped switch while later ones pass it
    with Stream(demo, "vm2", "out1", rate=1000) as stream:
        await_frames(demo, "out1", 50)
        flow(demo, 0, "priority=9,in_port=vm2,udp,actions=output:pcie-snic0")
        pid = demo.state.switches[0].processes["ovs-vswitchd"]
        os.kill(pid, signal.SIGSTOP)  # frames on the old path wait in its socket
        try:
            await_frames(demo, "vm2", 20, way="tx")
            stream.use("eth1")
            await_frames(demo, "out1", 20)
        finally:
            os.kill(pid, signal.SIGCONT)
        await_frames(demo, "out1", 100)
        report = stream.stop()
    assert report.lost == 0
    assert report.reordered > 0
    reset(demo)


def test_a_moving_receiver_listens_on_both_interfaces(demo: Lab) -> None:
    reset(demo)
    flow(demo, 0, "priority=9,in_port=vm1,udp,actions=output:vm2")
    flow(demo, 1, "priority=9,in_port=pf0hpf,udp,actions=output:pf0vf0")
    with Stream(demo, "vm1", "vm2", rate=1000) as stream:
        await_frames(demo, "vm2", 100)
        flow(demo, 0, "priority=9,in_port=vm1,udp,actions=output:pcie-snic0")
        await_frames(demo, "vm2", 100, "eth1")
        report = stream.stop()
    assert (report.lost, report.duplicated) == (0, 0)
    assert set(report.by_interface) == {"eth0", "eth1"}
    reset(demo)


def test_a_sender_changes_its_interface_and_rate(demo: Lab) -> None:
    reset(demo)
    flow(demo, 0, "priority=9,in_port=vm2,udp,actions=output:pcie-snic0")
    flow(demo, 1, "priority=9,in_port=pf0hpf,udp,actions=output:p0", "priority=9,in_port=pf0vf0,udp,actions=output:p0")
    with Stream(demo, "vm2", "out1", rate=1000) as stream:
        await_frames(demo, "out1", 100)
        first = stream.use("eth1")
        stream.set_rate(2000)
        await_frames(demo, "out1", 200)
        report = stream.stop()
    assert 0 < first < (report.sent or 0)
    # The new path may be faster or slower: the order across the change is undefined.
    assert (report.lost, report.duplicated) == (0, 0)
    reset(demo)


def test_streams_run_in_both_directions_at_once(demo: Lab) -> None:
    reset(demo)
    with (
        Stream(demo, "vm1", "vm2", rate=500, count=200, number=1) as there,
        Stream(demo, "vm2", "vm1", rate=500, count=200, number=2) as back,
    ):
        assert there.wait().lost == 0
        assert back.wait().lost == 0


def test_receiving_hosts_send_no_icmp_errors(demo: Lab) -> None:
    """Without a socket at the port, the kernel would send ICMP errors into the measurement."""
    with Stream(demo, "vm1", "nf1", rate=1000) as stream:
        before = unreachables(demo, "nf1")
        await_frames(demo, "nf1", 100)
        assert unreachables(demo, "nf1") == before
        stream.stop()


def unreachables(lab: Lab, host: str) -> int:
    """Return the number of ICMP "destination unreachable" messages that a host has sent."""
    names, counts = lab.exec(host, ["grep", "^Icmp:", "/proc/net/snmp"]).stdout.splitlines()
    return int(dict(zip(names.split(), counts.split(), strict=True))["OutDestUnreachs"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"size": 60}, "frame size 60: expected 70 to 1514"), ({"rate": 0}, "rate 0.0: expected more than 0")],
)
def test_impossible_streams_are_refused(demo: Lab, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ControlError, match=problem):
        Stream(demo, "vm1", "nf1", **options)


def test_a_missing_interface_is_refused_and_the_stream_goes_on(demo: Lab) -> None:
    with Stream(demo, "vm1", "nf1", rate=1000, count=400) as stream:
        with pytest.raises(ControlError, match=r"use eth7: .*No such device"):
            stream.use("eth7")
        assert stream.wait().lost == 0


def test_a_capped_link_limits_a_stream(lab_dir: Path, plain_forwarding: Callable[[Lab], None]) -> None:
    with Lab(LabSpec.star(1, 1, pcie_mbps=1)).start() as lab:
        plain_forwarding(lab)
        with Stream(lab, "vm1", "nf2", rate=1000, size=1000, count=1000) as stream:
            began = time.monotonic()
            report = stream.wait()
            seconds = time.monotonic() - began
    # 8 Mb/s meet a limit of 1 Mb/s, or 125 frames per second; some more wait in the queue.
    assert 0 < report.received < 125 * seconds + 100
