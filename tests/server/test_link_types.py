"""oneswitchd tells how each PCIe link carries flow-ids, and why."""

import contextlib
import dataclasses

import pytest

from lab.control_plane import Oneswitchd
from lab.programs import patched_ovs
from lab.server import Lab
from lab.spec import LabSpec
from server.oneswitchd.answers import LinkState
from server.openvswitch.ovsdb import SwitchDatabase
from tests.recovery.conftest import eventually

PATCHED = patched_ovs()
SPEC = LabSpec.star(1, 1, substrate="dummy")
needs_patches = pytest.mark.skipif(PATCHED is None, reason="`make ovs` builds an Open vSwitch with such ports")


def link(oneswitchd: Oneswitchd) -> LinkState:
    found = oneswitchd.client.status().switches[1].link
    assert found is not None
    return found


@pytest.mark.usefixtures("lab_dir")
def test_links_of_other_devices_carry_tags() -> None:
    with Lab(SPEC.with_links("vlan")).start() as lab:
        for reason in ("server.toml says so", "its ends are not ports of type pcie"):
            with Oneswitchd(lab.server_toml) as oneswitchd:
                oneswitchd.wait_up()
                assert (link(oneswitchd).type, link(oneswitchd).reason) == ("vlan", reason)
            lab.server_toml.write_text(lab.server_toml.read_text().replace(', type = "vlan"', ""))


@needs_patches
@pytest.mark.usefixtures("lab_dir")
def test_two_ports_of_type_pcie_are_known_by_their_numbers() -> None:
    spec = dataclasses.replace(SPEC, ovs=PATCHED)
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        assert (link(oneswitchd).type, link(oneswitchd).reason) == ("pcie", "both ends are ports of type pcie")
        database = SwitchDatabase("snic0", str(lab.config.find_switch("snic0").ovsdb))
        with contextlib.closing(database):
            database.commit([database.api.del_port("pf0hpf")])
            assert eventually(lambda: link(oneswitchd).type is None)
            assert link(oneswitchd).reason.endswith("is a port of type pcie, pf0hpf of snic0 is not known")
            database.commit([database.api.add_port("edge", "pf0hpf", type="dummy")])
            assert eventually(lambda: link(oneswitchd).reason.endswith("pf0hpf of snic0 is not a port of type pcie"))
        assert (link(oneswitchd).type, link(oneswitchd).state) == (None, "down")
