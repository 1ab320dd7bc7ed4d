"""``unoctl nf`` with an agent in this process, whose network functions are a small program."""

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from server.errors import ConfigChoiceError, ConfigError
from tests.nfagent.world import TENANT_TOKEN, World
from unoctl.cli import app
from unoctl.nf import commands, finding, views
from unoctl.render import Format, Output, View


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("nf"))
    yield made
    made.close()


def nf(world: World, *arguments: str, environment: dict[str, str] | None = None) -> Result:
    address = f"unix:{world.directory}/nfagent.sock"
    variables = {"UNO_LAB_DIR": "/nonexistent", "NFAGENT_API": address, "NFAGENT_TOKEN": "", "COLUMNS": "200"}
    result = CliRunner().invoke(app, ["nf", *arguments], env=variables | (environment or {}))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_nf_deploys_shows_configures_and_deletes(world: World, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("value = 1\n")
    (tmp_path / "two.json").write_text('{"value": 2}')
    made = nf(world, "deploy", "toy1", "--kind", "toy", "--with", str(tmp_path / "one.toml"), "--format=json")
    assert made.exit_code == 0, made.stderr
    shown = json.loads(made.stdout)
    assert (shown["status"], shown["config_state"], shown["config"]) == ("active", "applied", {"value": 1})
    assert "toy1" in nf(world, "list").stdout
    assert "runs at hypervisor" in nf(world, "show", "toy1").stdout
    changed = nf(world, "configure", "toy1", str(tmp_path / "two.json"), "--format=json")
    assert json.loads(changed.stdout)["config"] == {"value": 2}
    gone = nf(world, "delete", "toy1")
    assert (gone.exit_code, gone.stdout) == (0, "")
    missing = nf(world, "show", "toy1")
    assert missing.exit_code == 1
    assert "refused by nfagent (instance-unknown)" in missing.stderr


class Waiting:
    """A client whose instance waits for oneswitchd and then becomes active."""

    def __init__(self, found: dict[str, Any]) -> None:
        waits = found | {"status": "building", "config_state": "pending"}
        self._looks = iter([waits | {"reason": None}, waits | {"reason": "no oneswitchd answers"}, found])

    def events(self) -> Iterator[dict[str, Any]]:
        """See `NfClient`."""
        return itertools.repeat({})

    def instance(self, _: str) -> dict[str, Any]:
        """See `NfClient`."""
        return next(self._looks)


def test_progress_is_printed_while_waiting(world: World) -> None:
    nf(world, "deploy", "patient", "--kind", "sleeper")
    client: Any = Waiting(world.show("patient"))
    said = io.StringIO()
    view = commands._await_settled(client, Output(Format.TABLE, False, stderr=said), "patient")
    assert view.exit_status == 0
    assert said.getvalue().splitlines() == [
        "unoctl: patient: building",
        "unoctl: patient: no oneswitchd answers",
        "unoctl: patient: active",
    ]
    nf(world, "delete", "patient")


def test_a_failed_start_is_reported_with_the_reason(world: World) -> None:
    made = nf(world, "deploy", "bad", "--kind", "broken")
    assert made.exit_code == 1
    assert "it cannot be" in made.stdout
    nf(world, "delete", "bad")


def test_logs_are_printed_and_followed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nf(world, "deploy", "loud", "--kind", "loud")
    world.wait(lambda: nf(world, "logs", "loud").stdout == "one\ntwo \x1b[31mred\n")
    assert nf(world, "logs", "loud", "--most", "12").stdout == ""  # the beginning of the line is missing
    assert json.loads(nf(world, "logs", "loud", "--format=json").stdout) == {"text": "one\ntwo \x1b[31mred\n"}
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(commands.time, "sleep", wait)
    followed = nf(world, "logs", "loud", "-f")
    assert (followed.exit_code, followed.stdout) == (130, "one\ntwo \x1b[31mred\n")
    before = nf(world, "logs", "loud", "--previous")
    assert (before.exit_code, before.stdout) == (0, "")
    assert nf(world, "logs", "loud", "-f", "--previous").exit_code == 2
    nf(world, "delete", "loud")


def test_a_terminal_gets_no_control_characters_from_a_function() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    Output(Format.TABLE, pretty=False, stdout=terminal).pass_text("a\tb \x1b]0;title\x07\u00e9\n")
    assert terminal.getvalue() == "a\tb \ufffd]0;title\ufffd\u00e9\n"


def test_nf_migrates_an_opaque_instance_and_reports_the_outcome(world: World) -> None:
    nf(world, "deploy", "still", "--kind", "sleeper")
    moved = nf(world, "migrate", "still", "--format=json")
    assert moved.exit_code == 0, moved.stderr
    assert json.loads(moved.stdout)["outcome"] == "done"
    listed = nf(world, "migrations", "still").stdout
    assert "hypervisor -> snic0" in listed
    assert "done" in listed
    nf(world, "deploy", "local", "--kind", "here-only")
    failed = nf(world, "migrate", "local", "snic0")
    assert failed.exit_code == 1
    assert "not there" in failed.stdout
    for name in ("still", "local"):
        nf(world, "delete", name)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        (None, "-"),
        ("its process ended", "its process ended"),
        ("no free slot at snic0: of 2 slots 2 are taken; add one", "no free slot at snic0..."),
        ("word " * 29 + "word", "word word word word word word word word word word word..."),
    ],
)
def test_lists_name_the_project_and_begin_reasons_that_show_ends(world: World, reason: str | None, short: str) -> None:
    nf(world, "deploy", "listed", "--kind", "sleeper")
    found = world.show("listed") | {"reason": reason, "project": "acme"}
    row = _printed(views.instances([found])).splitlines()[1]
    assert row.split()[:4] == ["listed", "acme", "sleeper", "active"]
    assert row.rstrip().endswith(f"  {short}")
    assert reason is None or f"reason {reason}\n" in _printed(views.instance(found))
    nf(world, "delete", "listed")


