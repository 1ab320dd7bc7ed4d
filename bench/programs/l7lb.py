"""A layer-7 load balancer compared with HAProxy and nginx: CPU time per request beyond that of client and server.

Each is alone on a core, between the same two veth pairs; wrk and an nginx that serves files share the other core. CPU
time is that of all these programs and of the kernel's packet threads, less the same with client and server connected
directly. All take turns; the figures are medians. Ratios compare `--sut` (by default `l7lb`) with the named one:

`keepalive_ratio`: 1 KB over kept connections, to HAProxy. `newconn_ratio`: a connection for each request, to HAProxy.
`large_gso_ratio_nginx`: 100 KB with offloads on, to nginx. `large_nogso_ratio_haproxy`: 100 KB without, to HAProxy.
l7lb receives by AF_XDP, and by AF_PACKET for 100 KB with offloads.
`packets_...`: packets that its interfaces receive per request. For each system: `requests_per_s`,
`connections_per_s`, `p99_us` at half of HAProxy's rate, and `memory_per_connection`, bytes of 8,000 idle ones
without the kernel's; `memory_per_further_connection`: of the last 2,000.
`goodput_ratio` (not with `--quick`): 100 KB answers per second with 1 % loss and 50 ms toward the client, to HAProxy.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.web_path.balancers import BALANCERS, Running, find, l7lb
from lab.web_path.impairment import Faults
from lab.web_path.origins import nginx_origin
from lab.web_path.path import CLIENT, ORIGINS, WebPath

SMALL, LARGE = 1_000, 100_000
_CLIENT_CORE, _BALANCER_CORE = 0, 1
_CONNECTIONS, _LARGE_CONNECTIONS = 32, 8
_IDLE, _FURTHER = 6_000, 2_000
_PACED_CLIENTS = 16
_IDLE_CLIENT = """
import socket, sys
opened = []
for _ in range(int(sys.argv[2])):
    opened.append(socket.create_connection((sys.argv[1], 80), timeout=30))
    opened[-1].sendall(b"GET /small HTTP/1.1\\r\\nHost: web\\r\\n\\r\\n")
    while not opened[-1].recv(65536).endswith(b"x"):
        pass
print("ready", flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True)
class Load:
    """A kind of request, and the kind of links that it comes by."""

    name: str
    file: str
    connections: int
    link: str
    close: bool = False


# Whether the interfaces have offloads, and the options of l7lb. AF_XDP costs less for short transfers, AF_PACKET has
# frames of several segments.
LINKS = {"short": (True, ["--backend", "xdp"]), "gso": (True, ["--backend", "packet"]), "nogso": (False, [])}
LOADS = (
    Load("keepalive", "small", _CONNECTIONS, "short"),
    Load("newconn", "small", _CONNECTIONS, "short", close=True),
    Load("large_gso", "large", _LARGE_CONNECTIONS, "gso"),
    Load("large_nogso", "large", _LARGE_CONNECTIONS, "nogso"),
)


@dataclass(frozen=True)
class Sample:
    """The figures of a system under a load."""

    per_s: float
    cpu_us: float
    machine_us: float
    received: float
    sent: float


@dataclass
class Stand:
    """A running system with its client and servers."""

    name: str
    path: WebPath
    origin: Running
    balancer: Running | None
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def median(self, load: str, figure: str) -> float:
        """Return the median of a figure."""
        return statistics.median(getattr(each, figure) for each in self.samples[load])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter: done in 50 s")
    parser.add_argument("--sut", choices=BALANCERS, default="l7lb", help="the measured load balancer (default: l7lb)")
    arguments = parser.parse_args()
    seconds, rounds = (1, 2) if arguments.quick else (4, 5)
    report: dict[str, Any] = {"sut": arguments.sut, "load_average": os.getloadavg()[0]}
    systems = {"direct": None, "haproxy": "haproxy", "nginx": "nginx", "sut": arguments.sut}
    with tempfile.TemporaryDirectory(prefix="uno-l7lb-") as directory, contextlib.ExitStack() as stack:
        files = Path(directory) / "files"
        files.mkdir()
        Path(directory).chmod(0o755)
        (files / "small").write_bytes(b"x" * SMALL)
        (files / "large").write_bytes(b"x" * LARGE)
        stands: dict[tuple[str, str], Stand] = {}
        for name, kind in systems.items():
            for link in LINKS:
                # Only l7lb differs between the links with offloads.
                if link == "gso" and kind != "l7lb":
                    stands[name, link] = stands[name, "short"]
                elif (name, link) != ("nginx", "nogso"):
                    stands[name, link] = stack.enter_context(stand(name, kind, Path(directory), files, link))
        for _ in range(rounds):
            for load in LOADS:
                for each in (each for (_, link), each in stands.items() if link == load.link):
                    measure(each, load, seconds)
        half = stands["haproxy", "short"].median("keepalive", "per_s") / 2
        for name in ("haproxy", "nginx", "sut"):
            each = stands[name, "short"]
            report[f"p99_us_{name}"] = p99_us(each, half, 1 if arguments.quick else 10, Path(directory))
            report |= {f"{key}_{name}": value for key, value in memory_per_connection(each).items()}
        report |= figures(stands)
        if not arguments.quick:
            report["goodput_ratio"] = goodput_ratio(arguments.sut, Path(directory), files)
    print(json.dumps(report))


