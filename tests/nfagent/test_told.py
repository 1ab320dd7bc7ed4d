"""Every change of the store: its complete events, their recipients, the complete rows and exact limits."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from nfagent.errors import StoreError
from nfagent.measurement import Coefficient
from nfagent.model import InstancePort, Migration, Running, View
from nfagent.store import (
    Change,
    Store,
    chains,
    coefficients,
    database,
    decisions,
    events,
    figures,
    instances,
    migrations,
    processes,
)
from nfagent.store.instances import Filter
from tests.nfagent import samples

Told = tuple[str, str, str | None, dict[str, Any]]

NOW = 1_000_000.0
PORTS = (InstancePort(1000, "nf1000", "02:00:00:00:00:01"), InstancePort(1007, "nf1007", "02:00:00:00:00:02"))
LB = samples.instance("lb", id="id-lb", ports=PORTS, labels={"a": "b"}, pin="snic0", target="hypervisor", created=5.0)
PLAIN = samples.instance("plain", id="id-plain", kind="probe", flavor="large", config={}, created=6.0, project="other")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    opened = Store(tmp_path / "store")
    for module in (database, decisions, migrations):
        monkeypatch.setattr(module.time, "time", lambda: NOW)
    yield opened
    opened.close()


def told(store: Store, act: Callable[[Change], Any]) -> list[Told]:
    """Return the events of a change."""
    before = store.last_event
    with store.change() as change:
        act(change)
    found = events.after(store.read, before, 100, None)
    assert [each.id for each in found] == list(range(before + 1, before + 1 + len(found)))
    assert {each.time for each in found} <= {NOW}
    return [(each.type, each.subject, each.project, each.payload) for each in found]


def seen(name: str, kind: str = "l4lb", flavor: str = "small", ports: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return an instance as events show it."""
    return {"id": f"id-{name}", "name": name, "kind": kind, "flavor": flavor, "generation": 1, "ports": list(ports)}


LB_SEEN = seen("lb", ports=(1000, 1007))


def test_projects_get_events_of_instances_and_administrators_those_of_targets(store: Store) -> None:
    assert told(store, lambda change: instances.add(change, LB)) == [("instance.created", "id-lb", "acme", LB_SEEN)]
    assert told(store, lambda change: instances.add(change, PLAIN)) == [
        ("instance.created", "id-plain", "other", seen("plain", "probe", "large"))
    ]
    config = {"n": [1]}
    assert told(store, lambda change: instances.configure(change, "id-lb", config)) == [
        ("instance.configured", "id-lb", "acme", LB_SEEN | {"generation": 2})
    ]
    renamed = LB_SEEN | {"generation": 2, "name": "uno"}
    assert told(store, lambda change: instances.describe(change, "id-lb", "uno", {"c": "d"})) == [
        ("instance.described", "id-lb", "acme", renamed)
    ]
    assert told(store, lambda change: instances.pin(change, "id-lb", None)) == [
        ("instance.pinned", "id-lb", None, renamed | {"pin": None, "target": "hypervisor"})
    ]
    assert told(store, lambda change: instances.aim(change, "id-lb", "snic1")) == [
        ("instance.aimed", "id-lb", None, renamed | {"pin": None, "target": "snic1"})
    ]
    assert told(store, lambda change: instances.give_up(change, "id-lb")) == [
        ("instance.deleting", "id-lb", "acme", renamed)
    ]
    now = replace(
        LB, name="uno", config=config, labels={"c": "d"}, pin=None, target="snic1", present=False, generation=2
    )
    assert instances.find(store.read, "id-lb") == now
    assert instances.find(store.read, "id-plain") == PLAIN
    assert instances.view(store.read, "id-plain") == View(PLAIN, "building", None, None)
    assert told(store, lambda change: instances.remove(change, now)) == [
        ("instance.deleted", "id-lb", "acme", {"id": "id-lb", "name": "uno"})
    ]
    assert (instances.find(store.read, "id-lb"), instances.view(store.read, "id-lb")) == (None, None)
    assert instances.named(store.read, "uno") == []
    assert instances.port_owners(store.read) == {}


