"""``/api/v1/events``: server-sent events that survive reconnects."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from nfagent.api import events as stream
from tests.nfagent.world import TENANT_TOKEN, World

PATH = "/api/v1/events"
LIMIT_S = 30.0
"""Limit for one event; heartbeats do not extend it."""


class Follower:
    """A client that reads events."""

    def __init__(self, response: httpx.Response) -> None:
        assert response.headers["content-type"].startswith("text/event-stream")
        self._lines = response.iter_lines()
        self.heartbeats = 0

    def next(self) -> tuple[str | None, str, dict[str, Any]]:
        """Return the next event: id, type, data."""
        fields: dict[str, str] = {}
        end = time.monotonic() + LIMIT_S
        for line in self._lines:
            assert time.monotonic() < end, f"no event within {LIMIT_S} s, but {self.heartbeats} heartbeats"
            if line.startswith(":"):
                self.heartbeats += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                return fields.get("id"), fields["event"], json.loads(fields["data"])
        raise EOFError

    def until(self, kind: str) -> list[tuple[str | None, str, dict[str, Any]]]:
        """Return events up to the first of a type."""
        found = [self.next()]
        while found[-1][1] != kind:
            found.append(self.next())
        return found


@contextmanager
def following(client: httpx.Client, **options: Any) -> Iterator[Follower]:
    with client.stream("GET", PATH, timeout=60, **options) as response:
        assert response.status_code == 200
        follower = Follower(response)  # kept alive: its garbage collection would close the connection
        yield follower


def test_events_are_streamed_live_and_replayed_from_any_id(world: World) -> None:
    with following(world.operator, params={"after": 0}) as follower:
        made = world.create("told")
        seen = [each for each in follower.until("process.active") if made["id"] in str(each)]
        world.operator.delete(f"/api/v1/instances/{made['id']}")
        seen += [each for each in follower.until("instance.deleted") if made["id"] in str(each)]
    assert [kind for _, kind, _ in seen if kind.startswith("instance.")] == [
        "instance.created",
        "instance.deleting",
        "instance.deleted",
    ]
    ids = [int(number or 0) for number, _, _ in seen]
    assert ids == sorted(set(ids))
    assert all(data["id"] == int(number or 0) for number, _, data in seen)
    middle = len(seen) // 2
    params = {"subject": made["id"]}
    with following(world.operator, headers={"Last-Event-ID": str(ids[middle])}, params=params) as follower:
        again = [follower.next() for _ in seen[middle + 1 :]]
    assert again == seen[middle + 1 :]


def test_a_tenant_gets_its_own_events_without_locations(world: World) -> None:
    world.create("not-theirs")
    with following(world.tenant, params={"after": 0}) as follower:
        mine = world.tenant.post("/api/v1/instances", json={"name": "theirs", "kind": "sleeper"}).json()
        seen = follower.until("process.active")
    assert {data["subject"] for _, _, data in seen} == {mine["id"]}
    assert "hypervisor" not in str(seen)
    assert not any(kind.startswith(("placement", "migration")) for _, kind, _ in seen)


def test_a_stream_sends_heartbeats_while_only_foreign_events_occur(
    own_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.2)
    store, over = own_world.agent._store, threading.Event()

    def happen() -> None:
        while not over.wait(0.02):
            with store.change() as change:
                change.event("coefficient.learnt", "l4lb", None, {})

    busy = threading.Thread(target=happen)
    busy.start()
    try:
        with following(own_world.tenant) as follower:
            lines = [next(follower._lines) for _ in range(6)]
        assert lines == [": events follow", "", ": still here", "", ": still here", ""]
    finally:
        over.set()
        busy.join()


def test_an_id_above_the_newest_is_a_gap(own_world: World) -> None:
    newest = own_world.agent._store.last_event
    for options in ({"headers": {"Last-Event-ID": str(newest + 1000)}}, {"params": {"after": newest + 1000}}):
        with following(own_world.operator, **options) as follower:
            assert follower.next()[:2] == (None, "gap")
            own_world.create(f"after-{next(iter(options))}")
            follower.until("instance.created")
    newest = own_world.agent._store.last_event
    with following(own_world.operator, headers={"Last-Event-ID": str(newest)}) as follower:
        own_world.create("no-gap")
        follower.until("instance.created")


def test_a_stream_ends_when_its_token_is_revoked(own_world: World) -> None:
    tokens = own_world.directory / "tokens"
    with following(own_world.tenant) as follower, following(own_world.admin) as other:
        kept = [line for line in tokens.read_text().splitlines() if TENANT_TOKEN not in line]
        changed = tokens.with_suffix(".new")
        changed.write_text("\n".join(kept))
        changed.chmod(tokens.stat().st_mode)
        changed.replace(tokens)  # in one step: for a moment, an empty file would revoke the other token, too
        with pytest.raises((EOFError, httpx.HTTPError)):
            follower.next()
        own_world.create("seen")
        assert other.next()[1] == "instance.created"


def test_stopping_does_not_wait_for_followers(own_world: World) -> None:
    with following(own_world.operator) as follower:
        own_world.create("last")
        follower.until("instance.created")
        own_world.agent.stop()
        with pytest.raises((EOFError, httpx.HTTPError)):
            follower.until("never")
    own_world.start()
