"""The agent is killed at every boundary of a migration; the next one goes on from what is written."""

import contextlib
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from nfagent.control import Control
from tests.nfagent.test_crashes import PATH, Victim
from tests.nfagent.world import processes_of, wait_until

MIGRATIONS = "/api/v1/migrations"
BEFORE_COMMIT = ("prepare", "start", "rules", "hold", "freeze", "COMMIT")
AFTER_COMMIT = ("passing", "commit", "settle", "flip", "quiesce", "drain", "handover", "done")
EVERY_DAY = {("before", "hold"), ("after", "freeze"), ("after", "COMMIT"), ("after", "settle"), ("before", "done")}
POINTS = [(moment, effect) for effect in (*BEFORE_COMMIT, *AFTER_COMMIT) for moment in ("before", "after")]


@pytest.mark.parametrize(
    ("moment", "effect"),
    [point if point in EVERY_DAY else pytest.param(*point, marks=pytest.mark.soak) for point in POINTS],
)
@pytest.mark.parametrize("mode", ["auto", pytest.param("copy", marks=pytest.mark.soak)])
def test_a_migration_is_resumed_after_kill_9_of_the_agent(directory: Path, mode: str, moment: str, effect: str) -> None:
    victim = Victim(directory, f"{moment}:{effect}", more=f'\n[migrate]\nmode = "{mode}"\n')
    try:
        made = victim.client.post(PATH, json={"name": "toy", "kind": "toy", "ports": 1}).json()
        wait_until(lambda: victim.client.get(f"{PATH}/toy").json()["status"] == "active")
        for _ in range(3):
            _ask(victim, made, "hypervisor")
        with contextlib.suppress(httpx.TransportError):
            victim.client.post(MIGRATIONS, json={"instance": "toy", "target": "snic0"})
        assert victim.process.wait(60) == -signal.SIGKILL
        victim.end(signal.SIGKILL)
        victim.start()
        wait_until(lambda: victim.client.get(f"{MIGRATIONS}/1").json()["ended"] is not None)
        told = victim.client.get(f"{MIGRATIONS}/1").json()
        is_done = effect in AFTER_COMMIT or (moment, effect) == ("after", "COMMIT")
        assert (told["outcome"], told["report"]["lost_state"]) == ("done" if is_done else "rolled-back", None)
        if not is_done:
            assert "the agent ended during step" in told["reason"]
        location = "snic0" if is_done else "hypervisor"
        shown = victim.client.get(f"{PATH}/toy").json()
        assert (shown["status"], shown["placement"]["location"]) == ("active", location)
        assert processes_of(made["id"]) == [shown["placement"]["pid"]]
        assert _ask(victim, made, location) == {"number": 4}
        home = ["snic0", "pf0vf0"] if is_done else ["hypervisor", "vf0"]
        assert json.loads(victim.ports.read_text()) == {str(made["ports"][0]["number"]): home}
    finally:
        if victim.process.poll() is not None:
            victim.start()
        victim.client.delete(f"{PATH}/toy")
        wait_until(lambda: victim.client.get(f"{PATH}/toy").status_code == 404)
        victim.end(signal.SIGTERM)
    assert list((directory / "run").iterdir()) == []


def _ask(victim: Victim, made: dict[str, Any], location: str) -> dict[str, Any]:
    return Control(victim.directory / "run" / f"{made['id']}.{location}.sock").ask("count")
