"""The stock ovs-ofctl on the one switch."""

import re
import select
import subprocess

import pytest

from lab.programs import environment

PACKET = "0000000000020000000000010800" + "45000021000100004011" + "66c90a0000010a00000200010002000da7fc68656c6c6f"


def test_ovs_ofctl_shows_the_ports(demo) -> None:
    shown = demo.ofctl("show")
    assert "dpid:0000000000000001" in shown
    assert re.findall(r"^ (\d+)\((\w+)\): ", shown, re.MULTILINE) == [
        ("1", "vm1"),
        ("2", "vm2"),
        ("3", "nf1"),
        ("4", "out1"),
    ]


def test_flows_are_added_modified_and_deleted(demo) -> None:
    demo.add_flows("in_port=1,actions=output:3", "table=3,ip,nw_dst=10.0.0.1,actions=dec_ttl,output:1", "actions=drop")
    assert demo.ofctl("dump-flows").count("cookie=") == 3
    demo.ofctl("mod-flows", "in_port=1,actions=output:4")
    assert "in_port=1 actions=output:4" in demo.ofctl("dump-flows")
    demo.ofctl("del-flows", "ip")
    assert demo.ofctl("dump-flows").count("cookie=") == 2
    assert "flow_count=2" in demo.ofctl("dump-aggregate")
    demo.ofctl("del-flows")
    assert "cookie=" not in demo.ofctl("dump-flows")


def test_groups_and_meters_are_added_and_dumped(demo) -> None:
    for kind, bucket in (("all", "bucket=output:1,bucket=output:3"), ("select", "bucket=output:1,bucket=output:3")):
        demo.ofctl("add-group", f"group_id=1,type={kind},{bucket}")
        assert f"group_id=1,type={kind}" in demo.ofctl("dump-groups")
        demo.ofctl("del-groups", "group_id=1")
    demo.ofctl("add-group", "group_id=2,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:3,output:3")
    demo.ofctl("add-group", "group_id=3,type=indirect,bucket=group:2")
    demo.add_flows("in_port=4,actions=group:3")
    assert demo.ofctl("dump-groups").count("group_id=") == 2
    assert "ref_count=1" in demo.ofctl("dump-group-stats", "group_id=3")
    demo.ofctl("add-meter", "meter=1,kbps,stats,band=type=drop,rate=1000")
    assert "rate=1000" in demo.ofctl("dump-meters")
    assert "meter:1 flow_count:0" in demo.ofctl("meter-stats")


@pytest.mark.parametrize("command", ["dump-ports", "dump-tables", "dump-desc", "queue-stats"])
def test_other_requests_are_answered(demo, command: str) -> None:
    assert "reply" in demo.ofctl(command)


def test_an_error_of_the_switches_is_sent_once(demo) -> None:
    answer = demo.ofctl("add-flow", "actions=group:99", check=False)
    assert answer.count("OFPBAC_BAD_OUT_GROUP") == 1
    assert "cookie=" not in demo.ofctl("dump-flows")
    for switch in demo.lab.state.switches:
        assert "cookie=" not in demo.ofctl("dump-flows", target=switch.virt)


def test_monitor_sees_packets_ports_and_removals(demo) -> None:
    argv = ["stdbuf", "-oL", "ovs-ofctl", "-O", "OpenFlow13", "monitor", demo.oneswitchd.management, "65535"]
    environ = environment() | {"OVS_RUNDIR": str(demo.lab.directory)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ) as monitor:
        assert monitor.stdout is not None
        # Its set-config and our packet-out use different connections, so repeat until it receives one.
        demo.add_flows("in_port=3,send_flow_rem,actions=controller")
        heard = ""
        while "PACKET_IN" not in heard:
            demo.ofctl("packet-out", f"in_port=3,packet={PACKET},actions=table")
            if select.select([monitor.stdout], [], [], 0.5)[0]:
                heard = monitor.stdout.readline()
                assert heard, "the monitor has ended"
        assert "in_port=3 (via action) data_len=47" in heard
        demo.ofctl("mod-port", "vm1", "down")
        demo.ofctl("del-flows")
        lines = [heard]
        while not any("OFPT_FLOW_REMOVED" in line for line in lines):
            lines.append(monitor.stdout.readline())
            assert lines[-1], lines
        assert any("OFPT_PORT_STATUS" in line and "1(vm1)" in line for line in lines)
        monitor.kill()
