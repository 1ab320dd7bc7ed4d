"""Access without a token, and attempts to abuse it."""

from pathlib import Path

import httpx
import pytest

from nfagent.api.access import Access
from nfagent.clients import Client
from nfagent.errors import UnauthorizedError
from tests.nfagent.world import ADMIN_TOKEN, OTHER_TOKEN, TENANT_TOKEN, World

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
    """Request a path under a host name."""
    headers = {"Host": host} | ({"Authorization": f"Bearer {token}"} if token else {})
    return world.with_token("").get(path, headers=headers)


def test_anonymous_access_requires_a_name_of_this_machine(directory: Path) -> None:
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
def test_a_required_token_is_checked_for_every_host_name(world: World, host: str) -> None:
    assert ask(world, PATHS[0], host).status_code == 401
    assert ask(world, PATHS[0], host, ADMIN_TOKEN).status_code == 200


FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
)


def changes(world: World) -> list[tuple[str, bytes]]:
    """Return changing requests that a page of any origin can make a browser send."""
    server = world.create("target")["id"]
    return [
        ("/api/v1/instances", b'{"name": "forged", "kind": "sleeper"}'),
        ("/api/v1/migrations", b'{"instance": "target", "target": "snic0"}'),
        ("/api/v1/chains", b'{"name": "forged", "hops": [{"port": 1}, {"port": 2}]}'),
        ("/v2.1/servers", b'{"server": {"name": "forged", "imageRef": "sleeper", "flavorRef": "small"}}'),
        (f"/v2.1/servers/{server}/action", b'{"migrate": null}'),
    ]


def test_a_foreign_page_changes_nothing(directory: Path) -> None:
    world = World(directory, anonymous="admin")
    try:
        browser = world.with_token("")
        for path, body in changes(world):
            for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
                answer = browser.post(path, content=body, headers={"Content-Type": kind} if kind else {})
                assert answer.status_code == 415, (path, kind, answer.text)
            for headers in FOREIGN:
                answer = browser.post(path, content=body, headers={"Content-Type": "application/json"} | headers)
                assert answer.status_code == 403, (path, headers, answer.text)
        assert [each["name"] for each in world.operator.get("/api/v1/instances").json()["instances"]] == ["target"]
        assert browser.post("/dashboard/login", data={"token": ADMIN_TOKEN}, headers=FOREIGN[0]).status_code == 403
        for path in STREAMS:
            assert browser.get(path, headers=FOREIGN[0]).status_code == 403
        # Links to the dashboard work, and its own page may send requests.
        follow = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert browser.get("/dashboard", headers=follow).status_code == 200
        own = {"Origin": world.url, "Content-Type": "application/json"}
        for headers in (own, own | {"Sec-Fetch-Site": "same-origin", "Origin": "https://behind.a.proxy"}):
            assert browser.post("/api/v1/instances", content=b"{}", headers=headers).status_code == 422
    finally:
        world.close()


def test_a_removed_token_is_invalid_immediately(directory: Path) -> None:
    tokens = directory / "tokens"

    def write(text: str, mode: int = 0o600) -> None:
        draft = directory / "draft"
        draft.write_text(text)
        draft.chmod(mode)
        draft.replace(tokens)

    def is_known(token: str) -> bool:
        try:
            return access.client({"HTTP_AUTHORIZATION": f"Bearer {token}"}) == Client("acme", admin=False)
        except UnauthorizedError:
            return False

    line, other = f"acme tenant {TENANT_TOKEN}\n", f"acme tenant {OTHER_TOKEN}\n"
    write(line)
    access = Access(tokens, "nobody")
    badge = access.badge(TENANT_TOKEN)
    assert (is_known(TENANT_TOKEN), is_known(OTHER_TOKEN)) == (True, False)
    write(other)
    assert (is_known(TENANT_TOKEN), is_known(OTHER_TOKEN)) == (False, True)
    with pytest.raises(UnauthorizedError):
        access.visitor({}, badge)
    # A malformed line affects only itself; a file that others can read is ignored.
    write("acme owner whoever-it-may-be-1\nacme tenant short\n" + line)
    assert (is_known(TENANT_TOKEN), is_known(OTHER_TOKEN)) == (True, False)
    write(line, mode=0o644)
    assert not is_known(TENANT_TOKEN)
    write(line)
    assert is_known(TENANT_TOKEN)
    tokens.unlink()
    assert not is_known(TENANT_TOKEN)
