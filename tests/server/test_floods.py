"""A flood reaches every other port once, and crosses each PCIe link once."""

import re

import pytest

from lab.spec import LabSpec
from lab.wires import Wires

FRAME = bytes.fromhex("ffffffffffff020000000001") + b"\x08\x06" + bytes(46)
TAGGED = bytes.fromhex("ffffffffffff020000000001") + b"\x81\x00\x00\x0a\x08\x06" + bytes(46)


def link_packets(one) -> dict[str, int]:
    """Return the packets that each PCIe port of the hypervisor has carried, both directions together."""
    for switch in one.lab.state.switches:
        one.lab.switch(switch.name).appctl("revalidator/purge")
    ports = one.ofctl("dump-ports", "--names", target=one.lab.state.switches[0].edge)
    counted = re.findall(r'port +"?(pcie-\w+)"?: rx pkts=(\d+).*\n +tx pkts=(\d+)', ports)
    return {name: int(rx) + int(tx) for name, rx, tx in counted}


@pytest.mark.parametrize("action", ["flood", "all"])
def test_a_flood_reaches_each_port_and_crosses_each_link_once(start, action: str) -> None:
    with start(LabSpec.star(snics=2, hosts_per_switch=2, substrate="dummy")) as one, Wires(one.lab.state) as wires:
        one.add_flows(f"actions={action}")
        names = {port.name for port in one.oneswitchd.client.ports()}
        for source in ("vm1", "nf3", "nf6"):
            for frame in (FRAME, TAGGED):
                before = link_packets(one)
                assert one.exchange(wires, source, frame) == {name: [frame] for name in names - {source}}
                after = link_packets(one)
                assert {name: after[name] - before[name] for name in after} == {"pcie-snic0": 1, "pcie-snic1": 1}


def test_a_flood_while_a_port_moves_arrives_once(start) -> None:
    with start(LabSpec.demo(substrate="dummy")) as one, Wires(one.lab.state) as wires:
        one.add_flows("actions=flood")
        client = one.oneswitchd.client
        everywhere = {("hypervisor", "vm2"), ("snic0", "pf0vf0")}
        for until in ("prepared", "flipped", "done"):
            if until == "prepared":
                client.move_port(2, "snic0", "pf0vf0", until, None)
            else:
                client.continue_move(2, until)
            for source in (("hypervisor", "vm1"), ("snic0", "p0")):
                wires.inject(source, FRAME)
                left = wires.settle()
                assert [len(left[place]) for place in left if place in everywhere] == [1], (until, source)
