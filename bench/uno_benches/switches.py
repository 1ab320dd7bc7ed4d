"""Figures 2 and 8: real Open vSwitch on dummy devices, one for the hypervisor, one for the sNIC.

A dummy device drops what exceeds 100 waiting frames, so frames go in by bursts, each after the last has left.
"""

import itertools
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab.processes import cpu_s
from lab.unixctl import unixctl
from tests.unoctl.dummy_ovs import DummySwitch

BURST = 32
FRAME_BYTES = 1280
RULES = 65_536


class Pair:
    """The two switches, joined by PCIe ports."""

    def __init__(self, host: DummySwitch, snic: DummySwitch) -> None:
        self.host, self.snic = host, snic

    def link(self, name: str, number: int) -> None:
        """Join both switches by one PCIe port, or one virtual function."""
        socket = self.host.folder / f"{name}.sock"
        for switch, end in ((self.host, "pstream=punix"), (self.snic, "stream=unix")):
            add = ["add-port", "br", name, "--", "set", "interface", name, "type=dummy", f"ofport_request={number}"]
            switch.vsctl(*add, f'options:{end.split("=")[0]}="{end.split("=")[1]}:{socket}"')

    def inject(self, port: str, frames: Iterable[bytes]) -> None:
        """Give frames to a port of the sNIC."""
        waiting = list(frames)
        for start in range(0, len(waiting), BURST):
            burst = [frame.hex() for frame in waiting[start : start + BURST]]
            unixctl(Path(self.snic.control), "netdev-dummy/receive", port, *burst)
            self.settle()

    def settle(self) -> None:
        """Wait for turns of both main loops, until the switches have sent all packets that they hold."""
        for _ in range(3):
            for switch in (self.snic, self.host):
                unixctl(Path(switch.control), "version")
                unixctl(Path(switch.control), "version")


@contextmanager
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="uno-", dir="/tmp") as folder, ExitStack() as stack:
        made = [stack.enter_context(DummySwitch(name, Path(folder) / name)) for name in ("host", "snic")]
        for switch in made:
            switch.vsctl("add-br", "br", "--", "set", "bridge", "br", "datapath_type=dummy", "fail_mode=secure")
        snic = made[1]
        snic.vsctl("add-port", "br", "eth", "--", "set", "interface", "eth", "type=dummy", "ofport_request=1")
        yield Pair(*made)


def frame(number: int) -> bytes:
    """Return a UDP packet of a flow of its own."""
    source = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src=source, dst="192.0.2.1") / UDP(dport=9)
    return bytes(packet / bytes(FRAME_BYTES - len(packet)))


def crossings(nfs: int, offload: bool) -> float:
    """Count how often a packet crosses PCIe on its way through functions to a virtual machine, in bytes.

    With ``offload`` the sNIC switches: each function and the machine have a virtual function. Without, the hypervisor
    switches, and the functions are its neighbours.
    """
    packets = 8
    with pair() as switches:
        ends = nfs + 1 if offload else 1
        for number in range(2, 2 + ends):
            switches.link(f"vf{number}", number)
        way = [1, *range(2, 2 + ends)]
        switches.snic.add_flows("br", [f"in_port={a},actions=output:{b}" for a, b in itertools.pairwise(way)])
        # A function sends back what it gets, the machine keeps it.
        switches.host.add_flows("br", [f"in_port={number},actions=in_port" for number in way[1:-1]])
        for _ in range(packets):
            switches.inject("eth", [frame(7)])
            for _ in range(nfs):
                switches.settle()
        counted = sum(_count(switches.snic, f"vf{number}", "bytes") for number in range(2, 2 + ends))
    return counted / (packets * FRAME_BYTES)


def filtering(offloaded: float, flows: int, rules: int, rounds: int) -> dict[str, float]:
    """Filter traffic by rules, a part of which is on the sNIC; return the hypervisor switch's CPU time.

    A packet is dropped where its rule is. All that the sNIC does not filter crosses PCIe.
    """
    limit = round(rules * offloaded)
    step = rules // flows
    with pair() as switches:
        switches.link("pcie", 2)
        filters = [f"ip,nw_src=10.{n >> 16}.{n >> 8 & 255}.{n & 255},actions=drop" for n in range(rules)]
        here, there = filters[:limit], filters[limit:]
        switches.snic.add_flows("br", [*here, "priority=1,actions=output:2"])
        if there:
            switches.host.add_flows("br", there)
        frames = [frame(n) for n in range(0, rules, step)]
        before = cpu_s(switches.host.vswitchd_pid)
        for _ in range(rounds):
            switches.inject("eth", frames)
        spent = cpu_s(switches.host.vswitchd_pid) - before
        crossed = _count(switches.host, "pcie", "pkts")
    return {"offloaded": offloaded, "cpu_s": spent, "crossed": crossed, "packets": len(frames) * rounds}


def _count(switch: DummySwitch, port: str, what: str) -> int:
    """Sum a port's counters of both directions: ``pkts`` or ``bytes``."""
    told = switch.ofctl("dump-ports", "br", port)
    return sum(int(each) for each in re.findall(rf"{what}=(\d+)", told))
