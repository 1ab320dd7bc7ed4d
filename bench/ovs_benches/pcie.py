"""Two switches joined by veth interfaces or by `pcie` ports: packets per second, and CPU time per packet.

host a --- switch a --- link --- switch b --- host b

Each switch is an Open vSwitch of its own, on a core of its own; hosts, which send and count, share the cores. The
flow-id crosses a link of veth interfaces in a VLAN tag, and one of `pcie` ports beside the packet. `plain`: all
interfaces are AF_PACKET. `afxdp`: all are AF_XDP. `pcie`: the hosts' are AF_PACKET, polled by the main thread.
`pcie_afxdp`: the hosts' are AF_XDP, polled by PMD threads. Needs root, for AF_XDP, and the patched Open vSwitch of
`make ovs` (or that of UNO_OVS_PREFIX), for all four. The share of memory's bandwidth: see copies.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.buffers import PortBuffers
from ovs_benches import copies, stages

ROOT = Path(__file__).parents[2]
INSIDE = "OVS_BENCH_PCIE_INSIDE"
# Bytes of a frame without its checksum: 64 and 512 on the wire, and an IP packet of 1,500.
SIZES = {64: 60, 512: 508, 1500: 1514}
FLOW_ID = 0x123


@dataclass(frozen=True)
class Kind:
    """How the interfaces of a pair of switches are made."""

    wire: str
    link: str


KINDS = {
    "plain": Kind("system", "system"),
    "afxdp": Kind("afxdp", "afxdp"),
    "pcie": Kind("system", "pcie"),
    "pcie_afxdp": Kind("afxdp", "pcie-pmd"),
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter: done in 50 s")
    parser.add_argument("--stages", action="store_true", help="where CPU time goes, by perf, instead of the figures")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench/pcie needs root, for AF_XDP")
    if INSIDE not in os.environ:
        # The namespace whose settings size the buffers of AF_PACKET ports.
        namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
        os.set_inheritable(namespace, True)
        os.environ[INSIDE] = str(namespace)
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])
    run("mount", "-t", "tmpfs", "none", "/run")
    with tempfile.TemporaryDirectory(prefix="pcie-", dir="/tmp") as place:
        if arguments.stages:
            print(json.dumps({name: profile(Path(place), name) for name in arguments.kinds}))
        else:
            print(json.dumps(measure(Path(place), arguments.kinds, quick=arguments.quick)))


def measure(place: Path, kinds: list[str], *, quick: bool) -> dict[str, object]:
    """Measure all kinds in turns; the figures are medians."""
    prefix = programs()
    build_wires(place)
    rounds, seconds = (1, 1.5) if quick else (5, 3.0)
    samples: dict[tuple[str, int], list[dict[str, float]]] = {}
    delays: dict[str, list[dict[str, float]]] = {}
    problems: dict[str, str] = {}
    for number in range(rounds):
        for name in kinds:
            try:
                with pair(prefix, place / f"{name}{number}", KINDS[name]) as switches:
                    for size, frame in SIZES.items():
                        samples.setdefault((name, size), []).append(flood(place, switches, frame, seconds))
                    half = samples[name, 64][-1]["pps"] / 2
                    delays.setdefault(name, []).append(wires(place, SIZES[64], seconds, half))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                problems[name] = f"{error} {getattr(error, 'stderr', '')}".strip()
            print(f"... {name} {number + 1}/{rounds}", file=sys.stderr)
    figures = report(kinds, samples, delays, problems)
    return figures | memory_shares(prefix, place, figures, 50 if quick else 200)


def memory_shares(prefix: Path, place: Path, figures: dict[str, object], turns: int) -> dict[str, float | None]:
    """Return the figures of copies.py; none if the build of the patched Open vSwitch is not there."""
    ovstest = prefix / "build/tests/ovstest"
    if not ovstest.exists():
        print(f"... no shares of memory's bandwidth: there is no {ovstest}", file=sys.stderr)
        return dict.fromkeys(copies.FIGURES)
    cores = sorted(os.sched_getaffinity(0))
    rate = figures.get("pcie_afxdp_pps_1500")
    os.sched_setaffinity(0, cores[:1])
    try:
        times = copies.measure(ovstest, place, SIZES[1500], turns)
    finally:
        os.sched_setaffinity(0, cores)
    return copies.shares(times, rate if isinstance(rate, int) else None, 2)


def build_wires(place: Path) -> None:
    """Compile the hosts' program."""
    subprocess.run(["cc", "-O2", "-pthread", "-o", place / "wires", Path(__file__).with_name("wires.c")], check=True)


def profile(place: Path, name: str) -> dict[str, int]:
    """Return nanoseconds of CPU time per packet of 64 bytes, by stage."""
    build_wires(place)
    with pair(programs(), place / name, KINDS[name]) as switches:
        processes = {switch.vswitchd.pid: f"switch {switch.name[-1]}" for switch in switches}
        return stages.measure(place, processes, lambda: wires(place, SIZES[64], 3.0, 0), received)


