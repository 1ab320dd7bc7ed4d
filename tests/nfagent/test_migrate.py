"""Migrations of state with refusals, deaths and obstacles; switches are simulated."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nfagent.control import Control
from nfagent.errors import ControlUnreachableError, LaunchError
from nfagent.migrate import migrator, protocol
from nfagent.migrate.journal import Journal
from nfagent.migrate.keepers import key_of
from nfagent.migrate.move import RunningMigration
from nfagent.migrate.outage import Outage
from nfagent.migrate.peer import Peer
from nfagent.model import Instance, Running
from nfagent.starter import Starter
from nfagent.store import migrations, processes
from server.processes import wait_gone
from tests.nfagent.world import World, processes_of, wait_until

V1 = "/api/v1"
BEFORE_COMMIT = ("prepare", "start", "rules", "await-rules", "hold", "try-way", "freeze")
AFTER_COMMIT = ("COMMIT", "settle", "flip", "quiesce", "drain", "handover", "done")
SOURCE, TARGET = "hypervisor", "snic0"


class Case:
    """A toy with a number as its state, to be migrated."""

    def __init__(self, world: World, **config: Any) -> None:
        self.world = world
        self.made = world.wait_status(world.create("toy", "toy", ports=1, config=config), "active")
        self.id, self.number = self.made["id"], self.made["ports"][0]["number"]
        for _ in range(3):
            self.ask("count")

    def control(self, location: str = SOURCE) -> Control:
        """Return the instance's control socket at a location."""
        return Control(self.world.directory / "run" / f"{self.id}.{location}.sock")

    def ask(self, verb: str, location: str = SOURCE) -> dict[str, Any]:
        """Send a request to the instance."""
        return self.control(location).ask(verb)

    def begin(self) -> int:
        """Request the migration."""
        answer = self.world.operator.post(f"{V1}/migrations", json={"instance": self.id, "target": TARGET})
        assert answer.status_code == 202, answer.text
        return answer.json()["epoch"]

    def end(self, epoch: int = 1) -> dict[str, Any]:
        """Wait for the end; return the migration."""
        path = f"{V1}/migrations/{epoch}"
        self.world.wait(lambda: self.world.operator.get(path).json()["ended"] is not None)
        return self.world.operator.get(path).json()

    def row(self, role: str) -> Any:
        """Return the row of the process with a role."""
        return next((row for row in processes.of(self.world.agent._store.read, self.id) if row.role == role), None)

    def kill(self, who: str) -> None:
        """Kill a participant if it exists."""
        if who == "keeper":
            with contextlib.suppress(OSError, IndexError, ValueError):
                lock = self.world.directory / "run" / f"{key_of(1)}.lock"
                os.kill(int(lock.read_text().split()[0]), signal.SIGKILL)
            return
        row = self.row("serving" if who == "old" else "incoming")
        if row is not None and row.pid is not None:
            os.kill(row.pid, signal.SIGKILL)
            # Threads of a zombie may still hold its lock and its connections.
            assert wait_gone(row.pid, 60.0)
            wait_until(lambda: self.world.agent._reconciler._starter.find(row) is None)

    def check(self, location: str, number: int | None) -> None:
        """Check that one process serves at a location, continues from this number, and is the only one left."""
        shown = self.world.wait_status(self.made, "active")
        assert (shown["placement"]["location"], shown["placement"]["target"]) == (location, location)
        assert processes_of(self.id) == [shown["placement"]["pid"]]
        slot = "s0" if location == SOURCE else "s1"
        edge = "vf0" if location == SOURCE else "pf0vf0"
        assert shown["placement"]["slot"] == slot
        assert self.world.wiring.places == {self.number: (location, edge)}
        assert self.world.wiring.moves == {}
        if number is not None:
            assert self.control(location).ask("count") == {"number": number + 1}
        self.world.operator.patch(f"{V1}/instances/toy", json={"config": {"n": 2}})
        self.world.wait(lambda: self.world.show("toy")["config_state"] == "applied")
        runtime = self.world.directory / "run"
        left = {f"{self.id}.{location}.{suffix}" for suffix in ("lock", "json", "sock")}
        # A migration is reported as ended before its keeper ends, which is no longer needed.
        self.world.wait(
            lambda: {path.name for path in runtime.iterdir() if path.name.startswith((self.id, "keeper"))} == left
        )


