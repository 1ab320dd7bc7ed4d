"""Ports whose pipeline runs away from their home: configuration, changes and display."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, LabSpec
from lab.control_plane import Oneswitchd
from server.errors import ApiRefusedError
from server.names import HOME
from tests.recovery.conftest import eventually

RULES = ("in_port=1,actions=output:2,output:3", "in_port=3,actions=output:1", "priority=1,actions=FLOOD")


@pytest.fixture
def lab(lab_dir: Path) -> Iterator[Lab]:
    """A hypervisor and two sNICs with a port each, 1 to 3."""
    with Lab(LabSpec.star(2, 1, substrate="dummy")).start() as lab:
        yield lab


@pytest.fixture
def daemon(lab: Lab) -> Iterator[Oneswitchd]:
    """oneswitchd with every switch connected and some rules."""
    with Oneswitchd(lab.server_toml) as daemon, daemon.client:
        daemon.wait_up()
        for rule in RULES:
            subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", daemon.management, rule], check=True)
        yield daemon


def is_as_wanted(daemon: Oneswitchd) -> bool:
    """Tell whether an audit finds nothing to repair."""
    return all(audit.audited and audit.found is None for audit in daemon.client.audit())


def is_down(daemon: Oneswitchd, switch: str) -> bool:
    found = next(each for each in daemon.client.status().switches if each.name == switch)
    return found.virt.state == found.edge.state == "down"


def test_a_changed_executor_survives_a_restart(lab: Lab, daemon: Oneswitchd) -> None:
    client = daemon.client
    assert {port.executor for port in client.ports()} == {HOME}
    for number, executor in ((1, "snic1"), (2, HOME), (3, "snic0")):
        port = client.change_executor(number, executor, "done", 0)
        assert (port.executor, port.move) == (executor, None)
        assert is_as_wanted(daemon)
    # Packets without an ingress port belong to the hypervisor.
    assert client.status().virtual.executors == ("hypervisor", "snic0", "snic1")
    daemon.stop(signal.SIGKILL)
    with Oneswitchd(lab.server_toml) as again, again.client:
        again.wait_up()
        ports = [(port.executor, port.executing, port.flow_id, port.ingress_id) for port in again.client.ports()]
        assert ports == [("snic1", "snic1", 1, 4), (HOME, "snic0", 2, None), ("snic0", "snic0", 3, 5)]
        assert is_as_wanted(again)


def test_an_impossible_executor_is_refused(lab: Lab, daemon: Oneswitchd) -> None:
    with pytest.raises(ApiRefusedError) as refused:
        daemon.client.change_executor(1, "snic9", "done", 0)
    assert refused.value.code == "switch-unknown"
    lab.switch("snic0").kill("ovs-vswitchd")
    assert eventually(lambda: is_down(daemon, "snic0"))
    with pytest.raises(ApiRefusedError) as refused:
        daemon.client.change_executor(1, "snic0", "done", 0)
    assert refused.value.code == "switch-down"