def test_changing_an_unknown_instance_fails(store: Store) -> None:
    for act in (
        lambda change: instances.configure(change, "ghost", {}),
        lambda change: instances.pin(change, "ghost", None),
        lambda change: instances.give_up(change, "ghost"),
    ):
        with pytest.raises(KeyError, match=r"^'ghost'$"), store.change() as change:
            act(change)
    assert store.last_event == 0


RUNNING = Running(
    *("incarnation", "id-lb", "serving", "snic0", "s1", "starting", 3, 7.0),
    pid=11,
    pid_started=12,
    control="/run/x",
    reason="why",
    silent=8.0,
    own_pid=13,
)


def process(phase: str, kind: str | None = None, **more: Any) -> list[Told]:
    """Return the events of the process; ``kind``: of the public one, if that is not the phase."""
    public = {"id": "id-lb", "phase": phase, "reason": "why", "generation": 3}
    where = {"incarnation": "incarnation", "role": "serving", "location": "snic0", "slot": "s1", "pid": 13} | more
    return [
        (f"process.{kind or phase}", "id-lb", "acme", public),
        ("placement.process", "id-lb", None, public | where),
    ]


def test_a_process_causes_a_public_and_a_private_event(store: Store) -> None:
    told(store, lambda change: instances.add(change, LB))
    assert told(store, lambda change: processes.add(change, RUNNING)) == process("starting")
    assert processes.of(store.read, "id-lb") == processes.everything(store.read) == [RUNNING]
    assert processes.by_incarnation(store.read, ["incarnation", "ghost"]) == {"incarnation": RUNNING}
    changed = list[Running]()
    act = lambda change: changed.append(processes.update(change, RUNNING, phase="active", own_pid=None))  # noqa: E731
    assert told(store, act) == process("active", "silent", pid=11)
    assert changed == processes.of(store.read, "id-lb") == [replace(RUNNING, phase="active", own_pid=None)]
    assert instances.view(store.read, "id-lb") == View(LB, "error", changed[0], None)
    heard = lambda change: changed.append(processes.update(change, changed[0], silent=None))  # noqa: E731
    assert told(store, heard) == process("active", pid=11)
    assert told(store, lambda change: processes.remove(change, changed[1])) == process("gone", pid=11)
    assert processes.everything(store.read) == []


def test_only_administrators_get_events_of_incoming_processes(store: Store) -> None:
    told(store, lambda change: instances.add(change, LB))
    incoming = replace(RUNNING, role="incoming", incarnation="other", location="hypervisor", slot=None)
    (only,) = told(store, lambda change: processes.add(change, incoming))
    assert only[:3] == ("placement.process", "id-lb", None)
    assert (only[3]["role"], only[3]["slot"], only[3]["location"]) == ("incoming", None, "hypervisor")
    told(store, lambda change: processes.add(change, RUNNING))
    assert processes.of(store.read, "id-lb") == [RUNNING, incoming]
    assert processes.taken_slots(store.read, "snic0") == {"s1"}
    assert processes.taken_slots(store.read, "hypervisor") == set()


def test_projects_get_events_of_their_chains(store: Store) -> None:
    made = [
        replace(samples.chain(name, ("port:1", hop)), id=f"id-{number}", project=project, latency_us=9, created=3.0)
        for number, (name, hop, project) in enumerate(
            [("b", "x", "acme"), ("a", "y", "acme"), ("b", "x", "other"), ("c", "xy", "other")]
        )
    ]
    for each in made:
        payload = {"id": each.id, "name": each.name, "hops": list(each.hops), "latency_us": 9}
        assert told(store, lambda change, each=each: chains.add(change, each)) == [
            ("chain.created", each.id, each.project, payload)
        ]
    b, a, other_b, c = made
    assert chains.find(store.read, "id-0") == b
    assert chains.page(store.read, None, None, None) == [a, b, other_b, c]
    assert chains.page(store.read, "other", None, None) == [other_b, c]
    assert chains.page(store.read, None, 2, None) == [a, b]
    assert chains.page(store.read, None, 2, "id-0") == [other_b, c]
    assert chains.page(store.read, None, 0, None) == []
    assert chains.page(store.read, "acme", None, "id-0") == []
    with pytest.raises(KeyError, match=r"^'ghost'$"):
        chains.page(store.read, None, None, "ghost")
    assert chains.through(store.read, "x") == [b, other_b]
    assert told(store, lambda change: chains.remove(change, b)) == [
        ("chain.deleted", "id-0", "acme", {"id": "id-0", "name": "b"})
    ]
    assert chains.find(store.read, "id-0") is None
    assert chains.page(store.read, "acme", None, None) == [a]


