"""The migrator's settings from agent.toml, its cancellations, and the start of a keeper."""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nfagent.config import AgentConfig
from nfagent.launch import Task
from nfagent.migrate import keepers, making, migrator
from nfagent.migrate.keepers import Keepers, Kept
from nfagent.migrate.migrator import StateMigrator
from nfagent.migrate.move import Parts, RunningMigration, TurnBackError

AGENT = """
runtime = "/run/nfagent"
[migrate]
mode = "copy"
rate_mbps = 7
[[location]]
switch = "hypervisor"
[[location]]
switch = "snic0"
ssh = { host = "root@192.0.2.1" }
[[location]]
switch = "snic1"
address = "192.0.2.2"
"""


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    made: list[Parts] = []
    monkeypatch.setattr(making, "StateMigrator", made.append)
    catalog = SimpleNamespace(locations=("hypervisor", "snic0", "snic1", "snic2"), home="hypervisor")
    shared = ("store", "starter", "switching", "is_down", "is_cut_off")
    given: dict[str, Any] = {name: object() for name in (*shared, "local")}
    making.make_migrator(AgentConfig.parse(AGENT), catalog=cast(Any, catalog), **given)
    for name in shared:
        assert getattr(made[0], name) is given[name]
    return made[0]


def test_a_migrator_follows_agent_toml(parts: Parts) -> None:
    assert parts.runtime == Path("/run/nfagent")
    assert parts.home == "hypervisor"
    assert parts.addresses == {"snic0": "192.0.2.1", "snic1": "192.0.2.2"}
    assert parts.local == {"hypervisor", "snic1", "snic2"}
    assert (parts.copies, parts.rate_mbps) == (True, 7)


def test_the_state_listener_uses_the_address_of_agent_toml(parts: Parts) -> None:
    def listen(target: str) -> str:
        move = SimpleNamespace(parts=parts, target=target, is_local=False)
        return RunningMigration.listen(cast(RunningMigration, move))

    assert listen("snic0") == "tcp:192.0.2.1:0"
    with pytest.raises(TurnBackError, match="where instances at snic2 listen for state: add the key address"):
        listen("snic2")


def test_a_keeper_runs_without_site_packages_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Task] = []
    launcher = SimpleNamespace(control_path=lambda key: Path(f"/run/{key}.sock"), start=started.append)
    put: list[object] = []
    control = SimpleNamespace(ask=lambda verb, **arguments: put.append((verb, arguments["descriptors"])))
    monkeypatch.setattr(keepers, "Control", lambda path: control)
    Keepers(cast(Any, launcher)).keep(5, Kept({}, [7, 8]))
    program = str(Path(keepers.__file__).with_name("keeper.py"))
    assert [each.command for each in started] == [(sys.executable, "-I", "-S", program, "/run/keeper.5.sock")]
    assert put == [("put", [7, 8])]


@dataclass(frozen=True)
class Configured:
    """The part of an instance that a migration changes."""

    config: dict[str, int]
    generation: int
    flavor: str = "small"
    name: str = "lb"


def test_a_new_process_gets_the_configuration_in_force() -> None:
    move: Any = object.__new__(RunningMigration)
    move.instance = Configured({"newer": 1}, 7)
    running = move.as_running({"older": 2}, cast(Any, SimpleNamespace(generation=5, flavor="large")))
    assert running == Configured({"older": 2}, 5, "large")
    assert move.instance == Configured({"newer": 1}, 7)


class Cancelling:
    """Stands in for the store, the rows and the parts of a cancelled migration; it records what is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runtime: Path, waits: str | None = None) -> None:
        self.done: list[object] = []
        self.waits = waits
        self.instance: Any = SimpleNamespace(id="i", name="lb")
        self.parts: Any = SimpleNamespace(
            runtime=runtime,
            store=SimpleNamespace(read="rows", change=lambda: contextlib.nullcontext("change")),
            keepers=SimpleNamespace(end=lambda epoch: self.done.append(f"end keeper {epoch}")),
        )
        monkeypatch.setattr(migrator, "RunningMigration", self.moving)
        monkeypatch.setattr(migrator, "instances", SimpleNamespace(find=self.find))
        monkeypatch.setattr(migrator, "processes", SimpleNamespace(of=self.processes))
        monkeypatch.setattr(migrator, "migrations", SimpleNamespace(open_epochs=lambda read: {"rows": [5]}[read]))
        self.migration: Any = SimpleNamespace(epoch=5, instance="i", step="freezing")

    def find(self, read: str, instance: str) -> Any:
        assert (read, instance) == ("rows", "i")
        return self.instance

    def processes(self, read: str, instance: str) -> list[str]:
        assert (read, instance) == ("rows", "i")
        return ["old", "new"]

    def moving(self, *args: object) -> Any:
        assert args == (self.parts, self.migration, self.instance)
        return SimpleNamespace(
            halt=lambda row, seconds: self.done.append((row, seconds)),
            journal=SimpleNamespace(
                report=SimpleNamespace(waits=self.waits),
                measure=lambda: self.done.append("measure"),
                end=lambda *told: self.done.append(told),
            ),
            close=lambda: self.done.append("close"),
        )


@pytest.mark.parametrize(("waits", "reason"), [(None, "it was in step freezing"), ("snic0 is away", "snic0 is away")])
def test_a_cancelled_migration_ends_its_processes_and_its_keeper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, waits: str | None, reason: str
) -> None:
    world = Cancelling(monkeypatch, tmp_path, waits)
    made = StateMigrator(world.parts)
    stopped: list[bool] = []
    other: Any = object()
    made._outages = {5: cast(Any, SimpleNamespace(stop=lambda *, ended: stopped.append(ended))), 6: other}
    made.cancel(world.migration)
    assert world.done == [
        ("old", 0.0),
        ("new", 0.0),
        "measure",
        ("change", "cancelled", f"the instance is being deleted; {reason}"),
        "close",
        "end keeper 5",
    ]
    assert (stopped, made._outages) == ([True], {6: other})


def test_a_migration_without_its_instance_has_nothing_to_cancel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = Cancelling(monkeypatch, tmp_path)
    world.instance = None
    StateMigrator(world.parts).cancel(world.migration)
    assert world.done == []


def test_measurements_of_ended_migrations_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = ["migration.5", "migration.5.new", "migration.55", "migration.6", "other.6"]
    for name in files:
        (tmp_path / name).touch()
    StateMigrator(Cancelling(monkeypatch, tmp_path).parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["migration.5", "migration.5.new", "other.6"]
