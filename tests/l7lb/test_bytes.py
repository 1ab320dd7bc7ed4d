"""Every body arrives unchanged, whatever happens to segments on both wires and whichever TCP options the ends use."""

import itertools
import os
import queue
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab.web_path.balancers import BALANCERS, Settings, l7lb, router
from lab.web_path.impairment import Faults
from lab.web_path.path import CLIENT, ORIGINS, PORT, SERVERS, WebPath
from tests.l7lb.bodies import LARGEST
from tests.l7lb.conftest import Transfers, origin
from tests.l7lb.transfers import PAUSE_S, Plan, Report

pytestmark = pytest.mark.namespaces

_LOSSES = (0.001, 0.01, 0.05)
_OPTIONS = tuple(itertools.product((0, 1), (0, 1), (0, 1)))
"""SACK, timestamps, window scaling: off or on."""
_STALLED = 4
_FULL = 2048
"""Bytes in a receive buffer of 4,096 bytes; its window is then shorter than a segment, or zero."""
_SOON_S = 60.0
_TCP_GIVES_UP_S = 1000.0
"""A longer pause is a hang: TCP doubles its timeouts up to 120 s, and gives up after 924 s (``tcp_retries2``)."""
SOAK = int(os.environ.get("L7LB_REQUESTS", "100000"))
_SOAK_PATHS = 32
_SMALLER = 100_000
_SOAK_CONNECTIONS = 64


@dataclass(frozen=True)
class Cell:
    """A combination of faults and of the ends' options."""

    loss: float
    reordering: float
    duplication: float
    client: tuple[int, int, int]
    server: tuple[int, int, int]
    receive_buffer: int
    delayed_acks: bool

    def __str__(self) -> str:
        client, server = ("".join(map(str, each)) for each in (self.client, self.server))
        return f"{self.loss}-{self.reordering}-{self.duplication}-{client}-{server}"