@contextlib.contextmanager
def interrupted(effect: str, moment: str, act: Callable[[], None]) -> Iterator[threading.Event]:
    """Act once, ``before`` or ``after`` the first occurrence of an effect."""
    timed, happened = Journal.timed, threading.Event()

    @contextlib.contextmanager
    def wrapped(journal: Journal, name: str) -> Iterator[None]:
        now = name == effect and not happened.is_set()
        if now and moment == "before":
            happened.set()
            act()
        with timed(journal, name):
            yield
        if now and moment == "after":
            happened.set()
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "timed", wrapped)
        yield happened


@pytest.fixture(params=["auto", "copy"])
def case(request: pytest.FixtureRequest, directory: Path) -> Iterator[Case]:
    world = World(directory, more=f'\n[migrate]\nmode = "{request.param}"\n')
    try:
        yield Case(world)
    finally:
        world.close()


@pytest.fixture
def shared_case(own_world: World) -> Case:
    return Case(own_world)


def test_state_migrates_and_returns(case: Case) -> None:
    world = case.world
    copies = '"copy"' in (world.directory / "agent.toml").read_text()
    last = world.agent._store.last_event
    told = case.end(case.begin())
    assert (told["outcome"], told["reason"], told["mode"], told["step"]) == ("done", None, "state", "done")
    report = told["report"]
    assert report["mode"] == ("copy" if copies else "memfd")
    assert report["flows"] == 3
    assert (report["rounds"], report["state_bytes"]) == ((1, 4096 + 8) if copies else (0, 4096))
    assert (report["lost_state"], report["rolled_back_at"], report["relayed"]) == (None, None, 0)
    steps = [step["step"] for step in report["steps"]]
    assert steps == (
        ["prepare", "start", "rules", "await-rules", "hold"]
        + (["precopy"] if copies else [])
        + ["try-way", "freeze", "COMMIT", "settle", "flip", "quiesce", "drain", "handover", "done"]
    )
    assert {epoch for epoch, _ in world.wiring.markers} == {1}
    events = world.agent._store.read.execute("SELECT type, payload FROM event WHERE id > ? ORDER BY id", (last,))
    written = [(row["type"], json.loads(row["payload"])["step"]) for row in events if "migration" in row["type"]]
    assert written == [
        ("migration.requested", "requested"),
        ("migration.step", "prepare"),
        *([("migration.step", "precopy")] if copies else []),
        *(("migration.step", step) for step in ("freeze", "COMMIT", "flip", "drain", "done")),
        ("migration.ended", "done"),
    ]
    case.check(TARGET, 3)
    answer = world.operator.post(f"{V1}/migrations", json={"instance": "toy"})
    assert case.end(answer.json()["epoch"])["outcome"] == "done"
    case.check(SOURCE, 4)


def test_what_is_sealed_for_the_new_process_is_never_on_the_disk(case: Case) -> None:
    """The journal has the secret that opens it."""
    texts: list[bytes] = []

    def read() -> None:
        texts.extend(path.read_bytes() for path in (case.world.directory / "state").rglob("*") if path.is_file())
        texts.append(migrations.secret(case.world.agent._store.read, 1).encode())

    with interrupted("freeze", "before", read):
        assert case.end(case.begin())["outcome"] == "done"
    secret = texts.pop()
    assert any(secret in text for text in texts)
    assert not any(b"sealed-" in text for text in texts)


def test_packets_behind_a_marker_are_released_before_all_switches_are_quiet(own_world: World) -> None:
    own_world.wiring.quiet_after = 4
    case = Case(own_world)
    assert case.end(case.begin())["outcome"] == "done"
    numbers = [first for _, first in own_world.wiring.markers]
    assert numbers[:4] == [numbers[0] + 2 * turn for turn in range(4)]
    assert case.ask("status", TARGET)["released"] >= 3
    case.check(TARGET, 3)


def test_a_lost_marker_is_sent_again(own_world: World) -> None:
    own_world.wiring.quiet_after = 4
    case = Case(own_world, lost_markers=2)
    assert case.end(case.begin())["outcome"] == "done"
    numbers = [first for _, first in own_world.wiring.markers]
    assert numbers[:4] == [numbers[0] + 2 * turn for turn in range(4)], "each with numbers of its own"
    assert case.ask("status", TARGET)["released"] >= 1
    case.check(TARGET, 3)


