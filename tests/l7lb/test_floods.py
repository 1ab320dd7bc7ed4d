"""A flood of SYNs from spoofed addresses leaves no state, and the requests of others go on."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.server import HostProcess
from lab.web_path.balancers import Settings, find, l7lb
from lab.web_path.path import CLIENT, CLIENT_ADDRESS, FRONT, MIDDLE, ORIGINS, OWN, PORT, WebPath
from nfagent.control import Control
from tests.l7lb.conftest import origin

pytestmark = pytest.mark.namespaces

_RATE = 50_000
_STEADY_S = 0.02
"""A share of a busy machine's scheduler in the 99th percentile."""


@pytest.fixture
def path(directory: Path) -> Iterator[WebPath]:
    """Start the web servers on unimpaired wires."""
    with WebPath() as path, origin(path, directory):
        yield path


def _line(process: HostProcess, line: str) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def _flood(path: WebPath, home: Path, count: int, requests: int) -> tuple[float, float]:
    """Flood a load balancer while a client sends requests.

    Returns the 99th percentiles of their times, without and with the flood.
    """
    # The answers to spoofed addresses leave by a gateway, as on the Internet.
    interfaces = [{"addresses": [f"{OWN[0]}/24", "fd01::2/64"], "gateways": [CLIENT_ADDRESS]}]
    interfaces.append({"addresses": [f"{OWN[1]}/24", "fd02::2/64"]})
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with l7lb(path, home, ORIGINS, settings=Settings(top={"interfaces": interfaces})) as running:
        control = Control(home / "l7lb.sock")
        argv = [sys.executable, "-m", "tests.l7lb.latencies", path.target, str(PORT)]
        client = path.popen(CLIENT, argv, **pipes)
        calm = _line(client, f"{requests}\n")
        mac = json.loads(path.run(MIDDLE, "ip", "-j", "link", "show", FRONT))[0]["address"]
        syns = [find("syns"), "eth0", mac, path.target, str(PORT)]
        # The first packets fill the buffers of the ports.
        path.run(CLIENT, *syns, str(_RATE), str(_RATE))
        before, memory = control.ask("counters"), running.memory()
        flood = [*syns, str(count), str(_RATE)]
        flooded: list[float] = []
        with path.popen(CLIENT, flood, **pipes) as sender:
            while sender.poll() is None:
                flooded += _line(client, f"{requests // 10}\n")
            assert sender.stdout is not None
            print(sender.stdout.read())
        after = control.ask("counters")
        assert after["syns"] - before["syns"] >= count * 0.9, "the flood did not arrive"
        assert after["connections"] <= before["connections"] + 2, after
        assert after["refused_full"] == 0
        assert running.memory() - memory < 4_000_000
    times = [sorted(each)[len(each) * 99 // 100] for each in (calm, flooded)]
    print(f"{count} SYNs: 99th percentile {times[0] * 1e3:.1f} ms, flooded {times[1] * 1e3:.1f} ms of {len(flooded)}")
    return times[0], times[1]


def test_a_flood_of_syns_leaves_no_state(path: WebPath, directory: Path) -> None:
    _flood(path, directory, 20_000, 100)


@pytest.mark.soak
def test_a_flood_of_a_million_syns_slows_others_by_a_factor_of_two_at_most(path: WebPath, directory: Path) -> None:
    calm, flooded = _flood(path, directory, 1_000_000, 5_000)
    assert flooded <= max(2 * calm, _STEADY_S)
