"""Who may go without a token, and who only seems to."""

from pathlib import Path

import httpx
import pytest

from tests.nfagent.world import ADMIN_TOKEN, World

OWN = ("localhost", "LocalHost:8774", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:8774")
OTHERS = (
    "rebound.example:8774",
    "127.rebound.example",
    "localhost.rebound.example",
    "192.0.2.1",
    "[2001:db8::1]:1",
    "[",
)
PATHS = ("/api/v1/instances", "/v2.1/servers", "/dashboard", "/metrics")
STREAMS = ("/api/v1/events", "/dashboard/stream")


def ask(world: World, path: str, host: str, token: str = "") -> httpx.Response:
    """Ask for a path by some name."""
    headers = {"Host": host} | ({"Authorization": f"Bearer {token}"} if token else {})
    return world.with_token("").get(path, headers=headers)


def test_without_a_token_this_machine_is_asked_for_by_its_own_names(directory: Path) -> None:
    world = World(directory, anonymous="admin")
    try:
        for path in PATHS:
            assert {host for host in OWN if ask(world, path, host).status_code != 200} == set(), path
            assert ask(world, path, OTHERS[0], ADMIN_TOKEN).status_code == 200
        for path in PATHS + STREAMS:
            assert {host for host in OTHERS if ask(world, path, host).status_code != 403} == set(), path
        answer = ask(world, PATHS[0], OTHERS[0])
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "host-unknown"
        assert "rebound.example:8774" in answer.json()["detail"]
        assert "rebound.example:8774" in ask(world, PATHS[1], OTHERS[0]).json()["forbidden"]["message"]
        assert "rebound.example:8774" in ask(world, PATHS[2], OTHERS[0]).text
        order = {"name": "x", "kind": "sleeper"}
        posted = world.with_token("").post(PATHS[0], json=order, headers={"Host": OTHERS[0]})
        assert posted.status_code == 403
        assert world.operator.get(PATHS[0], headers={"Host": OTHERS[0]}).json()["instances"] == []
    finally:
        world.close()


@pytest.mark.parametrize("host", [OWN[0], OTHERS[0]])
def test_where_a_token_is_needed_it_is_asked_for_whatever_the_name(world: World, host: str) -> None:
    assert ask(world, PATHS[0], host).status_code == 401
    assert ask(world, PATHS[0], host, ADMIN_TOKEN).status_code == 200