def test_switches_have_to_lead_to_the_process_that_may_send(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the hypervisor's switch is away before the flip, oneswitchd undoes the move: the new process is cut off."""
    asked: list[str] = []
    outages: list[Callable[[], bool]] = []
    wiring, make = own_world.wiring, migrator.Outage

    def noted(stage: Callable[..., None]) -> Callable[..., None]:
        return lambda *where: (stage(*where), outages[0]())[0]

    monkeypatch.setattr(wiring, "are_in_step", lambda _, wires: asked.extend(at for _, (at, _) in wires) or True)
    monkeypatch.setattr(migrator, "Outage", lambda *parts: (outages.append(parts[3]), make(*parts))[1])
    for stage in ("prepare", "flip", "finish"):
        monkeypatch.setattr(wiring, stage, noted(getattr(wiring, stage)))
    case = Case(own_world)
    case.begin()
    assert case.end()["outcome"] == "done"
    assert asked == [SOURCE, TARGET, TARGET]


def test_without_markers_packets_wait_until_all_switches_are_quiet(own_world: World) -> None:
    case = Case(own_world, lost_markers=1_000_000)
    own_world.wiring.quiet_after = 1
    assert case.end(case.begin())["outcome"] == "done"
    assert case.ask("status", TARGET)["released"] == 0
    case.check(TARGET, 3)


def test_a_different_schema_is_refused_with_a_reason(own_world: World) -> None:
    case = Case(own_world, schema=1, schema_here=2)
    pid = case.made["placement"]["pid"]
    told = case.end(case.begin())
    assert told["outcome"] == "rolled-back"
    assert told["report"]["rolled_back_at"] == "prepare"
    assert "hold was refused: region number: schema 1, expected 2" in told["reason"]
    assert case.world.show("toy")["placement"]["pid"] == pid
    case.check(SOURCE, 3)


def test_a_process_that_hands_over_differently_is_refused_before_anything_stops(own_world: World) -> None:
    case = Case(own_world, hand_over=1)
    told = case.end(case.begin())
    assert (told["outcome"], told["report"]["rolled_back_at"]) == ("rolled-back", "prepare")
    assert "another version of nf" in told["reason"]
    case.check(SOURCE, 3)


def test_a_way_that_loses_markers_is_tried_again(own_world: World) -> None:
    case = Case(own_world, lost_trials=9)
    assert case.end(case.begin())["outcome"] == "done"
    case.check(TARGET, 3)


def test_a_way_that_no_marker_passes_causes_a_rollback(own_world: World) -> None:
    case = Case(own_world, lost_trials=10)
    told = case.end(case.begin())
    assert told["outcome"] == "rolled-back"
    assert "so a switch is stalled: only {} arrived" in told["reason"]
    case.check(SOURCE, 3)


def test_a_state_that_no_process_can_continue_here_continues_elsewhere(
    own_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(starter: Starter, instance: Instance, running: Running, **options: Any) -> Running:
        if options.get("adopt") and running.location == SOURCE:
            raise LaunchError("its file is gone")
        return launch(starter, instance, running, **options)

    launch = Starter.launch
    monkeypatch.setattr(Starter, "launch", refuse)
    case = Case(own_world)
    with interrupted("hold", "after", lambda: case.kill("old")):
        told = case.end(case.begin())
    assert (told["outcome"], told["report"]["lost_state"]) == ("done", None)
    case.check(TARGET, 3)


def test_an_outage_is_not_measured_while_the_database_is_locked(
    own_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(outage: Outage, *values: float) -> float:
        was_free.append(writing.acquire(timeout=20.0))
        if was_free[-1]:
            writing.release()
        return seconds(outage, *values)

    seconds, writing = Outage.seconds, own_world.agent._store._writing
    was_free: list[bool] = []
    monkeypatch.setattr(Outage, "seconds", measured)
    case = Case(own_world)
    assert case.end(case.begin())["outcome"] == "done"
    assert was_free
    assert all(was_free)


def test_a_target_without_a_free_slot_is_reported(own_world: World) -> None:
    taken = own_world.create("taker", "wired", pin=TARGET)
    own_world.wait_status(taken, "active")
    case = Case(own_world)
    told = case.end(case.begin())
    assert (told["outcome"], case.ask("count")) == ("rolled-back", {"number": 4})
    assert "no free slot with 1 interface(s) at snic0" in told["reason"]
    own_world.operator.delete(f"{V1}/instances/taker")
    own_world.wait(lambda: own_world.operator.get(f"{V1}/instances/taker").status_code == 404)
    case.check(SOURCE, 4)


def test_unresponsive_switches_cause_a_rollback_or_a_wait(shared_case: Case) -> None:
    world = shared_case.world

    def cut() -> None:
        world.wiring.broken = True

    with interrupted("rules", "before", cut) as happened:
        epoch = shared_case.begin()
        assert happened.wait(60)
    tries = "SELECT COUNT(*) FROM event WHERE type = 'migration.step' AND payload LIKE '%thaw%'"
    wait_until(lambda: world.agent._store.read.execute(tries).fetchone()[0] >= 3)
    assert shared_case.ask("count") == {"number": 4}  # before the switches can be rolled back
    world.wiring.broken = False
    told = shared_case.end(epoch)
    assert (told["outcome"], told["report"]["rolled_back_at"]) == ("rolled-back", "prepare")
    assert "no oneswitchd answers" in told["reason"]
    assert [step["step"] for step in told["report"]["steps"]].count("thaw") == 1  # retries do not lengthen the row
    with interrupted("flip", "before", cut) as happened:
        epoch = shared_case.begin()
        assert happened.wait(60)
    wait_until(lambda: world.operator.get(f"{V1}/migrations/{epoch}").json()["step"] == "flip")
    world.wiring.broken = False
    assert shared_case.end(epoch)["outcome"] == "done"
    shared_case.check(TARGET, 4)


@pytest.mark.parametrize("effect", [*BEFORE_COMMIT, *AFTER_COMMIT])
def test_a_deletion_cancels_a_migration_or_waits_for_it(shared_case: Case, effect: str) -> None:
    def delete() -> None:
        assert world.operator.delete(f"{V1}/instances/toy").status_code == 202

    world = shared_case.world
    with interrupted(effect, "before", delete) as happened:
        epoch = shared_case.begin()
        assert happened.wait(60)
        told = shared_case.end(epoch)
    # COMMIT is decided before packets stop; later deletions wait.
    if effect in BEFORE_COMMIT[: BEFORE_COMMIT.index("freeze")]:
        assert (told["outcome"], told["reason"]) == ("cancelled", "the instance is being deleted")
    else:
        assert told["outcome"] == "done"
    world.wait(lambda: world.operator.get(f"{V1}/instances/toy").status_code == 404)
    assert processes_of(shared_case.id) == []
    assert world.wiring.places == world.wiring.moves == {}
    assert list((world.directory / "run").iterdir()) == []


@pytest.mark.parametrize(("effect", "moment"), [("hold", "after"), ("flip", "before"), ("drain", "before")])
def test_a_deletion_does_not_wait_for_unresponsive_switches(shared_case: Case, effect: str, moment: str) -> None:
    def cut() -> None:
        world.wiring.broken = True

    world = shared_case.world
    with interrupted(effect, moment, cut) as happened:
        epoch = shared_case.begin()
        assert happened.wait(60)
    assert world.operator.delete(f"{V1}/instances/toy").status_code == 202
    told = shared_case.end(epoch)
    assert told["outcome"] == "cancelled"
    assert told["reason"].startswith("the instance is being deleted")
    wait_until(lambda: processes_of(shared_case.id) == [])
    world.wiring.broken = False
    world.wait(lambda: world.operator.get(f"{V1}/instances/toy").status_code == 404)
    assert list((world.directory / "run").iterdir()) == []


def test_a_replacement_repairs_what_the_dead_process_left(shared_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, held = protocol.hold, threading.Event()

    def hold_and_fail(move: RunningMigration, new: Peer) -> None:
        hold(move, new)
        if move.journal.is_committed and not held.is_set():
            held.set()
            raise ControlUnreachableError("as if this agent were dead")

    monkeypatch.setattr(protocol, "hold", hold_and_fail)
    with interrupted("flip", "before", lambda: shared_case.kill("new")):
        told = shared_case.end(shared_case.begin())
    assert (told["outcome"], held.is_set()) == ("done", True)
    assert shared_case.ask("status", TARGET)["repaired"] is True
    shared_case.check(TARGET, 3)


@pytest.mark.parametrize("dies", [False, True])
def test_a_rollback_after_the_commit_is_resumed(directory: Path, dies: bool) -> None:
    def kill_and_cut() -> None:
        case.kill("new")
        world.wiring.broken = True

    world = World(directory, more='\n[migrate]\nmode = "copy"\n')
    try:
        case = Case(world, unconfirmed=True)
        with interrupted("settle", "before", kill_and_cut) as happened:
            epoch = case.begin()
            assert happened.wait(60)
        tries = "SELECT COUNT(*) FROM event WHERE type = 'migration.step' AND payload LIKE '%thaw%'"
        wait_until(lambda: world.agent._store.read.execute(tries).fetchone()[0] >= 2)
        assert case.ask("count") == {"number": 4}
        if dies:
            case.kill("old")
        # The next agent reads that the migration is committed and rolling back.
        world.stop()
        world.start()
        world.wiring.broken = False
        told = case.end(epoch)
        assert (told["outcome"], told["report"]["rolled_back_at"]) == ("rolled-back", "COMMIT")
        assert told["report"]["lost_state"] is None
        case.check(SOURCE, 4)
    finally:
        world.close()
