"""nfagent with many instances: their start, the agent's response times, its memory.

The instances are idle processes; meanwhile the agent measures and decides, over simulated switches. ``decision_*``: the
optimiser alone, with traffic (`programs.deciding`). The clients share the machine with the agent; ``load`` is its load.
"""

import argparse
import json
import os
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx

from nfagent.monitor.instance_load import cpu_time_ns
from programs import deciding
from programs.memory import rss_mb

_SERVER = """
[oneswitchd]
datapath_id = "0000000000000001"
api = "unix:{directory}/oneswitchd.sock"
[[switch]]
name = "hypervisor"
virt = "unix:{directory}/virt.mgmt"
edge = "unix:{directory}/edge.mgmt"
[[switch]]
name = "snic0"
virt = "unix:{directory}/virt0.mgmt"
edge = "unix:{directory}/edge0.mgmt"
link = {{ hypervisor = "pcie-snic0", local = "pf0hpf" }}
"""
_AGENT = """
server = "{directory}/server.toml"
state = "{directory}/state"
runtime = "{directory}/run"
nf = ""
[api]
{api}
[quota]
instances = 10000
workers = 10000
[[kind]]
name = "sleeper"
command = ["sleep", "100000"]
"""
_PATH = "/api/v1/instances"
_WAIT_S = 120.0


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    requests = 400 if options.quick else 4000
    figures: dict[str, Any] = {"instances": options.instances}
    figures |= deciding.measure(options.instances, 40 if options.quick else 200)
    with tempfile.TemporaryDirectory(prefix="nfagent-") as name, Switches(Path(name)), Agent(Path(name)) as agent:
        figures["empty_rss_mb"] = agent.rss_mb()
        begun = time.monotonic()
        created = [
            agent.timed(lambda number=number: agent.create(f"nf{number}")) for number in range(options.instances)
        ]
        agent.wait(lambda: agent.count("active") == options.instances)
        figures |= {"create_p99_ms": p99(created), "active_s": round(time.monotonic() - begun, 2)}
        figures["idle_share"] = agent.cpu_share(5.0)
        figures |= _requests(agent, requests, options.clients)
        figures |= {"decided": agent.has_decided(), "rss_mb": agent.rss_mb(), "load": os.getloadavg()[0]}
        begun = time.monotonic()
        agent.delete_all()
        figures["deleted_s"] = round(time.monotonic() - begun, 2)
    print(json.dumps(figures))


def _requests(agent: "Agent", count: int, clients: int) -> dict[str, Any]:
    """Run several clients, each sending one request after another: show, list a page, change a configuration."""
    names = [f"nf{number}" for number in range(agent.count("active"))]
    times: dict[str, list[float]] = {"show": [], "list": [], "patch": []}

    def ask(share: int) -> None:
        with agent.client() as client:
            for number in range(share, count, clients):
                name = names[number % len(names)]
                what = "patch" if number % 10 == 0 else "list" if number % 10 < 3 else "show"
                begun = time.perf_counter()
                if what == "patch":
                    answer = client.patch(f"{_PATH}/{name}", json={"labels": {"number": str(number)}})
                else:
                    answer = (
                        client.get(_PATH, params={"limit": 50}) if what == "list" else client.get(f"{_PATH}/{name}")
                    )
                times[what].append((time.perf_counter() - begun) * 1000)
                answer.raise_for_status()

    threads = [threading.Thread(target=ask, args=(share,)) for share in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [each for group in times.values() for each in group]
    figures: dict[str, Any] = {"requests": len(everything), "clients": clients}
    figures |= {"p50_ms": round(statistics.median(everything), 2), "p99_ms": p99(everything)}
    return figures | {f"{what}_p99_ms": p99(group) for what, group in times.items()}


def p99(times: list[float]) -> float:
    """The 99th percentile."""
    return round(sorted(times)[max(0, int(len(times) * 0.99) - 1)], 2)


class Switches:
    """A simulated oneswitchd: every switch is up, and it has no ports."""

    def __init__(self, directory: Path) -> None:
        bridge = {"target": "none", "state": "up"}
        link = {"hypervisor": "pcie-snic0", "local": "pf0hpf", "state": "up"}
        switches = [{"name": "hypervisor", "hub": True, "virt": bridge, "edge": bridge}]
        switches.append({"name": "snic0", "virt": bridge, "edge": bridge, "link": link})
        status = {"version": "0", "datapath_id": "0000000000000001", "switches": switches}
        answers = {"/v1/status": json.dumps(status).encode(), "/v1/ports": b"[]"}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = answers[self.path]
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = socketserver.ThreadingUnixStreamServer(str(directory / "oneswitchd.sock"), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> "Switches":
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Agent:
    """An agent in a separate process. ``api``: the section of agent.toml; None: with a unix socket only."""

    def __init__(self, directory: Path, api: str | None = None) -> None:
        self._socket = directory / "nfagent.sock"
        (directory / "server.toml").write_text(_SERVER.format(directory=directory))
        config = directory / "agent.toml"
        config.write_text(_AGENT.format(directory=directory, api=api or f'listen = ["unix:{self._socket}"]'))
        command = [sys.executable, "-m", "nfagent", "serve", "--config", str(config)]
        root = Path(__file__).resolve().parents[2]
        self._process = subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        if "listening" not in self._process.stderr.readline():
            raise SystemExit(f"the agent did not start: {self._process.stderr.read()}")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self._client = self.client()

    def client(self) -> httpx.Client:
        """Create another client."""
        transport = httpx.HTTPTransport(uds=str(self._socket))
        return httpx.Client(transport=transport, base_url="http://nfagent", timeout=60)

    def create(self, name: str) -> None:
        """Create an instance."""
        self._client.post(_PATH, json={"name": name, "kind": "sleeper"}).raise_for_status()

    def count(self, status: str | None = None) -> int:
        """Count the instances with a status."""
        params = {"limit": 1000} | ({"status": status} if status else {})
        return len(self._client.get(_PATH, params=params).json()["instances"])

    def cpu_share(self, seconds: float) -> float:
        """Measure the cores that it uses without requests: measuring and deciding."""
        before = cpu_time_ns(self._process.pid) or 0
        time.sleep(seconds)
        return round(((cpu_time_ns(self._process.pid) or 0) - before) / 1e9 / seconds, 3)

    def has_decided(self) -> bool:
        """Tell whether the optimiser has decided."""
        return bool(self._client.get("/api/v1/placement/proposal").is_success)

    def delete_all(self) -> None:
        """Delete everything, and wait for the end."""
        for each in self._client.get(_PATH, params={"limit": 1000}).json()["instances"]:
            self._client.delete(f"{_PATH}/{each['id']}").raise_for_status()
        self.wait(lambda: self.count() == 0)

    def rss_mb(self) -> float:
        """Return the agent's resident memory."""
        return rss_mb(self._process.pid)

    @staticmethod
    def timed(work: Callable[[], None]) -> float:
        """Measure a call, in ms."""
        begun = time.perf_counter()
        work()
        return (time.perf_counter() - begun) * 1000

    @staticmethod
    def wait(done: Callable[[], bool]) -> None:
        """Wait for a condition; raise SystemExit after the time limit."""
        deadline = time.monotonic() + _WAIT_S
        while not done():
            if time.monotonic() > deadline:
                raise SystemExit(f"the agent did not get there within {_WAIT_S:g} s")
            time.sleep(0.05)

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.delete_all()
        finally:
            self._client.close()
            self._process.terminate()
            self._process.wait()


if __name__ == "__main__":
    main()
