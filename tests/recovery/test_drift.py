"""External changes to the bridges are detected, repaired and reported; dead links are reported."""

import re
from collections.abc import Iterator

import pytest

from lab.server import Lab
from tests.recovery.conftest import Server, eventually
from tests.recovery.test_restarts import fill


@pytest.fixture
def watchful(lab: Lab) -> Iterator[Server]:
    """A server whose oneswitchd audits every second."""
    server = Server(lab, audit_s=1)
    yield server
    server.stop()


def change(server: Server) -> None:
    """Remove a rule, add one, change one, remove a group; on edge, too."""
    hypervisor, snic0 = server.bridge("hypervisor"), server.bridge("snic0")
    server.ofctl("del-flows", "in_port=1", target=hypervisor)
    server.ofctl("add-flow", "cookie=99,in_port=2,actions=drop", target=snic0)
    server.ofctl("mod-flows", "table=1,actions=output:1", target=snic0)
    server.ofctl("del-groups", "group_id=2", target=hypervisor)
    edge = server.bridge("snic0", "edge")
    server.ofctl("add-flow", "priority=7,actions=drop", target=edge)
    server.ofctl("del-flows", "table=1", target=edge)
    server.ofctl("add-group", "group_id=7,type=all", target=edge)


def has_detour(server: Server) -> bool:
    """Tell whether table 1 of edge has rules: those of tagged packets that get one more tag on the link."""
    return server.lab.state.links[0].type == "vlan"


def test_drift_is_repaired_and_reported(watchful: Server) -> None:
    fill(watchful)
    before, repairs = watchful.tables(), watchful.repairs()
    with watchful.halted():  # it audits every second, and must not run during this change
        change(watchful)
        assert watchful.tables() != before
    assert eventually(lambda: watchful.tables() == before)
    assert watchful.repairs() >= repairs + 6 + has_detour(watchful)
    said = "differed from what it should have; repaired"
    assert eventually(lambda: said in watchful.oneswitchd.log.read_text())


def test_a_requested_audit_names_what_it_repairs(server: Server) -> None:
    fill(server)
    before, repairs, edge = server.tables(), server.repairs(), server.bridge("snic0", "edge")
    assert not any(server.audits().values())
    assert (server.tables(), server.repairs()) == (before, repairs)
    change(server)
    server.ofctl("add-flow", "priority=40000,in_port=edge-1,actions=drop", target=edge)
    server.ofctl("mod-flows", "in_port=edge-mc,actions=drop", target=edge)
    found = {place: each.named for place, each in server.audits().items() if each}
    assert server.tables() == before
    named = found.pop("snic0 edge")
    assert {"foreign rule table=0,priority=7 any packet", "foreign group 7"} < set(named)
    assert any(re.fullmatch(r"foreign rule table=0,priority=40000 in_port=\d+ \(from edge-1\)", name) for name in named)
    kinds = {(name.split()[0], name.split()[2]) for name in named[3:]}
    detour = {("missing", "table=1,priority=100")} if has_detour(server) else set()
    assert kinds == {("changed", "table=0,priority=100"), *detour}
    foreign, changed = "foreign rule table=0,priority=32768", "changed rule table=1,priority=32768"
    assert found == {
        "hypervisor virt": ("missing rule table=0,priority=32768 in_port=1 (from virt-1)", "missing group 2"),
        "snic0 virt": (f"{foreign} in_port=2 (from virt-2)", f"{changed} any packet"),
    }


@pytest.mark.parametrize("fault", ["link", "vswitchd"])
def test_only_ports_behind_a_fault_are_down(server: Server, fault: str) -> None:
    def states() -> dict[str, str]:
        return {port.name: port.state for port in server.oneswitchd.client.ports()}

    def seen_by_controllers() -> dict[str, bool]:
        """Return the link states in the one switch's port description."""
        states = re.findall(r"\d+\((\S+)\):.*?state: *(\S+)", server.ofctl("dump-ports-desc"), re.DOTALL)
        return {name: state == "LINK_DOWN" for name, state in states}

    if fault == "link":
        server.lab.unlink("snic0")
    else:
        server.kill("vswitchd snic0")
    behind = {"vm1": "up", "vm2": "up", "nf1": "down", "out1": "down"}
    # The patch ports of a disconnected switch are not checked: only the ports behind it are down.
    assert eventually(lambda: states() == behind), states()
    assert seen_by_controllers() == {name: state == "down" for name, state in behind.items()}
    reasons = {port.name: port.reason or "" for port in server.oneswitchd.client.ports()}
    assert "snic0" in reasons["nf1"]
    if fault == "link":
        server.lab.relink("snic0")
    else:
        server.start("vswitchd snic0")
    assert eventually(lambda: set(states().values()) == {"up"}), states()
