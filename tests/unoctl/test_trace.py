"""``unoctl trace`` over a hypervisor and two sNICs on the dummy datapath, with the contract's ``edge`` rules."""

import random
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.layers import inet
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from server.config import ServerConfig
from tests.unoctl.dummy_ovs import await_one, await_sent
from tests.unoctl.dummy_server import DummyServer, Mapped
from tests.unoctl.random_traffic import case
from unoctl.trace import packet_text
from unoctl.trace.model import Outcome, Trace, trace_json
from unoctl.trace.tracer import Tracer

PORTS = (
    Mapped(1, "hypervisor", "vm1", 11),
    Mapped(2, "snic0", "vm2", 12),
    Mapped(3, "hypervisor", "vm3", 13),
    Mapped(4, "snic1", "wire", 14),
    Mapped(5, "snic0", "vm5", 15),
)
TCP = "tcp,dl_src=02:00:00:00:00:01,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_dst=80"


@pytest.fixture(scope="module")
def server(module_directory: Path) -> Iterator[DummyServer]:
    with DummyServer(module_directory, snics=2, ports=PORTS) as started:
        yield started


def trace(server: DummyServer, number: int, packet: str | bytes, ct_next: tuple[str, ...] = ()) -> Trace:
    ports = {port.number: port for port in server.ports}
    data = packet if isinstance(packet, bytes) else packet_text.to_bytes(packet)
    return Tracer(ServerConfig.load(server.path), server.ports, ct_next).trace(ports[number], data)


def of(kind: str, traced: Trace) -> list[Outcome]:
    return [outcome for outcome in traced.outcomes() if outcome.type == kind]


def crossings(traced: Trace) -> list[tuple[str, str]]:
    details = [outcome.details for outcome in of("pcie", traced)]
    return [(f"{each['switch']}>{each['peer_switch']}", each["flow_id"]["meaning"]) for each in details]


def leaving(traced: Trace) -> list[tuple[int | None, bytes]]:
    return [(outcome.details["port"], outcome.data) for outcome in traced.exits]


def test_local_and_remote_ports(server: DummyServer) -> None:
    server.virtual(["in_port=1,tcp,actions=set_field:1.1.1.1->ip_src,output:3,output:2,set_field:9->tcp_dst,output:3"])
    frame = packet_text.to_bytes(TCP)
    first = packet_text.to_bytes(TCP.replace("10.0.0.1", "1.1.1.1"))
    traced = trace(server, 1, frame)
    assert [number for number, _ in leaving(traced)] == [3, 2, 3]
    assert [data for _, data in leaving(traced)][:2] == [first, first]
    assert crossings(traced) == [("hypervisor>snic0", "DELIVER(v2)")]
    (crossing,) = of("pcie", traced)
    assert crossing.data == first[:12] + bytes.fromhex("8100000c") + first[12:]


def test_rules_on_the_way_are_told(server: DummyServer) -> None:
    server.virtual(["cookie=0x77,priority=5,in_port=1,tcp,actions=goto_table:3", "table=3,actions=output:2"])
    steps = trace(server, 1, TCP).stage.pass_.steps
    rules = [(step.bridge, step.table, step.priority, step.cookie) for step in steps if step.kind == "rule"]
    assert rules[1:3] == [("virt", 0, 5, "0x77"), ("virt", 3, 32768, "0x0")]
    assert [bridge for bridge, *_ in rules] == ["edge", "virt", "virt", "edge"]


def test_transit_through_the_hypervisor(server: DummyServer) -> None:
    server.virtual(["in_port=2,ip,actions=dec_ttl,output:4"])
    traced = trace(server, 2, TCP)
    tag = "DELIVER(v4)"
    assert crossings(traced) == [("snic0>hypervisor", tag), ("hypervisor>snic1", tag)]
    assert [(number, data[22]) for number, data in leaving(traced)] == [(4, 63)]


