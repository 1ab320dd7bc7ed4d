"""The choice of connections to close."""

from typing import Any

import pytest

from nfagent.api import connections
from nfagent.api.connections import Connections


class FakeConnection:
    """A stand-in for `Connection`."""

    def __init__(self, name: str) -> None:
        self.name, self.peer, self.is_open = name, name.partition("/")[0], True

    def drop(self) -> None:
        self.is_open = False


def opened(limits: Connections, *names: str) -> list[Any]:
    made: list[Any] = [FakeConnection(name) for name in names]
    for each in made:
        limits.opened(each)
    return made


def dropped(made: list[Any]) -> list[str]:
    return [each.name for each in made if not each.is_open]


def test_the_peer_with_most_connections_loses_the_longest_waiting() -> None:
    limits = Connections(4)
    made = opened(limits, "a/1", "b/1", "a/2", "a/3")
    assert dropped(made) == []
    limits.works(made[0])
    limits.waits(made[0])  # it was answered, so it now waits for less time than the others
    made += opened(limits, "b/2")
    assert dropped(made) == ["a/2"]
    made += opened(limits, "b/3")
    assert dropped(made) == ["b/1", "a/2"]


def test_connections_with_a_request_in_progress_stay() -> None:
    limits = Connections(2)
    made = opened(limits, "a/1", "a/2")
    for each in made:
        limits.works(each)
    made += opened(limits, "a/3")
    assert dropped(made) == ["a/3"]
    limits.closed(made[0])
    made += opened(limits, "a/4")
    assert dropped(made) == ["a/3"]


def test_a_flood_closes_a_fraction_at_a_time() -> None:
    limits = Connections(640)
    made = opened(limits, *(f"a/{number}" for number in range(641)))
    assert dropped(made) == [f"a/{number}" for number in range(10)]
    # Those are no longer counted, although the event loop has not closed them yet.
    made += opened(limits, *(f"a/{number}" for number in range(641, 650)))
    assert len(dropped(made)) == 10


def test_the_oldest_incomplete_body_is_dropped_at_the_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODIES_MAX", 100)
    limits = Connections(10)
    made = opened(limits, "a/1", "a/2", "a/3")
    for each, size in zip(made, (40, 40, 20), strict=True):
        limits.keep_body(each, size)
    assert dropped(made) == []
    limits.keep_body(made[2], 1)
    assert dropped(made) == ["a/1"]
    limits.release_body(made[1])
    limits.keep_body(made[2], 79)
    assert dropped(made) == ["a/1"]
