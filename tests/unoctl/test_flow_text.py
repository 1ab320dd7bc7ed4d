"""Parsing the output of ovs-ofctl, ovs-appctl and ovs-vsctl."""

from pathlib import Path

import pytest

from server.errors import TextError, ToolError
from server.openvswitch import dpif, openflow_tools, ovsdb_text
from tests.unoctl.dummy_ovs import DummySwitch
from unoctl.flow_text import Flow, parse_flow, parse_flows, parse_port_numbers, parse_ports, split_terms
from unoctl.trace import translation

DUMP = """OFPST_FLOW reply (OF1.3) (xid=0x2): flags=[more]
 cookie=0x10, duration=7.021s, table=0, n_packets=3, n_bytes=180, idle_timeout=20, hard_timeout=30, send_flow_rem \
check_overlap importance=7, idle_age=2, priority=5,ip,in_port=1,nw_src=10.0.0.0/8 \
actions=set_field:1.1.1.1->ip_src,write_actions(group:1,output:2),goto_table:3
OFPST_FLOW reply (OF1.3) (xid=0x2):
 cookie=0x0, duration=1s, table=3, n_packets=0, n_bytes=0, reset_counts actions=drop
 cookie=0x1, duration=1.5s, table=4, n_packets=0, n_bytes=0, priority=0,reg0=0x1/0x3,ct_state=+new-est+trk \
actions=learn(table=2,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,9),CONTROLLER:65535
"""


def test_a_rule_is_split_into_fields() -> None:
    first, second, third = parse_flows(DUMP)
    assert first == Flow(
        table=0,
        priority=5,
        cookie=0x10,
        match=("ip", "in_port=1", "nw_src=10.0.0.0/8"),
        actions=("set_field:1.1.1.1->ip_src", "write_actions(group:1,output:2)", "goto_table:3"),
        packets=3,
        bytes=180,
        duration_s=7.021,
        idle_timeout_s=20,
        hard_timeout_s=30,
        importance=7,
        flags=("send_flow_rem", "check_overlap"),
    )
    assert (second.priority, second.match, second.flags, second.actions) == (
        32768,
        (),
        ("reset_counts",),
        ("drop",),
    )
    assert third.match == ("reg0=0x1/0x3", "ct_state=+new-est+trk")
    assert third.actions[1:] == ("resubmit(,9)", "CONTROLLER:65535")


def test_a_rule_becomes_json() -> None:
    record = parse_flows(DUMP)[0].as_json()
    assert record["cookie"] == "0x10"
    assert record["match_fields"] == {"ip": None, "in_port": "1", "nw_src": "10.0.0.0/8"}


@pytest.mark.parametrize("line", ["in_port=1", "cookie=zz, table=0, actions=drop"])
def test_malformed_rules_are_refused(line: str) -> None:
    with pytest.raises(TextError, match="not a rule"):
        parse_flow(line)


def test_terms_are_split_outside_brackets() -> None:
    assert split_terms("a(b,c(d,e)),f={g,h}, i") == ["a(b,c(d,e))", "f={g,h}", "i"]


def test_port_counters_are_parsed() -> None:
    text = """OFPST_PORT reply (OF1.3) (xid=0x2): 2 ports
  port  4: rx pkts=1, bytes=60, drop=?, errs=2, frame=?, over=?, crc=?
           tx pkts=3, bytes=180, drop=4, errs=?, coll=?
           duration=9.013s
  port LOCAL: rx pkts=0, bytes=0, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=0, bytes=0, drop=0, errs=0, coll=0
"""
    ports = parse_ports(text)
    assert list(ports) == ["4", "LOCAL"]
    four = ports["4"]
    assert (four.rx_packets, four.rx_dropped, four.rx_errors, four.tx_bytes, four.tx_dropped) == (1, None, 2, 180, 4)
    assert (four.duration_s, ports["LOCAL"].duration_s) == (9.013, None)


