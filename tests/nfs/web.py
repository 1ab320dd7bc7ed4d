"""A web service in the lab: a client, the load balancer on one interface, nginx on three hosts; all on one bridge."""

import copy
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lab.programs import search_path
from lab.server import HostProcess, Lab
from lab.spec import HYPERVISOR, HostSpec, InterfaceSpec, LabSpec, PortSpec, SwitchSpec
from nfagent.control import Control

WEBS = ("web1", "web2", "web3")
VIP = "10.0.0.100"
# Not an address of its host, whose kernel would answer for it.
LB = "10.0.0.50"
CLIENT = "10.0.0.1"
_SOON_S = 30.0
_SLOW_S = 20
"""The time after which wrk counts a request as failed; its default of 2 s is too short for a busy machine."""
_HERE = Path(__file__).parent


def address(name: str) -> str:
    """Return a host's address."""
    return f"10.0.0.{10 + WEBS.index(name)}"


def _spec() -> LabSpec:
    addresses = {"client": CLIENT, "lb": "10.0.0.2"} | {name: address(name) for name in WEBS}
    hosts, ports = [], []
    for number, (name, at) in enumerate(addresses.items(), 1):
        interface = InterfaceSpec(HYPERVISOR, name)
        hosts.append(HostSpec(name, (interface,), f"{at}/24", f"02:00:00:00:00:{number:02x}"))
        ports.append(PortSpec(number, name, HYPERVISOR, name))
    return LabSpec((SwitchSpec(HYPERVISOR),), tuple(hosts), tuple(ports), plain=True)


def find(program: str) -> str:
    """Find a program of the test stage on PATH or in .venv/bin."""
    path = search_path() + ":" + str(Path(sys.executable).parent)
    found = shutil.which(program, path=path)
    assert found, f"{program} is missing: tools/prepare test installs it"
    return found


class WebService:
    """The running service."""

    def __init__(self, lab: Lab, directory: Path, config: dict[str, Any]) -> None:
        self.lab = lab
        self.directory = directory
        self.config = config
        self.nginx: dict[str, HostProcess] = {}
        self.control = Control(directory / "nf.sock")

    # ---- backends

    def start_web(self, name: str) -> None:
        """Start nginx on a host; it answers every request with the host's name."""
        home = self.directory / name
        home.mkdir(exist_ok=True)
        temporary = "\n".join(
            f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (home / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;\n"
            "events { worker_connections 1024; }\n"
            f"http {{ access_log off; keepalive_requests 1000000; lingering_close off; {temporary}\n"
            f'server {{ listen 80 backlog=1024; location / {{ return 200 "{name}\\n"; }} }} }}\n'
        )
        argv = [find("nginx"), "-e", f"{home}/error.log", "-c", f"{home}/nginx.conf"]
        self.nginx[name] = self.lab.popen(name, argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.lab.exec(name, ["sh", "-c", "until ss -Hltn sport = :80 | grep -q .; do :; done"], timeout_s=_SOON_S)

    def kill_web(self, name: str) -> None:
        """Kill it; its kernel still answers with resets."""
        process = self.nginx.pop(name)
        process.kill()
        process.wait()

    # ---- the load balancer

    def configure(self, *, backends: list[dict[str, Any]]) -> None:
        """Configure other backends while packets flow."""
        config = copy.deepcopy(self.config)
        config["vips"][0]["backends"] = backends
        self.control.ask("configure", config=config)
        self.config = config

    def connections(self) -> dict[str, int]:
        """Return the open connections of each backend as the load balancer counts them."""
        return {name: each["active"] for name, each in self.backends().items()}

    def backends(self) -> dict[str, dict[str, Any]]:
        """Return the load balancer's report on each backend."""
        told = self.control.ask("l4lb.backends", vip="web")["backends"]
        return {each["name"]: each for each in told}

    # ---- clients

    def curl(self, count: int) -> list[str]:
        """Send this many requests, a connection each; return the backend that answered each."""
        urls = [f"http://{VIP}/{number}" for number in range(count)]
        argv = ["curl", "-sS", "--fail", "--no-keepalive", "-H", "Connection: close", "--max-time", "20", *urls]
        return self.lab.exec("client", argv, timeout_s=120).stdout.split()

    def wrk(self, seconds: int, connections: int, *, close: bool = False) -> HostProcess:
        """Start a load in the background; `wrk_report` waits for its end."""
        header = ["-H", "Connection: close"] if close else []
        script = str(_HERE / "wrk_report.lua")
        argv = [
            find("wrk"),
            "-t",
            "1",
            "-c",
            str(connections),
            "-d",
            f"{seconds}s",
            "--timeout",
            f"{_SLOW_S}s",
            "-s",
            script,
            *header,
            f"http://{VIP}/",
        ]
        return self.lab.popen("client", argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def keep_alive(self, connections: int) -> HostProcess:
        """Start connections that repeat requests; when its input ends, it reports which backends answered each."""
        argv = [sys.executable, str(_HERE / "keep_alive.py"), VIP, str(connections)]
        return self.lab.popen("client", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wrk_report(process: HostProcess) -> dict[str, int]:
    """Return the numbers of requests and of failures by kind."""
    out, _ = process.communicate(timeout=120)
    return json.loads(out.strip().splitlines()[-1])


def backend(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "address": address(name), **more}


@contextmanager
def web_service(directory: Path, *, snat: bool = True, vip: dict[str, Any] | None = None) -> Iterator[WebService]:
    """Start the service with web1 and web2 behind the VIP; web3 can be added."""
    config = {
        "interfaces": [{"addresses": [f"{LB}/24"]}],
        "vips": [
            {
                "name": "web",
                "address": VIP,
                "port": 80,
                "protocol": "tcp",
                "mode": "nat",
                "snat": snat,
                "backends": [backend("web1"), backend("web2")],
                **(vip or {}),
            }
        ],
    }
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(_spec()).start())
        bridge = lab.state.switches[0].virt
        subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", bridge, "actions=NORMAL"], check=True)
        for host in ("client", "lb", *WEBS):
            # Without offloads, a frame carries a complete checksum and at most 1,500 bytes.
            lab.exec(
                host, ["ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "off"], check=False
            )
            if not snat and host in WEBS:
                lab.exec(host, ["ip", "route", "add", f"{CLIENT}/32", "via", LB])
                lab.exec(host, ["sysctl", "-qw", "net.ipv4.conf.all.send_redirects=0"])
        service = WebService(lab, directory, config)
        path = directory / "l4lb.json"
        path.write_text(json.dumps(config))
        argv = [
            find("nf"),
            "run",
            "l4lb",
            "--config",
            str(path),
            "--port",
            "eth0",
            "--control",
            str(service.control.path),
        ]
        nf = lab.popen("lb", argv, stdin=subprocess.DEVNULL)
        stack.callback(_end, nf)
        for name in WEBS:
            service.start_web(name)
        stack.callback(lambda: [_end(each) for each in service.nginx.values()])
        _wait_served(service, nf)
        yield service


def _wait_served(service: WebService, nf: HostProcess) -> None:
    end = time.monotonic() + _SOON_S
    while not service.control.path.exists():
        assert nf.poll() is None, f"nf ended with {nf.returncode}"
        assert time.monotonic() < end, "nf made no control socket"
        time.sleep(0.01)


def _end(process: HostProcess) -> None:
    process.terminate()
    process.wait()
