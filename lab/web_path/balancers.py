"""The compared load balancers: HAProxy, nginx, and the network function ``l7lb``; each uses one core.

Each sends paths that begin with ``/at-NAME`` to the server of that name, and others to all servers in turn. `router`
balances nothing: it shows what the TCP of both ends does by itself on the same wires.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.processes import children
from lab.programs import search_path
from lab.server import HostProcess
from lab.web_path.path import BACK, FRONT, MIDDLE, NETWORK, OWN, OWN6, PORT, SERVERS, VIP, VIP6, Origin, WebPath

_SOON_S = 30.0
_CONNECTIONS = 9_000


@dataclass
class Running:
    """A started program on a path."""

    process: HostProcess

    @property
    def pid(self) -> int:
        """Return the process id of the program itself, not of the ``nsenter`` that waits for it."""
        return (children(self.process.pid) or [self.process.pid])[0]

    def cpu_ns(self) -> int:
        """Return the CPU time of all its threads."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def memory(self) -> int:
        """Return the bytes of memory that belong to it alone, plus its share of the rest."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def prefix(origin: Origin) -> str:
    """Return the beginning of the paths that only this server gets."""
    return f"/at-{origin.name}"


def find(program: str) -> str:
    """Find a program on PATH or beside this Python.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which(program, path=f"{search_path()}:{Path(sys.executable).parent}")
    if found is None:
        raise FileNotFoundError(f"{program} is missing: tools/prepare test installs it")
    return found


@contextlib.contextmanager
def running(path: WebPath, host: str, argv: Sequence[str], log: Path, *, core: int | None = None) -> Iterator[Running]:
    """Run a program in a host until the context ends; `core` pins it."""
    pin = [] if core is None else ["taskset", "--cpu-list", str(core)]
    with log.open("wb") as output:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        process = path.popen(host, [*pin, *argv], **options)
    try:
        yield Running(process)
    finally:
        process.kill()
        process.wait()


def await_listening(path: WebPath, host: str, port: int, program: Running, log: Path) -> None:
    """Wait until a program of a host listens on a port.

    Raises:
        RuntimeError: it ended instead, or the time limit expired.
    """
    await_that(lambda: path.run(host, "ss", "-Hltn", f"sport = :{port}") != "", program, log)


def await_that(is_so: Callable[[], bool], program: Running, log: Path) -> None:
    """Wait for a condition that a started program brings about.

    Raises:
        RuntimeError: it ended instead, or the time limit expired.
    """
    end = time.monotonic() + _SOON_S
    while not is_so():
        if program.process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{program.process.args} did not start: {log.read_text()[-2000:]}")
        time.sleep(0.01)


@contextlib.contextmanager
def haproxy(
    path: WebPath, home: Path, origins: Sequence[Origin], core: int | None = None, *, bind: str = ""
) -> Iterator[Running]:
    """HAProxy with one thread; `bind`: further options of its listeners."""
    path.give_addresses()
    servers = [f"  server {each.name} {each.address}:{PORT}\n" for each in origins]
    routes = [f"  use_backend {each.name} if {{ path_beg {prefix(each)} }}\n" for each in origins]
    single = [f"backend {each.name}\n  http-reuse always\n{line}" for each, line in zip(origins, servers, strict=True)]
    config = home / "haproxy.cfg"
    config.write_text(
        f"global\n  nbthread 1\n  maxconn {_CONNECTIONS}\n"
        "defaults\n  mode http\n  retries 10\n  timeout connect 60s\n  timeout client 900s\n  timeout server 900s\n"
        "  timeout tunnel 900s\n"
        f"frontend front\n  bind {VIP}:{PORT} {bind}\n  bind [{VIP6}]:{PORT} {bind}\n  default_backend back\n"
        + "".join(routes)
        + "backend back\n  balance roundrobin\n  http-reuse always\n"
        + "".join([*servers, *single])
    )
    log = home / "haproxy.log"
    with running(path, MIDDLE, [find("haproxy"), "-db", "-f", str(config)], log, core=core) as program:
        await_listening(path, MIDDLE, PORT, program, log)
        yield program


