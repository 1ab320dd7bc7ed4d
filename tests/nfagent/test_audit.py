"""The audit log: changes and refusals, never secrets."""

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nfagent.api.audit import Audit, AuditError
from nfagent.config import AuditConfig
from tests.nfagent.api_world import Api
from tests.nfagent.world import ADMIN_TOKEN, TENANT_TOKEN

ORDER = {"name": "x", "kind": "sleeper", "config": {"password": "hunter2"}}


@pytest.fixture
def api(directory: Path) -> Iterator[Api]:
    audit = Audit(AuditConfig(), directory)
    made = Api(directory, audit)
    (directory / "tokens").write_text(f"acme tenant {TENANT_TOKEN} eve\nops admin {ADMIN_TOKEN} alice\n")
    yield made
    made.store.close()
    audit.close()


def entries(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "audit.log").read_text().splitlines()]


def brief(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in ("subject", "role", "method", "result", "object", "code"))


def test_changes_and_refusals_are_recorded_and_reads_are_not(api: Api, directory: Path) -> None:
    made = api.ask("POST", "/instances", json=ORDER, token=TENANT_TOKEN).json["id"]
    api.get("/instances")
    api.ask("PATCH", "/instances/x", json={"config": {"password": "hunter3"}, "labels": {}}, token=TENANT_TOKEN)
    api.ask("POST", "/placement/dry-run", json={})
    api.ask("GET", "/faults", token=TENANT_TOKEN)
    api.ask("GET", "/faults", token="guessed-secret-token")
    api.ask("POST", "/migrations", json={"instance": "nothing"})
    api.client.delete(f"/v2.1/servers/{made}", headers={"X-Auth-Token": ADMIN_TOKEN})
    api.client.post("/dashboard/login", data={"token": ADMIN_TOKEN})
    api.ask("DELETE", "/instances/y", token="")
    found = entries(directory)
    assert [brief(each) for each in found] == [
        ("eve", "tenant", "POST", 202, made, None),
        ("eve", "tenant", "PATCH", 200, made, None),
        ("eve", "tenant", "GET", 403, None, "administrators-only"),
        (None, None, "GET", 401, None, "token-unknown"),
        ("alice", "admin", "POST", 404, None, "instance-unknown"),
        ("alice", "admin", "DELETE", 204, made, None),
        ("alice", "admin", "POST", 303, None, None),
        ("the unix socket", "admin", "DELETE", 404, "y", "instance-unknown"),
    ]
    assert found[0]["project"] == "acme"
    assert (found[0]["path"], found[0]["fields"]) == ("/api/v1/instances", ["config", "kind", "name"])
    assert (found[0]["from"], found[-1]["from"]) == ("127.0.0.1", "unix socket")
    text = (directory / "audit.log").read_text()
    assert not any(secret in text for secret in ("hunter", ADMIN_TOKEN, TENANT_TOKEN, "guessed"))
    assert stat.S_IMODE((directory / "audit.log").stat().st_mode) == 0o600


def test_a_flood_of_refusals_does_not_push_out_changes(directory: Path) -> None:
    now = [0.0]
    audit = Audit(AuditConfig(), directory, lambda: now[0])
    for number in range(150):
        audit.write({"n": number}, is_refusal=True)
    audit.write({"n": "change"}, is_refusal=False)
    now[0] = 0.2
    audit.write({"n": "late"}, is_refusal=True)
    audit.close()
    assert entries(directory)[99:] == [{"n": 99}, {"n": "change"}, {"n": "late", "left_out": 50}]


def test_the_file_is_rotated(directory: Path) -> None:
    audit = Audit(AuditConfig(max_mb=1, keep=2), directory)
    for _ in range(40):
        audit.write({"text": "x" * 100_000}, is_refusal=False)
    audit.close()
    files = sorted(directory.glob("audit.log*"))
    assert [each.name for each in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 and each.stat().st_size <= 1 << 20 for each in files)


def test_a_lost_entry_is_in_the_log_of_nfagent(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(AuditConfig(file="/dev/full"), directory)
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            audit.write({"n": number}, is_refusal=False)
    audit.close()
    assert 'an entry of the audit log cannot be written: {"n": 0}' in caplog.text
    assert "No space left" in caplog.text
    assert len(caplog.records) == 1  # once a minute


def test_an_unusable_place_is_named(directory: Path) -> None:
    with pytest.raises(AuditError, match=rf"^\[audit\]: {directory}/no/where cannot be used: No such file"):
        Audit(AuditConfig(file=f"{directory}/no/where"), directory)
    Audit(AuditConfig(to="none"), directory / "missing").write({}, is_refusal=False)
