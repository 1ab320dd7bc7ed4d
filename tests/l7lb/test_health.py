"""Health checks of ``l7lb`` with real web servers, one of which vanishes and returns."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.web_path.balancers import Settings, await_that, l7lb
from lab.web_path.path import CLIENT, ORIGINS, SERVERS, WebPath
from nfagent.control import Control
from tests.l7lb.conftest import origin

pytestmark = pytest.mark.namespaces

_URL = "/bytes?seed=1&size=5"
_HEALTH = {"kind": "http", "path": _URL, "interval": "500ms", "timeout": "500ms", "rise": 1}
_LOST = ORIGINS[1]


def _answering(path: WebPath) -> Counter[str]:
    """Return the addresses that answer six requests, each on a connection of its own."""
    url = f"http://{path.target}{_URL}"
    command = ("curl", "-sS", "--fail", "--max-time", "20", "--noproxy", "*", "-o", "/dev/null")
    return Counter(path.run(CLIENT, *command, "-w", "%header{x-origin}", url) for _ in range(6))


@pytest.fixture
def served(directory: Path) -> Iterator[WebPath]:
    """Start the servers."""
    with WebPath() as path, origin(path, directory):
        yield path


def test_a_server_that_vanishes_gets_no_requests_until_it_returns(served: WebPath, directory: Path) -> None:
    with l7lb(served, directory, ORIGINS, settings=Settings(pool={"health": _HEALTH})) as program:
        control = Control(directory / "l7lb.sock")
        label = f'backend_up{{pool="ipv4",backend="{_LOST.name}"}}'

        def await_health(up: int) -> None:
            await_that(lambda: control.ask("counters")[label] == up, program, directory / "l7lb.log")

        assert _answering(served) == {each.address: 2 for each in ORIGINS}
        served.run(SERVERS, "ip", "address", "del", f"{_LOST.address}/24", "dev", "eth0")
        await_health(0)
        assert set(_answering(served)) == {each.address for each in ORIGINS if each != _LOST}
        served.run(SERVERS, "ip", "address", "add", f"{_LOST.address}/24", "dev", "eth0")
        await_health(1)
        assert _answering(served) == {each.address: 2 for each in ORIGINS}
