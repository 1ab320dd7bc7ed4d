"""The store's guarantees to writers and readers, also under kill -9."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nfagent.errors import StoreError
from nfagent.store import Store, events, instances, migrations, processes
from nfagent.store.instances import Filter
from tests.nfagent import samples

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store")
    yield opened
    opened.close()


def test_a_failed_change_is_rolled_back(store: Store) -> None:
    before = store.last_event

    def fail() -> None:
        with store.change() as change:
            instances.add(change, samples.instance())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert instances.ids(store.read) == []
    assert store.last_event == before
    assert events.after(store.read, 0, 10, None) == []


def test_names_slots_and_ports_are_unique(store: Store) -> None:
    first, second = samples.instance("a", ports=(samples.port(1000),)), samples.instance("b")
    with store.change() as change:
        instances.add(change, first)
        instances.add(change, second)
        processes.add(change, samples.running(first, slot="s1"))
    for wrong in (samples.instance("a"), samples.instance("c", ports=(samples.port(1000),))):
        with pytest.raises(sqlite3.IntegrityError), store.change() as change:
            instances.add(change, wrong)
    for process in (samples.running(second, slot="s1"), samples.running(first, role="incoming", slot="s2")):
        with pytest.raises(sqlite3.IntegrityError), store.change() as change:
            processes.add(change, process)
    with store.change() as change:
        instances.add(change, samples.instance("a", project="other"))


def test_the_status_follows_from_desired_actual_and_migrations(store: Store) -> None:
    wanted = samples.instance()
    process = samples.running(wanted)

    def status() -> str:
        view = instances.view(store.read, wanted.id)
        assert view is not None
        return view.status

    with store.change() as change:
        instances.add(change, wanted)
    assert status() == "building"
    with store.change() as change:
        processes.add(change, process)
    assert status() == "building"
    with store.change() as change:
        process = processes.update(change, process, phase="active", pid=1)
    assert status() == "active"
    with store.change() as change:
        migration = migrations.request(change, wanted, "hypervisor", "snic0", "state")
    assert status() == "migrating"
    with store.change() as change:
        instances.give_up(change, wanted.id)
    assert status() == "deleting"
    with store.change() as change:
        migrations.end(change, migration, "done", None, {"lost": 0})
        process = processes.update(change, process, phase="error", reason="it ended")
    assert status() == "deleting"
    with store.change() as change:
        processes.remove(change, process)
        instances.remove(change, wanted)
    assert instances.view(store.read, wanted.id) is None
    found = migrations.find(store.read, migration.epoch)
    assert found is not None
    assert (found.outcome, found.report) == ("done", {"lost": 0})


def test_a_migrations_secret_is_never_published_and_ends_with_it(store: Store, tmp_path: Path) -> None:
    with store.change() as change:
        first = migrations.request(change, samples.instance("first"), "hypervisor", "snic0", "state")
        second = migrations.request(change, samples.instance("second"), "hypervisor", "snic0", "state")
    assert migrations.find(store.read, first.epoch) == first
    secret = migrations.secret(store.read, first.epoch)
    assert len(bytes.fromhex(secret)) == 32
    assert secret != migrations.secret(store.read, second.epoch)
    with store.change() as change:
        changed = migrations.step(change, first, "prepare")
    store.close()
    store = Store(tmp_path / "store")
    assert migrations.secret(store.read, first.epoch) == secret, "the secret must outlive the agent"
    with store.change() as change:
        migrations.end(change, changed, "done", None, {})
    with pytest.raises(StoreError, match="migration 1 has no secret"):
        migrations.secret(store.read, first.epoch)
    told = [events.after(store.read, 0, 100, None), migrations.page(store.read, None, None, 100, None)]
    assert secret not in str(told)
    store.close()


def test_a_deleted_process_causes_no_events(store: Store) -> None:
    wanted = samples.instance()
    process = samples.running(wanted)
    with store.change() as change:
        instances.add(change, wanted)
        processes.add(change, process)
    with store.change() as change:
        processes.remove(change, process)
        instances.remove(change, wanted)
    last = store.last_event
    with store.change() as change:
        processes.update(change, process, reason="it is late")
        processes.remove(change, process)
    assert store.last_event == last


def test_an_event_is_published_after_its_commit(store: Store) -> None:
    before, at_commit = store.last_event, list[int]()
    store.read.set_trace_callback(lambda sql: at_commit.append(store.last_event) if sql == "COMMIT" else None)
    with store.change() as change:
        instances.add(change, samples.instance())
        assert (store.last_event, store.wait(before, 0)) == (before, False)
    assert at_commit == [before]
    assert store.last_event == before + 1
    assert store.wait(before, 0)


def test_those_who_wait_for_types_of_events_ignore_others(store: Store) -> None:
    def happen(kind: str) -> None:
        with store.change() as change:
            change.event(kind, "it", None, {})

    before = store.last_event
    happen("migration.step")
    assert not store.wait(before, 0, ("migration.ended", "process."))
    assert store.wait(before, 0, ("migration.",))
    happen("process.active")
    assert store.wait(before, 0, ("migration.ended", "process."))
    assert not store.wait(store.last_event, 0, ("process.",))


def test_types_of_events_before_the_store_was_opened_are_unknown(store: Store, tmp_path: Path) -> None:
    with store.change() as change:
        change.event("migration.step", "it", None, {})
    store.close()
    again = Store(tmp_path / "store")
    assert again.wait(0, 0, ("process.",))
    assert not again.wait(again.last_event, 0, ("process.",))
    again.close()


def test_waiting_for_events_ends_with_the_event_or_the_store(store: Store) -> None:
    assert not store.wait(store.last_event, 0)
    done: list[bool] = []
    waiter = threading.Thread(target=lambda: done.append(store.wait(0, 30)))
    waiter.start()
    with store.change() as change:
        instances.add(change, samples.instance())
    waiter.join()
    waiter = threading.Thread(target=lambda: done.append(store.wait(10**9, 30)))
    waiter.start()
    store.close()
    waiter.join()
    assert done == [True, False]


def test_ended_threads_leave_no_open_files(store: Store) -> None:
    def read() -> None:
        with store.change() as change:
            change.event("made.up", "x", None, {})

    def run() -> int:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        return len(list(Path("/proc/self/fd").iterdir()))

    counts = [run() for _ in range(8)]
    assert len(set(counts[2:])) == 1, counts


def test_ids_of_events_are_never_reused(store: Store, tmp_path: Path) -> None:
    with store.change() as change:
        instances.add(change, samples.instance())
    last = store.last_event
    store.read.execute("DELETE FROM event")
    store.close()
    again = Store(tmp_path / "store")
    assert again.last_event == last
    with again.change() as change:
        instances.add(change, samples.instance("b"))
    assert again.last_event == last + 1
    again.close()


def test_acknowledged_changes_survive_kill_9(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    chance = random.Random(7)
    acknowledged: set[int] = set()
    following = 0
    for _ in range(8):
        command = [sys.executable, "-m", "tests.nfagent.crash_writer", str(directory), str(following)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 40)):
                acknowledged.add(int(writer.stdout.readline()))
            threading.Event().wait(chance.random() * 0.01)  # at a random point of the next change
            writer.send_signal(signal.SIGKILL)
            acknowledged.update(int(line) for line in writer.stdout)
        following = _check_after_crash(directory, acknowledged)


def _check_after_crash(directory: Path, acknowledged: set[int]) -> int:
    """Check that all acknowledged changes are complete, with at most one more per writer; return the next number."""
    store = Store(directory)
    found = {view.instance.config["n"]: view.instance for view in instances.views(store.read, Filter())}
    assert list(found) == list(range(len(found)))
    assert len(found) - 1 <= max(acknowledged) + 1
    for number, instance in found.items():
        migration = migrations.open_of(store.read, instance.id)
        assert migration is not None, number  # added in the same transaction
        assert migration.step == "COMMIT" or number not in acknowledged
    told = {event.subject for event in events.after(store.read, 0, 10**6, None) if event.type == "instance.created"}
    assert told == {instance.id for instance in found.values()}
    assert store.read.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    store.close()
    return len(found)


def test_lower_durability_applies_to_one_change_only(store: Store) -> None:
    level = lambda: store.read.execute("PRAGMA synchronous").fetchone()[0]  # noqa: E731
    full = level()
    with store.change(outlives="process") as change:
        assert level() < full
        change.event("test", "it", None, {})
    assert level() == full
    with pytest.raises(RuntimeError), store.change(outlives="process"):
        raise RuntimeError
    assert level() == full
