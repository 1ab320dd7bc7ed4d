"""State shared by all ports behaves as on one bridge: at their one executor, or where they are gathered for it."""

import dataclasses
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.control_plane import Oneswitchd, find_installed
from lab.unixctl import unixctl
from server.errors import ApiRefusedError
from server.names import HOME
from tests.daemon.twin import SPEC, Twin, frame, ofctl, start_twin


@pytest.fixture
def twin(lab_dir: Path) -> Iterator[Twin]:
    with start_twin(SPEC) as twin:
        yield twin


@pytest.fixture
def apart(lab_dir: Path) -> Iterator[Twin]:
    """Return a server whose ports have executors of their own, and one bridge."""
    with start_twin(dataclasses.replace(SPEC, executor=HOME)) as twin:
        yield twin


@pytest.fixture
def sharing(lab_dir: Path) -> Iterator[Twin]:
    """Return a server whose ports have executors of their own and gather for meters, too, and one bridge."""
    with start_twin(dataclasses.replace(SPEC, executor=HOME), meters="gather") as twin:
        yield twin


@pytest.fixture
def refusing(lab_dir: Path) -> Iterator[Twin]:
    """Return a server that gathers no ports, and one bridge."""
    with start_twin(SPEC, stateful="refuse") as twin:
        yield twin


def test_a_meter_is_shared(twin: Twin) -> None:
    check_meter(twin)


def test_meters_gather_the_ports_and_are_shared(sharing: Twin) -> None:
    client = sharing.daemon.client
    sharing.ofctl("add-flow", "in_port=2,actions=3")
    assert client.status().virtual.gathered is None
    sharing.ofctl("add-meter", "meter=9,kbps,bands=type=drop,rate=1000")
    gathered = client.status().virtual.gathered
    assert gathered is not None
    assert (gathered.at, gathered.ports, gathered.reason) == ("hypervisor", (2, 3), "meters are shared")
    check_meter(sharing)


def check_meter(twin: Twin) -> None:
    """Check that with stopped clocks exactly the burst passes from all ports together."""
    for lab in twin.labs:
        for switch in lab.state.switches:
            unixctl(Path(switch.control), "time/stop")
    twin.ofctl("add-meter", "meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=5")
    twin.ofctl("add-flow", "in_port=1,actions=meter:1,2")
    twin.ofctl("add-flow", "in_port=3,actions=meter:1,2")
    through = [len(twin.send(port, frame(port, 2), 4).get(2, [])) for port in (1, 3, 1)]
    assert sum(through) < 12, "the meter let everything through"
    ours, reference = (text.partition("0:")[2].split() for text in twin.ofctl("meter-stats", "meter=1"))
    assert ours == reference
    assert ours


def test_rules_with_normal_gather_the_ports_and_learn_as_one_bridge(apart: Twin) -> None:
    """Ports 1 to 3 are on three switches. A rule with NORMAL is in force when its barrier is answered."""
    client = apart.daemon.client
    assert [port.executing for port in client.ports()] == ["hypervisor", "snic0", "snic1"]
    apart.ofctl("add-flow", "actions=NORMAL")
    assert {port.executing for port in client.ports()} == {"hypervisor"}
    gathered = client.status().virtual.gathered
    assert gathered is not None
    assert (gathered.at, gathered.ports) == ("hypervisor", (2, 3))
    for source, target in [(1, 2), (2, 1), (3, 1), (1, 3), (2, 3), (3, 2)]:
        assert apart.send(source, frame(source, target))


def test_ports_gather_where_most_of_the_traffic_enters(apart: Twin) -> None:
    """Port 3 is on snic1; each switch executes for one port."""
    client = apart.daemon.client
    apart.ofctl("add-flow", "in_port=3,actions=1")
    apart.send(3, frame(3, 1), 10)
    apart.ofctl("add-flow", "actions=NORMAL")
    gathered = client.status().virtual.gathered
    assert gathered is not None
    assert (gathered.at, gathered.choice) == ("snic1", "100 % of the traffic entered there")


def test_connections_are_tracked_for_ports_of_several_switches(apart: Twin) -> None:
    for rule in (
        "priority=2,udp,in_port=1,actions=ct(commit),3",
        "priority=2,udp,in_port=3,ct_state=-trk,actions=ct(table=1)",
        "table=1,udp,ct_state=+est,actions=1",
    ):
        apart.ofctl("add-flow", rule)
    back = frame(3, 1, "udp,nw_src=10.0.0.2,nw_dst=10.0.0.1,udp_src=53,udp_dst=4000")
    assert apart.send(3, back) == {}
    assert list(apart.send(1, frame(1, 3))) == [3]
    assert list(apart.send(3, back)) == [1]


def test_gathered_ports_survive_a_restart_and_refuse_to_part(apart: Twin) -> None:
    apart.ofctl("add-flow", "actions=NORMAL")
    apart.daemon.stop(signal.SIGKILL)
    with Oneswitchd(apart.labs[0].server_toml) as daemon, daemon.client as client:
        daemon.wait_up()
        assert {port.executing for port in client.ports()} == {"hypervisor"}
        with pytest.raises(ApiRefusedError) as refused:
            client.change_executor(2, HOME, "done", 0)
        assert refused.value.code == "stateful-rules"


def test_a_configuration_that_splits_state_is_refused(refusing: Twin) -> None:
    refusing.ofctl("add-flow", "actions=NORMAL")
    client = refusing.daemon.client
    with pytest.raises(ApiRefusedError) as refused:
        client.change_executor(1, HOME, "done", 0)
    assert refused.value.code == "stateful-rules"
    refusing.ofctl("del-flows")
    assert client.change_executor(1, HOME, "done", 0).executing == "hypervisor"
    with pytest.raises(AssertionError, match="OFPBAC_BAD_OUT_PORT"):
        ofctl("add-flow", refusing.daemon.management, "actions=NORMAL")
    with pytest.raises(AssertionError, match="OFPBAC_BAD"):
        ofctl("add-flow", refusing.daemon.management, "tcp,actions=ct(commit)")
    # A journal that contradicts the configuration is refused.
    client.change_executor(1, "snic0", "done", 0)
    ofctl("add-flow", refusing.daemon.management, "actions=NORMAL")
    refusing.daemon.stop()
    lab = refusing.labs[0]
    state = lab.server_toml.with_name("ports.json")
    state.write_text(state.read_text().replace('"executor": "snic0"', f'"executor": "{HOME}"'))
    found = subprocess.run(
        [find_installed("oneswitchd"), "--config", lab.server_toml, "--check"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert found.returncode == 1
    assert "rules with NORMAL, ct or learn" in found.stderr
