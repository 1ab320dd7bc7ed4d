"""NO_FLOOD and NO_RECV_STP, which only controllers of OpenFlow 1.0 set: floods and frames of STP, as on one bridge."""

import itertools
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.dialects import messages10 as m
from tests.oracle.steps import (
    Check,
    Execute,
    Inject,
    Move,
    PortMod,
    Reconnect,
    RestartOneswitchd,
    RestartSwitch,
    Send,
)

_NO_RECV, _NO_RECV_STP, _NO_FLOOD = 4, 8, 16
_BODY = bytes.fromhex("0200000000018100000a88b5") + bytes(46)
_BROADCAST, _STP = b"\xff" * 6 + _BODY, bytes.fromhex("0180c2000000") + _BODY
_FRAMES = _BROADCAST, _STP
_GROUP, _TYPE_ALL = 1, 0
_LATER = 1
"""The controller of OpenFlow 1.3."""


@pytest.fixture(scope="module")
def both() -> Iterator[Comparison]:
    with Comparison(3, binary(), stateful=True) as comparison:
        yield comparison


@pytest.fixture(autouse=True)
def begin(both: Comparison) -> None:
    both.reset()
    both.play(Reconnect(0, 1))


def rule(port: int, instructions: bytes) -> bytes:
    return of.FlowMod(fields=(("in_port", port, None),), instructions=instructions).encode(port)


def send(both: Comparison, controller: int, *messages: bytes) -> None:
    both.play(Send(tuple(each.hex() for each in messages), controller=controller))


def try_ports(both: Comparison) -> None:
    """Send frames from all ports, and packet-outs."""
    for port in range(1, 7):
        both.play(Inject(port, tuple(frame.hex() for frame in _FRAMES)))
    for port in (1, 4, of.CONTROLLER):  # those of different switches have no order
        outs = itertools.product((of.FLOOD, of.ALL), _FRAMES)
        send(both, 0, *(m.packet_out(9, port, m.output(to), frame, of.NO_BUFFER) for to, frame in outs))
    both.play(Check())


def test_floods_heed_the_flags_of_ports(both: Comparison) -> None:
    send(
        both,
        _LATER,
        of.group_mod(3, 0, _TYPE_ALL, _GROUP, of.bucket(of.output(of.FLOOD)) + of.bucket(of.output(of.ALL))),
        rule(1, of.apply_actions(of.output(of.FLOOD))),
        rule(2, of.apply_actions(of.output(of.ALL) + of.output(of.FLOOD))),
        rule(3, of.write_actions(of.output(of.FLOOD))),
        rule(4, of.apply_actions(of.group_action(_GROUP))),
        rule(5, of.write_actions(of.output(of.ALL))),
        rule(6, of.apply_actions(of.output(of.FLOOD))),
    )
    try_ports(both)
    for port, config in ((2, _NO_FLOOD), (5, _NO_FLOOD | _NO_RECV_STP), (4, _NO_RECV_STP), (6, _NO_RECV)):
        both.play(PortMod(port, config, config))
    try_ports(both)
    both.play(Move(5, 1))
    both.play(Move(2, 0))
    both.play(Execute(4, 1))
    try_ports(both)
    both.play(RestartSwitch(1))
    both.play(RestartOneswitchd())
    try_ports(both)
    both.play(PortMod(5, 0, _NO_FLOOD))
    both.play(PortMod(2, 0, _NO_FLOOD | _NO_RECV_STP))
    try_ports(both)
    both.finish()


def test_normal_heeds_the_flags_of_ports(both: Comparison) -> None:
    send(both, 0, m.FlowMod10(of.ADD, 1, (), m.output(of.NORMAL), 0).encode(1))
    both.play(PortMod(3, _NO_FLOOD, _NO_FLOOD))
    for port in range(1, 7):
        both.play(Inject(port, (_BROADCAST.hex(),)))
    both.play(PortMod(3, 0, _NO_FLOOD))
    both.play(Inject(1, (_BROADCAST.hex(),)))
    both.play(Check())
    both.finish()


def test_other_controllers_do_not_see_the_flags(both: Comparison) -> None:
    both.play(Reconnect(2, 1))
    both.play(PortMod(1, _NO_FLOOD | _NO_RECV_STP, _NO_FLOOD | _NO_RECV_STP))
    both.play(Check())
    both.play(PortMod(1, 0, _NO_FLOOD, right_address=False))
    both.play(Check())
    both.finish()
