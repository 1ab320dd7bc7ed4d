"""nfagent while many functions are deleted at once: p99 of its answers, and migrations meanwhile.

Some of the functions have a virtual port on real switches, whose removal takes longest; the others are idle processes.
Half of them are deleted while clients ask, the others while one function after another is migrated, too. The peer is
the same agent before, with all functions and the same requests and migrations.
"""

import argparse
import http.client
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.server import Lab
from lab.spec import LabSpec
from programs.agent import p99

_INSTANCES = "/api/v1/instances"
_MIGRATIONS = "/api/v1/migrations"
_PATHS = (f"{_INSTANCES}?limit=20", f"{_INSTANCES}/mover0", f"{_MIGRATIONS}?limit=20")
_IDLE = {"name": "idle", "command": ["sleep", "100000"]}
_WIRED = {"name": "wired", "command": ["sleep", "100000"], "ports": [1, 1]}
_SETTINGS = {
    "kind": [_IDLE, _WIRED],
    "decide": {"enabled": False},  # nothing else moves
    "quota": {"instances": 10_000, "ports": 10_000, "workers": 10_000},
}
_MOVERS = 4
_ALONE_S = 5.0
_WAIT_S = 300.0


@dataclass
class Figures:
    """The clients' observations in one phase."""

    answers_ms: list[float] = field(default_factory=list)
    moves_s: list[float] = field(default_factory=list)
    unmoved: int = 0


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer functions have a port")
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--ports", type=int, help="how many of these functions have a port; default 100, quick 30")
    options = parser.parse_args()
    ports = options.ports if options.ports is not None else 30 if options.quick else 100
    with tempfile.TemporaryDirectory(prefix="ud-", dir="/tmp") as path:
        os.environ[ENVIRONMENT] = path
        spec = LabSpec.demo().with_slots(ports + _MOVERS)
        with (
            Lab(spec).start() as lab,
            Oneswitchd(lab.server_toml) as oneswitchd,
            AgentProcess(lab, Path(path) / "agent", _SETTINGS) as agent,
        ):
            oneswitchd.wait_up()
            print(json.dumps(measure(agent, options.functions, ports)))


def measure(agent: AgentProcess, functions: int, ports: int) -> dict[str, Any]:
    """Create the functions, measure without deletions, then delete them all but those that move."""
    for number in range(_MOVERS):
        _create(agent, f"mover{number}", kind="forward", ports=1)
    names = [f"nf{number}" for number in range(functions)]
    for number, name in enumerate(names):
        _create(agent, name, kind="wired" if number < ports else "idle")
    _wait(lambda: _count(agent, "active") == functions + _MOVERS)
    alone, still, beside, moving = Figures(), Figures(), Figures(), Figures()
    _during(agent, alone, lambda: time.sleep(_ALONE_S))
    _during(agent, still, lambda: time.sleep(_ALONE_S), moves=True)
    first, second = names[::2], names[1::2]
    begun = time.monotonic()
    _during(agent, beside, lambda: _delete(agent, first, functions - len(first) + _MOVERS))
    _during(agent, moving, lambda: _delete(agent, second, _MOVERS), moves=True)
    return {
        "functions": functions,
        "with_ports": ports,
        "requests": len(beside.answers_ms),
        "p50_ms": round(statistics.median(alone.answers_ms), 2),
        "deleting_p50_ms": round(statistics.median(beside.answers_ms), 2),
        "p99_ms": p99(alone.answers_ms),
        "deleting_p99_ms": p99(beside.answers_ms),
        "worst_ms": round(max(beside.answers_ms), 1),
        "deleted_s": round(time.monotonic() - begun, 2),
        "moving_p99_ms": p99(still.answers_ms),
        "deleting_moving_p99_ms": p99(moving.answers_ms),
        "move_s": round(statistics.median(still.moves_s), 2),
        "deleting_move_s": round(statistics.median(moving.moves_s), 2),
        "deleting_worst_move_s": round(max(moving.moves_s), 2),
        "moves": len(moving.moves_s),
        "unmoved": still.unmoved + moving.unmoved,
        "load": os.getloadavg()[0],
    }


def _delete(agent: AgentProcess, names: list[str], left: int) -> None:
    """Delete functions at once, and wait for the end."""
    for name in names:
        agent.client.delete(f"{_INSTANCES}/{name}").raise_for_status()
    _wait(lambda: _count(agent) == left)


def _during(agent: AgentProcess, figures: Figures, work: Callable[[], None], *, moves: bool = False) -> None:
    """Ask, and migrate if ``moves``, while ``work`` runs."""
    over = threading.Event()
    whats = (_ask, _migrate) if moves else (_ask,)
    threads = [threading.Thread(target=what, args=(agent.address, figures, over)) for what in whats]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _ask(address: str, figures: Figures, over: threading.Event) -> None:
    """Send requests one after another, as a person's tools do, not as fast as it goes."""
    client = _client(address)
    while not over.wait(0.01):
        begun = time.perf_counter()
        _request(client, "GET", _PATHS[len(figures.answers_ms) % len(_PATHS)])
        figures.answers_ms.append((time.perf_counter() - begun) * 1000)
    client.close()


def _migrate(address: str, figures: Figures, over: threading.Event) -> None:
    """Move one function after another to the other side, once at least."""
    client = _client(address)
    while not figures.moves_s or not over.is_set():
        name = f"mover{len(figures.moves_s) % _MOVERS}"
        begun = time.monotonic()
        epoch = _request(client, "POST", _MIGRATIONS, {"instance": name})["epoch"]
        while (now := _request(client, "GET", f"{_MIGRATIONS}/{epoch}"))["ended"] is None:
            time.sleep(0.02)
        figures.moves_s.append(time.monotonic() - begun)
        figures.unmoved += now["outcome"] != "done"
    client.close()


def _client(address: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(address.removeprefix("http://"), timeout=_WAIT_S)


def _request(client: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body)
    client.request(method, path, content, {"Content-Type": "application/json"} if content else {})
    answer = client.getresponse()
    text = answer.read()
    assert answer.status < 300, text
    return json.loads(text)


def _create(agent: AgentProcess, name: str, **order: Any) -> None:
    agent.client.post(_INSTANCES, json={"name": name, **order}).raise_for_status()


def _count(agent: AgentProcess, status: str | None = None) -> int:
    params = {"limit": 1000} | ({"status": status} if status else {})
    return len(agent.client.get(_INSTANCES, params=params).json()["instances"])


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"the agent did not get there within {_WAIT_S:g} s")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
