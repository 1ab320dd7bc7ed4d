"""Starting in any order; impossible mappings."""

import json
from pathlib import Path

import pytest

from lab.control_plane import Oneswitchd
from lab.errors import StartError
from lab.server import Lab
from lab.spec import LabSpec
from lab.waiting import wait_for_sockets
from lab.wires import Wires
from server.errors import ApiRefusedError
from server.oneswitchd.client import Client
from tests.recovery.conftest import eventually

FRAME = bytes.fromhex("020000000003020000000001") + b"\x08\x00" + bytes(46)


def test_oneswitchd_waits_for_a_missing_switch(lab_dir) -> None:
    with Lab(LabSpec.demo(substrate="dummy")).start() as lab:
        lab.switch("snic0").kill("vswitchd")
        with Oneswitchd(lab.server_toml) as oneswitchd, oneswitchd.client as client:
            api = Path(oneswitchd.config.oneswitchd.api.removeprefix("unix:"))
            assert wait_for_sockets([api], oneswitchd.is_running, 60.0) == []
            assert eventually(lambda: hypervisor_is_up(client))
            with pytest.raises(StartError, match="switches snic0"):
                oneswitchd.wait_up(timeout_s=1.0)
            states = {port.name: (port.state, port.reason) for port in client.ports()}
            assert states["nf1"] == ("down", "switch snic0 is not connected")
            assert states["vm1"][0] == "up" or "snic0" in str(states["vm1"][1])
            lab.switch("snic0").start("vswitchd")
            oneswitchd.wait_up()
            assert eventually(lambda: {port.state for port in client.ports()} == {"up"})


def hypervisor_is_up(client: Client) -> bool:
    hypervisor = client.status().switches[0]
    return hypervisor.virt.state == hypervisor.edge.state == "up"


def test_a_returning_switch_gets_the_rules_it_missed(demo) -> None:
    demo.lab.switch("snic0").kill("vswitchd")
    demo.add_flows("in_port=1,actions=output:3", "in_port=3,actions=output:1")
    assert demo.ofctl("dump-flows").count("cookie=") == 2
    demo.lab.switch("snic0").start("vswitchd")
    demo.oneswitchd.wait_up()
    demo.ofctl("dump-flows")
    with Wires(demo.lab.state) as wires:
        assert demo.exchange(wires, "vm1", FRAME) == {"nf1": [FRAME]}
        assert demo.exchange(wires, "nf1", FRAME) == {"vm1": [FRAME]}


@pytest.mark.parametrize(
    ("request_", "code", "named"),
    [
        ({"switch": "snic0", "interface": "pf0vf9"}, "interface-missing", "pf0vf9"),
        ({"switch": "snic7", "interface": "pf0vf0"}, "switch-unknown", "snic7"),
        ({"number": 1, "switch": "snic0", "interface": "pf0vf0"}, "port-number-taken", "vm1"),
        ({"switch": "hypervisor", "interface": "vm1"}, "interface-taken", "vm1"),
        ({"name": "vm1", "switch": "snic0", "interface": "pf0vf0"}, "name-taken", "vm1"),
        ({"number": 70000, "switch": "snic0", "interface": "pf0vf0"}, "number-out-of-range", "70000"),
    ],
)
def test_an_impossible_mapping_is_refused_by_name(demo, request_: dict, code: str, named: str) -> None:
    before = demo.oneswitchd.client.ports()
    with pytest.raises(ApiRefusedError) as refused:
        demo.oneswitchd.client.add_port(
            request_.get("number"), request_.get("name", "new"), request_["switch"], request_["interface"]
        )
    assert refused.value.code == code
    assert named in str(refused.value)
    assert demo.oneswitchd.client.ports() == before


def test_ports_mapped_at_run_time_survive_a_restart(lab_dir) -> None:
    with Lab(LabSpec.demo(substrate="dummy")).start() as lab:
        with Oneswitchd(lab.server_toml) as oneswitchd, oneswitchd.client as client:
            oneswitchd.wait_up()
            client.move_port(2, "snic0", "pf0vf0", "done", 0)
        saved = json.loads((lab.directory / "ports.json").read_text())
        assert "pf0vf0" in json.dumps(saved)
        with Oneswitchd(lab.server_toml) as oneswitchd, oneswitchd.client as client:
            oneswitchd.wait_up()
            assert (client.port(2).switch, client.port(2).interface) == ("snic0", "pf0vf0")
