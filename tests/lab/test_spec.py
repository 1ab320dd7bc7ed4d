import dataclasses

import pytest

from lab.errors import SpecError
from lab.spec import HYPERVISOR, HostSpec, InterfaceSpec, LabSpec, PortSpec, SlotSpec, SwitchSpec

SPECS = {
    "demo": LabSpec.demo(),
    "hypervisor only": LabSpec.star(0, 3),
    "no hosts": LabSpec.star(2, 0),
    "mobile": LabSpec.star(2, 3, mobile=True),
    "with options": LabSpec.demo(substrate="dummy", pcie_mbps=100, static_arp=True, controllers=("tcp:127.0.0.1",)),
    "with slots": LabSpec.demo().with_slots(2).with_slots(1, 2),
    "reference": LabSpec.star(2, 2).reference(),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_valid_specs_survive_json(spec: LabSpec) -> None:
    spec.check()
    assert LabSpec.from_json(spec.to_json()) == spec


def test_the_demo_matches_its_documentation() -> None:
    spec = LabSpec.demo()
    assert [(port.number, port.name) for port in spec.ports] == [(1, "vm1"), (2, "vm2"), (3, "nf1"), (4, "out1")]
    vm2 = spec.hosts[1]
    assert vm2.interfaces == (InterfaceSpec(HYPERVISOR, "vm2"), InterfaceSpec("snic0", "pf0vf0"))
    assert vm2.address == "10.0.0.2/24"


def test_mobile_hosts_have_an_interface_on_every_switch() -> None:
    spec = LabSpec.star(2, 1, mobile=True)
    for host in spec.hosts:
        assert {each.switch for each in host.interfaces} == {HYPERVISOR, "snic0", "snic1"}


def test_slots_are_on_every_switch_and_numbered_there() -> None:
    spec = LabSpec.demo().with_slots(1).with_slots(1, 2)
    assert [(slot.name, slot.interfaces) for slot in spec.slots if slot.switch == "snic0"] == [
        ("snic0.nf1", ("nf1",)),
        ("snic0.nf2", ("nf2a", "nf2b")),
    ]
    assert spec.plugged("snic0") == ["pf0vf0", "pf0vf1", "p0", "nf1", "nf2a", "nf2b"]


def test_the_reference_has_the_same_ports_on_one_switch() -> None:
    spec = LabSpec.star(2, 2, mobile=True)
    reference = spec.reference()
    assert [port.number for port in reference.ports] == [port.number for port in spec.ports]
    assert [host.address for host in reference.hosts] == [host.address for host in spec.hosts]
    assert {port.switch for port in reference.ports} == {HYPERVISOR}


def changed(**fields: object) -> LabSpec:
    return dataclasses.replace(LabSpec.demo(), **fields)


def host(**fields: object) -> tuple[HostSpec, ...]:
    first, *others = LabSpec.demo().hosts
    return (dataclasses.replace(first, **fields), *others)


BAD = {
    "no switch": (changed(switches=()), "first switch must be the hypervisor"),
    "an sNIC first": (changed(switches=LabSpec.demo().switches[1:]), "first switch must be the hypervisor"),
    "sNIC without link": (changed(switches=(SwitchSpec(HYPERVISOR), SwitchSpec("snic0"))), "uplink and downlink"),
    "name twice": (changed(hosts=host(name="snic0")), "snic0 is given twice"),
    "name of a host": (changed(hosts=host(name="a/b")), "cannot name a switch, host or slot"),
    "interface too long": (changed(hosts=host(interfaces=(InterfaceSpec(HYPERVISOR, "x" * 16),))), "at most 15 bytes"),
    "interface on no switch": (
        changed(hosts=host(interfaces=(InterfaceSpec("snic7", "vm1"),))),
        "unknown switch 'snic7'",
    ),
    "interface is the PCIe port": (
        changed(hosts=host(interfaces=(InterfaceSpec(HYPERVISOR, "pcie-snic0"),))),
        "pcie-snic0 on hypervisor is given twice",
    ),
    "host without interface": (changed(hosts=host(interfaces=()), ports=()), "needs an interface"),
    "address": (changed(hosts=host(address="10.0.0.300/24")), "address '10.0.0.300/24'"),
    "MAC": (changed(hosts=host(mac="01:00:00:00:00:01")), "not a unicast MAC"),
    "port of nobody": (changed(ports=(PortSpec(1, "x", HYPERVISOR, "nobody"),)), "no host has an interface nobody"),
    "port number": (changed(ports=(PortSpec(0, "vm1", HYPERVISOR, "vm1"),)), "expected 1 to 65023"),
    "cap": (changed(pcie_mbps=0), "expected more than 0 Mb/s"),
    "slots without namespaces": (changed(substrate="dummy").with_slots(1), "use the substrate netns"),
    "slot called as a switch": (changed(slots=(SlotSpec("snic0", HYPERVISOR, ("nf1",)),)), "snic0 is given twice"),
    "slot's interface is a host's": (
        changed(slots=(SlotSpec("s", HYPERVISOR, ("vm1",)),)),
        "vm1 on hypervisor is given twice",
    ),
    "slot faster than a core": (changed().with_slots(1, snic_speed=1.5), "snic0.nf1: speed 1.5; expected 0.001 to 1"),
    "plain star": (changed(plain=True), "use reference"),
}


@pytest.mark.parametrize(("spec", "problem"), BAD.values(), ids=BAD.keys())
def test_invalid_specs_are_refused(spec: LabSpec, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        spec.check()


def test_too_many_hosts_are_refused() -> None:
    with pytest.raises(SpecError, match="at most 254 hosts"):
        LabSpec.star(1, 128)
