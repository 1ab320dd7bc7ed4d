"""A disk that stalls delays neither metrics nor the list of faults, which say so; what happened is written later."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from lab.chaos import disk
from nfagent import bulletin as bulletins
from nfagent.bulletin import Bulletin
from nfagent.errors import DiskFullError
from nfagent.faults import STALLED_S, disk_fault
from nfagent.overview import Overviews
from nfagent.store import Store, events, instances, migrations
from tests.nfagent.test_api import V1
from tests.nfagent.test_metrics import metrics, value
from tests.nfagent.test_told import LB
from tests.nfagent.world import World, wait_until

DOWN, UP = ("location.down", "snic0", {"reason": "no link"}), ("location.up", "snic0", {"reason": "a link"})
MISSING = disk.missing()


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    made = Store(directory / "state")
    yield made
    made.close()


def written(store: Store) -> list[str]:
    return [each.type for each in events.after(store.read, 0, 100, None)]


def test_what_is_told_is_known_at_once_and_written_in_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulletins, "_PATIENCE_S", 0.01)
    free = store.change
    monkeypatch.setattr(store, "change", MagicMock(side_effect=DiskFullError("no room")))
    bulletin = Bulletin(store)
    bulletin.start()
    assert bulletin.newest("location", "snic0") is None
    for told in (DOWN, DOWN, UP, DOWN):
        assert not bulletin.tell(*told)
        newest = bulletin.newest("location", "snic0")
        assert newest is not None
        assert newest.type == told[0]
    assert [each.subject for each in bulletin.down("location", ["snic0", "snic1"])] == ["snic0"]
    assert written(store) == []
    monkeypatch.setattr(store, "change", free)
    wait_until(lambda: bulletin.tell(*DOWN))
    assert written(store) == ["location.down", "location.up", "location.down"]
    bulletin.stop()
    assert Bulletin(store).down("location", ["snic0"])  # as a later agent learns


def test_an_event_is_of_the_time_when_it_was_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bulletin, free = Bulletin(store), store.change
    monkeypatch.setattr(store, "change", MagicMock(side_effect=DiskFullError("no room")))
    monkeypatch.setattr(bulletins.time, "time", lambda: 5.0)
    assert not bulletin.tell(*DOWN)
    monkeypatch.setattr(bulletins.time, "time", lambda: 9.0)
    monkeypatch.setattr(store, "change", free)
    assert bulletin.tell(*DOWN)
    assert [each.time for each in events.after(store.read, 0, 100, None)] == [5.0]


def test_too_many_waiting_events_are_dropped_with_words(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bulletins, "_MOST", 2)
    free = store.change
    monkeypatch.setattr(bulletins, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(store, "change", MagicMock(side_effect=DiskFullError("no room")))
    bulletin = Bulletin(store)
    for told in (DOWN, UP, DOWN):
        assert not bulletin.tell(*told)
    assert "this one is lost" in caplog.text
    monkeypatch.setattr(store, "change", free)
    assert bulletin.tell(*DOWN)
    assert written(store) == ["location.up", "location.down"]


def test_a_change_that_waits_too_long_is_a_fault() -> None:
    assert disk_fault(1 << 30, STALLED_S) is None
    found = disk_fault(0, STALLED_S + 1)
    assert found is not None
    assert (found[0], "has not taken a change for 3 s" in found[1]) == ("critical", True)


def test_an_overdue_step_is_told_once_with_what_it_waits_for(store: Store) -> None:
    with store.change() as change:
        instances.add(change, LB)
        move = migrations.request(change, LB, "hypervisor", "snic0", "state")
        move = migrations.step(change, move, "drain", {"step_at": time.time()})
    overviews = Overviews(store, Bulletin(store))
    overviews.newest()
    assert "migration.overdue" not in written(store)
    with store.change() as change:
        migrations.step(change, move, "drain", {"step_at": 5.0})
    assert {view.instance.id for _ in range(3) for view in overviews.newest().views} == {LB.id}
    (told,) = [each for each in events.newest(store.read, 9, "1") if each.type == "migration.overdue"]
    waits_for = "the old process at hypervisor to relay, and the new one to process it"
    assert told.payload == {
        "epoch": 1,
        "instance": LB.id,
        "step": "drain",
        "waits_for": waits_for,
        "limit_s": 32.0,
        "reason": f"step drain is overdue; it waits for {waits_for}",
    }
    with store.change() as change:
        migrations.step(change, move, "drain", {"step_at": 5.0, "waits": "snic0 does not answer"})
    overviews.newest()
    assert written(store)[-1] == "migration.step"  # which names the blocker itself


@pytest.mark.root
@pytest.mark.skipif(MISSING is not None, reason=f"needs {MISSING}")
def test_the_newest_transaction_can_be_read_while_the_disk_stalls(directory: Path) -> None:
    with ExitStack() as stack:
        state = stack.enter_context(disk.Disk(directory / "state", directory / "disk.img"))
        store = Store(directory / "state")
        stack.callback(store.close)
        reader = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(state.flow)
        assert reader.submit(written, store).result() == []
        with store.change() as change:
            change.event(*DOWN[:2], None, DOWN[2])
        state.stall(600)
        assert reader.submit(written, store).result(timeout=20) == ["location.down"]


@pytest.mark.root
@pytest.mark.skipif(MISSING is not None, reason=f"needs {MISSING}")
def test_metrics_and_faults_answer_while_the_disk_stalls(directory: Path) -> None:
    with ExitStack() as stack:
        state = stack.enter_context(disk.Disk(directory / "state", directory / "disk.img"))
        world = World(directory)
        stack.callback(world.close)

        def listed() -> list[dict[str, Any]]:
            return world.admin.get(f"{V1}/faults", timeout=10).json()["faults"]

        made = world.create("runs")
        world.wait_status(made, "active")
        assert listed() == []
        stack.callback(state.flow)
        state.stall(600)
        assert not world.agent._bulletin.tell(*DOWN)
        wait_until(lambda: {each["about"] for each in listed()} == {"disk", "location"})
        assert "no link" in str(listed())
        text = metrics(world.admin)
        assert value(text, 'nfagent_location_up{location="snic0"}') == 0
        assert value(text, "nfagent_store_waiting_seconds") > STALLED_S
        assert value(text, 'nfagent_instances{status="active"}') == 1
        state.flow()
        wait_until(lambda: world.agent._bulletin.tell(*UP))
        wait_until(lambda: listed() == [])
        told = events.newest(world.agent._store.read, 10, "snic0")
        assert [each.type for each in told] == ["location.up", "location.down"]