def test_a_flood_crosses_each_link_once(server: DummyServer) -> None:
    server.virtual(["actions=FLOOD"])
    traced = trace(server, 2, "arp,arp_op=1")
    multicast = "MULTICAST"
    assert sorted(crossings(traced)) == [("hypervisor>snic1", multicast), ("snic0>hypervisor", multicast)]
    assert sorted(number for number, _ in leaving(traced) if number) == [1, 3, 4, 5]


def test_no_rule_and_a_rule_that_drops(server: DummyServer) -> None:
    server.virtual(["in_port=1,actions=drop"])
    for number, reason in ((1, "virt: the rule says drop"), (2, "virt: no rule of table 0 matches")):
        (dropped,) = of("dropped", trace(server, number, TCP))
        assert dropped.details["reason"] == reason


def test_output_to_the_port_it_came_from(server: DummyServer) -> None:
    server.virtual(["actions=output:1"])
    (dropped,) = of("dropped", trace(server, 1, TCP))
    assert dropped.details["reason"] == "virt: skipping output to input port"


def test_packet_in(server: DummyServer) -> None:
    server.virtual(["cookie=0x5,actions=CONTROLLER:20,output:3"])
    (event,) = of("packet-in", trace(server, 1, TCP))
    assert (event.details["reason"], event.details["cookie"], event.data) == (
        "action",
        "0x5",
        packet_text.to_bytes(TCP)[:20],
    )


def test_a_meter_is_a_condition(server: DummyServer) -> None:
    server.virtual(["actions=meter:1,output:2"], meters=["meter=1,kbps,band=type=drop,rate=100"])
    traced = trace(server, 1, TCP)
    for outcome in (*of("pcie", traced), *traced.exits):
        assert outcome.conditions == ("data-path meter 0 lets it pass",)


def test_every_bucket_of_a_select_group(server: DummyServer) -> None:
    server.virtual(
        ["actions=group:7"],
        groups=["group_id=7,type=select,bucket=weight:1,output:2,bucket=weight:3,set_field:9.9.9.9->ip_dst,output:3"],
    )
    traced = trace(server, 1, TCP)
    (again,) = of("recirculated", traced)
    branches = again.details["branches"]
    assert sum(branch.share for branch in branches) == branches[0].shares
    assert sorted(number or 0 for number, _ in leaving(traced)) == [2, 3]
    ends = [(server.switches[port.switch], port.interface) for port in PORTS if port.number in (2, 3)]
    before = [len(switch.sent(interface)) for switch, interface in ends]
    server.switches["hypervisor"].receive("vm1", packet_text.to_bytes(TCP))
    real = [frames[start:] for frames, start in zip(await_one(ends, sum(before) + 1), before, strict=True)]
    assert real in ([[dict(leaving(traced))[2]], []], [[], [dict(leaving(traced))[3]]])


def test_a_bucket_to_the_controller_is_one_branch(server: DummyServer) -> None:
    buckets = "bucket=weight:1,output:2,bucket=weight:1,controller(max_len=100)"
    server.virtual(["actions=group:7"], groups=[f"group_id=7,type=select,{buckets}"])
    (again,) = of("recirculated", trace(server, 1, TCP))
    assert len(again.details["branches"]) == 2


def test_behind_an_mpls_pop(server: DummyServer) -> None:
    server.virtual(["tcp,actions=push_mpls:0x8847,output:3,pop_mpls:0x0800,dec_ttl,output:3"])
    first, second = leaving(trace(server, 1, TCP))
    assert first[1][12:14] == b"\x88\x47"
    assert (second[0], second[1][22]) == (3, 63)


class Listener:
    """A controller of one bridge that counts the packet-ins it receives."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(path.removeprefix("unix:"))
        self._stream = self._socket.makefile("rb")
        # HELLO, then SET_CONFIG: packet-ins with complete packets.
        self._socket.sendall(struct.pack("!BBHI", 4, 0, 8, 1) + struct.pack("!BBHIHH", 4, 9, 12, 2, 0, 0xFFFF))

    def packet_ins(self) -> int:
        """Return the number of packet-ins before the switch's answer to the second of two barriers."""
        count = 0
        for xid in (7, 8):
            self._socket.sendall(struct.pack("!BBHI", 4, 20, 8, xid))
            kind = 0
            while kind != 21:
                _, kind, length, _ = struct.unpack("!BBHI", self._stream.read(8))
                self._stream.read(length - 8)
                count += kind == 10
        return count

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


