"""The page over HTTP: access, and its stream."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from nfagent.api import serving
from nfagent.dashboard import board, routes, snapshot
from nfagent.dashboard.probe import Probe
from server.errors import ServerError
from server.oneswitchd.answers import Status
from tests.nfagent.dashboard import sample
from tests.nfagent.world import ADMIN_TOKEN, TENANT_TOKEN, World, wait_until

PAGE, STREAM = "/dashboard", "/dashboard/stream"


@pytest.fixture
def browser(world: World) -> Iterator[httpx.Client]:
    """Without a token, with cookies."""
    with httpx.Client(base_url=world.url, timeout=30, trust_env=False) as client:
        yield client


class Follower:
    """Reads a stream."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        assert next(self._lines) == "retry: 2000"

    def next(self) -> tuple[str, str, dict[str, Any]]:
        """Return the next event: id, type, data."""
        fields: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
            elif fields:
                return fields["id"], fields["event"], json.loads(fields["data"])
        raise EOFError

    def until(self, fragment: str, word: str) -> None:
        """Read until a fragment has a word."""
        while word not in self.next()[2].get("fragments", {}).get(fragment, ""):
            pass


@contextmanager
def following(client: httpx.Client, **options: Any) -> Iterator[Follower]:
    with client.stream("GET", STREAM, timeout=60, **options) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        follower = Follower(response)  # kept alive: its garbage collection would close the connection
        yield follower


