"""Rules of OpenFlow 1.0 with actions for a protocol on which they do not match: they leave other packets unchanged."""

import struct
from collections.abc import Iterator

import pytest

from tests.oracle import frames
from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.dialects import messages10 as m
from tests.oracle.dialects import nicira as nx
from tests.oracle.peer import frame
from tests.oracle.steps import Check, Execute, Inject, Move, Reconnect, RestartOneswitchd, RestartSwitch, Send, Timed

_DEC_TTL, _FIN_TIMEOUT, _POP_MPLS, _CLONE = 18, 19, 24, 42
_SET_MPLS_LABEL, _SET_MPLS_TC = 30, 31
_LATER = 1
"""The controller of OpenFlow 1.3."""
_IN_PORT = (("in_port", 1, None),)
_REWRITES = (
    m.set_nw(6, 0x0A000105),
    m.set_nw(7, 0x0A000106),
    m.set_byte(8, 40),
    m.set_number(9, 1000),
    m.set_number(10, 81),
    nx.action(_DEC_TTL, bytes(6)),
    nx.action(_POP_MPLS, b"\x08\0" + bytes(4)),
    nx.action(_SET_MPLS_LABEL, struct.pack("!2xI", 0x12345)),
    nx.action(_SET_MPLS_TC, b"\5" + bytes(5)),
)
_PACKETS = (
    {"eth_type": frames.IPV4, "ip_proto": frames.TCP, "tcp_dst": 80},
    {"eth_type": frames.IPV4, "ip_proto": frames.UDP, "udp_dst": 53},
    {"eth_type": frames.IPV4, "ip_proto": frames.ICMP},
    {"eth_type": frames.IPV6, "ip_proto": frames.TCP},
    {"eth_type": frames.ARP},
)
_FRAMES = (
    *(frames.frame({**values, "length": 60}, [], []).hex() for values in _PACKETS),
    frames.frame({"length": 60}, [], [0x7E3F]).hex(),
)


@pytest.fixture(scope="module")
def both() -> Iterator[Comparison]:
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.fixture(autouse=True)
def begin(both: Comparison) -> None:
    both.reset()
    both.play(Reconnect(0, 1))


def send(both: Comparison, *messages: bytes, controller: int = 0) -> None:
    both.play(Send(tuple(each.hex() for each in messages), controller=controller))


def rule(fields: tuple[of.Oxm, ...], actions: bytes, command: int = of.ADD, cookie: int = 1) -> bytes:
    return m.FlowMod10(command, 5 + len(fields), fields, actions, cookie).encode(command + 1)


def try_ports(both: Comparison) -> None:
    for port in (1, 4):
        both.play(Inject(port, _FRAMES))
    both.play(Check())


@pytest.mark.parametrize("action", _REWRITES, ids=range(len(_REWRITES)))
def test_an_action_does_nothing_to_other_packets(both: Comparison, action: bytes) -> None:
    nested = action + m.output(4)
    send(both, rule((), m.output(3) + action + m.output(2) + nx.action(_CLONE, bytes(6) + nested) + m.output(of.FLOOD)))
    try_ports(both)
    both.finish()


def test_such_rules_survive_moves_and_restarts(both: Comparison) -> None:
    send(both, rule((), b"".join(_REWRITES[:6]) + m.output(2)), rule(_IN_PORT, _REWRITES[0] + m.output(of.FLOOD)))
    try_ports(both)
    send(both, rule((("vlan_vid", 0, None), ("in_port", 1, None)), _REWRITES[1] + m.output(5)))
    both.play(Execute(1, 1))
    both.play(Move(4, 1))
    try_ports(both)
    both.play(RestartOneswitchd())
    try_ports(both)
    both.play(RestartSwitch(1))
    both.play(RestartSwitch(0))
    try_ports(both)
    both.finish()


def test_modifications_and_deletions(both: Comparison) -> None:
    tcp = (("eth_type", frames.IPV4, None), ("ip_proto", frames.TCP, None))
    send(both, rule((), m.output(2)), rule(tcp, m.output(2)), rule(_IN_PORT, _REWRITES[3] + m.output(2)))
    send(both, rule((), _REWRITES[4] + m.output(3), of.MODIFY))
    try_ports(both)
    send(both, rule((), _REWRITES[0] + m.output(3), of.MODIFY, cookie=9), rule(_IN_PORT, m.output(4), of.MODIFY_STRICT))
    try_ports(both)
    # A later version modifies it, and refuses what needs a match.
    send(both, of.FlowMod(of.MODIFY, instructions=of.apply_actions(of.output(2))).encode(1), controller=_LATER)
    send(both, of.FlowMod(instructions=of.apply_actions(of.plain_action(24))).encode(1), controller=_LATER)
    try_ports(both)
    # Refused: an error beside it, and a rule that is there already.
    send(both, rule((), _REWRITES[0] + m.output(0xFFFF0000)), rule((), _REWRITES[1] + m.set_byte(8, 1)))
    send(both, rule((("in_port", 2, None),), _REWRITES[1], of.MODIFY_STRICT), rule((), b"", of.DELETE))
    try_ports(both)
    both.finish()


@pytest.mark.parametrize("action", _REWRITES[-2:], ids=["label", "class"])
def test_labels_read_as_written(both: Comparison, action: bytes) -> None:
    labelled = (("eth_type", frames.MPLS, None),)
    nested = m.output(4) + nx.action(_CLONE, bytes(6) + action + m.output(3))
    send(both, rule(labelled, action + m.output(2)), rule((), action + nested), rule(_IN_PORT, nested))
    try_ports(both)
    # A later version's action reads otherwise.
    setting = of.apply_actions(of.set_field(("mpls_label", 7, None)))
    send(both, of.FlowMod(fields=labelled, instructions=setting, priority=9).encode(1), controller=_LATER)
    for data in (_FRAMES[0], _FRAMES[4], _FRAMES[5]):
        packet = bytes.fromhex(data)
        head = struct.pack("!IHH", 0xFFFFFFFF, 1, len(action) + 8)
        send(both, frame(of.PACKET_OUT, head + action + m.output(2) + packet, 1))
    both.play(Check())
    both.finish()


def test_ports_of_sctp_read_as_written(both: Comparison) -> None:
    sctp = (("eth_type", frames.IPV4, None), ("ip_proto", frames.SCTP, None))
    ports = _REWRITES[3] + _REWRITES[4] + m.output(2)
    send(both, rule(sctp, ports + nx.action(_CLONE, bytes(6) + nx.action(2, struct.pack("!2xI", 5)) + ports)))
    both.play(Check())
    both.finish()


def test_timeouts(both: Comparison) -> None:
    aside, last = (("in_port", 4, None),), b"".join(_REWRITES[:2]) + m.output(2)
    timed = [
        m.FlowMod10(of.ADD, 5, fields, last, 1, idle=1, hard=hard, flags=m.SEND_FLOW_REM).encode(1)
        for fields, hard in ((aside, 2), ((), 0))
    ]
    both.play(Timed(tuple(each.hex() for each in timed), 1, _FRAMES[0]))
    both.finish()


def test_fin_timeout_needs_no_tcp(both: Comparison) -> None:
    send(both, rule((), nx.action(_FIN_TIMEOUT, b"\0\x05\0\x05" + bytes(2)) + m.output(2)))
    both.play(Check())
    both.finish()
