"""Every request is answered right while the instance moves to a new process, again and again."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.server import HostProcess
from lab.web_path.path import CLIENT, PORT, WebPath
from tests.l7lb.conftest import Transfers, origin
from tests.l7lb.moving_instance import MovingInstance
from tests.l7lb.transfers import Plan, Report

pytestmark = pytest.mark.namespaces

MOVES = int(os.environ.get("L7LB_MOVES", "16"))
"""1,000 moves: ``L7LB_MOVES=1000``, or ``make soak``."""
_REQUESTS = 100
_HOW = ("memfd", "copy")
_BETWEEN = 10
"""Requests between moves."""
_SOON_S = 60.0
_LARGEST = 200_000


@pytest.fixture
def path(directory: Path) -> Iterator[WebPath]:
    """Start the checking web servers on unimpaired wires."""
    with WebPath() as path, origin(path, directory):
        yield path


def _send_until(stopped: threading.Event, transfers: Transfers, plan: Plan) -> list[Report]:
    """Send the requests of plans, one after the other."""
    reports = []
    while not stopped.is_set():
        reports.append(transfers.execute(replace(plan, seed=plan.seed + len(reports))))
    return reports


def _await_requests(instance: MovingInstance) -> None:
    """Wait until requests have arrived since now."""
    before, end = instance.counters()["requests"], time.monotonic() + _SOON_S
    while instance.counters()["requests"] < before + _BETWEEN:
        assert time.monotonic() < end, "no requests arrive"
        time.sleep(0.005)


def _move(path: WebPath, home: Path, moves: int, *, ipv6: bool = False, workers: int = 1) -> None:
    stopped = threading.Event()
    # A port rests for a minute after its connection: 500 connections a second would use up the usual range.
    path.run(CLIENT, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535")
    target = path.target6 if ipv6 else path.target
    plan = Plan(target, PORT, 1, _REQUESTS, connections=12, largest=_LARGEST, split=0.5, stalls=True)
    moved, open_connections = 0, []
    with MovingInstance(path, home, workers=workers) as instance, ThreadPoolExecutor(2) as pool:
        # While one plan ends, the other one is in the middle of its requests.
        plans = [replace(plan, seed=seed) for seed in (1, 1_000_000)]
        clients = [pool.submit(_send_until, stopped, Transfers(path), each) for each in plans]
        try:
            for number in range(moves):
                _await_requests(instance)
                open_connections.append(instance.counters()["connections"])
                before = instance.pid
                instance.move(_HOW[number % len(_HOW)])
                # Process ids come again, but not at once.
                moved += instance.pid != before
        finally:
            stopped.set()
        reports = [report for each in clients for report in each.result()]
        state = f"longest freeze: {instance.longest_freeze_s:.1f} s; counters: {instance.counters()}"
    wrong = [report for report in reports if (report.corrupt, report.hung, report.failed) != (0, 0, 0)]
    assert not wrong, state
    assert [report.requests for report in reports] == [_REQUESTS] * len(reports)
    assert moved == moves
    # Now and then, all clients are between two connections.
    assert sum(each > 0 for each in open_connections) > 0.9 * moves


def test_every_request_is_answered_right_while_the_instance_moves(path: WebPath, directory: Path) -> None:
    _move(path, directory, MOVES)


def test_every_request_is_answered_right_over_ipv6_while_several_workers_move(path: WebPath, directory: Path) -> None:
    _move(path, directory, MOVES, ipv6=True, workers=2)


def test_a_request_continues_from_any_point_in_it(path: WebPath, directory: Path) -> None:
    argv = [sys.executable, "-m", "tests.l7lb.halves", path.target, str(PORT)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with MovingInstance(path, directory) as instance:
        client = path.popen(CLIENT, argv, **pipes)
        for how in _HOW * 2:
            assert _line(client, "begin\n") == "ready\n"
            instance.move(how)
            assert _line(client, "end\n") == "[]\n"


def _line(client: HostProcess, line: str) -> str:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(line)
    client.stdin.flush()
    return client.stdout.readline()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("ipv6", "workers"), [(False, 1), (True, 2)])
def test_every_request_is_answered_right_during_1000_moves(
    path: WebPath, directory: Path, ipv6: bool, workers: int
) -> None:
    _move(path, directory, 1000, ipv6=ipv6, workers=workers)
