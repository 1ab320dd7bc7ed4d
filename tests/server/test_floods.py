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


@pytest.mark.parametrize("how", ["write", "bucket", "packet-out"])
def test_floods_in_groups_and_action_sets_reach_every_port_once(start, how: str) -> None:
    with start(LabSpec.star(snics=2, hosts_per_switch=2, substrate="dummy")) as one, Wires(one.lab.state) as wires:
        others = {port.name: [FRAME] for port in one.oneswitchd.client.ports() if port.name != "vm1"}
        if how == "packet-out":
            one.ofctl("packet-out", f"in_port=1,packet={FRAME.hex()},actions=flood")
            assert one.by_port(wires.settle()) == others
            return
        if how == "bucket":
            one.ofctl("add-group", "group_id=7,type=all,bucket=flood")
            one.add_flows("actions=group:7")
        else:
            one.add_flows("actions=write_actions(flood)")
        assert one.exchange(wires, "vm1", FRAME) == others


def test_the_controller_reads_its_own_rules_back(demo) -> None:
    demo.ofctl("add-group", "group_id=7,type=all,bucket=output:1,bucket=flood")
    demo.add_flows("in_port=1,ip,actions=dec_ttl,flood,output:2", "in_port=2,actions=group:7", "in_port=3,actions=all")
    flows = demo.ofctl("dump-flows")
    assert "ip,in_port=1 actions=dec_ttl,FLOOD,output:2" in flows
    assert "in_port=3 actions=ALL" in flows
    groups = demo.ofctl("dump-groups")
    assert "bucket=actions=FLOOD" in groups
    assert len(re.findall("group_id=", groups)) == 1
    demo.ofctl("del-groups")
    assert "group_id" not in demo.ofctl("dump-groups")
    with Wires(demo.lab.state) as wires:
        assert set(demo.exchange(wires, "nf1", FRAME)) == {"vm1", "vm2", "out1"}


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
