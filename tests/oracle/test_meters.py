"""Meters that are not before all actions: behind others, in clone, in buckets, in packet-outs (OpenFlow 1.5)."""

import struct

import pytest

from lab.state import LabSwitch
from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.dialects import messages15 as m
from tests.oracle.dialects.messages15 import bucket, meter
from tests.oracle.ofctl import ofctl
from tests.oracle.peer import ask, frame, in_version
from tests.oracle.steps import Check, Execute, Inject, Move, RestartOneswitchd, RestartSwitch
from tests.oracle.test_openflow15 import (
    IN_PORT,
    OUTPUT,
    bundle,
    clone,
    entries,
    flow_mod,
    group_mod,
    in_15,
    multipart,
    packet_out,
    rules_of,
)

_PORT = ("in_port", 1, None)
_PACKET = (bytes.fromhex("020000000002020000000001") + b"\x08\0" + bytes([0x45, 0, 0, 46]) + bytes(42)).hex()
_METERS = b"".join(in_15(of.meter_mod(number, 0, 1, number, of.band(1, rate))) for number, rate in ((1, 1000), (2, 0)))
"""One that passes everything, and one that passes nothing."""
_GROUP = in_15(of.FlowMod(fields=(("in_port", 2, None),), instructions=of.apply_actions(of.group_action(1))).encode(9))
_DESCRIBED = multipart(of.GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL))


def applied(*actions: bytes, then: bytes = b"", **kwargs: int) -> bytes:
    """Return an addition for packets from port 1."""
    return flow_mod(of.apply_actions(b"".join(actions)) + then, _PORT, **kwargs)


_FIVE = of.output(5)
RULES = {
    "behind an output": applied(OUTPUT, meter(1)),
    "between outputs": applied(OUTPUT, meter(2), _FIVE),
    "twice": applied(meter(1), meter(1), OUTPUT),
    "before and behind": applied(meter(1), OUTPUT, meter(2), meter(1), _FIVE),
    "in a clone": applied(clone(meter(1) + OUTPUT), _FIVE),
    "in a clone that stops": applied(clone(OUTPUT + meter(2) + OUTPUT), _FIVE),
    "in a clone in a clone": applied(meter(1), clone(clone(OUTPUT + meter(1)) + meter(1)), _FIVE),
    "before instructions": applied(OUTPUT, meter(1), then=of.write_actions(_FIVE) + of.goto(2)),
    "with a flood": applied(OUTPUT, meter(1), of.output(of.FLOOD)),
    "with timeouts": applied(OUTPUT, meter(1), idle=600, hard=900),
    "unknown": applied(OUTPUT, meter(77)),
    "number 0": applied(OUTPUT, meter(0)),
    "in ct": applied(of.output(2), struct.pack("!HHIHHIHB3xH", 0xFFFF, 32, 0x2320, 35, 1, 0, 0, 0xFF, 0), meter(1)),
    "in the action set": flow_mod(of.write_actions(OUTPUT + meter(1)), _PORT),
    "in two rules that overlap": applied(OUTPUT, meter(1)) + applied(OUTPUT, meter(1), flags=of.CHECK_OVERLAP),
    "by a modification": applied(OUTPUT) + applied(OUTPUT, meter(1), _FIVE, command=of.MODIFY),
    "away by a modification": applied(OUTPUT, meter(1)) + applied(_FIVE, command=of.MODIFY_STRICT),
    "in a deleted rule": applied(OUTPUT, meter(1)) + applied(command=of.DELETE),
    "deleted behind others": applied(OUTPUT, meter(1)) + in_15(of.meter_mod(9, 2, 0, 1)),
    "deleted before others": applied(meter(1), OUTPUT, meter(2)) + in_15(of.meter_mod(9, 2, 0, 1)),
    "in a bundle": bundle(applied(OUTPUT, meter(1), _FIVE), group_mod(0, 0, bucket(0, meter(1) + OUTPUT))),
    "in a bundle that fails": bundle(applied(OUTPUT, meter(1), _FIVE), applied(OUTPUT, meter(77))),
    "in buckets": group_mod(0, 0, bucket(7, meter(1) + OUTPUT), bucket(3, _FIVE + meter(2) + OUTPUT)) + _GROUP,
    "in a clone in a bucket": group_mod(0, 1, bucket(0, clone(meter(1)) + OUTPUT)) + _GROUP,
    "in an inserted bucket": group_mod(0, 0, bucket(7, OUTPUT))
    + group_mod(m.INSERT_BUCKET, 0, bucket(3, _FIVE + meter(1)), place=m.LAST_BUCKET),
    "unknown in a bucket": group_mod(0, 0, bucket(7, meter(77) + OUTPUT)),
    "in a packet-out": packet_out(IN_PORT, meter(1) + OUTPUT + meter(2) + _FIVE, bytes.fromhex(_PACKET)),
    "in a clone in a packet-out": packet_out(IN_PORT, clone(meter(1) + OUTPUT), bytes.fromhex(_PACKET)),
    "unknown in a packet-out": packet_out(IN_PORT, meter(77) + OUTPUT, bytes.fromhex(_PACKET)),
}
_EARLIER = (4, 5)