FROM_NEW_ADDRESS = {"src": "06:00:00:00:00:77", "dst": "06:00:00:00:00:78"}


@pytest.mark.parametrize(
    ("rule", "frame"),
    [
        pytest.param(
            "dl_vlan=5,actions=controller:65535,NORMAL",
            Ether(**FROM_NEW_ADDRESS) / Dot1Q(vlan=5) / Dot1Q(vlan=7) / IP() / UDP(),
            id="two VLAN tags",
        ),
        pytest.param(
            "tcp,actions=push_mpls:0x8847,pop_mpls:0x0800,dec_ttl,controller:65535,NORMAL",
            Ether(**FROM_NEW_ADDRESS) / IP() / inet.TCP(),
            id="recirculation",
        ),
        pytest.param(
            "mpls,actions=controller:65535,NORMAL",
            Ether(**FROM_NEW_ADDRESS, type=0x8847) / Raw(bytes.fromhex("0000604000007140")) / IP(),
            id="two MPLS labels",
        ),
    ],
)
def test_a_trace_changes_nothing_on_the_switches(server: DummyServer, rule: str, frame: Any) -> None:
    server.virtual([rule])
    switches = list(server.switches.values())

    def state() -> list[str]:
        """Return learned addresses, data-path flows and the counters of rules, ports and groups."""
        commands = [("fdb/show", bridge) for bridge in ("virt", "edge")] + [("dpif/dump-flows", "virt")]
        states = [switch.appctl(*command) for switch in switches for command in commands]
        counters = ("dump-flows", "dump-ports", "dump-groups")
        counts = [switch.ofctl(name, bridge) for switch in switches for name in counters for bridge in ("virt", "edge")]
        return states + [re.sub(r"duration=[\d.]+s", "", text) for text in counts]

    before = state()
    listeners = [Listener(switch.target(bridge)) for switch in switches for bridge in ("virt", "edge")]
    try:
        traced = trace(server, 1, bytes(frame))
        assert of("packet-in", traced)
        assert traced.exits
        assert [listener.packet_ins() for listener in listeners] == [0] * len(listeners)
    finally:
        for listener in listeners:
            listener.close()
    assert state() == before


@pytest.mark.parametrize("action", ["push_mpls:0x8847", "pop_mpls:0x8847"])
def test_inner_labels_are_not_followed(server: DummyServer, action: str) -> None:
    """Open vSwitch cannot push a fourth label, and flow syntax does not tell it of the third."""
    server.virtual([f"mpls,actions=output:3,{action},output:3"])
    labels = bytes.fromhex("000060400000704000008140")
    traced = trace(server, 1, bytes(Ether(**FROM_NEW_ADDRESS, type=0x8847) / Raw(labels) / IP()))
    (stopped,) = traced.outcomes(traced.stage.pass_)
    assert (stopped.type, traced.complete) == ("not-followed", False)
    assert stopped.details["reason"] == "push_mpls or pop_mpls on a packet with several MPLS labels"


def test_behind_connection_tracking(server: DummyServer) -> None:
    server.virtual(
        [
            "table=0,tcp,actions=ct(table=5)",
            "table=5,tcp,ct_state=+new+trk,actions=ct(commit),output:2",
            "table=5,tcp,ct_state=+est+trk,actions=output:3",
        ]
    )
    assert [number for number, _ in leaving(trace(server, 1, TCP))] == [2]
    assert [number for number, _ in leaving(trace(server, 1, TCP, ("trk,est",)))] == [3]