def test_a_chain_goes_with_the_last_instance_that_was_ordered_with_it(store: Store) -> None:
    made = replace(samples.chain("c", ("id-lb", "port:1", "id-plain")), id="id-c", owned=("id-lb", "id-plain"))
    with store.change() as change:
        for each in (LB, PLAIN):
            instances.add(change, each)
        chains.add(change, made)
    stays = replace(samples.chain("d", ("port:1", "id-plain")), id="id-d", owned=("id-plain",))
    assert chains.owner(store.read, "id-plain") == chains.find(store.read, "id-c") == made
    assert chains.owner(store.read, "port:1") is None
    assert told(store, lambda change: instances.remove(change, LB))[1:] == [], "it was not to be deleted"
    assert told(store, lambda change: chains.give_up(change, made)) == [
        ("chain.deleting", "id-c", "acme", {"id": "id-c", "name": "c"})
    ]
    assert chains.named(store.read, "c", "acme") == [replace(made, present=False)]
    assert chains.through(store.read, "id-plain") == []
    told(store, lambda change: chains.add(change, stays))
    assert told(store, lambda change: instances.remove(change, PLAIN))[1:] == [
        ("chain.deleted", "id-c", "acme", {"id": "id-c", "name": "c"})
    ]
    assert chains.page(store.read, None, None, None) == [stays], "nobody has asked to delete it"


