"""The migrator's settings from agent.toml, and the start of a keeper."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nfagent.config import AgentConfig
from nfagent.launch import Task
from nfagent.migrate import keepers, making
from nfagent.migrate.keepers import Keepers, Kept
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
