"""PCIe links of type ``pcie``, with an Open vSwitch that has them."""

import dataclasses
import subprocess

import pytest

from lab.errors import SpecError, StartError
from lab.programs import find_program, patched_ovs, use_ovs
from lab.server import Lab
from lab.spec import LabSpec, LinkKind

PATCHED = patched_ovs()
needs_patches = pytest.mark.skipif(PATCHED is None, reason="`make ovs` builds an Open vSwitch with such ports")
SPEC = dataclasses.replace(LabSpec.star(2, 1, substrate="dummy"), ovs=PATCHED)


def types(lab: Lab) -> list[str]:
    return [link.type for link in lab.state.links]


@needs_patches
@pytest.mark.usefixtures("lab_dir")
def test_links_are_of_type_pcie_where_open_vswitch_can() -> None:
    with Lab(SPEC).start() as lab:
        assert types(lab) == ["pcie", "pcie"]
        shown = lab.switch("snic1").appctl("dpctl/show")
        assert "pf0hpf (pcie:" in shown
        assert f"path={lab.directory}/switches/hypervisor/pcie-snic1.sock" in shown


@needs_patches
@pytest.mark.usefixtures("lab_dir")
def test_each_link_has_the_type_that_its_spec_says() -> None:
    with Lab(SPEC.with_links("vlan", "pcie")).start() as lab:
        assert types(lab) == ["vlan", "pcie"]
        assert "pf0hpf (dummy:" in lab.switch("snic0").appctl("dpctl/show")


@needs_patches
@pytest.mark.usefixtures("lab_dir")
@pytest.mark.parametrize("kind", ["pcie", "tcp"])
def test_both_ends_of_a_cut_link_are_down_until_it_is_repaired(kind: LinkKind) -> None:
    with Lab(SPEC.with_links(kind)).start() as lab:
        lab.unlink("snic0")
        assert "LINK_DOWN" in port(lab, "snic0", "pf0hpf")
        lab.relink("snic0")
        assert "LINK_DOWN" not in port(lab, "snic0", "pf0hpf")
        assert "LINK_DOWN" not in port(lab, "hypervisor", "pcie-snic0")


def port(lab: Lab, switch: str, name: str) -> str:
    """Return what ``ovs-ofctl show`` says about a port."""
    edge = next(each.edge for each in lab.state.switches if each.name == switch)
    shown = subprocess.run(["ovs-ofctl", "-OOpenFlow13", "show", str(edge)], capture_output=True, text=True, check=True)
    return shown.stdout.partition(f"({name})")[2].partition("speed:")[0]


@pytest.mark.parametrize("kind", ["pcie", "tcp"])
def test_links_without_devices_cannot_be_capped(kind: LinkKind) -> None:
    with pytest.raises(SpecError, match="cannot cap them"):
        LabSpec.star(1, 1, pcie_mbps=100).with_links(kind).check()


def test_the_last_type_is_that_of_all_further_links() -> None:
    links = [switch.link for switch in LabSpec.star(3, 1).with_links("vlan", "pcie").switches]
    assert links == [None, "vlan", "pcie", "pcie"]


def test_a_prefix_without_open_vswitch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNO_OVS_PREFIX", "")
    use_ovs("/nonexistent")
    with pytest.raises(StartError, match="UNO_OVS_PREFIX is /nonexistent: there is no /nonexistent/sbin/ovs-vswitchd"):
        find_program("ovs-vswitchd")