def test_administrators_get_complete_events_of_migrations(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (LB, PLAIN):
        told(store, lambda change, each=each: instances.add(change, each))
    asked = Migration(1, "id-lb", "acme", "hypervisor", "snic0", "state", "requested", NOW)
    made: list[Migration] = []

    def check(kind: str, act: Callable[[Change], Migration], expected: Migration) -> None:
        assert told(store, lambda change: made.append(act(change))) == [(kind, "1", None, vars(expected))]
        assert made[-1] == migrations.find(store.read, 1) == expected

    check("migration.requested", lambda change: migrations.request(change, LB, "hypervisor", "snic0", "state"), asked)
    monkeypatch.setattr(migrations.time, "time", lambda: NOW)
    begun = replace(asked, step="prepare", started=NOW)
    check("migration.step", lambda change: migrations.step(change, made[-1], "prepare"), begun)
    told_so_far = replace(begun, step="freeze", report={"n": 1})
    check("migration.step", lambda change: migrations.step(change, made[-1], "freeze", {"n": 1}), told_so_far)
    check("migration.step", lambda change: migrations.step(change, made[-1], "flip"), replace(told_so_far, step="flip"))
    check("migration.step", lambda change: migrations.step(change, made[-1], "x", {}), replace(begun, step="x"))
    assert migrations.open_of(store.read, "id-lb") == made[-1]
    assert instances.view(store.read, "id-lb") == View(LB, "migrating", None, made[-1])
    with pytest.raises(sqlite3.IntegrityError), store.change() as change:
        migrations.request(change, LB, "hypervisor", "snic0", "state")
    done = replace(begun, step="x", ended=NOW, outcome="failed", reason="why", report={"m": 2})
    check("migration.ended", lambda change: migrations.end(change, made[-1], "failed", "why", {"m": 2}), done)
    assert (migrations.open_of(store.read, "id-lb"), migrations.find(store.read, 2)) == (None, None)
    with pytest.raises(StoreError, match=r"^migration 1 has no secret: it has ended$"):
        migrations.secret(store.read, 1)


def migrated(store: Store, outcome: Any, of: str = "id-lb", ended: float | None = 1.0) -> int:
    """Store a migration with this outcome; return its epoch."""
    instance = samples.instance(of, id=of)
    with store.change() as change:
        made = migrations.request(change, instance, "hypervisor", "snic0", "state")
        if outcome is not None:
            migrations.end(change, made, outcome, None, {})
            change.db.execute("UPDATE migration SET ended = ? WHERE epoch = ?", (ended, made.epoch))
    return made.epoch


def test_migrations_are_filtered_and_paged(store: Store) -> None:
    for outcome, of, ended in (("done", "a", 10.0), ("failed", "b", 30.0), ("done", "b", 20.0), (None, "a", None)):
        migrated(store, outcome, of, ended)

    def epochs(*arguments: Any) -> list[int]:
        return [each.epoch for each in migrations.page(store.read, *arguments)]

    assert epochs(None, None, 10, None) == [4, 3, 2, 1]
    assert epochs(None, None, 2, None) == [4, 3]
    assert epochs(None, None, 10, 3) == [2, 1]
    assert epochs("a", None, 10, None) == [4, 1]
    assert epochs(None, "done", 10, None) == [3, 1]
    assert epochs(None, "none", 10, None) == [4]
    assert epochs("b", "done", 10, None) == [3]
    assert migrations.endings(store.read, 10.0) == [("b", "failed", 30.0), ("b", "done", 20.0)]
    assert migrations.by_epoch(store.read, [1, 9]) == {1: migrations.find(store.read, 1)}
    assert migrations.open_epochs(store.read) == [4]


def test_the_last_ten_thousand_migrations_are_kept(store: Store) -> None:
    for outcome in (None, "done", "failed"):
        migrated(store, outcome, of=f"of {outcome}")
    store.read.execute("UPDATE sqlite_sequence SET seq = 10001 WHERE name = 'migration'")
    assert migrated(store, "done") == 10_002
    assert [each.epoch for each in migrations.page(store.read, None, None, 10, None)] == [10_002, 3, 1]
    assert figures.migrations_by_outcome(store.read) == {"none": 1, "done": 2, "failed": 1}


# ---- pages of instances


def test_instances_are_filtered_and_paged(store: Store) -> None:
    third = samples.instance("plain", id="id-third", created=1.0, kind="probe")
    for each in (LB, PLAIN, third):
        told(store, lambda change, each=each: instances.add(change, each))
    told(store, lambda change: processes.add(change, replace(RUNNING, phase="active", silent=None)))

    def ids(*arguments: Any, **options: Any) -> list[str]:
        return [each.instance.id for each in instances.views(store.read, *arguments, **options)]

    assert ids(Filter()) == instances.ids(store.read) == ["id-lb", "id-plain", "id-third"]
    assert ids(Filter(), newest_first=True) == ["id-third", "id-plain", "id-lb"]
    assert ids(Filter(), 2) == ["id-lb", "id-plain"]
    assert ids(Filter(), 0) == []
    assert ids(Filter(), None, "id-lb") == ["id-plain", "id-third"]
    assert ids(Filter(), None, "id-plain", newest_first=True) == ["id-lb"]
    assert ids(Filter(project="acme")) == ["id-lb", "id-third"]
    assert ids(Filter(name="plain")) == ids(Filter(kind="probe")) == ["id-plain", "id-third"]
    assert ids(Filter(flavor="large")) == ["id-plain"]
    assert ids(Filter(status="active")) == ids(Filter(location="snic0")) == ["id-lb"]
    assert ids(Filter(status="building", kind="probe", project="acme")) == ["id-third"]
    with pytest.raises(KeyError, match=r"^'ghost'$"):
        ids(Filter(), None, "ghost")
    assert Filter().sql() == ("1", [])
    assert Filter(name="a", kind="b").sql() == ("1 AND name = ? AND kind = ?", ["a", "b"])
    assert instances.named(store.read, "plain") == [third, PLAIN]
    assert instances.named(store.read, "plain", "acme") == [third]
    assert instances.usage(store.read, "acme") == [("small", 2, 2)]
    assert instances.usage(store.read, "other") == [("large", 1, 0)]
    assert instances.port_owners(store.read) == {1000: "id-lb", 1007: "id-lb"}
    assert figures.instances_by_status(store.read) == {"active": 1, "building": 2}


# ---- decisions and coefficients


def test_administrators_get_events_of_decisions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_KEPT", 2)

    def add(change: Change) -> None:
        decisions.add(change, {"p": 1}, {"id": "snic0"}, {"why": "x"}, ("a", "b"))

    assert told(store, add) == [("placement.decided", "1", None, {"decision": 1, "moves": ["a", "b"]})]
    found = decisions.find(store.read, 1)
    assert found is not None
    assert asdict(found) == {
        "id": 1,
        "decided": NOW,
        "problem": {"p": 1},
        "plan": {"id": "snic0"},
        "explanation": {"why": "x"},
        "moves": ("a", "b"),
        "outcome": None,
        "ended": None,
        "report": {},
    }
    ending = {"decision": 1, "outcome": "done", "report": {"n": 1}}
    assert told(store, lambda change: decisions.end(change, 1, "done", {"n": 1})) == [
        ("placement.ended", "1", None, ending)
    ]
    assert decisions.find(store.read, 1) == replace(found, outcome="done", ended=NOW, report={"n": 1})
    for _ in range(2):
        told(store, add)
    assert [each.id for each in decisions.page(store.read, 10, None)] == [3, 2]
    assert [each.id for each in decisions.page(store.read, 10, 3)] == [2]
    assert [each.id for each in decisions.page(store.read, 1, None)] == [3]
    assert decisions.unfinished(store.read) == [2, 3]
    assert decisions.find(store.read, 1) is None


def test_administrators_get_events_of_coefficients(store: Store) -> None:
    learnt = [Coefficient("b", "nic", 2.0, 90, 0.2), Coefficient("a", "host", 0.5, 100, 0.1)]
    assert told(store, lambda change: coefficients.put(change, learnt)) == [
        ("coefficient.learnt", each.kind, None, asdict(each)) for each in learnt
    ]
    assert coefficients.everything(store.read) == learnt[::-1]
    newer = replace(learnt[0], samples=91)
    told(store, lambda change: coefficients.put(change, [newer]))
    assert coefficients.everything(store.read) == [learnt[1], newer]


# ---- events


def happen(store: Store, *kinds: str, project: str | None = None) -> None:
    for kind in kinds:
        with store.change() as change:
            change.event(kind, kind.partition(".")[2], project, {"k": kind})


def test_events_are_filtered_by_project_subject_and_kind(store: Store) -> None:
    happen(store, "location.a", "locations.b", "other.a")
    happen(store, "location.a", "location.b", project="acme")

    def after(*arguments: Any) -> list[int]:
        return [each.id for each in events.after(store.read, *arguments)]

    assert after(0, 10, None) == [1, 2, 3, 4, 5]
    assert after(2, 2, None) == [3, 4]
    assert after(0, 10, "acme") == [4, 5]
    assert after(0, 10, None, "a") == [1, 3, 4]
    assert after(0, 10, "acme", "a") == [4]

    def newest(*arguments: Any) -> list[int]:
        return [each.id for each in events.newest(store.read, *arguments)]

    assert newest(2) == [5, 4]
    assert newest(10, "a") == [4, 3, 1]
    assert newest(10, "a", "location.") == [4, 1]
    assert newest(10, None, "location.") == [5, 4, 1]
    assert events.oldest(store.read) == 1

    def since(*arguments: Any) -> tuple[list[int], int]:
        found, last = events.since(store, *arguments)
        return [each.id for each in found], last

    assert since(0, 10, None) == ([1, 2, 3, 4, 5], 5)
    assert since(0, 2, None) == ([1, 2], 2)  # more may follow
    assert since(0, 5, None) == ([1, 2, 3, 4, 5], 5)
    assert since(0, 10, "acme", "a") == ([4], 5)  # the other events belong to others
    assert since(5, 10, None) == ([], 5)
    assert since(9, 10, None) == ([], 9)


def test_an_empty_store_has_no_oldest_event(store: Store) -> None:
    assert (events.oldest(store.read), store.last_event) == (0, 0)
    assert figures.migrations_by_outcome(store.read) == figures.instances_by_status(store.read) == {}


def test_the_last_hundred_thousand_events_are_kept(store: Store) -> None:
    happen(store, "test.a")
    store.read.execute("UPDATE sqlite_sequence SET seq = 100998 WHERE name = 'event'")
    store.read.execute("INSERT INTO event VALUES (999, 1.0, 'x', 'y', NULL, '{}')")
    store.read.execute("INSERT INTO event VALUES (1000, 1.0, 'x', 'y', NULL, '{}')")
    store.read.execute("INSERT INTO event VALUES (1001, 1.0, 'x', 'y', NULL, '{}')")
    store._last_event = 100_998
    happen(store, "test.b")
    assert events.oldest(store.read) == 1
    happen(store, "test.c")  # the 101,000th: every thousandth deletes old events
    assert events.oldest(store.read) == 1001
    assert store.last_event == 101_000


# ---- the database


def test_a_connection_has_the_required_pragmas(store: Store, tmp_path: Path) -> None:
    def asked(name: str) -> Any:
        return store.read.execute(f"PRAGMA {name}").fetchone()[0]

    assert [
        asked(name) for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "user_version")
    ] == [
        "wal",
        2,
        1,
        10_000,
        10,
    ]
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "store/nfagent.lock").stat().st_mode & 0o777 == 0o600
    assert store.read is store.read


