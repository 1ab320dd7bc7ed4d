"""Slots are chosen by where ports are: no port waits for an interface which another port keeps."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from nfagent import reconcile
from nfagent.errors import WiringError
from nfagent.model import Instance, Running
from nfagent.starter import Starter
from tests.nfagent.test_migrate import SOURCE, TARGET, V1, Case, interrupted
from tests.nfagent.world import FakeWiring, World

VANISHING = """
[[kind]]
name = "vanishing"
ports = [1, 1]
command = ["{directory}/vanishing"]
"""


@pytest.fixture
def spacious(directory: Path) -> Iterator[World]:
    """Return an agent with two slots at each location."""
    world = World(directory, has_spares=True, more=VANISHING.format(directory=directory))
    yield world
    world.close()


def create(world: World, name: str, location: str, kind: str = "wired") -> dict[str, Any]:
    """Create an instance with a port at a location; wait until it is active."""
    return world.wait_status(world.create(name, kind, pin=location), "active")


def slot(made: dict[str, Any]) -> str:
    return made["placement"]["slot"]


@pytest.mark.parametrize("answers", [True, False])
def test_instances_that_restart_in_another_order_return_to_their_slots(
    spacious: World, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    first, second = (create(spacious, name, SOURCE) for name in ("first", "second"))
    assert (slot(first), slot(second)) == ("s0", "s0-spare")
    begin, is_free, has_begun = Starter.begin, threading.Event(), threading.Event()

    def reversed_begin(starter: Starter, instance: Instance, *arguments: Any) -> Running:
        if instance.id == first["id"]:
            is_free.set()
            assert has_begun.wait(60)
            return begin(starter, instance, *arguments)
        assert is_free.wait(60)
        running = begin(starter, instance, *arguments)
        has_begun.set()
        return running

    monkeypatch.setattr(Starter, "begin", reversed_begin)
    if not answers:
        monkeypatch.setattr(FakeWiring, "carried", MagicMock(side_effect=WiringError("no answer")))
    for made in (first, second):
        os.kill(made["placement"]["pid"], signal.SIGKILL)
    assert has_begun.wait(60)
    for made in (first, second):
        spacious.wait(lambda made=made: spacious.show(made)["placement"]["pid"] not in (made["placement"]["pid"], None))
        assert slot(spacious.wait_status(made, "active")) == slot(made)


@pytest.mark.parametrize("answers", [True, False])
def test_an_instance_whose_command_has_vanished_blocks_no_other_one(
    spacious: World, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    command = spacious.directory / "vanishing"
    command.write_text("#!/bin/sh\nexec sleep 100000\n")
    command.chmod(0o755)
    made = create(spacious, "lost", SOURCE, "vanishing")
    monkeypatch.setattr(reconcile, "_FIRST_RETRY_S", 3600.0)  # it has no slot until then
    monkeypatch.setattr(reconcile, "_LAST_RETRY_S", 3600.0)
    monkeypatch.setattr(reconcile, "_SERVED_S", 0.0)
    command.unlink()
    os.kill(made["placement"]["pid"], signal.SIGKILL)
    spacious.wait(lambda: made["id"] in spacious.agent._reconciler._failures)
    assert "vanishing" in spacious.wait_status(made, "error")["reason"]
    assert slot(made) == "s0"
    if not answers:
        monkeypatch.setattr(FakeWiring, "carried", MagicMock(side_effect=WiringError("no answer")))
    assert slot(create(spacious, "new", SOURCE)) == "s0-spare"


def test_a_slot_is_found_without_oneswitchd(spacious: World) -> None:
    spacious.wiring.broken = True
    made = spacious.create("one", "wired", pin=SOURCE)
    spacious.wait(lambda: spacious.show(made)["reason"] == "no oneswitchd answers")
    spacious.wiring.broken = False
    assert slot(spacious.wait_status(made, "active")) == "s0"


def test_a_new_process_that_dies_after_commit_is_replaced_in_its_slot(
    spacious: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, case = create(spacious, "other", TARGET), Case(spacious)
    slots: list[str] = []

    def free_the_other_slot() -> None:
        slots.append(case.row("incoming").slot)
        spacious.operator.delete(f"{V1}/instances/other")
        spacious.wait(lambda: spacious.operator.get(f"{V1}/instances/other").status_code == 404)
        # Only the row tells the slot.
        monkeypatch.setattr(FakeWiring, "carried", MagicMock(side_effect=WiringError("no answer")))
        case.kill("new")

    with interrupted("flip", "before", free_the_other_slot):
        ended = case.end(case.begin())
    assert (ended["outcome"], ended["report"]["replaced"]) == ("done", True)
    assert (slot(other), slots) == ("s1", ["s1-spare"])
    assert slot(spacious.wait_status(case.made, "active")) == "s1-spare"
