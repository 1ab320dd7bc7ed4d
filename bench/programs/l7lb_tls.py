"""TLS at a layer-7 load balancer compared with HAProxy, with the same certificate: CPU time of handshakes and bytes.

Each is alone on a core, between the same two veth pairs; wrk and an nginx that serves files share the other core. CPU
time is that of balancer, server, the client's part in the kernel and the kernel's packet threads, less the same without
TLS and with client and server connected directly: the client's own cryptography does not count. All take turns; the
figures are medians. wrk resumes no session, so that each connection has a full handshake: TLS 1.3, X25519, ECDSA on
P-256, AES-256-GCM.

`tls_handshake_ratio`: 1 KB over a connection for each request. `tls_bytes_ratio`: 1 MB over kept connections, with
offloads. `handshakes_per_s_...` and `megabytes_per_s_...` are the rates of both.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.web_path.balancers import Running, Settings, haproxy, l7lb
from lab.web_path.certificates import Certificate, certificate
from lab.web_path.origins import nginx_origin
from lab.web_path.path import CLIENT, ORIGINS, PORT, WebPath
from programs.l7lb import Load, packet_threads_ns, wrk

_LARGE = 1_000_000
_CLIENT_CORE, _BALANCER_CORE = 0, 1
HANDSHAKES = Load("handshakes", "small", 32, "short", close=True)
BYTES = Load("bytes", "large", 8, "gso")


@dataclass
class Side:
    """A running system with its client and servers, and what it needed: requests per second, and CPU time of each."""

    path: WebPath
    origin: Running
    balancer: Running | None
    per_s: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    def own_ns(self) -> int:
        """Return the CPU time that counts."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = [self.origin, *([self.balancer] if self.balancer else [])]
        return sum(program.cpu_ns() for program in running) + round(ended.ru_stime * 1e9) + packet_threads_ns()

    def measure(self, load: Load, seconds: int) -> None:
        """Put a load on it for a while, and keep the figures."""
        before = self.own_ns()
        scheme = "https" if self.balancer else "http"
        requests, took = wrk(self.path, load, seconds, f"{scheme}://{self.path.target}:{PORT}")
        self.per_s.setdefault(load.name, []).append(requests / took)
        self.cpu_us.setdefault(load.name, []).append((self.own_ns() - before) / requests / 1e3)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter: done in 30 s")
    arguments = parser.parse_args()
    seconds, rounds = (1, 2) if arguments.quick else (4, 5)
    report: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="uno-l7lb-tls-") as directory, contextlib.ExitStack() as stack:
        home = Path(directory)
        home.chmod(0o755)
        files = home / "files"
        files.mkdir()
        (files / "small").write_bytes(b"x" * 1000)
        (files / "large").write_bytes(b"x" * _LARGE)
        identity = certificate(home)
        sides = {
            name: stack.enter_context(_side(name, home, files, identity)) for name in ("direct", "haproxy", "l7lb")
        }
        for _ in range(rounds):
            for load in (HANDSHAKES, BYTES):
                for name, side in sides.items():
                    side.measure(load, seconds)
                    print(f"... {load.name} {name}: {side.per_s[load.name][-1]:.0f}/s", file=sys.stderr)
        report |= _figures(sides)
    print(json.dumps(report))


@contextlib.contextmanager
def _side(name: str, home: Path, files: Path, identity: Certificate) -> Iterator[Side]:
    own = home / name
    own.mkdir(mode=0o755)
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(WebPath(offloads=True, direct=name == "direct"))
        path.run(CLIENT, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65000")
        origin = stack.enter_context(nginx_origin(path, own, files, _CLIENT_CORE))
        balancer = None
        if name == "haproxy":
            bind = f"ssl crt {identity.both} alpn http/1.1 ssl-min-ver TLSv1.2"
            balancer = stack.enter_context(haproxy(path, own, ORIGINS, _BALANCER_CORE, bind=bind))
        elif name == "l7lb":
            tls = {"certificate": str(identity.certificate), "key": str(identity.key)}
            settings = Settings(listener={"tls": tls})
            options = ["--backend", "packet"]
            balancer = stack.enter_context(l7lb(path, own, ORIGINS, _BALANCER_CORE, settings, options=options))
        yield Side(path, origin, balancer)


def _figures(sides: dict[str, Side]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for load, key in ((HANDSHAKES, "tls_handshake_ratio"), (BYTES, "tls_bytes_ratio")):
        cpu = {name: statistics.median(side.cpu_us[load.name]) for name, side in sides.items()}
        report[key] = round((cpu["l7lb"] - cpu["direct"]) / (cpu["haproxy"] - cpu["direct"]), 3)
        report[f"{load.name}_cpu_us"] = {name: round(each, 2) for name, each in cpu.items()}
    for name in ("haproxy", "l7lb"):
        per_s = {load: statistics.median(each) for load, each in sides[name].per_s.items()}
        report[f"handshakes_per_s_{name}"] = round(per_s[HANDSHAKES.name])
        report[f"megabytes_per_s_{name}"] = round(per_s[BYTES.name] * _LARGE / 1e6, 1)
    return report


if __name__ == "__main__":
    main()
