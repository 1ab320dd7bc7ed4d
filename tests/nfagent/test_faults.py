"""Faults that may need an operator, as all interfaces list them."""

from dataclasses import replace

import pytest

from nfagent.faults import faults
from nfagent.model import Migration, Running, View
from nfagent.store import instances, processes
from tests.nfagent import samples
from tests.nfagent.test_api import V1, refused
from tests.nfagent.world import World

INSTANCE = samples.instance("lb")
WELL = replace(samples.running(INSTANCE, "hypervisor", phase="active"), reason=None, since=100.0)
MOVE = Migration(7, INSTANCE.id, "acme", "hypervisor", "snic0", "state", "drain", requested=900.0, started=901.0)


def view(running: Running | None = WELL, migration: Migration | None = None, *, present: bool = True) -> View:
    return View(replace(INSTANCE, present=present), "active", running, migration)


@pytest.mark.parametrize(
    ("shown", "gravity", "since", "words"),
    [
        (view(replace(WELL, silent=95.0, reason="its process does not answer")), "critical", 95.0, "does not answer"),
        (view(replace(WELL, phase="error", reason=None)), "critical", 100.0, "it is not running"),
        (view(replace(WELL, reason="port 1 is lost")), "warning", 100.0, "it runs, but port 1 is lost"),
        (view(replace(WELL, phase="starting", reason="no port")), "warning", 100.0, "it does not serve yet: no port"),
        (view(replace(WELL, reason="no port"), present=False), "warning", 100.0, "its deletion waits: no port"),
        (
            view(migration=replace(MOVE, report={"waits": "snic0 does not answer"})),
            "critical",
            901.0,
            "its migration 7 from hypervisor to snic0 waits in step drain: snic0 does not answer",
        ),
        (
            view(migration=replace(MOVE, started=None, step="requested")),
            "warning",
            900.0,
            "migration 7 from hypervisor to snic0 is overdue in step requested: 100 s of 60 s; it waits for migrations",
        ),
        (
            view(migration=replace(MOVE, report={"step_at": 960.0})),
            "warning",
            960.0,
            "is overdue in step drain: 40 s of 32 s; it waits for the old process at hypervisor to relay",
        ),
        (
            view(migration=replace(MOVE, step="COMMIT", report={"step_at": 995.0})),
            "critical",
            995.0,
            "is overdue in step COMMIT: 5 s of 4 s; it waits for the new process at snic0 to take over",
        ),
        (
            view(migration=replace(MOVE, step="flip", report={"step_at": 975.0, "rolled_back_at": "prepare"})),
            "warning",
            975.0,
            "is overdue in its rollback from step flip: 25 s of 20 s; it waits for a process at hypervisor to go on",
        ),
        (
            view(migration=replace(MOVE, step="precopy", report={"step_at": 987.0, "state_bytes": 12_500_000})),
            "warning",
            987.0,
            "is overdue in step precopy: 13 s of 12 s; it waits for the state to be copied",
        ),
    ],
)
def test_every_problem_is_a_fault(shown: View, gravity: str, since: float, words: str) -> None:
    (found,) = faults([shown], 1000.0)
    assert (found.gravity, found.since, found.instance) == (gravity, since, INSTANCE.id)
    assert words in found.text


def test_a_healthy_server_has_no_faults() -> None:
    copies = replace(MOVE, step="precopy", report={"step_at": 900.0, "state_bytes": 125_000_000, "rate_mbps": 30})
    for shown in (view(), view(None), view(migration=MOVE), view(migration=copies), view(present=False)):
        assert faults([shown], 930.0) == []


def test_the_gravest_faults_come_first() -> None:
    waits = view(replace(WELL, reason="x", since=1.0), replace(MOVE, report={"waits": "y"}))
    assert [each.gravity for each in faults([waits], 1000.0)] == ["critical", "warning"]


def test_only_administrators_list_faults(own_world: World) -> None:
    made = own_world.create("hangs")
    own_world.wait_status(made, "active")
    assert own_world.admin.get(f"{V1}/faults").json() == {"faults": []}
    with own_world.agent._store.change() as change:
        (row,) = processes.of(change.db, made["id"])
        processes.update(change, row, phase="error", since=1.5, reason="it ended")
        assert instances.find(change.db, made["id"]) is not None
    tell = own_world.agent._bulletin.tell
    assert tell("location.down", "snic0", {"location": "snic0", "reason": "no link"})
    location, instance = own_world.admin.get(f"{V1}/faults").json()["faults"]
    assert (location["about"], location["name"], location["text"]) == ("location", "snic0", "it is down: no link")
    assert (instance["name"], instance["project"], instance["text"]) == ("hangs", "default", "it ended")
    assert instance["since"] == "1970-01-01T00:00:01.500Z"
    assert tell("location.up", "snic0", {"location": "snic0", "reason": "a link"})
    assert tell("oneswitchd.down", "oneswitchd", {"reason": "timed out"})
    daemon, instance = own_world.admin.get(f"{V1}/faults").json()["faults"]
    assert (daemon["about"], instance["about"]) == ("oneswitchd", "instance")
    assert daemon["text"] == "it does not answer, so nothing can be moved: timed out"
    assert "nfagent_oneswitchd_up 0.0" in own_world.admin.get("/metrics").text
    assert tell("oneswitchd.up", "oneswitchd", {"reason": "it answers again"})
    assert tell("database.down", "snic0", {"location": "snic0", "reason": "its ovsdb-server does not answer"})
    database, instance = own_world.admin.get(f"{V1}/faults").json()["faults"]
    assert (database["about"], database["name"], instance["about"]) == ("database", "snic0", "instance")
    assert database["text"] == "its ovsdb-server does not answer, so nothing can be started or moved there"
    assert 'nfagent_database_up{location="snic0"} 0.0' in own_world.admin.get("/metrics").text
    assert "Nothing can be started or moved at snic0" in own_world.operator.get("/dashboard").text
    assert tell("database.up", "snic0", {"location": "snic0", "reason": "it answers again"})
    assert [each["about"] for each in own_world.admin.get(f"{V1}/faults").json()["faults"]] == ["instance"]
    refused(own_world.tenant.get(f"{V1}/faults"), 403, "administrators-only", "faults")