def test_durability_levels_affect_only_their_transaction(store: Store) -> None:
    levels: list[str] = []
    store.read.set_trace_callback(levels.append)
    with store.change() as change:
        change.event("test.a", "it", None, {})
    assert levels[0] == "BEGIN IMMEDIATE"
    assert levels[-2] == "COMMIT"
    assert levels[-1].startswith("SELECT")  # for readers
    levels.clear()
    with store.change(outlives="process") as change:
        change.event("test.a", "it", None, {})
    assert (levels[0], levels[1], levels[-1]) == (
        "PRAGMA synchronous = NORMAL",
        "BEGIN IMMEDIATE",
        "PRAGMA synchronous = FULL",
    )
    levels.clear()
    store.checkpoint()
    assert levels == ["PRAGMA wal_checkpoint(PASSIVE)"]
    with store.change():  # without a change there is no event
        pass
    assert store.last_event == 2


def test_an_impossible_store_is_reported(tmp_path: Path, store: Store) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=rf"^cannot create the store {tmp_path}/file/store: Not a directory$"):
        Store(tmp_path / "file/store")
    used = rf"^the store {tmp_path}/store is in use by another nfagent; stop that one first$"
    with pytest.raises(StoreError, match=used):
        Store(tmp_path / "store")
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/nfagent.db").mkdir()
    with pytest.raises(StoreError, match=rf"^cannot open {tmp_path}/deep/er/nfagent.db: unable to open database"):
        Store(tmp_path / "deep/er")
    (tmp_path / "deep/er/nfagent.db").rmdir()
    Store(tmp_path / "deep/er").close()
    Store(tmp_path / "a/b/c").close()


