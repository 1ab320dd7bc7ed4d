"""A client, a layer-7 load balancer and web servers. HAProxy as the balancer shows that tests and network are sound."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lab.server import HostProcess
from lab.web_path.balancers import BALANCERS, Running, await_listening, running
from lab.web_path.path import CLIENT, ORIGINS, PORT, SERVERS, WebPath
from tests.l7lb.transfers import Plan, Report


@contextlib.contextmanager
def origin(path: WebPath, home: Path, *, receive_buffer: int = 0) -> Iterator[None]:
    """Start the checking web server."""
    log = home / "origin.log"
    argv = [sys.executable, "-m", "tests.l7lb.origin", str(PORT), str(receive_buffer)]
    with running(path, SERVERS, argv, log) as program:
        await_listening(path, SERVERS, PORT, program, log)
        yield


class Transfers:
    """The client's program."""

    def __init__(self, path: WebPath) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: HostProcess = path.popen(CLIENT, [sys.executable, "-m", "tests.l7lb.transfers"], **pipes)

    def execute(self, plan: Plan) -> Report:
        """Send all requests of a plan."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(plan)) + "\n")
        self._process.stdin.flush()
        return Report(**json.loads(self._process.stdout.readline()))


@pytest.fixture(scope="module", params=["l7lb", pytest.param("haproxy", marks=pytest.mark.soak)])
def balancer(request: pytest.FixtureRequest) -> str:
    """Return the name of the load balancer under test.

    If HAProxy fails a test as well, the test or the machine is at fault.
    """
    return request.param


@pytest.fixture(scope="module")
def impaired(balancer: str, module_directory: Path) -> Iterator[WebPath]:
    """Start the balancer between impaired wires; `origin` starts the servers."""
    with WebPath(impaired=True) as path, BALANCERS[balancer](path, module_directory, ORIGINS):
        yield path


@pytest.fixture(scope="module")
def transfers(impaired: WebPath) -> Transfers:
    """Start the client's program on the impaired path."""
    return Transfers(impaired)


@pytest.fixture(scope="module")
def unbalanced() -> Iterator[WebPath]:
    """Start the hosts on unimpaired wires."""
    with WebPath() as path:
        yield path


@pytest.fixture(scope="module")
def program(balancer: str, unbalanced: WebPath, module_directory: Path) -> Iterator[Running]:
    """Start the balancer."""
    with BALANCERS[balancer](unbalanced, module_directory, ORIGINS) as program:
        yield program


@pytest.fixture(scope="module")
def path(unbalanced: WebPath, program: Running) -> WebPath:
    """Return the hosts with the balancer; each test starts its servers."""
    assert program.process.poll() is None
    return unbalanced


@pytest.fixture
def served(path: WebPath, directory: Path) -> Iterator[WebPath]:
    """Start the checking web server."""
    with origin(path, directory):
        yield path


def curl(path: WebPath, *arguments: str) -> str:
    """Run curl in the client; return its output."""
    return path.run(CLIENT, "curl", "-sS", "--fail", "--max-time", "50", "--noproxy", "*", *arguments)


def raw_client(path: WebPath, name: str, target: str | None = None) -> Any:
    """Run a function of `raw_clients` in the client; return what it saw."""
    argv = (sys.executable, "-m", "tests.l7lb.raw_clients", name, target or path.target, str(PORT))
    return json.loads(path.run(CLIENT, *argv))
