"""Running processes follow the desired state despite deaths and restarts; none runs twice or is left behind."""

import contextlib
import os
import signal
import sqlite3
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from nfagent import reconcile
from nfagent.control import Control
from nfagent.errors import ControlRefusedError
from nfagent.model import Instance, Migration
from nfagent.store import Store, events, migrations, processes
from server.processes import PROC, start_time
from tests.nfagent.world import World, processes_of, wait_until

V1 = "/api/v1"


def migrate(world: World, name: str, target: str) -> int:
    answer = world.operator.post(f"{V1}/migrations", json={"instance": name, "target": target})
    assert answer.status_code == 202, answer.text
    return answer.json()["epoch"]


def ended(world: World, epoch: int) -> dict[str, object]:
    """Wait for a migration's end; return it."""
    world.wait(lambda: world.operator.get(f"{V1}/migrations/{epoch}").json()["ended"] is not None)
    return world.operator.get(f"{V1}/migrations/{epoch}").json()


def test_an_ended_process_is_restarted_with_a_reason(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("one"), "active")
    os.kill(made["placement"]["pid"], signal.SIGKILL)
    own_world.wait(lambda: own_world.show("one")["placement"]["pid"] not in (made["placement"]["pid"], None))
    again = own_world.wait_status(made, "active")
    assert processes_of(made["id"]) == [again["placement"]["pid"]]
    brief = own_world.create("brief", "brief")
    failed = own_world.wait_status(brief, "error")
    assert failed["reason"] == "its process ended with exit status 4; it said: enough"


