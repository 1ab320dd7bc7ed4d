"""Roles: who may change what, and who sees secrets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nfagent.clients import ROLES, Client
from nfagent.errors import ForbiddenError
from nfagent.masking import MASK, masked, unmasked
from tests.nfagent.api_world import Api, problem

TOKENS = {role: f"token-of-the-{role}" for role in ROLES}
ORDER = {"name": "x", "kind": "sleeper", "config": {"login": {"password": "hunter2", "user": "u"}}}


@pytest.fixture
def api(directory: Path) -> Iterator[Api]:
    made = Api(directory)
    lines = [f"acme {role} {token} some-{role}\n" for role, token in TOKENS.items()]
    (directory / "tokens").write_text("".join(lines))
    yield made
    made.store.close()


def test_a_role_survives_the_way_through_a_client() -> None:
    assert [Client.of(role, "p").role for role in ROLES] == list(ROLES)
    assert [Client.of(role, "p").admin for role in ROLES] == [True, True, True, False]


@pytest.mark.parametrize("role", ROLES)
def test_readers_change_nothing(api: Api, role: str) -> None:
    made = api.ask("POST", "/instances", json=ORDER, token=TOKENS["admin"]).json
    where = f"/instances/{made['id']}"
    asked = [
        api.ask("POST", "/instances", json=ORDER | {"name": "y"}, token=TOKENS[role]),
        api.ask("PATCH", where, json={"labels": {"a": "b"}}, token=TOKENS[role]),
        api.ask("POST", "/chains", json={"name": "c", "hops": [{"port": 1}, {"port": 2}]}, token=TOKENS[role]),
        api.ask("DELETE", where, token=TOKENS[role]),
    ]
    if role != "reader":
        assert [each.status_code for each in asked] == [202, 200, 202, 202]
        return
    whats = ("creating an instance", "changing an instance", "creating a chain", "deleting an instance")
    for answer, what in zip(asked, whats, strict=True):
        detail = f"{what} requires the role operator or admin; this is a reader"
        problem(answer, 403, "role-insufficient", "Forbidden", detail)
    refused = api.ask("POST", "/migrations", json={"instance": made["id"]}, token=TOKENS["reader"])
    assert (refused.status_code, refused.json["code"]) == (403, "role-insufficient")


def test_readers_and_operators_see_the_whole_server(api: Api) -> None:
    for role in ("admin", "operator", "reader"):
        assert api.get("/faults", TOKENS[role]) == {"faults": []}
        assert api.ask("POST", "/placement/dry-run", json={}, token=TOKENS[role]).status_code == 200
    with pytest.raises(ForbiddenError, match=r"^faults requires the role reader, operator or admin; 'p' is a tenant$"):
        Client.of("tenant", "p").require_admin("faults")


@pytest.mark.parametrize("role", ROLES)
def test_only_administrators_see_secrets(api: Api, role: str) -> None:
    made = api.ask("POST", "/instances", json=ORDER, token=TOKENS["admin"]).json
    shown = api.get(f"/instances/{made['id']}", TOKENS[role])["config"]
    assert shown == {"login": {"password": "hunter2" if role == "admin" else MASK, "user": "u"}}
    assert api.get("/instances", TOKENS[role])["instances"][0]["config"] == shown


def test_a_masked_secret_stays_as_it_was(api: Api) -> None:
    made = api.ask("POST", "/instances", json=ORDER, token=TOKENS["admin"]).json
    where = f"/instances/{made['id']}"
    changed = {"config": {"login": {"password": MASK, "user": "v"}}}
    assert api.ask("PATCH", where, json=changed, token=TOKENS["operator"]).json["config"]["login"]["password"] == MASK
    assert api.get(where, TOKENS["admin"])["config"] == {"login": {"password": "hunter2", "user": "v"}}
    moved = {"config": {"logins": [{"password": MASK}]}}
    for answer in (
        api.ask("PATCH", where, json=moved, token=TOKENS["operator"]),
        api.ask("POST", "/instances", json=ORDER | {"name": "y"} | moved, token=TOKENS["operator"]),
    ):
        assert (answer.status_code, answer.json["code"]) == (422, "secret-masked")
        assert answer.json["errors"][0]["field"] == "config.logins[0].password"


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        (
            {"api_token": "x", "token_count": 3, "tokens": ["a", "b"]},
            {"api_token": MASK, "token_count": 3, "tokens": [MASK] * 2},
        ),
        ({"PSK": "x", "key": "/a/path", "secret": ""}, {"PSK": MASK, "key": "/a/path", "secret": ""}),
        ({"tls": "-----BEGIN EC PRIVATE KEY-----\n"}, {"tls": MASK}),
        (
            {"private-key": 7, "ca": "-----BEGIN CERTIFICATE-----"},
            {"private-key": 7, "ca": "-----BEGIN CERTIFICATE-----"},
        ),
    ],
)
def test_a_secret_is_known_by_its_key_or_form(config: dict[str, Any], shown: dict[str, Any]) -> None:
    assert masked(config) == shown
    assert unmasked(shown, config) == config