def test_a_hash_keeps_the_connection_state(server: DummyServer) -> None:
    server.virtual(
        [
            "table=0,tcp,actions=ct(table=5)",
            "table=5,tcp,ct_state=+new+trk,actions=group:7",
            "table=6,tcp,ct_state=+new+trk,actions=output:3",
        ],
        groups=["group_id=7,type=select,bucket=weight:1,resubmit(,6),bucket=weight:1,resubmit(,6)"],
    )
    traced = trace(server, 1, TCP)
    assert traced.complete
    assert [number for number, _ in leaving(traced)] == [3, 3]


def test_a_loop_over_the_link_ends(server: DummyServer) -> None:
    server.virtual(["actions=output:2"])
    link, patch = server.ofport("snic0", "pf0hpf"), server.ofport("snic0", "edge-1")
    server.switches["snic0"].ofctl("mod-flows", "edge", f"in_port={link},dl_vlan=12,actions=IN_PORT")
    here = server.ofport("hypervisor", "pcie-snic0")
    server.switches["hypervisor"].ofctl("add-flow", "edge", f"in_port={here},dl_vlan=12,actions=IN_PORT")
    try:
        traced = trace(server, 1, TCP)
    finally:
        server.install_edge()
    assert patch
    (stopped,) = of("not-followed", traced)
    assert stopped.details["reason"] == "the packet returns to snic0 unchanged: its rules form a loop"
    assert not traced.complete


def test_a_switch_that_does_not_answer_stops_the_trace(server: DummyServer) -> None:
    server.virtual(["actions=output:2,output:3"])
    dead = server.path.with_name("dead.toml")
    dead.write_text(server.path.read_text().replace("/snic0/vs.ctl", "/snic0/gone.ctl"))
    try:
        traced = Tracer(ServerConfig.load(dead), server.ports).trace(server.ports[0], packet_text.to_bytes(TCP))
    finally:
        dead.unlink()
    (stopped,) = of("not-followed", traced)
    assert stopped.details["reason"].startswith("snic0 cannot be asked: ")
    assert [number for number, _ in leaving(traced)] == [3]


def test_json_carries_everything(server: DummyServer) -> None:
    server.virtual(["actions=output:2"])
    record = trace_json(trace(server, 1, TCP))
    (left,) = record["exits"]
    assert (left["port"], left["interface"], left["hex"]) == (2, "vm2", packet_text.to_bytes(TCP).hex())
    (crossing,) = record["stage"]["pass"]["outcomes"]
    assert crossing["flow_id"] == {"vid": 12, "meaning": "DELIVER(v2)"}
    assert crossing["stage"]["pass"]["datapath_actions"] == "pop_vlan,2"


OUTPUTS = ("output:2", "output:3", "output:4", "output:5", "IN_PORT", "FLOOD", "controller:50")
EXTRA = ("clone(set_field:02:00:00:00:00:bb->eth_src,output:4)",)


@pytest.mark.parametrize("seed", range(3))
def test_predicted_exits_are_the_real_ones(server: DummyServer, seed: int) -> None:
    """Random packets through random virtual rules: every interface sends what was predicted, over every link."""
    rng = random.Random(f"trace {seed}")
    cases = [case(rng, index, OUTPUTS, EXTRA) for index in range(25)]
    server.virtual([f"priority=9,{one.match},actions={one.actions}" for one in cases])
    ends = [(server.switches[port.switch], port.interface) for port in PORTS]
    before = [len(switch.sent(interface)) for switch, interface in ends]
    wanted: dict[str, list[bytes]] = {port.interface: [] for port in PORTS}
    followed = 0
    for one in cases:
        traced = trace(server, 1, one.frame)
        if not traced.complete:
            continue
        followed += 1
        for left in traced.exits:
            if not left.details["local"]:
                assert not left.conditions, one.name
                wanted[left.details["interface"]].append(left.data)
        server.switches["hypervisor"].receive("vm1", one.frame)
    assert followed > 0.6 * len(cases), "too many traces are incomplete"
    counts = [start + len(wanted[port.interface]) for start, port in zip(before, PORTS, strict=True)]
    got = await_sent(ends, counts)
    for port, start, frames in zip(PORTS, before, got, strict=True):
        assert [data.hex() for data in frames[start:]] == [data.hex() for data in wanted[port.interface]]