@contextlib.contextmanager
def stand(
    name: str, kind: str | None, directory: Path, files: Path, link: str, *, impaired: bool = False
) -> Iterator[Stand]:
    """Start a system; no `kind`: the client is connected to the servers."""
    offloads, options = LINKS[link]
    home = directory / f"{name}-{link}-{impaired}"
    home.mkdir(mode=0o755)
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(WebPath(offloads=offloads, direct=kind is None, impaired=impaired))
        path.run(CLIENT, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65000")
        origin = stack.enter_context(nginx_origin(path, home, files, _CLIENT_CORE))
        balancer = None
        if kind:
            start = partial(l7lb, options=options) if kind == "l7lb" else BALANCERS[kind]
            balancer = stack.enter_context(start(path, home, ORIGINS, _BALANCER_CORE))
        yield Stand(name, path, origin, balancer)


# ---- measuring


def measure(each: Stand, load: Load, seconds: int) -> None:
    """Put a load on a system for a while, and keep the figures."""
    packets = each.path.packets() if each.balancer else (0, 0)
    machine, own = machine_ns(), own_ns(each)
    requests, took = wrk(each.path, load, seconds)
    machine, own = machine_ns() - machine, own_ns(each) - own
    after = each.path.packets() if each.balancer else (0, 0)
    received, sent = ((last - first) / requests for first, last in zip(packets, after, strict=True))
    sample = Sample(requests / took, own / requests / 1e3, machine / requests / 1e3, received, sent)
    print(f"... {load.name} {each.name}: {sample}", file=sys.stderr)
    each.samples.setdefault(load.name, []).append(sample)


def wrk(path: WebPath, load: Load, seconds: int, base: str = "") -> tuple[int, float]:
    """Return the number of requests answered, and the seconds; `base` is the start of the URL.

    Raises:
        SystemExit: some failed.
    """
    headers = ["-H", "Connection: close"] if load.close else []
    argv = [find("wrk"), "-t", "1", "-c", str(load.connections), "-d", f"{seconds}s", "--timeout", "20s", *headers]
    url = f"{base or f'http://{path.target}'}/{load.file}"
    said = path.run(CLIENT, "taskset", "--cpu-list", str(_CLIENT_CORE), *argv, url)
    found = re.search(r"(\d+) requests in ([\d.]+)(ms|s)", said)
    if not found or int(found[1]) == 0 or "Socket errors" in said or "Non-2xx" in said:
        raise SystemExit(f"{load.name} from {path.target} failed: {said}")
    return int(found[1]), float(found[2]) / (1000 if found[3] == "ms" else 1)


def own_ns(each: Stand) -> int:
    """Return the CPU time of the server, the load balancer, ended clients, and the kernel's packet threads."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = [each.origin, *([each.balancer] if each.balancer else [])]
    total = sum(program.cpu_ns() for program in running) + round((ended.ru_utime + ended.ru_stime) * 1e9)
    return total + packet_threads_ns()


def packet_threads_ns() -> int:
    """Return the CPU time of the kernel's packet threads."""
    total = 0
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().startswith("ksoftirqd/"):
                total += int((comm.parent / "schedstat").read_text().split()[0])
    return total


def machine_ns() -> int:
    """Return the CPU time of the whole machine, in steps of a clock tick."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def p99_us(each: Stand, per_s: float, seconds: int, directory: Path) -> float:
    """Return the 99th percentile of the time to an answer at a steady rate."""
    log = directory / "h2load.log"
    log.unlink(missing_ok=True)
    rate = max(1, round(per_s / _PACED_CLIENTS))
    argv = [find("h2load"), "--h1", "-c", str(_PACED_CLIENTS), "--rps", str(rate), "-D", str(seconds)]
    each.path.run(CLIENT, *argv, f"--log-file={log}", f"http://{each.path.target}/small")
    answers = [line.split("\t") for line in log.read_text().splitlines()]
    failed = sum(status != "200" for _, status, _ in answers)
    if failed:
        raise SystemExit(f"{failed} of {len(answers)} requests through {each.name} failed")
    times = sorted(int(took) for _, _, took in answers)
    return float(times[len(times) * 99 // 100])


def memory_per_connection(each: Stand) -> dict[str, float]:
    """Return the growth of the balancer's memory by an idle connection that has had one answer.

    The first connections also touch the pages of l7lb's tables, whose size is fixed; further ones show a connection's
    own memory.
    """
    assert each.balancer is not None
    grown = [each.balancer.memory()]
    with contextlib.ExitStack() as stack:
        for count in (_IDLE, _FURTHER):
            stack.enter_context(_idle_connections(each, count))
            grown.append(each.balancer.memory())
    return {
        "memory_per_connection": round((grown[2] - grown[0]) / (_IDLE + _FURTHER), 1),
        "memory_per_further_connection": round((grown[2] - grown[1]) / _FURTHER, 1),
    }


@contextlib.contextmanager
def _idle_connections(each: Stand, count: int) -> Iterator[None]:
    """Keep connections open.

    Raises:
        SystemExit: some were not answered.
    """
    argv = [sys.executable, "-c", _IDLE_CLIENT, each.path.target, str(count)]
    with each.path.popen(CLIENT, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise SystemExit(f"{count} connections through {each.name} were not answered")
        yield
        client.communicate("\n")


def goodput_ratio(sut: str, directory: Path, files: Path) -> float:
    """Return the answers per second over a long and lossy path, relative to HAProxy's."""
    load, rates = Load("goodput", "large", _CONNECTIONS, "nogso"), {}
    for name, kind in (("haproxy", "haproxy"), ("sut", sut)):
        with stand(name, kind, directory, files, load.link, impaired=True) as each:
            assert each.path.front is not None
            each.path.front.set(1, Faults(loss=0.01, delay_ms=25))
            requests, took = wrk(each.path, load, 20)
            rates[name] = requests / took
    print(f"... goodput: {rates}", file=sys.stderr)
    return round(rates["sut"] / rates["haproxy"], 3)


# ---- reporting


def figures(stands: dict[tuple[str, str], Stand]) -> dict[str, Any]:
    """Return the ratios, and the figures that they come from."""

    def beyond(name: str, load: Load, figure: str = "cpu_us") -> float:
        direct = stands["direct", load.link].median(load.name, figure)
        return stands[name, load.link].median(load.name, figure) - direct

    def ratio(load: Load, peer: str, figure: str = "cpu_us") -> float:
        return round(beyond("sut", load, figure) / beyond(peer, load, figure), 3)

    keepalive, newconn, large_gso, large_nogso = LOADS
    compared = {
        "keepalive_ratio": (keepalive, "haproxy"),
        "newconn_ratio": (newconn, "haproxy"),
        "large_gso_ratio_nginx": (large_gso, "nginx"),
        "large_nogso_ratio_haproxy": (large_nogso, "haproxy"),
    }
    report: dict[str, Any] = {key: ratio(*each) for key, each in compared.items()}
    # The whole machine's CPU time has other programs in it, and is the check on a quiet machine.
    report["machine_ratios"] = {key: ratio(*each, "machine_us") for key, each in compared.items()}
    for load in (keepalive, newconn):
        report[f"packets_{load.name}"] = round(stands["sut", "short"].median(load.name, "received"), 2)
    for (name, link), each in stands.items():
        for load in (load for load in LOADS if load.link == link):
            report[f"{load.name}_{name}"] = {
                "per_s": round(each.median(load.name, "per_s")),
                "cpu_us": round(each.median(load.name, "cpu_us"), 2),
                "machine_us": round(each.median(load.name, "machine_us"), 2),
                "received": round(each.median(load.name, "received"), 2),
                "sent": round(each.median(load.name, "sent"), 2),
            }
    report["requests_per_s"] = round(stands["sut", "short"].median("keepalive", "per_s"))
    report["connections_per_s"] = round(stands["sut", "short"].median("newconn", "per_s"))
    return report
