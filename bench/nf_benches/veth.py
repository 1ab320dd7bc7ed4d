"""The load balancer between two veth pairs, compared with the kernel's NAT (nft) in its place: CPU time per packet.

A sender in one network namespace, the measured program in the middle, a sink in a third. The base is the cost of
sending and dropping without anything in the middle; the rest is "above" it. CPU time is that of the sender (to which
the kernel charges much of its work), of the load balancer, and of the kernel's packet threads (ksoftirqd). Rates depend
on how two cores are shared, CPU time less so. Runs as any user who may create namespaces; AF_XDP needs root.

Needs `nft` (Debian: nftables) for the peer; without it the peer is null.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nf_benches import building

VIP = "192.0.2.1"
BACKEND = "10.2.0.10"
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
INSIDE = "NF_BENCH_VETH_INSIDE"
NAMESPACE_OPTIONS = ["--net", "--mount"]
USER_OPTIONS = ["--user", "--map-root-user"]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer packets: done in 50 s")
    parser.add_argument("--flows", type=int, default=1000, help="flows that the packets are of, at most 60,000")
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        print("... building", file=sys.stderr)
        building.build_example("nf-ports", "flood")
        building.build_nf()
        rootless = [] if os.geteuid() == 0 else USER_OPTIONS
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", *rootless, *NAMESPACE_OPTIONS, sys.executable, *sys.argv])
    wire()
    rounds, packets = (3, 200_000) if arguments.quick else (7, 1_000_000)
    print(json.dumps(measure(rounds, packets, arguments.flows)))


def run(*argv: str, namespace: str | None = None) -> str:
    """Run a program, in a namespace."""
    enter = ["ip", "netns", "exec", namespace] if namespace else []
    return subprocess.run([*enter, *argv], check=True, capture_output=True, text=True).stdout


def wire() -> None:
    """Create client --- middle --- sink, in namespaces that end with this process."""
    run("mount", "-t", "tmpfs", "none", "/run")
    for name in ("client", "middle", "sink"):
        run("ip", "netns", "add", name)
        run("ip", "link", "set", "lo", "up", namespace=name)
    for end, middle, network in (("client", "m0", "10.1.0"), ("sink", "m1", "10.2.0")):
        run("ip", "link", "add", "eth0", "netns", end, "type", "veth", "peer", "name", middle, "netns", "middle")
        for namespace, interface in ((end, "eth0"), ("middle", middle)):
            run("ip", "link", "set", interface, "up", namespace=namespace)
            subprocess.run(
                ["ip", "netns", "exec", namespace, "ethtool", "-K", interface, "tx", "off", "gro", "off"],
                check=False,
                capture_output=True,
            )
        run("ip", "address", "add", f"{network}.1/24", "dev", "eth0", namespace=end)
        run("ip", "address", "add", f"{network}.254/24", "dev", middle, namespace="middle")
    run("ip", "neigh", "add", BACKEND, "lladdr", mac("sink", "eth0"), "dev", "m1", namespace="middle")


def mac(namespace: str, interface: str) -> str:
    """Return an interface's MAC address."""
    return json.loads(run("ip", "-j", "link", "show", interface, namespace=namespace))[0]["address"]


def received() -> int:
    """Count the packets that have reached the sink."""
    link = json.loads(run("ip", "-j", "-s", "link", "show", "eth0", namespace="sink"))[0]
    return link["stats64"]["rx"]["packets"]


def cpu_ns(pid: int) -> int:
    """Return the CPU time of a process's threads."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total


def softirq_threads() -> list[int]:
    """Return the kernel's packet threads; they also work for other namespaces."""
    names = ((int(each.name), each / "comm") for each in Path("/proc").iterdir() if each.name.isdigit())
    return [pid for pid, comm in names if comm.exists() and comm.read_text().startswith("ksoftirqd/")]


@contextmanager
def nothing() -> Iterator[int | None]:
    """The base: drop all packets in the middle."""
    rules = "table netdev t { chain c { type filter hook ingress device m0 priority 0; drop; }; }"
    if shutil.which("nft"):
        run("nft", rules, namespace="middle")
        yield None
        run("nft", "delete", "table", "netdev", "t", namespace="middle")
    else:  # packets for another host are dropped early, too
        yield None