def test_the_root_redirects_to_the_page(world: World) -> None:
    answer = world.operator.get("/")
    assert (answer.status_code, answer.headers["location"]) == (302, PAGE)
    answer = world.operator.get(PAGE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "no network functions" in answer.text
    assert "Sign out" not in answer.text


@pytest.mark.parametrize("path", [PAGE, STREAM, "/dashboard/static/dashboard.css", "/"])
def test_the_policy_forbids_foreign_content(world: World, path: str) -> None:
    with world.operator.stream("GET", path) as answer:
        assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_anonymous_visitor_is_asked_for_a_token(world: World, browser: httpx.Client) -> None:
    answer = browser.get(PAGE)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert 'action="/dashboard/login"' in answer.text
    assert "hypervisor" not in answer.text
    assert browser.get(STREAM).status_code == 401
    assert browser.get("/dashboard/static/dashboard.css").status_code == 200
    for answer in (browser.post("/dashboard/login", data={"token": "<b>wrong"}), browser.post("/dashboard/login")):
        assert answer.status_code == 401
        assert "unknown" in answer.text
        assert "set-cookie" not in answer.headers


def test_a_tenant_does_not_see_locations(world: World, browser: httpx.Client) -> None:
    assert world.tenant.get(PAGE).status_code == 403
    assert world.tenant.get(STREAM).status_code == 403
    answer = browser.post("/dashboard/login", data={"token": TENANT_TOKEN})
    assert answer.status_code == 403
    assert "requires the role reader, operator or admin" in answer.text
    assert "set-cookie" not in answer.headers


def test_a_token_is_exchanged_for_a_cookie_of_the_dashboard_only(world: World, browser: httpx.Client) -> None:
    answer = browser.post("/dashboard/login", data={"token": ADMIN_TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/dashboard"))
    assert ADMIN_TOKEN not in cookie
    page = browser.get(PAGE)
    assert page.status_code == 200
    assert "Sign out" in page.text
    with following(browser) as follower:
        assert follower.next()[1] == "update"
    badge = browser.cookies["nfagent_dashboard"]
    for headers in ({"Cookie": f"nfagent_dashboard={badge}"}, {"Authorization": f"Bearer {badge}"}):
        assert httpx.get(f"{world.url}/api/v1/instances", headers=headers, trust_env=False).status_code == 401
    assert browser.post("/dashboard/logout").status_code == 303
    assert browser.get(PAGE).status_code == 401


@pytest.mark.parametrize("cookie", ["", "x", "f" * 64, "\xe9" * 64, ADMIN_TOKEN])
def test_an_invalid_cookie_is_ignored(world: World, browser: httpx.Client, cookie: str) -> None:
    headers = {b"Cookie": f"nfagent_dashboard={cookie}".encode("latin-1")}
    assert browser.get(PAGE, headers=headers).status_code == 401


def test_the_cookie_outlives_a_restart(own_world: World) -> None:
    with httpx.Client(base_url=own_world.url, trust_env=False) as before:
        before.post("/dashboard/login", data={"token": ADMIN_TOKEN})
        badge = before.cookies["nfagent_dashboard"]
    own_world.stop()
    own_world.start()
    answer = httpx.get(own_world.url + PAGE, headers={"Cookie": f"nfagent_dashboard={badge}"}, trust_env=False)
    assert answer.status_code == 200


def test_the_stream_sends_only_changed_fragments(own_world: World) -> None:
    seen = own_world.operator.get(PAGE).text.partition('data-seen="')[2].partition('"')[0]
    with following(own_world.operator, params={"seen": seen}) as follower:
        number, kind, _ = follower.next()
        assert (number, kind) == (seen, "beat")
        made = own_world.create("appears")
        own_world.wait_status(made, "active")
        follower.until(f"card-{made['id']}-serving", "</span>active")
        own_world.operator.patch("/api/v1/instances/appears", json={"labels": {"a": "b"}})
        _, kind, data = follower.next()
        assert (kind, set(data["fragments"])) == ("update", {"events"})


def test_a_reconnecting_client_gets_what_it_missed(own_world: World) -> None:
    with following(own_world.operator) as follower:
        last, _, first = follower.next()
    parts = {
        "banner",
        "tiles",
        "filters",
        "chains",
        "map",
        "hub",
        "link-1",
        "lane-1",
        "placement",
        "migrations",
        "events",
    }
    parts |= {"never", "ended", "never-cards", "ended-cards", "hub-cards", "lane-1-cards"}
    assert set(first["fragments"]) == parts
    own_world.create("missed")
    with following(own_world.operator, headers={"Last-Event-ID": last}) as follower:
        follower.until("events", "missed")


def test_streams_are_limited_by_the_number_of_threads(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_S", 1000.0)
    with following(own_world.operator), following(own_world.operator), following(own_world.operator):
        answer = own_world.operator.get(STREAM)
        assert (answer.status_code, answer.json()["code"]) == (503, "too-many-streams")
        assert own_world.operator.get(PAGE).status_code == 200
    # A client that disconnects frees its stream, even while nothing is sent.
    wait_until(lambda: _answers(own_world.operator))


def _answers(client: httpx.Client) -> bool:
    with client.stream("GET", STREAM) as response:
        return response.status_code == 200


def test_a_client_that_does_not_read_blocks_no_other(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # Far more than kernel and server buffer for a client: its thread soon blocks.
    editions = iter(range(10**9))
    monkeypatch.setattr(snapshot, "take", lambda *_: sample.server())
    monkeypatch.setattr(routes.render, "fragments", lambda _: {"hub": f"{next(editions)} " + "x" * 30_000_000})
    with _stall(own_world):
        monkeypatch.setattr(routes.render, "fragments", lambda _: {"hub": str(next(editions))})
        with following(own_world.operator) as follower:
            told = [follower.next()[2]["fragments"]["hub"] for _ in range(5)]
        told = [int(text) for text in told if len(text) < 100]  # the first edition may still be a long one
        assert len(told) >= 4
        assert told == sorted(set(told))
        assert own_world.operator.get("/api/v1/kinds").status_code == 200


def test_a_client_that_does_not_read_is_disconnected(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_STALLED_MS", 3000)  # long enough to stall three clients
    world = World(directory)
    numbers = iter(range(10**9))
    monkeypatch.setattr(snapshot, "take", lambda *_: sample.server())
    monkeypatch.setattr(routes.render, "fragments", lambda _: {"hub": f"{next(numbers)} " + "x" * 8_000_000})
    with ExitStack() as stalled:
        for _ in range(3):
            stalled.enter_context(_stall(world))
        assert world.operator.get(STREAM).status_code == 503
        monkeypatch.setattr(routes.render, "fragments", lambda _: {"hub": "little"})
        wait_until(lambda: _answers(world.operator))
    world.close()


def _stall(world: World) -> socket.socket:
    """Return a client that requests the stream and reads only its start."""
    host, _, port = world.url.removeprefix("http://").partition(":")
    stalled = socket.create_connection((host, int(port)))
    stalled.sendall(f"GET {STREAM} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {ADMIN_TOKEN}\r\n\r\n".encode())
    assert stalled.recv(100).startswith(b"HTTP/1.1 200")
    return stalled


def test_stopping_does_not_wait_for_clients(own_world: World) -> None:
    with following(own_world.operator) as follower:
        follower.next()
        own_world.agent.stop()
        with pytest.raises((EOFError, httpx.HTTPError)):
            follower.until("hub", "never")
    own_world.start()


def test_an_error_of_rendering_ends_the_stream(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with following(own_world.operator) as follower:
        follower.next()
        monkeypatch.setattr(snapshot, "take", lambda *_: 1 / 0)
        with pytest.raises((EOFError, httpx.HTTPError)):
            follower.until("hub", "never")
    assert own_world.operator.get(PAGE).status_code == 500


def test_an_edition_has_the_version_of_each_fragments_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "TICK_S", 0.0)
    made = [{"a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"a": "2", "b": "1"}]
    shown = board.Board(lambda: made.pop(0))
    first = shown.newest()
    assert first.html() == {"a": "1", "b": "1"}
    assert first.since(first.id) == {}
    assert shown.newest() is first
    second = shown.newest()
    assert second.since(first.id) == {"a": "2"}
    for strange in ("", "x", "0-0", f"{second.run}-", f"{second.run}-{'9' * 5000}", f"{second.run}-\u0663", "-1"):
        if strange != f"{second.run}-{'9' * 5000}":
            assert second.since(strange) == second.html()


def test_editions_are_rate_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "TICK_S", 1000.0)
    calls = []
    shown = board.Board(lambda: calls.append(1) or {})
    for _ in range(100):
        shown.newest()
    assert len(calls) == 1


class Oneswitchd:
    """Answers when permitted, and then becomes unreachable."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked = 0

    def __call__(self) -> tuple[Status, list[Any]]:
        self.asked += 1
        assert self.let.wait(30)
        if self.asked > 1:
            raise ServerError("it is gone")
        return Status(version="1", datapath_id="1"), []


def test_an_unresponsive_oneswitchd_blocks_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nfagent.dashboard.probe._EVERY_S", 0.0)
    asked = Oneswitchd()
    probe = Probe(asked)
    for _ in range(3):
        assert probe.newest().reason == "oneswitchd has not answered yet"
    monkeypatch.setattr("nfagent.dashboard.probe._EVERY_S", 1000.0)
    asked.let.set()
    wait_until(lambda: probe.newest(30.0).status is not None)
    assert asked.asked == 1
    monkeypatch.setattr("nfagent.dashboard.probe._EVERY_S", 0.0)
    wait_until(lambda: probe.newest().reason == "it is gone")


def test_the_page_shows_the_stored_migration(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("mover"), "active")
    answer = own_world.operator.post("/api/v1/migrations", json={"instance": "mover", "target": "snic0"})
    assert answer.status_code == 202
    own_world.wait(lambda: own_world.show(made)["placement"]["location"] == "snic0")
    own_world.wait_status(made, "active")
    own_world.operator.delete(f"/api/v1/instances/{made['id']}")
    own_world.wait(lambda: own_world.operator.get(f"/api/v1/instances/{made['id']}").status_code == 404)
    page = own_world.operator.get(PAGE).text
    said = " ".join(page.partition('id="migrations"')[2].split())
    assert 'data-label="function" class="whole" title="mover">mover</th>' in said  # although the instance is deleted
    assert '<td data-label="how">restart</td>' in said
    assert "all state: restarted" in said
    events = page.partition('id="events"')[2]
    assert "move requested from hypervisor to snic0" in events
    assert "move from hypervisor to snic0: done" in events