def test_a_process_that_has_served_is_restarted_at_once(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_SERVED_S", 0.0)
    made = own_world.wait_status(own_world.create("one"), "active")
    counted = own_world.agent._reconciler._failures
    counted[made["id"]] = reconcile._Failures(6, time.monotonic())
    monkeypatch.setattr(reconcile, "_FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr(reconcile, "_LAST_RETRY_S", 3600.0)
    os.kill(made["placement"]["pid"], signal.SIGKILL)
    own_world.wait(lambda: own_world.show("one")["placement"]["pid"] not in (made["placement"]["pid"], None))
    own_world.wait_status(made, "active")
    assert made["id"] not in counted


def test_a_process_that_has_not_served_for_long_waits_for_its_restart(
    own_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "_SERVED_S", 3600.0)
    made = own_world.wait_status(own_world.create("one"), "active")
    counted = own_world.agent._reconciler._failures
    counted[made["id"]] = reconcile._Failures(6, time.monotonic())
    os.kill(made["placement"]["pid"], signal.SIGKILL)
    own_world.wait(lambda: made["id"] in counted and counted[made["id"]].count not in (0, 6))
    assert counted[made["id"]].count == 7


@pytest.mark.parametrize("room", ["location", "database", "oneswitchd"])
def test_the_return_of_a_switch_ends_the_wait_for_it(
    own_world: World, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    monkeypatch.setattr(reconcile, "_FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr(reconcile, "_LAST_RETRY_S", 3600.0)
    own_world.wiring.broken = True
    made = own_world.create("waits", "wired")
    own_world.wait(lambda: made["id"] in own_world.agent._reconciler._blocked)
    own_world.wiring.broken = False
    tell = own_world.agent._bulletin.tell
    assert tell(f"{room}.down", "hypervisor", {"reason": "gone"})
    assert own_world.show(made)["status"] != "active"
    assert tell(f"{room}.up", "hypervisor", {"reason": "back"})
    own_world.wait_status(made, "active")
    assert made["id"] not in own_world.agent._reconciler._blocked


def test_the_return_of_oneswitchd_ends_the_wait_of_a_deletion(
    own_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = own_world.wait_status(own_world.create("waits", "wired"), "active")
    monkeypatch.setattr(reconcile, "_FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr(reconcile, "_LAST_RETRY_S", 3600.0)
    own_world.wiring.broken = True
    own_world.operator.delete(f"{V1}/instances/waits")
    reconciler = own_world.agent._reconciler
    own_world.wait(lambda: made["id"] in {*reconciler._blocked, *reconciler._failures})
    last = own_world.agent._store.last_event
    own_world.wiring.broken = False
    assert own_world.show(made)["status"] == "deleting"
    assert own_world.agent._bulletin.tell("oneswitchd.down", "hypervisor", {"reason": "gone"})
    assert own_world.agent._bulletin.tell("oneswitchd.up", "hypervisor", {"reason": "back"})
    assert own_world.agent._store.wait(last, 30.0, ("instance.deleted",))
    own_world.wait(lambda: made["id"] not in reconciler._blocked)


def test_an_instance_that_cannot_start_states_why_and_can_be_deleted(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("broken", "broken"), "error")
    assert "exit status 3" in made["reason"]
    assert "it cannot be" in made["reason"]
    refusing = own_world.wait_status(own_world.create("refusing", "toy", config={"refuse": "start"}), "error")
    assert "refuse: it was asked to" in refusing["reason"]
    own_world.operator.patch(f"{V1}/instances/refusing", json={"config": {}})
    own_world.wait_status(refusing, "active")
    own_world.create("wired", "wired")
    no_slot = own_world.wait_status(own_world.create("slotless", "toy", ports=2), "error")
    assert "no free slot with 2 interface(s) at hypervisor" in no_slot["reason"]


def test_an_instance_without_a_slot_starts_when_one_becomes_free(own_world: World) -> None:
    first, second = own_world.create("first", "wired"), own_world.create("second", "wired")
    for made in (first, second):
        own_world.wait_status(made, "active")
    third = own_world.wait_status(own_world.create("third", "wired"), "error")
    assert "no free slot with 1 interface(s) at hypervisor" in third["reason"]
    elsewhere = "first" if own_world.show("first")["placement"]["location"] == "snic0" else "second"
    own_world.operator.delete(f"{V1}/instances/{elsewhere}")
    assert own_world.wait_status(third, "active")["placement"]["location"] == "snic0"


def test_two_instances_placed_in_the_same_slot_start_in_two(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decider = own_world.agent._decider
    place, both = decider.place, threading.Barrier(2)
    placed: list[str] = []

    def place_at_once(instance: Instance) -> str:
        """Return the answer to the first two questions only once both have been asked."""
        location = place(instance)
        placed.append(location)
        if len(placed) <= 2:
            both.wait(60)
        return location

    monkeypatch.setattr(decider, "place", place_at_once)
    made = [own_world.create(name, "wired") for name in ("one", "two")]
    at = {own_world.wait_status(each, "active")["placement"]["location"] for each in made}
    assert placed[:2] == ["hypervisor", "hypervisor"]
    assert at == {"hypervisor", "snic0"}
    failed = events.subjects(own_world.agent._store.read, "process.error", [each["id"] for each in made])
    assert failed == set(), "an instance that finds another slot has not failed"


def test_child_processes_end_with_their_instance(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("family", "family"), "active")
    leader = made["placement"]["pid"]
    wait_until(lambda: len(_group(leader)) == 3)
    os.kill(leader, signal.SIGKILL)
    own_world.wait(lambda: own_world.show(made)["placement"]["pid"] not in (leader, None))
    assert _group(leader) == []
    second = own_world.wait_status(made, "active")["placement"]["pid"]
    own_world.operator.delete(f"{V1}/instances/family")
    own_world.wait(lambda: own_world.operator.get(f"{V1}/instances/family").status_code == 404)
    assert _group(second) == []


def _group(leader: int) -> list[int]:
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == leader and start_time(int(entry.name)) is not None:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def test_instances_outlive_the_agent_and_are_adopted(own_world: World) -> None:
    toy = own_world.wait_status(own_world.create("toy", "toy", config={"n": 1}), "active")
    sleeper = own_world.wait_status(own_world.create("sleeper"), "active")
    own_world.stop()
    assert processes_of(toy["id"]) == [toy["placement"]["pid"]]
    own_world.start()
    for each in (toy, sleeper):
        assert own_world.wait_status(each, "active")["placement"]["pid"] == each["placement"]["pid"]
        assert processes_of(each["id"]) == [each["placement"]["pid"]]
    own_world.stop()
    os.kill(sleeper["placement"]["pid"], signal.SIGKILL)
    own_world.start()
    own_world.wait(lambda: own_world.show(sleeper)["placement"]["pid"] not in (sleeper["placement"]["pid"], None))


def test_running_processes_are_reconfigured(own_world: World) -> None:
    toy = own_world.wait_status(own_world.create("toy", "toy", config={"n": 1}), "active")
    control = Control(own_world.directory / "run" / f"{toy['id']}.hypervisor.sock")
    assert control.ask("config") == {"config": {"n": 1}}
    own_world.operator.patch(f"{V1}/instances/toy", json={"config": {"n": 2}})
    own_world.wait(lambda: own_world.show("toy")["config_state"] == "applied")
    assert control.ask("config") == {"config": {"n": 2}}
    own_world.operator.patch(f"{V1}/instances/toy", json={"config": {"refuse": True}})
    own_world.wait(lambda: "refused" in (own_world.show("toy")["reason"] or ""))
    shown = own_world.show("toy")
    assert (shown["status"], shown["config_state"]) == ("active", "pending")
    assert control.ask("config") == {"config": {"n": 2}}
    own_world.operator.patch(f"{V1}/instances/toy", json={"config": {"n": 3}})
    own_world.wait(lambda: own_world.show("toy")["config_state"] == "applied")
    assert own_world.show("toy")["reason"] is None
    assert own_world.show("toy")["placement"]["pid"] == toy["placement"]["pid"]
    with pytest.raises(ControlRefusedError, match="no verb"):
        control.ask("dance")


def test_an_opaque_instance_is_restarted_to_configure_or_migrate_it(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("opaque"), "active")
    own_world.operator.patch(f"{V1}/instances/opaque", json={"config": {"n": 1}})
    own_world.wait(lambda: own_world.show("opaque")["config_state"] == "applied")
    configured = own_world.show("opaque")
    assert configured["placement"]["pid"] != made["placement"]["pid"]
    migration = ended(own_world, migrate(own_world, "opaque", "snic0"))
    report = cast(dict[str, Any], migration["report"])
    outage_us = report.pop("outage_us")
    assert (migration["mode"], migration["outcome"], report) == ("restart", "done", {"restarted": True})
    took = datetime.fromisoformat(str(migration["ended"])) - datetime.fromisoformat(str(migration["requested"]))
    assert timedelta() < timedelta(microseconds=outage_us) <= took
    moved = own_world.wait_status(made, "active")
    assert moved["placement"]["location"] == "snic0"
    assert processes_of(made["id"]) == [moved["placement"]["pid"]]
    own_world.operator.patch(f"{V1}/instances/opaque", json={"pin": "hypervisor"})
    own_world.wait(lambda: own_world.show("opaque")["placement"]["location"] == "hypervisor")
    listed = own_world.operator.get(f"{V1}/migrations").json()["migrations"]
    assert [(each["source"], each["target"]) for each in listed] == [("snic0", "hypervisor"), ("hypervisor", "snic0")]


def test_a_failed_start_at_the_target_rolls_the_migration_back(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("here-only", "here-only"), "active")
    migration = ended(own_world, migrate(own_world, "here-only", "snic0"))
    assert migration["outcome"] == "rolled-back"
    assert "not there" in str(migration["reason"])
    back = own_world.wait_status(made, "active")
    assert (back["placement"]["location"], back["placement"]["target"]) == ("hypervisor", "hypervisor")


def test_ports_follow_their_instance_and_wait_for_oneswitchd(own_world: World) -> None:
    own_world.wiring.broken = True
    made = own_world.create("wired", "wired", ports=1)
    own_world.wait(lambda: own_world.show("wired")["reason"] == "no oneswitchd answers")
    assert own_world.show("wired")["status"] == "building"
    pid = own_world.show("wired")["placement"]["pid"]
    own_world.wiring.broken = False
    assert own_world.wait_status(made, "active")["placement"]["pid"] == pid
    number = made["ports"][0]["number"]
    assert own_world.wiring.places == {number: ("hypervisor", "vf0")}
    slots = own_world.admin.get(f"{V1}/switches/hypervisor").json()["slots"]
    assert [slot["taken"] for slot in slots] == [made["id"]]
    own_world.wiring.places.clear()  # as after a restart of oneswitchd without its state file
    own_world.agent._reconciler.wake(made["id"])
    own_world.wait(lambda: own_world.wiring.places == {number: ("hypervisor", "vf0")})
    owners = {number: f"nfagent/{made['project']}/wired"}
    assert own_world.wiring.owners == owners
    own_world.wiring.owners.clear()  # as with a oneswitchd from before ports had owners
    own_world.agent._reconciler.wake(made["id"])
    own_world.wait(lambda: own_world.wiring.owners == owners)
    assert own_world.show("wired")["placement"]["pid"] == pid
    assert ended(own_world, migrate(own_world, "wired", "snic0"))["outcome"] == "done"
    assert own_world.wiring.places == {number: ("snic0", "pf0vf0")}
    own_world.wiring.broken = True
    own_world.operator.delete(f"{V1}/instances/wired")
    wait_until(lambda: processes_of(made["id"]) == [])
    assert own_world.show("wired")["status"] == "deleting"
    own_world.wiring.broken = False
    own_world.wait(lambda: own_world.operator.get(f"{V1}/instances/wired").status_code == 404)
    assert own_world.wiring.places == {}


def test_retries_of_ports_leak_no_descriptors(own_world: World) -> None:
    def pidfds() -> int:
        found = 0
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                found += "pidfd" in str(link.readlink())
        return found

    own_world.wiring.broken = True
    made = own_world.create("wired", "wired", ports=1)
    own_world.wait(lambda: own_world.show("wired")["reason"] == "no oneswitchd answers")
    tried = own_world.wiring.asked
    own_world.wait(lambda: own_world.wiring.asked > tried + 2)
    assert pidfds() == 1
    own_world.wiring.broken = False
    own_world.wait_status(made, "active")


def test_a_starting_agent_reconnects_all_ports(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = own_world.wait_status(own_world.create("wired", "wired", ports=1), "active")
    own_world.stop()
    connected: list[tuple[int, str, str, str]] = []
    monkeypatch.setattr(
        own_world.wiring,
        "connect",
        lambda ports, at, owner: connected.extend((port.number, at, edge, owner) for port, edge in ports),
    )  # oneswitchd, which `homes` asks, still knows ports that a restarted switch lost
    own_world.start()
    wanted = (made["ports"][0]["number"], "hypervisor", "vf0", f"nfagent/{made['project']}/wired")
    own_world.wait(lambda: connected == [wanted])
    monkeypatch.undo()
    assert own_world.wait_status(made, "active")["placement"]["pid"] == made["placement"]["pid"]


def test_drafts_of_a_killed_agent_are_removed_with_the_instance(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("one"), "active")
    runtime = own_world.directory / "run"
    (runtime / f"{made['id']}.hypervisor.draft").write_text("{")
    own_world.operator.delete(f"{V1}/instances/one")
    own_world.wait(lambda: own_world.operator.get(f"{V1}/instances/one").status_code == 404)
    assert list(runtime.iterdir()) == []


class SlowMigrator:
    """Keeps a migration of state open until released."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def run(self, migration: Migration) -> None:
        """See `nfagent.protocols.Migrator`."""
        with self.store.change() as change:
            migration = migrations.step(change, migration, "precopy")
        self.begun.set()
        assert self.let_go.wait(60)
        with self.store.change() as change:
            migrations.end(change, migration, "rolled-back", "it was only a test", {})

    def cancel(self, migration: Migration) -> None:
        """See `nfagent.protocols.Migrator`."""
        raise AssertionError(f"migration {migration.epoch} has ended")

    def stop(self) -> None:
        """See `nfagent.protocols.Migrator`."""

    def tidy(self) -> None:
        """See `nfagent.protocols.Migrator`."""


def test_a_deletion_waits_for_the_end_of_a_migration(own_world: World) -> None:
    reconciler = own_world.agent._reconciler
    made = own_world.wait_status(own_world.create("toy", "toy"), "active")
    migrator = SlowMigrator(own_world.agent._store)
    reconciler._migrator = migrator
    own_world.operator.patch(f"{V1}/instances/toy", json={"pin": "snic0"})
    assert migrator.begun.wait(60)
    assert own_world.show("toy")["status"] == "migrating"
    answer = own_world.operator.delete(f"{V1}/instances/toy")
    assert (answer.status_code, answer.json()["status"]) == (202, "deleting")
    assert own_world.operator.delete(f"{V1}/instances/toy").status_code == 202
    assert processes_of(made["id"]) == [made["placement"]["pid"]]
    migrator.let_go.set()
    own_world.wait(lambda: own_world.operator.get(f"{V1}/instances/toy").status_code == 404)
    assert processes_of(made["id"]) == []


def test_an_impossible_pin_is_retried_with_growing_pauses(own_world: World) -> None:
    reconciler = own_world.agent._reconciler
    made = own_world.wait_status(own_world.create("toy", "toy"), "active")
    reconciler._migrator = migrator = SlowMigrator(own_world.agent._store)
    migrator.let_go.set()
    own_world.operator.patch(f"{V1}/instances/toy", json={"pin": "snic0"})
    own_world.wait(lambda: len(own_world.operator.get(f"{V1}/migrations").json()["migrations"]) == 3)
    assert reconciler._setbacks[made["id"]].count >= 2  # the pause doubles with this count


def test_an_outage_told_late_occupies_no_second_thread_with_the_return(
    own_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler = own_world.agent._reconciler
    asked = list[str | None]()
    monkeypatch.setattr(reconciler, "_end_strays", asked.append)
    assert not own_world.agent._locations.is_down("snic0")
    reconciler.look_at("snic0", "down")
    assert asked == []
    reconciler.look_at("snic0", "up")
    assert asked == ["snic0"]


def test_orders_are_executed_after_a_disk_error(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    since, failed = events.since, set[str]()

    def failing_once(*arguments: Any) -> Any:
        name = threading.current_thread().name
        if name not in failed:
            failed.add(name)
            raise sqlite3.OperationalError("disk I/O error")
        return since(*arguments)

    monkeypatch.setattr(events, "since", failing_once)
    own_world.wait_status(own_world.create("one"), "active")
    own_world.wait(lambda: failed == {"follow events", "decide"})
    own_world.wait_status(own_world.create("two"), "active")
    assert own_world.agent._decider._thread.is_alive()


def test_a_starting_agent_ends_unknown_processes(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("stray"), "active")
    store = own_world.agent._store
    own_world.stop()
    store = Store(own_world.directory / "state")
    with store.change() as change:
        processes.remove(change, processes.of(store.read, made["id"])[0])
    store.close()
    own_world.start()
    again = own_world.wait_status(made, "active")
    assert processes_of(made["id"]) == [again["placement"]["pid"]]
    assert again["placement"]["pid"] != made["placement"]["pid"]


def test_an_instance_of_a_removed_kind_is_reported_and_can_be_deleted(own_world: World) -> None:
    made = own_world.wait_status(own_world.create("orphan"), "active")
    own_world.stop()
    path = own_world.directory / "agent.toml"
    kept = path.read_text()
    path.write_text(kept.replace('name = "sleeper"', 'name = "renamed"'))
    own_world.start()
    assert own_world.show("orphan")["status"] == "active"  # it runs although its kind was renamed
    own_world.operator.patch(f"{V1}/instances/orphan", json={"config": {"n": 1}})
    own_world.wait(lambda: "no longer has the kind 'sleeper'" in (own_world.show("orphan")["reason"] or ""))
    own_world.operator.delete(f"{V1}/instances/orphan")
    own_world.wait(lambda: own_world.operator.get(f"{V1}/instances/orphan").status_code == 404)
    assert processes_of(made["id"]) == []
