"""The store: what it promises its writers and readers, and that it keeps it when it is killed."""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nfagent.errors import StoreError
from nfagent.measurement import Coefficient
from nfagent.store import Store, chains, coefficients, decisions, events, figures, instances, migrations, processes
from nfagent.store.instances import Filter
from tests.nfagent import samples

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store")
    yield opened
    opened.close()


def test_an_instance_is_read_back_unchanged(store: Store, tmp_path: Path) -> None:
    wanted = samples.instance(ports=(samples.port(1000), samples.port(1001)), labels={"a": "b"}, pin="snic0")
    with store.change() as change:
        instances.add(change, wanted)
    assert instances.find(store.read, wanted.id) == wanted
    assert instances.find_named(store.read, "acme", "lb1") == wanted
    assert instances.port_owners(store.read) == {1000: wanted.id, 1001: wanted.id}
    store.close()
    again = Store(tmp_path / "store")
    assert instances.find(again.read, wanted.id) == wanted
    again.close()


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


def test_a_change_without_an_event_is_refused(store: Store) -> None:
    with store.change() as change:
        instances.add(change, samples.instance())
    with pytest.raises(StoreError, match="without an event"), store.change() as change:
        change.db.execute("UPDATE instance SET name = 'other'")
    assert [view.instance.name for view in instances.views(store.read, Filter())] == ["lb1"]


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


def test_deleted_migrations_are_still_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "_KEPT", 3)
    open_one, other = samples.instance("open"), samples.instance("other")
    with store.change() as change:
        migrations.request(change, open_one, "hypervisor", "snic0", "state")
    for outcome in ("done", "rolled-back", "done", "done", "cancelled", "done"):
        with store.change() as change:
            migration = migrations.request(change, other, "hypervisor", "snic0", "state")
            migrations.end(change, migration, outcome, None, {})
    assert [each.epoch for each in migrations.page(store.read, None, None, 100, None)] == [7, 6, 5, 1]
    assert migrations.open_epochs(store.read) == [1]
    counted = {"none": 1, "done": 4, "rolled-back": 1, "cancelled": 1}
    assert figures.migrations_by_outcome(store.read) == counted


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
    assert migrations.secret(store.read, first.epoch) == secret, "it outlives the agent"
    with store.change() as change:
        migrations.end(change, changed, "done", None, {})
    with pytest.raises(StoreError, match="migration 1 has no secret"):
        migrations.secret(store.read, first.epoch)
    told = [events.after(store.read, 0, 100, None), migrations.page(store.read, None, None, 100, None)]
    assert secret not in str(told)
    store.close()


def test_pages_are_complete_and_in_order(store: Store) -> None:
    made = [samples.instance(f"nf{number}", kind="l4lb" if number % 2 else "probe") for number in range(7)]
    with store.change() as change:
        for each in made:
            instances.add(change, each)
    for newest_first in (False, True):
        got: list[str] = []
        while page := instances.views(store.read, Filter(), 3, got[-1] if got else None, newest_first=newest_first):
            got += [view.instance.id for view in page]
        expected = [each.id for each in made]
        assert got == (expected[::-1] if newest_first else expected)
    odd = instances.views(store.read, Filter(kind="l4lb", project="acme", status="building"))
    assert [view.instance.name for view in odd] == ["nf1", "nf3", "nf5"]
    assert instances.views(store.read, Filter(location="snic0")) == []
    with pytest.raises(KeyError):
        instances.views(store.read, Filter(), 3, "no-such-id")


def test_chains_are_kept(store: Store) -> None:
    wanted = [samples.chain(f"c{number}", ("a", str(number))) for number in range(3)]
    with store.change() as change:
        for each in wanted:
            chains.add(change, each)
    assert chains.page(store.read, "acme", 2, None) == wanted[:2]
    assert chains.page(store.read, None, 2, wanted[1].id) == wanted[2:]
    assert chains.through(store.read, "2") == wanted[2:]
    with store.change() as change:
        chains.remove(change, wanted[0])
    assert chains.find(store.read, wanted[0].id) is None


def test_decisions_are_stored_with_their_outcome(store: Store) -> None:
    with store.change() as change:
        made = [decisions.add(change, {"n": number}, {"id": "snic0"}, {"why": "x"}, ("id",)) for number in range(3)]
    assert decisions.page(store.read, 2, None) == made[:0:-1]
    assert decisions.page(store.read, 2, made[1].id) == made[:1]
    assert decisions.find(store.read, made[1].id) == made[1]
    with store.change() as change:
        decisions.end(change, made[1].id, "done", {"moves": []})
    assert decisions.unfinished(store.read) == [made[0].id, made[2].id]
    ended = decisions.find(store.read, made[1].id)
    assert ended is not None
    assert (ended.outcome, ended.report) == ("done", {"moves": []})
    told = events.newest(store.read, 1)[0]
    payload = {"decision": made[1].id, "outcome": "done", "report": {"moves": []}}
    assert (told.type, told.subject, told.payload) == ("placement.ended", str(made[1].id), payload)


def test_learnt_coefficients_are_stored(store: Store) -> None:
    learnt = [Coefficient("l4lb", "host", 0.5, 100, 0.1), Coefficient("l4lb", "nic", 2.0, 90, 0.2)]
    with store.change() as change:
        coefficients.put(change, [replace(learnt[0], samples=1), *learnt])
    assert coefficients.everything(store.read) == learnt
    assert events.newest(store.read, 1)[0].payload == asdict(learnt[1])


def test_only_administrators_get_events_with_locations(store: Store) -> None:
    wanted = samples.instance(pin="snic0")
    with store.change() as change:
        instances.add(change, wanted)
        processes.add(change, samples.running(wanted))
        migrations.request(change, wanted, "hypervisor", "snic0", "state")
        instances.aim(change, wanted.id, "snic0")
    seen = events.after(store.read, 0, 100, "acme")
    assert [event.type for event in seen] == ["instance.created", "process.starting"]
    assert not any(word in str(event.payload) for event in seen for word in ("snic0", "hypervisor", "pid"))
    assert len(events.after(store.read, 0, 100, None)) == 5
    assert events.after(store.read, 0, 100, "other") == []


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


def test_a_store_is_used_by_one_agent_only(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="in use by another nfagent"):
        Store(tmp_path / "store")


def test_a_store_of_a_newer_version_is_refused(store: Store, tmp_path: Path) -> None:
    store.read.execute("PRAGMA user_version = 9999")
    store.close()
    with pytest.raises(StoreError, match="version 9999"):
        Store(tmp_path / "store")


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
            threading.Event().wait(chance.random() * 0.01)  # somewhere within the next change
            writer.send_signal(signal.SIGKILL)
            acknowledged.update(int(line) for line in writer.stdout)
        following = _check_after_crash(directory, acknowledged)


def _check_after_crash(directory: Path, acknowledged: set[int]) -> int:
    """All that was acknowledged is there, whole, and at most one more from each writer. Returns the next number."""
    store = Store(directory)
    found = {view.instance.config["n"]: view.instance for view in instances.views(store.read, Filter())}
    assert list(found) == list(range(len(found)))
    assert len(found) - 1 <= max(acknowledged) + 1
    for number, instance in found.items():
        migration = migrations.open_of(store.read, instance.id)
        assert migration is not None, number  # it was added in the same transaction
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
