"""Hosts and lines of an instance of kind ``assets``, asked from its process."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nfagent.store import instances, processes
from tests.nfagent import samples
from tests.nfagent.api_world import Api, problem

ID = "6f1f1c52-8c5e-4c38-9f0e-0d6c5ba2a001"
OTHER = "6f1f1c52-8c5e-4c38-9f0e-0d6c5ba2a002"
HOST = {
    "address": "10.0.0.1",
    "vlan": 0,
    "mac": "02:00:00:00:00:01",
    "vendor": "Test",
    "first_seen": 1,
    "last_seen": 2,
    "services": [
        {
            "protocol": "tcp",
            "port": 80,
            "role": "server",
            "service": "http",
            "application": "nginx 1.22",
            "distance": 0,
            "first_seen": 1,
            "last_seen": 2,
        }
    ],
    "systems": [],
}


@pytest.fixture
def api(directory: Path) -> Iterator[Api]:
    made = Api(directory)
    seen = samples.instance("seen", id=ID, kind="assets")
    with made.store.change() as change:
        instances.add(change, seen)
        instances.add(change, samples.instance("other", id=OTHER))
        processes.add(change, samples.running(seen, phase="active"))
    yield made
    made.store.close()


@contextmanager
def process(directory: Path, answer: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Answer every request at the instance's control socket, and collect them."""
    asked: list[dict[str, Any]] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / f"{ID}.sock"))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rwb") as file:
                    asked.append(json.loads(file.readline()))
                    file.write(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_hosts_come_in_pages_from_the_process(api: Api, directory: Path) -> None:
    with process(directory, {"ok": {"hosts": [HOST], "next": 17}}) as asked:
        assert api.get(f"/instances/{ID}/assets", start=3, limit=7) == {"hosts": [HOST], "next": 17}
        assert api.get(f"/instances/{ID}/assets")["next"] == 17
    assert asked == [
        {"do": "assets.hosts", "from": 3, "limit": 7},
        {"do": "assets.hosts", "from": 0, "limit": 100},
    ]


def test_lines_follow_a_number(api: Api, directory: Path) -> None:
    lines = {"lines": [{"number": 5, "line": "10.0.0.1,0,80,6,SERVER,[http:nginx],0,1"}], "last": 5}
    with process(directory, {"ok": lines}) as asked:
        assert api.get(f"/instances/{ID}/assets/lines", after=4) == lines
    assert asked == [{"do": "assets.history", "after": 4, "limit": 100}]


def test_other_kinds_and_silent_processes_are_told(api: Api) -> None:
    answer = api.ask("GET", f"/instances/{OTHER}/assets")
    detail = "other is of kind 'l4lb'; only those of kind 'assets' know assets"
    problem(answer, 409, "kind-unfit", "Conflict", detail)
    answer = api.ask("GET", f"/instances/{ID}/assets")
    detail = "seen does not answer now: it starts, moves or hangs"
    problem(answer, 503, "assets-unavailable", "Service Unavailable", detail)
    with api.store.change() as change:
        for row in processes.of(change.db, ID):
            processes.remove(change, row)
    answer = api.ask("GET", f"/instances/{ID}/assets/lines")
    detail = "seen does not run now, or cannot be reached"
    problem(answer, 503, "assets-unavailable", "Service Unavailable", detail)


def test_unknown_instances_and_wrong_pages_are_refused(api: Api) -> None:
    unknown = ID.replace("a001", "a009")
    assert api.ask("GET", f"/instances/{unknown}/assets").status_code == 404
    for query in ({"start": -1}, {"limit": 0}, {"limit": 1001}, {"page": 1}):
        assert api.ask("GET", f"/instances/{ID}/assets", query_string=query).status_code == 422