def test_names_of_several_projects_are_told_apart(world: World) -> None:
    nf(world, "deploy", "twin", "--kind", "sleeper")
    made = world.tenant.post("/api/v1/instances", json={"name": "twin", "kind": "sleeper"}).json()
    world.wait_status(made, "active")
    nf(world, "migrate", "acme/twin")
    listed = nf(world, "migrations").stdout
    assert " acme/twin " in listed
    for name in ("acme/twin", "twin"):
        nf(world, "delete", name)


OFFLOAD = {
    "state": "connected",
    "why": None,
    "flows": 20,
    "capacity": 65536,
    "share": 0.93,
    "packets": 900,
    "bytes": 9000,
    "refused": {"rate": 1, "full": 12},
}


def _printed(view: View) -> str:
    said = io.StringIO()
    Console(file=said, width=200).print(view.body)
    return said.getvalue()


def test_a_function_shows_what_the_switches_carry(world: World) -> None:
    nf(world, "deploy", "plain", "--kind", "sleeper")
    found = world.show("plain")
    assert "offload" not in _printed(views.instance(found))
    said = _printed(views.instance(found | {"offload": OFFLOAD}))
    assert "offload connected: 20 of 65536 flows, 93% of packets, refused: full 12, rate 1\n" in said
    waits = OFFLOAD | {"state": "waiting", "why": "no socket", "refused": {}}
    assert "offload waiting (no socket): 20 of 65536 flows, 93% of packets\n" in _printed(
        views.instance(found | {"offload": waits})
    )
    rate = {"mbps": 8.0, "pps": 1000.0}
    use = {"utilisation": 0.5, "millicores": 300, "traffic": rate, "flows": 7, "offload": OFFLOAD | {"traffic": rate}}
    measured = {"at": "", "window_s": 1.0, "error": 0.0, "locations": {}, "links": {}, "matrix": []}
    said = _printed(views.load(measured | {"instances": {"i": use}}, {}))
    assert "carried by the switches beside that: connected: 20 of 65536 flows, 93% of packets" in said
    nf(world, "delete", "plain")


def test_why_names_an_unfit_location_once() -> None:
    found = {"location": "hypervisor", "why": {"unfit": {"snic0": "snic0 lacks /etc/a.pem"}}}
    assert "unfit: snic0 lacks /etc/a.pem\n" in _printed(views.why(found, "watch"))


def test_kinds_show_how_they_migrate(world: World) -> None:
    rows = {line.split()[0]: line.split()[1] for line in nf(world, "kinds").stdout.splitlines()}
    assert (rows["toy"], rows["sleeper"]) == ("state", "restart")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("deploy", "x", "--kind", "nothing"), 1, "nothing"),
        (("deploy", "x", "--kind", "toy", "--with", "/nonexistent.toml"), 2, "/nonexistent.toml"),
        (("migrate", "nobody"), 1, "nobody"),
        (("show", "a/b"), 1, "a/b"),
        (("list", "--agent", "unix:/nonexistent.sock"), 1, "no nfagent answers at unix:/nonexistent.sock"),
        (("list", "--agent", "nonsense"), 1, "nonsense"),
        (("why", "nobody"), 1, "nobody"),
    ],
)
def test_errors_name_the_cause(world: World, arguments: tuple[str, ...], exit_code: int, said: str) -> None:
    result = nf(world, *arguments)
    assert result.exit_code == exit_code, result.output
    assert said in result.stderr


def test_a_token_opens_the_tcp_address(world: World) -> None:
    address = "tcp:" + world.url.removeprefix("http://")
    refused = nf(world, "list", "--agent", address)
    assert refused.exit_code == 1
    assert "refused by nfagent" in refused.stderr
    assert nf(world, "list", "--agent", address, environment={"NFAGENT_TOKEN": TENANT_TOKEN}).exit_code == 0


def test_nf_finds_the_agent(tmp_path: Path) -> None:
    none = tmp_path / "none.toml"
    assert finding.address("unix:/a", None, {"NFAGENT_API": "unix:/b"}, none) == "unix:/a"
    assert finding.address(None, None, {"NFAGENT_API": "unix:/b"}, none) == "unix:/b"
    lab = tmp_path / "labs" / "one"
    (lab / "nfagent").mkdir(parents=True)
    (lab / "server.toml").touch()
    (lab / "nfagent" / "agent.toml").write_text('[api]\nlisten = ["unix:/c", "tcp:127.0.0.1:1"]\n')
    labs = {"UNO_LAB_DIR": str(tmp_path / "labs")}
    assert finding.address(None, None, labs, none) == "unix:/c"
    assert finding.address(None, "one", labs | {"NFAGENT_API": "unix:/b"}, none) == "unix:/c"
    assert (
        finding.address(None, None, labs | {"NFAGENT_CONFIG": str(lab / "nfagent" / "agent.toml")}, none) == "unix:/c"
    )
    with pytest.raises(ConfigChoiceError, match="two"):
        finding.address(None, "two", labs, none)
    (tmp_path / "broken.toml").write_text("api = 1\n")
    with pytest.raises(ConfigError, match="broken"):
        finding.address(None, None, {"NFAGENT_CONFIG": str(tmp_path / "broken.toml")}, none)
    (tmp_path / "text.toml").write_text('[api]\nlisten = "unix:/c"\n')
    with pytest.raises(ConfigError, match=r"text\.toml: .*'unix:/c' is not a list"):
        finding.address(None, None, {"NFAGENT_CONFIG": str(tmp_path / "text.toml")}, none)