def answers(both: Comparison, data: bytes, version: int = m.VERSION) -> None:
    """Require that both answer equally, with two meters."""
    ours, reference = (ask(target, data, version=version) for target in both.targets)
    assert ours == reference


def rules_in(target: str, version: int) -> list[str]:
    """Return the rules as an earlier version shows them, without ages."""
    request = in_version(of.flow_request(1, of.FLOW), version)
    data = b"".join(bytes.fromhex(answer)[16:] for answer in ask(target, request, version=version))
    found: list[str] = []
    while data:
        length = int.from_bytes(data[:2])
        found.append((data[:4] + data[12:length]).hex())
        data = data[length:]
    return sorted(found)


def groups_in(target: str, version: int) -> list[str]:
    """Return the groups as an earlier version describes them."""
    return ask(target, in_version(of.multipart(2, of.GROUP_DESC), version), version=version)


def shown_equally(both: Comparison) -> None:
    """Require that every version shows the same rules and groups."""
    shown = [
        (
            sorted(rules_of(target)),
            entries(target, _DESCRIBED),
            *((rules_in(target, version), groups_in(target, version)) for version in _EARLIER),
            sorted(ofctl(target, "--no-stats", "dump-flows").splitlines()),
        )
        for target in both.targets
    ]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("messages", RULES.values(), ids=RULES)
def test_a_meter_is_taken_and_shown_as_by_one_bridge(both: Comparison, messages: bytes) -> None:
    answers(both, _METERS + messages)
    shown_equally(both)
    for port in (1, 2):
        both.play(Inject(port, (_PACKET,) * 3))
    both.play(Check())


@pytest.mark.parametrize("version", _EARLIER)
@pytest.mark.parametrize("actions", [OUTPUT + meter(1), clone(meter(1))], ids=["behind", "inside"])
def test_earlier_versions_do_not_have_such_meters(both: Comparison, version: int, actions: bytes) -> None:
    list_ = of.apply_actions(actions)
    flow = of.FlowMod(instructions=list_, fields=(_PORT,)).encode(9)
    group = of.group_mod(9, 0, 0, 1, of.bucket(actions))
    packet = frame(of.PACKET_OUT, struct.pack("!IIH6x", 0xFFFFFFFF, 1, len(actions)) + actions + bytes(60), 4, 9)
    for each in (flow, group, packet):
        answers(both, in_version(each, version), version)


def state_of(both: Comparison, switch: str) -> LabSwitch:
    """Return the addresses of a switch."""
    return next(each for each in both.ours.lab.state.switches if each.name == switch)


def test_every_executor_has_them(both: Comparison) -> None:
    rules = (
        applied(OUTPUT, meter(1), clone(meter(1) + _FIVE)),
        group_mod(0, 0, bucket(7, OUTPUT + meter(1) + _FIVE)),
        _GROUP,
    )
    answers(both, _METERS + b"".join(rules))
    names = [switch.name for switch in both.ours.spec.switches]
    ports = range(1, len(both.ours.spec.ports) + 1)
    for port in ports:
        both.play(Execute(port, 0))
    for step in (Execute(1, 1), Execute(2, 1), Move(2, 1), RestartOneswitchd(), RestartSwitch(1)):
        shown_equally(both)
        both.play(step)
        for port in (1, 2):
            both.play(Inject(port, (_PACKET,)))
        both.play(Check())
        there = ofctl(state_of(both, names[1]).virt, "-OOpenFlow15", "dump-flows")
        assert "meter:1,clone(meter:1,output:5)" in there.replace("virt-", "")


def test_a_change_by_hand_is_repaired(both: Comparison) -> None:
    answers(both, _METERS + applied(OUTPUT, meter(1), clone(meter(1) + _FIVE)))
    answers(both, group_mod(0, 0, bucket(7, OUTPUT + meter(1))))
    for switch in both.ours.spec.switches:
        target = state_of(both, switch.name).virt
        ofctl(target, "-OOpenFlow15", "mod-flows", "in_port=1,actions=output:2,meter:1,clone(output:5)")
        ofctl(target, "-OOpenFlow15", "mod-group", "group_id=1,type=all,bucket=bucket_id:7,output:2")
    both.ours.daemon.client.audit()
    shown_equally(both)