@contextmanager
def kernel_nat() -> Iterator[int | None]:
    """nft DNAT, with connection tracking, and forwarding."""
    run("sysctl", "-qw", "net.ipv4.ip_forward=1", namespace="middle")
    rules = (
        "table ip nat { chain p { type nat hook prerouting priority dstnat; "
        f"ip daddr {VIP} udp dport 53 dnat to {BACKEND}; }}; }}"
    )
    run("nft", rules, namespace="middle")
    yield None
    run("nft", "delete", "table", "ip", "nat", namespace="middle")
    run("sysctl", "-qw", "net.ipv4.ip_forward=0", namespace="middle")


@contextmanager
def load_balancer(backend: str) -> Iterator[int | None]:
    """l4lb as a bump in the wire, mode nat."""
    config = {
        "interfaces": [{"addresses": ["10.1.0.2/24"]}, {"addresses": ["10.2.0.2/24"]}],
        "neighbours": [{"address": BACKEND, "mac": mac("sink", "eth0"), "interface": 1}],
        "vips": [
            {
                "name": "dns",
                "address": VIP,
                "port": 53,
                "protocol": "udp",
                "mode": "nat",
                "backends": [{"name": "b", "address": BACKEND}],
            }
        ],
    }
    with network_function("l4lb", config, backend) as pid:
        yield pid


@contextmanager
def network_function(kind: str, config: dict[str, object], backend: str) -> Iterator[int]:
    """Start a function as a bump in the wire; the value is its process."""
    with tempfile.TemporaryDirectory(prefix="nf-veth-") as directory:
        path, control = Path(directory) / "nf.json", Path(directory) / "nf.sock"
        path.write_text(json.dumps(config))
        where = ["--config", str(path), "--control", str(control), "--port", "m0", "--port", "m1"]
        argv = ["ip", "netns", "exec", "middle", building.nf(), "run", kind, *where, "--backend", backend]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                while not control.exists():
                    if process.poll() is not None:
                        raise RuntimeError(process.stderr.read())
                    time.sleep(0.01)
                yield process.pid
            finally:
                process.terminate()


def flood(
    flows: int, packets: int, pid: int | None, *, address: str = VIP, to: tuple[str, str] = ("middle", "m0")
) -> tuple[float, float]:
    """Send packets to an address, and the interface of a namespace.

    Returns:
        The CPU ns per packet, and the share of the packets that reached the sink.
    """
    threads = softirq_threads()
    before = received(), sum(map(cpu_ns, threads)), cpu_ns(pid) if pid else 0
    argv = [building.example("flood"), "eth0", mac(*to), address, str(flows), str(packets)]
    told = json.loads(run(*argv, namespace="client"))
    time.sleep(0.1)  # drain the queues; the figures do not depend on it
    came = received() - before[0]
    cpu = told["cpu_ns"] + sum(map(cpu_ns, threads)) - before[1] + (cpu_ns(pid) if pid else 0) - before[2]
    return cpu / told["sent"], came / told["sent"]


def measure(rounds: int, packets: int, flows: int) -> dict[str, object]:
    """Measure all in turns; the figures are medians."""
    kinds = ["base", *(["nft"] if shutil.which("nft") else []), "packet", "xdp"]
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    problems: dict[str, str] = {}
    for _ in range(rounds):
        for name in kinds:
            way = {"base": nothing, "nft": kernel_nat}.get(name)
            try:
                with way() if way else load_balancer(name) as pid:
                    flood(flows, packets // 10, pid)
                    figures[name].append(flood(flows, packets, pid))
            except RuntimeError as error:
                problems[name] = str(error).strip().splitlines()[-1]
    base = statistics.median(cpu for cpu, _ in figures["base"])
    report: dict[str, object] = {
        "flows": flows,
        "packets": packets,
        "load_average": os.getloadavg()[0],
        "base_ns": base,
    }
    for name, samples in figures.items():
        if name != "base" and samples:
            cpu = statistics.median(cpu for cpu, _ in samples)
            report |= {f"{name}_ns": cpu, f"{name}_above_ns": cpu - base}
            report[f"{name}_delivered"] = statistics.median(share for _, share in samples)
        elif name != "base":
            report |= {f"{name}_ns": None, f"{name}_problem": problems.get(name)}
    if "nft" not in figures:
        report["nft_ns"] = None
    return report
