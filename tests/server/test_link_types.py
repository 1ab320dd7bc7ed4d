"""oneswitchd tells how each PCIe link carries flow-ids, and why."""

import contextlib
import dataclasses
import subprocess

import pytest

from lab.control_plane import Oneswitchd
from lab.programs import environment, patched_ovs
from lab.server import Lab
from lab.spec import LabSpec
from lab.traffic import Stream
from server.oneswitchd.answers import LinkState
from server.openvswitch.ovsdb import SwitchDatabase
from server.openvswitch.servers import ServerPlumbing
from tests.recovery.conftest import eventually
from tests.server.conftest import Start

PATCHED = patched_ovs()
SPEC = LabSpec.star(1, 1, substrate="dummy")
needs_patches = pytest.mark.skipif(PATCHED is None, reason="`make ovs` builds an Open vSwitch with such ports")


def link(oneswitchd: Oneswitchd, switch: int = 1) -> LinkState:
    found = oneswitchd.client.status().switches[switch].link
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


@needs_patches
@pytest.mark.usefixtures("lab_dir")
def test_pmd_threads_poll_the_queues_of_a_link() -> None:
    with Lab(dataclasses.replace(SPEC, ovs=PATCHED)).start() as lab:
        text = lab.server_toml.read_text()
        lab.server_toml.write_text(text.replace('local = "pf0hpf"', 'local = "pf0hpf", queues = 2'))
        for switch, name in (("hypervisor", "pcie-snic0"), ("snic0", "pf0hpf")):
            change = ["--", "set", "Open_vSwitch", ".", "other_config:pmd-maxsleep=100", "--", "del-port", name]
            database = f"--db={lab.config.find_switch(switch).ovsdb}"
            subprocess.run(["ovs-vsctl", database, *change], env=environment(), check=True)
        with ServerPlumbing(lab.config, datapath_type="dummy") as plumbing:
            assert plumbing.ensure() == ["hypervisor", "snic0"]
        with Oneswitchd(lab.server_toml) as oneswitchd:
            oneswitchd.wait_up()
            assert eventually(lambda: (link(oneswitchd).type, link(oneswitchd).state) == ("pcie", "up"))
        shown = lab.switch("snic0").appctl("dpif-netdev/pmd-rxq-show")
        assert shown.count("pf0hpf") == 2


@needs_patches
@pytest.mark.namespaces
def test_a_link_over_tcp_joins_switches_in_different_networks(start: Start) -> None:
    spec = dataclasses.replace(LabSpec.star(2, 1, static_arp=True), ovs=PATCHED)
    with start(spec.with_links("pcie", "tcp")) as one:
        addresses = [switch.link.address for switch in one.lab.config.snics if switch.link is not None]
        assert addresses == [None, "192.168.0.9:7700"]
        assert (link(one.oneswitchd, 2).type, link(one.oneswitchd, 2).state) == ("pcie", "up")
        one.add_flows("in_port=1,actions=output:3", "in_port=2,actions=output:3")
        for host in ("vm1", "nf2"):  # from nf2, packets cross both links
            with Stream(one.lab, host, "nf3", rate=500, count=300) as stream:
                report = stream.wait()
            assert (report.received, report.lost, report.reordered) == (300, 0, 0)
        switch = one.lab.switch("snic1")
        switch.kill("ovs-vswitchd")
        assert eventually(lambda: link(one.oneswitchd, 2).state == "down")
        switch.start("ovs-vswitchd")
        one.oneswitchd.wait_up()
        with Stream(one.lab, "vm1", "nf3", rate=500, count=300) as stream:
            assert stream.wait().lost == 0
