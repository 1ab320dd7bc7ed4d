"""Hanging processes are reported, killed and restarted; nothing waits for them forever."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nfagent.launch import Process, Task
from nfagent.launch.local import LocalLauncher
from tests.nfagent.test_migrate import SOURCE, V1, Case, interrupted
from tests.nfagent.world import World, processes_of

HUNG_AFTER_S = 4


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    made = World(directory, more=f"\n[recovery]\nhung_after_s = {HUNG_AFTER_S}\n")
    yield made
    made.close()


def stop(made: dict[str, Any]) -> int:
    """Stop the instance's process; return its PID."""
    pid = int(made["placement"]["pid"])
    os.kill(pid, signal.SIGSTOP)
    return pid


@pytest.mark.parametrize("kind", ["toy", "sleeper"])
def test_a_hanging_process_is_reported_killed_and_restarted(world: World, kind: str) -> None:
    made = world.wait_status(world.create("one", kind), "active")
    pid = stop(made)
    shown = world.wait_status(made, "error")
    assert f"after {HUNG_AFTER_S} s nfagent kills" in shown["reason"]
    assert shown["placement"]["pid"] == pid
    world.wait(lambda: world.show(made)["placement"]["pid"] not in (pid, None))
    again = world.wait_status(made, "active")
    assert again["reason"] is None
    assert processes_of(made["id"]) == [again["placement"]["pid"]]
    events = world.agent._store.read.execute("SELECT payload FROM event WHERE type = 'process.error'").fetchall()
    assert "did not answer" in events[-1]["payload"]


def test_a_process_that_recovers_is_left_alone(world: World) -> None:
    made = world.wait_status(world.create("one", "toy"), "active")
    pid = stop(made)
    world.wait_status(made, "error")
    os.kill(pid, signal.SIGCONT)
    again = world.wait_status(made, "active")
    assert (again["reason"], again["placement"]["pid"]) == (None, pid)


def test_a_hanging_instance_can_be_deleted(world: World) -> None:
    made = world.wait_status(world.create("one", "toy"), "active")
    stop(made)
    assert world.operator.delete(f"{V1}/instances/one").status_code == 202
    world.wait(lambda: world.operator.get(f"{V1}/instances/one").status_code == 404)
    assert processes_of(made["id"]) == []


@pytest.mark.parametrize("effect", ["start", "hold", "freeze", "COMMIT", "flip", "drain", "done"])
@pytest.mark.parametrize("who", ["old", "new"])
def test_a_hanging_process_does_not_block_a_migration(world: World, who: str, effect: str) -> None:
    case = Case(world)

    def hang() -> None:
        for row in world.agent._store.read.execute("SELECT role, pid FROM running").fetchall():
            if (row["role"] == "serving") == (who == "old") and row["pid"] is not None:
                os.kill(row["pid"], signal.SIGSTOP)

    with interrupted(effect, "before", hang) as happened:
        epoch = case.begin()
        assert happened.wait(60)
        told = case.end(epoch)
    assert told["outcome"] in ("done", "rolled-back")
    assert told["report"]["lost_state"] is None
    case.check(told["target"] if told["outcome"] == "done" else SOURCE, 3)


def test_a_process_that_hangs_as_it_starts_turns_the_migration_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the limit, the old process serves; retrying could hang again."""
    case = Case(world)
    start = LocalLauncher.start

    def start_stopped(launcher: LocalLauncher, task: Task) -> Process:
        process = start(launcher, task)
        if not task.key.startswith("keeper"):
            os.kill(process.pid, signal.SIGSTOP)
        return process

    monkeypatch.setattr("nfagent.starter._TAKES_OVER_S", 2.0)
    monkeypatch.setattr(LocalLauncher, "start", start_stopped)
    told = case.end(case.begin())
    assert (told["outcome"], told["report"]["lost_state"]) == ("rolled-back", None)
    assert "it was not ready after 2 s" in told["reason"]
    case.check(SOURCE, 3)