def report(
    kinds: list[str],
    samples: dict[tuple[str, int], list[dict[str, float]]],
    delays: dict[str, list[dict[str, float]]],
    problems: dict[str, str],
) -> dict[str, object]:
    """Return the figures and their ratios to the plain pair."""
    figures: dict[str, object] = {"load_average": os.getloadavg()[0]}
    middle: dict[tuple[str, int, str], float] = {}
    for (name, size), found in samples.items():
        for key in ("pps", "cpu_ns"):
            middle[name, size, key] = statistics.median(each[key] for each in found)
            figures[f"{name}_{key}_{size}"] = round(middle[name, size, key])
    for name, found in delays.items():
        for key in ("p50_us", "p99_us"):
            figures[f"{name}_{key}"] = statistics.median(each[key] for each in found)
    for name in kinds:
        if name in problems:
            figures[f"{name}_problem"] = problems[name]
    best = next((name for name in ("pcie_afxdp", "pcie") if (name, 1500, "pps") in middle), None)
    for name in kinds:
        prefix = "" if name == best else f"{name}_"
        for size in SIZES:
            if name != "plain" and {(name, size, "pps"), ("plain", size, "pps")} <= middle.keys():
                figures[f"{prefix}ratio_{size}"] = round(middle[name, size, "pps"] / middle["plain", size, "pps"], 2)
                figures[f"{prefix}cpu_ratio_{size}"] = round(
                    middle[name, size, "cpu_ns"] / middle["plain", size, "cpu_ns"], 2
                )
    return figures


def programs() -> Path:
    """Return the directory of the patched Open vSwitch, after building it if need be."""
    if named := os.environ.get("UNO_OVS_PREFIX"):
        return Path(named)
    subprocess.run([ROOT / "ovs-patches/build", "3.1"], check=True, stdout=sys.stderr)
    return ROOT / ".venv/ovs-3.1"


def run(*argv: str, namespace: str | None = None) -> str:
    """Run a program, in a namespace."""
    enter = ["ip", "netns", "exec", namespace] if namespace else []
    return subprocess.run([*enter, *argv], check=True, capture_output=True, text=True).stdout


