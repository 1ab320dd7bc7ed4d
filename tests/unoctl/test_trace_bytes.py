"""Predicted bytes beside real ones: random packets through random rules on Open vSwitch's dummy datapath.

For each case ``unoctl trace`` predicts which ports send which bytes; then the packet really goes in, and what the ports
wrote must be that, byte for byte and in order. The seed is fixed; a failure prints its case.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from server.config import OneswitchdConfig, ServerConfig, SwitchConfig
from server.oneswitchd.answers import VirtualPort
from tests.unoctl.dummy_ovs import DummySwitch, await_sent
from tests.unoctl.random_traffic import Case, case
from unoctl.trace.model import Trace
from unoctl.trace.tracer import Tracer

PORTS = ("p1", "p2", "p3", "p4")
CASES = 60
GROUPS = (
    "group_id=1,type=all,bucket=set_field:02:00:00:00:00:aa->eth_dst,output:2,bucket=output:3",
    "group_id=2,type=indirect,bucket=push_vlan:0x8100,set_field:4107->vlan_vid,output:4",
)
OUTPUTS = ("output:2", "output:3", "output:4", "IN_PORT", "group:1", "group:2", "output(port=3,max_len=40)", "FLOOD")
EXTRA = (
    "clone(set_field:02:00:00:00:00:bb->eth_src,output:4)",
    "push_vlan:0x8100,set_field:4196->vlan_vid,output:2,pop_vlan",
    "clone(push_mpls:0x8847,set_field:99->mpls_label,output:3)",
    "controller:30",
)
TAILS = (
    "push_mpls:0x8847,set_field:99->mpls_label,output:3,dec_mpls_ttl,push_mpls:0x8848,output:2,pop_mpls:0x8847,output:4",
    "push_vlan:0x88a8,set_field:4103->vlan_vid,output:2",
    "push_vlan:0x8100,set_field:4103->vlan_vid,clone(set_field:4104->vlan_vid,output:2),output:3,pop_vlan,output:4",
)


@pytest.fixture(scope="module")
def switch(module_directory: Path) -> Iterator[DummySwitch]:
    with DummySwitch("only", module_directory) as started:
        started.add_bridge("edge", PORTS)
        for group in GROUPS:
            started.ofctl("add-group", "edge", group)
        yield started


@pytest.fixture(scope="module")
def tracer(switch: DummySwitch) -> Tracer:
    described = SwitchConfig(
        name="only",
        virt=switch.target("virt"),
        edge=switch.target("edge"),
        ovsdb=switch.db,
        control=str(switch.control),
    )
    server = ServerConfig(oneswitchd=OneswitchdConfig(datapath_id="0" * 16), switch=[described])
    return Tracer(server, [])


def predictions(trace: Trace) -> dict[str, list[bytes]]:
    sent: dict[str, list[bytes]] = defaultdict(list)
    for outcome in trace.exits:
        if outcome.details["interface"] in PORTS:
            assert not outcome.conditions, outcome.conditions
            sent[outcome.details["interface"]].append(outcome.data)
    return sent


def describe(one: Case, trace: Trace) -> str:
    actions = trace.stage.pass_.datapath_actions
    return f"{one.name}\nframe {one.frame.hex()}\nactions {actions}"


@pytest.mark.parametrize("seed", range(6))
def test_predicted_bytes_are_the_bytes_that_leave(switch: DummySwitch, tracer: Tracer, seed: int) -> None:
    rng = random.Random(f"odp {seed}")
    cases = [case(rng, index, OUTPUTS, EXTRA, TAILS) for index in range(CASES)]
    install(switch, cases)
    port = VirtualPort(number=1, name="p1", switch="only", interface="p1")
    before = [len(switch.sent(name)) for name in PORTS]
    predicted: list[tuple[Case, Trace]] = []
    for one in cases:
        traced = tracer.trace(port, one.frame)
        if traced.complete:
            predicted.append((one, traced))
            switch.receive("p1", one.frame)
    assert len(predicted) > 0.7 * CASES, "too many traces are incomplete"
    wanted = [[data for _, trace in predicted for data in predictions(trace)[name]] for name in PORTS]
    expected = [start + len(frames) for start, frames in zip(before, wanted, strict=True)]
    got = await_sent([(switch, name) for name in PORTS], expected)
    for name, start, frames, real in zip(PORTS, before, wanted, got, strict=True):
        compare(name, predicted, frames, real[start:])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_more(switch: DummySwitch, tracer: Tracer, seed: int) -> None:
    test_predicted_bytes_are_the_bytes_that_leave(switch, tracer, seed)


def install(switch: DummySwitch, cases: Sequence[Case]) -> None:
    switch.ofctl("del-flows", "edge")
    rules = [f"priority=9,{one.match},actions={one.actions}" for one in cases]
    switch.add_flows("edge", rules)
    switch.forget()


def compare(name: str, predicted: list[tuple[Case, Trace]], wanted: list[bytes], real: list[bytes]) -> None:
    """Both lists, in order; at the first difference, the case that it belongs to."""
    position = 0
    for one, trace in predicted:
        for data in predictions(trace)[name]:
            assert position < len(real), f"{name} sent nothing more; expected {data.hex()}\n{describe(one, trace)}"
            assert real[position].hex() == data.hex(), f"{name}, frame {position}\n{describe(one, trace)}"
            position += 1
    assert len(real) == len(wanted), f"{name} sent {len(real) - len(wanted)} frames too many: {real[position].hex()}"