def cells(seed: int, repeats: int) -> Iterator[Cell]:
    """Combine the client's options with those of the servers; draw the rest, each loss equally often."""
    choose = random.Random(seed)
    for number, client in enumerate(_OPTIONS * repeats):
        server = _OPTIONS[(number * 5 + number // len(_OPTIONS) + seed) % len(_OPTIONS)]
        yield Cell(
            loss=_LOSSES[number % len(_LOSSES)],
            reordering=choose.choice((0, 0.01, 0.05)),
            duplication=choose.choice((0, 0.01, 0.05)),
            client=client,
            server=server,
            receive_buffer=choose.choice((0, 0, 4096, 30_000)),
            delayed_acks=choose.random() < 0.5,
        )


@pytest.fixture
def path(impaired: WebPath) -> Iterator[WebPath]:
    """Return the path without faults and with all options; leave it so."""
    _impair(impaired, 0, Faults())
    _set_options(impaired, CLIENT, (1, 1, 1))
    _set_options(impaired, SERVERS, (1, 1, 1))
    yield impaired
    _impair(impaired, 0, Faults())


def _impair(path: WebPath, seed: int, faults: Faults) -> None:
    assert path.front is not None
    assert path.back is not None
    path.front.set(seed, faults)
    path.back.set(seed + 1, faults)


def _set_options(path: WebPath, host: str, options: tuple[int, int, int]) -> None:
    sack, timestamps, window_scaling = options
    path.set_tcp([host], sack=sack, timestamps=timestamps, window_scaling=window_scaling)


def _transfer(path: WebPath, transfers: Transfers, directory: Path, cell: Cell, plan: Plan) -> Report:
    """Send requests under a cell's conditions, over new connections on both sides."""
    _set_options(path, CLIENT, cell.client)
    _set_options(path, SERVERS, cell.server)
    with origin(path, directory, receive_buffer=cell.receive_buffer):
        _impair(path, plan.seed, Faults(cell.loss, cell.duplication, cell.reordering))
        report = transfers.execute(
            replace(
                plan,
                stalls=True,
                receive_buffer=cell.receive_buffer,
                delayed_acks=cell.delayed_acks,
            )
        )
        # The end of the server closes its connections, and the balancer is to notice.
        _impair(path, 0, Faults())
    return report


@pytest.mark.parametrize("loss", [0, 0.02])
def test_a_client_that_stops_reading_gets_the_rest_later(path: WebPath, directory: Path, loss: float) -> None:
    with origin(path, directory):
        _impair(path, 4, Faults(loss=loss))
        right = _stalled(path, ["download"], CLIENT, lambda: None)
    assert right == _STALLED


@pytest.mark.parametrize("loss", [0, 0.02])
def test_a_server_that_stops_reading_gets_the_rest_later(path: WebPath, directory: Path, loss: float) -> None:
    with origin(path, directory, receive_buffer=4096):
        _impair(path, 5, Faults(loss=loss))
        url = f"http://{path.target}:{PORT}/go?name=stalled-{loss}"
        right = _stalled(
            path,
            ["upload", f"stalled-{loss}"],
            SERVERS,
            lambda: path.run(CLIENT, "curl", "-sS", "--fail", "--max-time", "30", url),
        )
    assert right == _STALLED


def _stalled(path: WebPath, what: list[str], reader: str, resume: Callable[[], object]) -> int:
    """Start transfers that stall; let them go on once the buffers of the host that does not read are full.

    Returns how many were right.
    """

    def is_full() -> bool:
        queues = path.run(reader, "ss", "-Htn", "state", "established").split()[::4]
        return sum(int(queue) >= _FULL for queue in queues) == _STALLED

    argv = [sys.executable, "-m", "tests.l7lb.stalls", path.target, str(PORT), str(_STALLED), *what]
    with path.popen(CLIENT, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            end = time.monotonic() + _SOON_S
            while not is_full():
                assert time.monotonic() < end, "the buffers did not fill"
                time.sleep(0.02)
            resume()
            said, _ = process.communicate("\n", timeout=_SOON_S)
        finally:
            process.kill()
    return int(said)


# The function remembers for a while which options a server lacked: the options change in the tests below only.


@pytest.mark.parametrize("cell", list(cells(1, 1)), ids=str)
def test_no_byte_is_wrong_and_no_connection_hangs(
    path: WebPath, transfers: Transfers, directory: Path, cell: Cell
) -> None:
    plan = Plan(path.target, PORT, 1, 50, connections=16, largest=100_000, timeout_s=_TCP_GIVES_UP_S)
    report = _transfer(path, transfers, directory, cell, plan)
    assert (report.corrupt, report.hung, report.failed) == (0, 0, 0), report
    assert report.requests == 50


@pytest.fixture(scope="module")
def lined(module_directory: Path) -> Iterator[WebPath]:
    """Start a load balancer that adds lines to answers: it takes their heads, and sends them itself."""
    settings = Settings(listener={"add_to_answers": ["X-Line: " + "l" * 2000]}, pool={"sticky": {"cookie": "SRV"}})
    with WebPath(impaired=True) as path, l7lb(path, module_directory, ORIGINS, settings=settings, name="lined"):
        yield path


@pytest.fixture(scope="module")
def lined_transfers(lined: WebPath) -> Transfers:
    """Start the client's program on that path."""
    return Transfers(lined)


@pytest.mark.parametrize("cell", list(cells(5, 1)), ids=str)
def test_no_byte_is_wrong_and_no_connection_hangs_where_answers_get_lines(
    lined: WebPath, lined_transfers: Transfers, directory: Path, cell: Cell
) -> None:
    plan = Plan(lined.target, PORT, 5, 50, connections=16, largest=100_000, timeout_s=_TCP_GIVES_UP_S)
    report = _transfer(lined, lined_transfers, directory, cell, plan)
    assert (report.corrupt, report.hung, report.failed) == (0, 0, 0), report
    assert report.requests == 50


def _transfer_cells(kind: str, home: Path, requests: int, left: "queue.SimpleQueue[tuple[int, Cell]]") -> list[Report]:
    """Transfer under the conditions of cells, over a path of its own, until none is left."""
    reports = []
    home.mkdir()
    with WebPath(impaired=True) as path, {**BALANCERS, "router": router}[kind](path, home, ORIGINS):
        transfers = Transfers(path)
        while True:
            try:
                seed, cell = left.get_nowait()
            except queue.Empty:
                return reports
            # Every fourth time, all options meet bodies of up to 1 MiB.
            largest = LARGEST if seed // len(_OPTIONS) % 4 == 0 else _SMALLER
            plan = Plan(path.target, PORT, seed, requests, _SOAK_CONNECTIONS, largest, timeout_s=_TCP_GIVES_UP_S)
            report = _transfer(path, transfers, home, cell, plan)
            print(f"{kind} {cell}: {report}", flush=True)
            reports.append(report)


@pytest.mark.soak
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize(("kind", "requests"), [("l7lb", SOAK), ("haproxy", SOAK // 10), ("router", SOAK // 10)])
def test_of_100000_requests_no_byte_is_wrong_and_none_hangs(kind: str, requests: int, directory: Path) -> None:
    """Transfer over many paths at once. The pauses of the three are printed: those of the router are TCP's own."""
    # Those that pause for longest begin.
    all_cells = sorted(enumerate(cells(2, 24)), key=lambda each: -each[1].loss)
    left: queue.SimpleQueue[tuple[int, Cell]] = queue.SimpleQueue()
    for each in all_cells:
        left.put(each)
    share = requests // len(all_cells) + 1
    with ThreadPoolExecutor(_SOAK_PATHS) as pool:
        homes = [directory / str(number) for number in range(_SOAK_PATHS)]
        running = [pool.submit(_transfer_cells, kind, home, share, left) for home in homes]
        reports = [report for each in running for report in each.result()]
    pauses, longest = sum(each.pauses for each in reports), max(each.longest_pause_s for each in reports)
    sent = sum(each.requests for each in reports)
    print(f"{kind}: {sent} requests, {pauses} connections paused for {PAUSE_S:g} s, the longest for {longest:.0f} s")
    bad = [each for each in reports if (each.corrupt, each.hung, each.failed) != (0, 0, 0)]
    assert not bad
    assert sent >= requests


def test_a_byte_that_is_wrong_is_noticed(path: WebPath, transfers: Transfers, directory: Path) -> None:
    with origin(path, directory):
        _impair(path, 3, Faults(corruption=0.02))
        report = transfers.execute(Plan(path.target, PORT, 3, 100, connections=16, timeout_s=2))
        _impair(path, 3, Faults())
    assert report.corrupt > 0, report