def test_a_store_of_a_newer_agent_is_left_unchanged(tmp_path: Path, store: Store) -> None:
    made = Store(tmp_path / "new")
    made.read.execute("PRAGMA user_version = 11")
    made.close()
    expected = rf"^{tmp_path}/new/nfagent.db has version 11; this nfagent supports up to 10: use a newer nfagent$"
    for _ in range(2):  # the lock is released
        with pytest.raises(StoreError, match=expected):
            Store(tmp_path / "new")


def test_a_change_without_an_event_is_refused(store: Store) -> None:
    told(store, lambda change: instances.add(change, LB))
    expected = r"^the store was changed without an event$"
    with pytest.raises(StoreError, match=expected), store.change() as change:
        change.db.execute("UPDATE instance SET name = 'other'")
    assert instances.find(store.read, "id-lb") == LB
    assert not store.read.in_transaction


def test_closing_a_store_wakes_all_waiters(store: Store) -> None:
    happen(store, "test.a")
    assert not store.is_ending
    assert (store.wait(0, 0), store.wait(1, 0)) == (True, False)
    waiter = threading.Thread(target=store.wait, args=(1, 3600), daemon=True)
    waiter.start()
    store.end_waits()
    waiter.join(20)
    assert not waiter.is_alive()
    assert store.is_ending
    assert (store.wait(0, 3600), store.wait(1, 3600)) == (True, False)


def test_a_closed_store_has_no_open_file(tmp_path: Path, store: Store) -> None:
    made = Store(tmp_path / "more")
    open_in = lambda: [  # noqa: E731
        each for each in Path("/proc/self/fd").iterdir() if str(tmp_path / "more") in str(_target(each))
    ]
    assert open_in()
    made.close()
    made.close()
    assert open_in() == []


def _target(link: Path) -> Path | None:
    try:
        return link.readlink()
    except OSError:
        return None