def nginx_config(home: Path, http: str) -> str:
    """Return a configuration of a single nginx process that writes into `home` only."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{kind}_temp_path {home}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    return (
        f"daemon off; master_process off; pid {home}/pid; error_log {home}/error.log; {user}\n"
        f"worker_rlimit_nofile {2 * _CONNECTIONS}; events {{ worker_connections {_CONNECTIONS}; }}\n"
        f"http {{ access_log off; keepalive_requests 1000000; client_max_body_size 0; {temporary}\n{http} }}\n"
    )


@contextlib.contextmanager
def nginx(path: WebPath, home: Path, origins: Sequence[Origin], core: int | None = None) -> Iterator[Running]:
    """An nginx process, as a reverse proxy that keeps connections to the servers open."""
    path.give_addresses()
    proxied = (
        "proxy_http_version 1.1; proxy_request_buffering off; proxy_set_header Host $host;\n"
        "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;"
    )
    pools = {"back": ("/", list(origins))} | {each.name: (prefix(each), [each]) for each in origins}
    upstreams, locations = "", ""
    for name, (begin, members) in pools.items():
        servers = " ".join(f"server {each.address}:{PORT};" for each in members)
        upstreams += f"upstream {name} {{ {servers} keepalive 1000; keepalive_requests 1000000; }}\n"
        locations += f"location {begin} {{ proxy_pass http://{name}; {proxied} }}\n"
    home = home / "balancer"
    home.mkdir()
    config, log = home / "nginx.conf", home / "log"
    config.write_text(
        nginx_config(
            home,
            "map $http_upgrade $connection_upgrade { default upgrade; '' ''; }\n"
            f"{upstreams}server {{ listen {VIP}:{PORT} backlog=4096; listen [{VIP6}]:{PORT} backlog=4096;\n"
            f"{locations} }}",
        )
    )
    with running(path, MIDDLE, [find("nginx"), "-e", str(log), "-c", str(config)], log, core=core) as program:
        await_listening(path, MIDDLE, PORT, program, log)
        yield program


@dataclass(frozen=True)
class Settings:
    """Further settings of the network function: of every listener, of every pool, and beside these."""

    listener: Mapping[str, Any] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=dict)
    top: Mapping[str, Any] = field(default_factory=dict)


_PLAIN = Settings()


def l7lb_config(origins: Sequence[Origin], settings: Settings = _PLAIN) -> dict[str, Any]:
    """Return the network function's configuration."""
    listeners, pools = [], []
    for name, vip in (("ipv4", VIP), ("ipv6", VIP6)):
        backends = {each.name: each.address if name == "ipv4" else each.address6 for each in origins}
        members = {f"{name}-{each.name}": [each] for each in origins} | {name: list(origins)}
        routes = [{"name": each.name, "path": prefix(each), "pool": f"{name}-{each.name}"} for each in origins]
        routes.append({"name": "all", "pool": name})
        listeners.append({"name": name, "address": vip, "port": PORT, "routes": routes, **settings.listener})
        pools += [
            {
                "name": pool,
                "algorithm": "round-robin",
                "reuse": True,
                "backends": [{"name": each.name, "address": backends[each.name], "port": PORT} for each in those],
                **settings.pool,
            }
            for pool, those in members.items()
        ]
    return {
        "interfaces": [{"addresses": [f"{ipv4}/24", f"{ipv6}/64"]} for ipv4, ipv6 in zip(OWN, OWN6, strict=True)],
        "listeners": listeners,
        "pools": pools,
        # No other balancer has a limit that a slow client of the tests reaches.
        "timeouts": {"head": "900s", "idle": "900s", "body": "900s", "connect": "60s", "answer": "900s"},
        **settings.top,
    }


@contextlib.contextmanager
def l7lb(
    path: WebPath,
    home: Path,
    origins: Sequence[Origin],
    core: int | None = None,
    settings: Settings = _PLAIN,
    *,
    name: str = "l7lb",
    ports: Sequence[str] = (FRONT, BACK),
    options: Sequence[str] = (),
) -> Iterator[Running]:
    """The network function; the kernel in the middle has no addresses.

    `name` is the stem of its files in `home`, the control socket among them; `options` extend ``nf run``.
    """
    config, control, log = (home / f"{name}.{suffix}" for suffix in ("json", "sock", "log"))
    config.write_text(json.dumps(l7lb_config(origins, settings)))
    argv = [find("nf"), "run", "l7lb", f"--config={config}", f"--control={control}"]
    argv += [*(f"--port={port}" for port in ports), *options]
    with running(path, MIDDLE, argv, log, core=core) as program:
        await_that(lambda: _answers(control), program, log)
        yield program


@contextlib.contextmanager
def router(path: WebPath, _home: Path, origins: Sequence[Origin]) -> Iterator[None]:
    """The kernel in the middle routes, and the servers have the VIP: one connection from end to end. IPv4 only."""
    path.give_addresses()
    path.run(
        MIDDLE,
        "sh",
        "-ec",
        f"ip address del {VIP}/24 dev {FRONT}; ip address add {OWN[0]}/24 dev {FRONT}\n"
        f"ip route add {VIP}/32 via {origins[0].address}\n"
        f"sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.{FRONT}.proxy_arp=1",
    )
    path.run(SERVERS, "sh", "-ec", f"ip address add {VIP}/32 dev lo; ip route add {NETWORK} via {OWN[1]}")
    yield


def _answers(control: Path) -> bool:
    """Tell whether a program listens on a socket; its file appears before that."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(control))
        except OSError:
            return False
    return True


BALANCERS = {"haproxy": haproxy, "nginx": nginx, "l7lb": l7lb}