class Switch:
    """An Open vSwitch in a network namespace of its own, on one core."""

    def __init__(self, prefix: Path, folder: Path, name: str, core: int) -> None:
        self.prefix, self.folder, self.name, self.core = prefix, folder, name, core
        folder.mkdir(parents=True)
        self.environment = {
            **os.environ,
            "OVS_RUNDIR": str(folder),
            "OVS_LOGDIR": str(folder),
            "OVS_DBDIR": str(folder),
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start database and switch."""
        self.call(
            "ovsdb-tool", "create", f"{self.folder}/conf.db", f"{self.prefix}/share/openvswitch/vswitch.ovsschema"
        )
        self.spawn("ovsdb-server", f"{self.folder}/conf.db", f"--remote=punix:{self.folder}/db.sock")
        self.await_file("db.sock")
        mask = hex(1 << self.core)
        settings = (
            f"other_config:pmd-cpu-mask={mask}",
            "other_config:pmd-maxsleep=100",
            "other_config:pmd-sleep-max=100",
            # In a virtual machine, a sleep takes as much CPU time as 10 packets.
            "other_config:pmd-sleep-min=100",
        )
        self.vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", *settings)
        self.vswitchd = self.spawn("ovs-vswitchd", f"unix:{self.folder}/db.sock")
        self.await_file("ovs-vswitchd.ctl")
        self.vsctl("add-br", "br", "--", "set", "bridge", "br", "datapath_type=netdev", "fail_mode=secure")

    def spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a daemon on the switch's core."""
        command = ["taskset", "-c", str(self.core), f"{self.prefix}/sbin/{program}", *arguments]
        options = [f"--unixctl={self.folder}/{program}.ctl", f"--log-file={self.folder}/{program}.log", "-vconsole:off"]
        argv = ["ip", "netns", "exec", self.name, *command, *options]
        self.processes.append(subprocess.Popen(argv, env=self.environment, stderr=subprocess.DEVNULL))
        return self.processes[-1]

    def await_file(self, name: str) -> None:
        """Wait until a daemon listens."""
        for _ in range(1000):
            if (self.folder / name).exists():
                return
            time.sleep(0.01)
        raise RuntimeError(f"switch {self.name} has no {name}")

    def call(self, program: str, *arguments: str) -> str:
        """Run one of Open vSwitch's commands."""
        argv = [f"{self.prefix}/bin/{program}", *arguments]
        return subprocess.run(argv, env=self.environment, check=True, capture_output=True, text=True).stdout

    def vsctl(self, *arguments: str) -> str:
        """Run ovs-vsctl."""
        return self.call("ovs-vsctl", "--timeout=20", f"--db=unix:{self.folder}/db.sock", *arguments).strip()

    def rule(self, text: str) -> None:
        """Add a rule."""
        self.call("ovs-ofctl", "-OOpenFlow13", "add-flow", f"unix:{self.folder}/br.mgmt", text)

    def cpu_ns(self) -> int:
        """Return the CPU time of the switch's threads."""
        tasks = Path(f"/proc/{self.vswitchd.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stop(self) -> None:
        """End the daemons."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait(10)


@contextmanager
def pair(prefix: Path, folder: Path, kind: Kind) -> Iterator[list[Switch]]:
    """Start two switches with a host each, and rules from host a to host b and back."""
    with ExitStack() as stack:
        for name in ("swa", "swb", "hosta", "hostb"):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "delete", name)
            run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", namespace=name)
        for name in ("a", "b"):
            veth(f"host{name}", "eth0", f"sw{name}", "wire")
        if kind.link in ("system", "afxdp"):
            veth("swa", "uplink", "swb", "uplink")
        switches = [Switch(prefix, folder / name, f"sw{name}", core) for core, name in enumerate("ab")]
        for switch in switches:
            stack.callback(switch.stop)
            switch.start()
        with PortBuffers(int(os.environ[INSIDE])).raised():
            for role, switch in zip(("listen", "connect"), switches, strict=True):
                options = (
                    (f"options:path={folder}/link.sock", f"options:role={role}") if kind.link.startswith("pcie") else ()
                )
                add_port(switch, "wire", 1, kind.wire)
                add_port(switch, "uplink", 2, kind.link, *options)
                rules(switch, kind)
        await_traffic(folder.parent)
        yield switches


def veth(namespace: str, name: str, other_namespace: str, other_name: str) -> None:
    """Join two namespaces."""
    peer = ["type", "veth", "peer", "name", other_name, "netns", other_namespace]
    run("ip", "link", "add", name, "netns", namespace, "mtu", "1600", *peer, "mtu", "1600")
    for where, interface in ((namespace, name), (other_namespace, other_name)):
        for offload in ("tx", "rxvlan", "txvlan", "gro"):
            subprocess.run(
                ["ip", "netns", "exec", where, "ethtool", "-K", interface, offload, "off"],
                check=False,
                capture_output=True,
            )
        run("ip", "link", "set", interface, "up", namespace=where)


def add_port(switch: Switch, name: str, number: int, kind: str, *options: str) -> None:
    """Add an interface to a switch, and fail with the reason if the switch refuses it."""
    switch.vsctl(
        "add-port", "br", name, "--", "set", "interface", name, f"type={kind}", f"ofport_request={number}", *options
    )
    if (error := switch.vsctl("get", "interface", name, "error")) != "[]":
        raise RuntimeError(f"{kind} {name}: {error}")


def rules(switch: Switch, kind: Kind) -> None:
    """Carry the flow-id as oneswitchd does: beside the packet, or in a VLAN tag."""
    if kind.link.startswith("pcie"):
        switch.rule(f"in_port=1,actions=set_field:{FLOW_ID}->tunnel_id,output:2")
        switch.rule(f"in_port=2,tunnel_id={FLOW_ID},actions=output:1")
    else:
        switch.rule(f"in_port=1,actions=push_vlan:0x8100,set_field:{0x1000 | FLOW_ID}->vlan_vid,output:2")
        switch.rule(f"in_port=2,dl_vlan={FLOW_ID},actions=pop_vlan,output:1")


def received() -> int:
    """Count the packets that have reached host b."""
    return json.loads(run("ip", "-j", "-s", "link", "show", "eth0", namespace="hostb"))[0]["stats64"]["rx"]["packets"]


def wires(place: Path, frame: int, seconds: float, rate: float) -> dict[str, float]:
    """Send frames from host a to host b."""
    ends = ("/run/netns/hosta", "eth0", "/run/netns/hostb", "eth0")
    return json.loads(run(str(place / "wires"), *ends, str(frame), str(seconds), str(rate)))


def await_traffic(place: Path) -> None:
    """Wait until packets cross both switches."""
    for _ in range(100):
        if wires(place, 60, 0.1, 500)["received"] > 10:
            return
    raise RuntimeError("no packet crosses the switches")


def flood(place: Path, switches: list[Switch], frame: int, seconds: float) -> dict[str, float]:
    """Send as fast as possible; return packets per second at host b, and CPU time of both switches for each."""
    wires(place, frame, 0.3, 0)
    cpu, before, start = sum(switch.cpu_ns() for switch in switches), received(), time.monotonic()
    wires(place, frame, seconds, 0)
    came, used = received() - before, sum(switch.cpu_ns() for switch in switches) - cpu
    if not came:
        raise RuntimeError(f"no frame of {frame} bytes crossed the switches")
    return {"pps": came / (time.monotonic() - start), "cpu_ns": used / came}