def test_output_of_the_installed_tools_is_parsed(module_directory: Path) -> None:
    """The output of this machine's Open vSwitch is parsed, not a recorded one."""
    rules = [
        "priority=7,in_port=1,tcp,tcp_dst=80,idle_timeout=9,send_flow_rem,actions=dec_ttl,output:2",
        "priority=1,actions=drop",
    ]
    with DummySwitch("tools", module_directory / "tools") as switch:
        switch.add_bridge("edge", ("p1", "p2"))
        switch.add_flows("edge", rules)
        flows = parse_flows(openflow_tools.dump_flows(switch.target("edge")))
        tcp, default = sorted(flows, key=lambda flow: -flow.priority)
        assert (tcp.priority, tcp.actions, tcp.flags) == (7, ("dec_ttl", "output:2"), ("send_flow_rem",))
        assert (default.match, default.actions) == ((), ("drop",))
        assert parse_port_numbers(openflow_tools.show(switch.target("edge"))) == {"p1": 1, "p2": 2, "edge": None}
        assert set(parse_ports(openflow_tools.dump_ports(switch.target("edge")))) == {"1", "2", "LOCAL"}
        (datapath,) = dpif.parse_show(openflow_tools.appctl(switch.control, "dpif/show"))
        found = datapath.find("edge", "p2")
        assert found is not None
        assert datapath.by_number(found.number or 0) == found
        database = ovsdb_text.parse(openflow_tools.vsctl(switch.db, *ovsdb_text.LIST_COMMAND))
        assert database.bridges["edge"].fail_mode == "secure"
        assert (database.interfaces["p1"].ofport, database.interfaces["p1"].mtu) == (1, 1500)
        text = openflow_tools.appctl(switch.control, "ofproto/trace", "edge", "in_port=1,tcp,tcp_dst=80,nw_ttl=9")
        (found,) = translation.parse(text)
        assert [step.priority for step in found.steps if step.kind == "rule"] == [7]
        with pytest.raises(ToolError, match=r"^(?!.*server returned).*bridge.*ofproto/trace"):
            openflow_tools.appctl(switch.control, "ofproto/trace", "nobridge", "in_port=1")


def test_a_missing_tool_is_reported() -> None:
    with pytest.raises(ToolError, match="apt install openvswitch-switch"):
        openflow_tools.run(["ovs-nosuchtool"])


def test_a_hanging_tool_times_out() -> None:
    with pytest.raises(ToolError, match=r"no answer within 0\.1 s from: sleep 5"):
        openflow_tools.run(["sleep", "5"], timeout_s=0.1)


TRACE = """Flow: ip,in_port=2

bridge("edge")
--------------
 0. in_port=2, priority 100, cookie 0x6f
    output:1

bridge("virt")
--------------
 0. ip,in_port=1, priority 5
    output:2

    bridge("edge")
    --------------
         0. in_port=6, priority 100
            push_vlan:0x8100
    ct(table=5)
     >> something odd
     -> said by the tool

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=2
Datapath actions: ct,recirc(0x3)
This flow is handled by the userspace slow path because it:
  - Uses action(s) not supported by datapath.

===============================================================================
recirc(0x3) - resume conntrack with default ct_state=trk|new (use --ct-next to customize)
===============================================================================

Flow: recirc_id=0x3,ip

bridge("virt")
--------------
    thaw
        Resuming from table 5
 5. No match.
    drop

Final flow: unchanged
Megaflow: recirc_id=0x3
Datapath actions: drop
"""


def test_a_trace_is_split_into_steps() -> None:
    first, second = translation.parse(TRACE)
    assert [(step.bridge, step.kind, step.text) for step in first.steps if step.kind != "bridge"] == [
        ("edge", "rule", "table 0: priority=100,in_port=2 cookie 0x6f"),
        ("edge", "action", "output:1"),
        ("virt", "rule", "table 0: priority=5,ip,in_port=1"),
        ("virt", "action", "output:2"),
        ("edge", "rule", "table 0: priority=100,in_port=6"),
        ("edge", "action", "push_vlan:0x8100"),
        ("virt", "action", "ct(table=5)"),
        ("virt", "warning", "something odd"),
        ("virt", "detail", "said by the tool"),
    ]
    assert (first.recirc_id, first.datapath_actions, first.slow_path) == (
        None,
        "ct,recirc(0x3)",
        ("Uses action(s) not supported by datapath",),
    )
    assert (second.recirc_id, second.datapath_actions) == (3, "drop")
    assert translation.drop_reason(second) == "resumed: no rule of table 5 matches"


def test_a_failed_trace_is_reported() -> None:
    head = 'Flow: x\n\nbridge("edge")\n---\n 0. priority 1\n\n'
    text = f"{head}Translation failed (Recursion too deep), packet is dropped.\n"
    (found,) = translation.parse(text)
    assert (found.datapath_actions, found.failure) == (None, "Recursion too deep")
    assert translation.drop_reason(found) == "Open vSwitch gives up: Recursion too deep"


def test_a_malformed_trace_is_refused() -> None:
    with pytest.raises(TextError, match="no 'Datapath actions:'"):
        translation.parse("something else")


def test_a_malformed_database_listing_is_refused() -> None:
    with pytest.raises(TextError, match="not the two requested tables"):
        ovsdb_text.parse('{"data": []}')
