"""The command line: exit statuses, formats, where things are printed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lab.cli import app as lab_app
from nfagent.cli import app as agent_app
from server.config import ServerConfig
from server.errors import ApiRefusedError, ServerError, UsageError
from server.names import patch_names
from server.oneswitchd.client import Client
from tests.server.fake_rest import FakeOneswitchd, make_status
from tests.unoctl.dummy_server import DummyServer, Mapped
from unoctl import plumb
from unoctl.cli import app
from unoctl.logs import LEVELS

TOML = """[oneswitchd]
datapath_id = "0000000000000001"
listen = ["punix:{folder}/mgmt"]
api = "unix:{folder}/rest.sock"

[[switch]]
name = "hypervisor"
virt = "unix:{folder}/virt"
edge = "unix:{folder}/edge"
"""


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    exit_code: int
    stdout: str
    stderr: str


def unoctl(*arguments: str, environment: dict[str, str] | None = None) -> Ran:
    nowhere = {"UNO_LAB_DIR": "/nonexistent", "ONESWITCH_CONFIG": "", "COLUMNS": "200"}
    result = CliRunner().invoke(app, list(arguments), env=nowhere | (environment or {}))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module")
def config(module_directory: Path) -> Path:
    path = module_directory / "server.toml"
    path.write_text(TOML.format(folder=module_directory))
    return path


@pytest.fixture
def fake(config: Path) -> Iterator[FakeOneswitchd]:
    path = config.with_name("rest.sock")
    path.unlink(missing_ok=True)
    with FakeOneswitchd(path, make_status(("hypervisor",), controllers=CONTROLLERS)) as started:
        started.add(1, "vm1", "hypervisor", "vm1")
        started.add(2, "vm2", "hypervisor", "vm2", state="down", reason="interface vm2 is not on bridge edge")
        yield started


CONTROLLERS = [
    {
        "id": 1,
        "target": "tcp:127.0.0.1:6633",
        "peer": None,
        "state": "backoff",
        "role": None,
        "messages_in": 0,
        "messages_out": 0,
        "last_error": "connection refused",
    }
]
COMMANDS = (
    "completion-is-typers",
    "capture",
    "doctor",
    "dump-flows",
    "dump-ports",
    "list-commands",
    "log set",
    "log show",
    "nf assets",
    "nf chain delete",
    "nf chain deploy",
    "nf chain list",
    "nf chain show",
    "nf configure",
    "nf delete",
    "nf deploy",
    "nf events",
    "nf kinds",
    "nf list",
    "nf load",
    "nf logs",
    "nf migrate",
    "nf migrations",
    "nf show",
    "nf why",
    "place",
    "plumb",
    "port abort",
    "port add",
    "port continue",
    "port del",
    "port execute",
    "port move",
    "show",
    "trace",
)


def test_every_command_is_listed() -> None:
    result = unoctl("--format=json", "list-commands")
    assert [item["command"] for item in json.loads(result.stdout)] == list(COMMANDS[1:])


@pytest.mark.parametrize(("program", "main"), [("unoctl", app), ("uno-lab", lab_app), ("nfagent", agent_app)])
def test_every_program_tells_its_version(program: str, main: typer.Typer) -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name=program)
    assert (result.exit_code, result.stdout) == (0, f"{program} {version('uno-server')}\n")


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_every_command_has_help_and_both_formats(command: str) -> None:
    result = unoctl(*command.split(), "--help")
    assert result.exit_code == 0
    assert "--format" in result.stdout
    assert "--pretty" in result.stdout


def test_show_prints_the_server(config: Path, fake: FakeOneswitchd) -> None:
    result = unoctl("--config", str(config), "show")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "datapath 0000000000000001"
    assert "    Controller tcp:127.0.0.1:6633: backoff\n        connection refused\n" in result.stdout
    assert "    Port 2 vm2: down\n        interface vm2 is not on bridge edge\n" in result.stdout
    assert "        Port 1 vm1 on vm1, flow-id 1\n" in result.stdout
    assert "\x1b" not in result.stdout


def test_show_prints_offloaded_flows(config: Path, fake: FakeOneswitchd) -> None:
    fake.status["offload"] = [{"port": 1, "writer": False, "flows": 3, "targets": 2, "packets": 70, "bytes": 4200}]
    lines = unoctl("--config", str(config), "show").stdout.splitlines()
    port = lines.index("        Port 1 vm1 on vm1, flow-id 1")
    assert lines[port + 1].strip() == "offloads 3 flows to 2 targets, 70 packets carried, no writer"


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_format_option_is_accepted_before_and_after_the_command(
    config: Path, fake: FakeOneswitchd, place: str
) -> None:
    options = ["--format=json", "--pretty"]
    words = [*options, "show"] if place == "before" else ["show", *options]
    result = unoctl("--config", str(config), *words)
    record = json.loads(result.stdout)
    assert record["status"]["datapath_id"] == "0000000000000001"
    assert [port["name"] for port in record["ports"]] == ["vm1", "vm2"]
    assert result.stdout.startswith('{\n  "config"')


def test_dump_ports_works_without_counters(config: Path, fake: FakeOneswitchd) -> None:
    result = unoctl("--config", str(config), "--format=json", "dump-ports")
    record = json.loads(result.stdout)
    assert record["ports"][0]["counters"] is None
    assert "mgmt" in record["counters_missing"]


def test_log_levels_are_shown_and_set(config: Path, fake: FakeOneswitchd) -> None:
    assert unoctl("--config", str(config), "log", "set", "openflow=debug", "warn").exit_code == 0
    assert fake.levels == {"default": "warn", "openflow": "debug"}
    result = unoctl("--config", str(config), "log", "show")
    assert result.stdout.split() == ["MODULE", "LEVEL", "default", "warn", "openflow", "debug"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["log", "set", "loud"], 2, "'loud' is not a log level"),
        (["port", "add", "70000", "--switch", "hypervisor", "--interface", "x"], 2, "expected 1 to 65023, or auto"),
        (["port", "add", "1", "--switch", "hypervisor", "--interface", "x"], 1, "port-number-taken"),
        (["port", "del", "vm9"], 2, "unknown virtual port 'vm9'"),
        (["port", "del", "9"], 1, "port-unknown"),
        (["trace", "vm9", "tcp"], 2, "unknown virtual port 'vm9'"),
        (["trace", "vm1", "tcp"], 1, "[[switch]] hypervisor has no control"),
        (["trace", "vm1", "tcp,foo=1"], 2, "PACKET 'tcp,foo=1' is not a packet"),
        (["trace", "vm1", "in_port=3,tcp"], 2, "PACKET names in_port"),
        (["trace", "vm1", "0102"], 2, "PACKET has 4 hex digits"),
        (["dump-flows", "physical", "--switch", "snic9"], 1, "unknown switch 'snic9'"),
        (["dump-flows", "virtual"], 1, "mgmt"),
        (["nonsense"], 2, "nonsense"),
        (["dump-flows", "imaginary"], 2, "imaginary"),
    ],
)
def test_failures_have_an_exit_status_and_a_message(
    config: Path, fake: FakeOneswitchd, words: list[str], status: int, said: str
) -> None:
    result = unoctl("--config", str(config), *words)
    assert result.exit_code == status, result.stderr
    assert said in result.stderr
    assert result.stdout == ""


def test_failures_are_printed_as_json(config: Path, fake: FakeOneswitchd) -> None:
    result = unoctl("--config", str(config), "--format=json", "port", "del", "9")
    assert json.loads(result.stderr)["error"]["code"] == "port-unknown"


def test_an_unresponsive_bridge_is_named(config: Path, fake: FakeOneswitchd) -> None:
    result = unoctl("--config", str(config), "--format=json", "dump-flows", "physical")
    assert result.exit_code == 1
    assert [bridge["bridge"] for bridge in json.loads(result.stdout)["bridges"] if bridge["error"]] == ["virt", "edge"]


def test_a_missing_daemon_is_reported(config: Path) -> None:
    config.with_name("rest.sock").unlink(missing_ok=True)
    result = unoctl("--config", str(config), "show")
    assert result.exit_code == 1
    assert "start it with: oneswitchd --config FILE" in result.stderr


def test_a_missing_configuration_is_reported() -> None:
    result = unoctl("show")
    assert result.exit_code == 2
    assert "uno-lab up" in result.stderr


def test_a_wrong_configuration_names_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(TOML.format(folder=tmp_path).replace("edge =", "egde ="))
    result = unoctl("--config", str(path), "show")
    assert result.exit_code == 1
    assert f"{path}:" in result.stderr
    assert "egde" in result.stderr or "edge" in result.stderr


def test_the_chosen_lab_is_named_on_stderr(tmp_path: Path, config: Path, fake: FakeOneswitchd) -> None:
    lab = tmp_path / "only"
    lab.mkdir()
    (lab / "server.toml").write_text(config.read_text())
    result = unoctl("show", environment={"UNO_LAB_DIR": str(tmp_path)})
    assert result.exit_code == 0
    assert result.stderr == f"unoctl: using {lab}/server.toml (the only running lab, only)\n"


def completed(words: str, config: Path) -> list[str]:
    """Return bash's completions after these words."""
    environment = {"_UNOCTL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = CliRunner().invoke(app, [], prog_name="unoctl", env={**environment, "ONESWITCH_CONFIG": str(config)})
    return result.stdout.split()


def test_the_shell_completes_names(config: Path, fake: FakeOneswitchd) -> None:
    assert completed("unoctl port move ", config) == ["vm1", "vm2"]
    assert completed(f"unoctl --config {config} port add 1 --switch hy", Path()) == ["hypervisor"]
    assert completed("unoctl log set d", config) == ["debug", *(f"default={level}" for level in LEVELS)]


def test_completion_is_empty_without_a_daemon(tmp_path: Path) -> None:
    assert completed("unoctl port del ", tmp_path / "gone.toml") == []


def test_errors_are_one_tree_with_codes() -> None:
    assert (ServerError("x").exit_status, UsageError("x").exit_status) == (1, 2)
    assert ApiRefusedError(409, "interface-taken", "d").code == "interface-taken"


@pytest.fixture(scope="module")
def server(module_directory: Path) -> Iterator[DummyServer]:
    ports = (Mapped(1, "hypervisor", "vm1", 11), Mapped(2, "snic0", "vm2", 12))
    with DummyServer(module_directory / "server", snics=1, ports=ports) as started:
        started.virtual(["cookie=0x9,in_port=1,actions=output:2"])
        yield started


def test_trace_prints_a_tree(server: DummyServer) -> None:
    """A trace works without oneswitchd: rules are on the switches, ports in the file."""
    result = unoctl("--config", str(server.path), "trace", "--hex", "v1", "udp,nw_src=1.2.3.4,tp_dst=53")
    assert result.exit_code == 0
    assert "oneswitchd does not answer" in result.stdout
    assert "virt table 0: priority=32768,in_port=1 cookie 0x9" in result.stdout
    assert "=> PCIe pcie-snic0 -- pf0hpf of snic0, flow-id 12 = unknown: no port has it, 110 bytes" in result.stdout
    assert "=> exit at port 2 v2, interface vm2 of snic0, 106 bytes" in result.stdout
    assert result.stdout.splitlines()[-1] == "Leaves through: port 2 v2"


def test_physical_rules_are_dumped(server: DummyServer) -> None:
    words = ["dump-flows", "physical", "--switch", "snic0", "--bridge", "virt"]
    result = unoctl("--config", str(server.path), *words)
    assert result.stdout.splitlines() == [
        "snic0 virt:",
        "    cookie=0x9, table=0, n_packets=0, n_bytes=0, priority=32768,in_port=1 actions=output:2",
    ]


def test_plumb_restores_the_patch_ports_of_mapped_ports(module_directory: Path) -> None:
    with DummyServer(module_directory / "patches", 1, []) as server:

        def changed() -> list[bool]:
            told = plumb.run(ServerConfig.load(server.path), plumb.Datapath.dummy, [7])
            return [each["changed"] for each in told.data]

        assert changed() == [True, True]
        at_virt, at_edge = patch_names(7)
        server.switches["snic0"].vsctl("del-port", "edge", at_edge)
        assert changed() == [False, True]
        assert changed() == [False, False]
        for switch in server.switches.values():
            assert at_virt in switch.vsctl("list-ports", "virt").split()
            assert at_edge in switch.vsctl("list-ports", "edge").split()


def test_plumb_asks_oneswitchd_for_its_ports(tmp_path: Path) -> None:
    with FakeOneswitchd(tmp_path / "oneswitchd.sock") as fake, Client(fake.api) as client:
        client.add_port(5, "five", "snic0", "pf0vf0")
        assert plumb.mapped(client) == [5]
    with Client(f"unix:{tmp_path}/absent.sock") as client:
        assert plumb.mapped(client) == []


def test_plumb_creates_only_missing_parts(module_directory: Path) -> None:
    with DummyServer(module_directory / "plumb", 1, []) as server:
        where = ("--config", str(server.path), "--format=json", "plumb", "--datapath=dummy")
        assert json.loads(unoctl(*where).stdout) == [
            {"switch": "hypervisor", "changed": False, "link": None},
            {
                "switch": "snic0",
                "changed": False,
                "link": {"type": "vlan", "reason": "its ports exist and are not of type pcie"},
            },
        ]
        server.switches["snic0"].vsctl("del-br", "virt")
        assert [each["changed"] for each in json.loads(unoctl(*where).stdout)] == [False, True]
        snic = server.switches["snic0"]
        assert snic.vsctl("get", "bridge", "virt", "fail_mode", "datapath_type").split() == ["secure", "dummy"]
        assert "virt-mc" in snic.vsctl("list-ports", "virt")
        snic.vsctl("set-fail-mode", "virt", "standalone")
        refused = unoctl(*where)
        assert (refused.exit_code, "fail_mode" in refused.stderr) == (1, True)
