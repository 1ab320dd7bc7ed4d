"""``unoctl doctor``: its findings on a healthy and on a broken server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.config import ServerConfig, SwitchConfig
from server.discovery import Found
from server.openvswitch.ovsdb_text import Bridge, Database, Interface
from tests.server.fake_rest import FakeOneswitchd, audited, make_status
from tests.unoctl.dummy_server import DummyServer, Mapped
from unoctl.doctor import checkup, daemon, drift, machine, wiring
from unoctl.doctor.facts import Facts
from unoctl.doctor.findings import Finding, Level
from unoctl.render import Format, Output
from unoctl.session import Choice, Session

PORTS = (Mapped(1, "hypervisor", "vm1", 11), Mapped(2, "snic0", "vm2", 12))


@pytest.fixture(scope="module")
def server(module_directory: Path) -> Iterator[DummyServer]:
    with DummyServer(module_directory, snics=1, ports=PORTS) as started:
        yield started


@pytest.fixture
def fake(server: DummyServer) -> Iterator[FakeOneswitchd]:
    path = server.folder / "oneswitchd.sock"
    path.unlink(missing_ok=True)
    with FakeOneswitchd(path) as started:
        for port in PORTS:
            started.add(port.number, f"v{port.number}", port.switch, port.interface, flow_id=port.flow_id)
        yield started


@pytest.fixture
def facts(server: DummyServer, fake: FakeOneswitchd) -> Facts:
    return Facts(ServerConfig.load(server.path))


def bad(findings: Iterator[Finding]) -> dict[str, str]:
    """Return the messages of bad findings by subject."""
    found = list(findings)
    for finding in found:
        assert bool(finding.mend) == (finding.level is not Level.OK), finding
    return {finding.subject: finding.message for finding in found if finding.level is not Level.OK}


def test_the_machine_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for check in checkup.MACHINE_CHECKS:
        assert list(check())
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(machine, "_search_path", lambda: "/nonexistent")
    assert "ovs-vsctl" in bad(machine.tools())["Open vSwitch"]
    assert bad(machine.namespaces())["user namespaces"].startswith("off (unshare is not on PATH)")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("ovs-vsctl (Open vSwitch) 3.1.0", Level.OK),
        ("ovs-vsctl (Open vSwitch) 3.10.0", Level.OK),
        ("ovs-vsctl (Open vSwitch) 2.17.9", Level.WARN),
        ("ovs-vsctl (Open vSwitch) 2.9.0", Level.FAIL),
        ("something else", Level.WARN),
    ],
)
def test_versions_of_open_vswitch_are_rated(text: str, level: Level) -> None:
    assert machine.version_finding(text).level is level


def test_a_healthy_server(facts: Facts) -> None:
    for check in (wiring.sockets, wiring.bridges, wiring.links):
        assert bad(check(facts)) == {}
    assert [(each.subject, each.level) for each in drift.drift(facts)] == [
        (f"{switch} {bridge}", Level.OK) for switch in ("hypervisor", "snic0") for bridge in ("virt", "edge")
    ]


NAMED = ["missing rule table=0,priority=1 any packet", "foreign group 7", "changed meter 1", "foreign group 8"]
FOUND = {"found": {"age_s": 4, "changes": 5, "named": NAMED, "again": []}}


@pytest.mark.parametrize(
    ("audit", "level", "message"),
    [
        ({"state": "down", "audited": False}, Level.WARN, "not compared: it is down"),
        ({"audited": False}, Level.FAIL, "not compared: it is connected, but has not answered in time"),
        (FOUND, Level.WARN, f"found and repaired 4 s ago: {'; '.join(NAMED[:3])} and 2 more"),
        ({"found": FOUND["found"] | {"again": NAMED[:1]}}, Level.FAIL, f"repaired repeatedly: {NAMED[0]}"),
    ],
)
def test_what_an_audit_found(
    facts: Facts, fake: FakeOneswitchd, audit: dict[str, Any], level: Level, message: str
) -> None:
    fake.overrides["POST /v1/audit"] = lambda _: (200, [audited("snic0", "virt") | audit])
    (finding,) = drift.drift(facts)
    assert (finding.subject, finding.level, finding.message) == ("snic0 virt", level, message)
    assert finding.mend


@pytest.mark.parametrize(
    ("lab", "commands"),
    [
        (
            None,
            ("systemctl restart openvswitch-switch", "systemctl restart openvswitch-switch", "systemctl restart one"),
        ),
        ("uno", ("uno-lab start snic0/ovsdb-server", "uno-lab start snic0", "uno-lab start oneswitchd")),
        (
            "two",
            ("uno-lab start snic0/ovsdb-server --name two", "uno-lab start snic0 --name two", "oneswitchd --name two"),
        ),
    ],
)
def test_the_command_that_brings_back_a_part_is_named(
    server: DummyServer, tmp_path: Path, lab: str | None, commands: tuple[str, str, str]
) -> None:
    folder = tmp_path / (lab or "etc")
    folder.mkdir()
    if lab:
        (folder / "lab.json").touch()
    (folder / "server.toml").write_text(server.path.read_text().replace("/snic0/", "/gone/"))
    broken = Facts(ServerConfig.load(folder / "server.toml"))
    found = {each.subject: each.mend or "" for each in (*wiring.sockets(broken), *daemon.daemon(broken))}
    for subject, command in zip(("snic0 ovsdb", "snic0 virt", "REST"), commands, strict=True):
        assert command in found[subject]


def test_a_disconnected_switch_is_reported(server: DummyServer, fake: FakeOneswitchd) -> None:
    broken = server.path.with_name("away.toml")
    broken.write_text(server.path.read_text().replace("/snic0/", "/gone/"))
    found = bad(wiring.sockets(Facts(ServerConfig.load(broken))))
    assert list(found) == ["snic0 ovsdb", "snic0 virt", "snic0 edge", "snic0 control"]
    assert found["snic0 virt"].endswith("/gone/virt.mgmt: does not exist")
    assert bad(wiring.bridges(Facts(ServerConfig.load(broken)))) == {}


def test_unconfigured_sockets_are_reported(server: DummyServer, fake: FakeOneswitchd) -> None:
    bare = server.path.with_name("bare.toml")
    lines = [line for line in server.path.read_text().splitlines() if not line.startswith(("ovsdb", "control"))]
    bare.write_text("\n".join(lines))
    found = bad(wiring.sockets(Facts(ServerConfig.load(bare))))
    assert found["hypervisor control"] == "not configured; trace cannot work"
    assert set(found) == {f"{name} {key}" for name in ("hypervisor", "snic0") for key in ("ovsdb", "control")}


def test_wrong_bridges_and_ports_are_reported(server: DummyServer, facts: Facts) -> None:
    switch = server.switches["snic0"]
    switch.vsctl("set-fail-mode", "virt", "standalone", "--", "del-port", "virt", "virt-1")
    switch.vsctl(
        "set",
        "bridge",
        "edge",
        "protocols=OpenFlow10,OpenFlow13",
        "--",
        "set",
        "interface",
        "virt-2",
        "ofport_request=9",
    )
    switch.vsctl("del-port", "virt-2", "--", "add-port", "virt", "virt-2")
    switch.vsctl("set", "interface", "virt-2", "type=patch", "options:peer=edge-2", "ofport_request=9")
    try:
        findings = [finding.message for finding in wiring.bridges(facts) if finding.level is Level.FAIL]
    finally:
        switch.vsctl("set-fail-mode", "virt", "secure", "--", "del-port", "virt", "virt-2")
        for number in (1, 2):
            switch.vsctl("add-port", "virt", f"virt-{number}", "--", "set", "interface", f"virt-{number}", "type=patch",
                         f"options:peer=edge-{number}", f"ofport_request={number}")  # fmt: skip
    assert findings == [
        "fail_mode is standalone: it forwards without rules; expected secure",
        "ports are missing: virt-1",
        "wrong OpenFlow port numbers: virt-2 is 9, not 2",
    ]


class Described:
    """Facts of switches with a simulated database."""

    def __init__(self, server: ServerConfig, interfaces: dict[str, list[Interface]], ports: list[Any]) -> None:
        self.server = server
        self.ports = ports
        self.switches = [self._switch(switch, interfaces.get(switch.name, [])) for switch in server.switch]

    @staticmethod
    def _switch(switch: SwitchConfig, interfaces: list[Interface]) -> Any:
        class Made:
            name = switch.name
            database = Database(
                {"edge": Bridge("edge", "secure", "netdev", ())}, {each.name: each for each in interfaces}
            )

            @staticmethod
            def problem(_: str) -> None:
                return None

        made: Any = Made()
        made.switch = switch
        return made


def interface(name: str, mtu: int, link: str = "up", kind: str = "system") -> Interface:
    return Interface(name, kind, 1, None, mtu, link, "up")


def test_links_need_room_for_the_tag(server: DummyServer) -> None:
    loaded = ServerConfig.load(server.path)
    made: Any = Described(
        loaded,
        {
            "hypervisor": [interface("pcie-snic0", 1500), interface("vm1", 1500)],
            "snic0": [interface("pf0hpf", 1504), interface("vm2", 1500, "down")],
        },
        server.ports,
    )
    found = bad(wiring.links(made))
    assert found["hypervisor pcie-snic0"].startswith("MTU 1500 is below 1504: tagged full-size frames of")
    assert found["snic0 vm2"] == "port 2 (v2) is down"
    assert set(found) == {"hypervisor pcie-snic0", "snic0 vm2"}


def test_links_that_carry_ids_beside_packets_need_no_more_room_than_these(server: DummyServer) -> None:
    loaded = ServerConfig.load(server.path)
    ports = {
        "hypervisor": [interface("pcie-snic0", 1500, kind="pcie"), interface("vm1", 1500)],
        "snic0": [interface("pf0hpf", 1499, kind="pcie-pmd")],
    }
    made: Any = Described(loaded, ports, server.ports)
    found = bad(wiring.links(made))
    assert found == {"snic0 pf0hpf": "MTU 1499 is below 1500, that of vm1 of hypervisor: its full-size frames are lost"}


def test_a_link_that_is_down_is_reported(server: DummyServer) -> None:
    loaded = ServerConfig.load(server.path)
    made: Any = Described(loaded, {"snic0": [interface("pf0hpf", 1600, "down")]}, server.ports)
    assert bad(wiring.links(made)) == {"snic0 pf0hpf": "the PCIe port is down"}
    made = Described(loaded, {"snic0": [interface("pf0hpf", 9216, "down", kind="pcie")]}, server.ports)
    told = "the PCIe port is down: the other end of its link is not there"
    assert bad(wiring.links(made)) == {"snic0 pf0hpf": told}


def test_problems_of_oneswitchd_are_reported(fake: FakeOneswitchd, facts: Facts) -> None:
    fake.status = make_status(datapath_id="0000000000000009")
    fake.status["switches"][1]["virt"] |= {"state": "down", "last_error": "connection refused"}
    fake.status["switches"][1]["edge"]["last_error"] = "lacks what it refused with OFPFMFC_TABLE_FULL"
    fake.status["switches"][1]["link"]["state"] = "down"
    fake.ports[2] |= {"state": "down", "reason": "interface vm2 is not on bridge edge of snic0"}
    fake.ports[1]["move"] = {"switch": "snic0", "interface": "x", "stage": "prepared"}
    found = bad(daemon.daemon(facts))
    assert found["datapath id"].startswith("it runs as 0000000000000009")
    fake.status["switches"][0]["virt"]["state"] = "silent"
    silent = bad(daemon.daemon(Facts(facts.server)))["hypervisor virt"]
    assert silent.endswith("is silent: it is connected, but does not answer; its ovs-vswitchd hangs")
    assert found["snic0 virt"].endswith("is down: connection refused")
    assert found["snic0 edge"].endswith("lacks what it refused with OFPFMFC_TABLE_FULL")
    assert found["snic0 link"] == "pcie-snic0 -- pf0hpf is down"
    assert found["port 2 v2"] == "interface vm2 is not on bridge edge of snic0"
    assert found["port 1 v1"] == "a move to snic0 x is stopped at prepared"
    assert found["controllers"].startswith("none: ")


def test_without_oneswitchd(server: DummyServer) -> None:
    (server.folder / "oneswitchd.sock").unlink(missing_ok=True)
    facts = Facts(ServerConfig.load(server.path))
    assert list(bad(daemon.daemon(facts))) == ["REST"]
    assert bad(drift.drift(facts))["rules"].startswith("not compared: no oneswitchd answers at ")
    assert bad(wiring.bridges(facts)) == {}


def run(session: Session) -> tuple[int, dict[str, Any]]:
    view = checkup.run(session)
    return view.exit_status, view.data


def test_the_report_without_a_server_names_the_remedy(tmp_path: Path) -> None:
    session = Session(Choice(None, None, {"UNO_LAB_DIR": str(tmp_path)}), Output(Format.JSON, pretty=False))
    status, data = run(session)
    assert status == 1
    (finding,) = (finding for finding in data["findings"] if finding["topic"] == "configuration")
    assert finding["level"] == "fail"
    assert "uno-lab up" in finding["message"]
    assert data["counts"]["ok"] > 0


def test_the_report_of_a_server_has_all_topics(server: DummyServer, fake: FakeOneswitchd) -> None:
    session = Session(Choice(server.path, None, {}), Output(Format.TABLE, pretty=False))
    _, data = run(session)
    topics = {finding["topic"] for finding in data["findings"]}
    assert topics == {"machine", "configuration", "sockets", "bridges", "links", "oneswitchd", "drift"}
    assert session.found == Found(server.path, "--config", chosen=False)
