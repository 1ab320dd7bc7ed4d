"""Packet-outs from ports, whose actions make Open vSwitch recirculate, as from one bridge."""

from collections.abc import Iterator

import pytest

from server.names import HOME
from tests.oracle import frames
from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.pools import PORTS
from tests.oracle.steps import Check, PortMod, Send

_IPV4, _MPLS = 0x0800, 0x8847
_POP_MPLS, _DEC_TTL, _PUSH_VLAN, _POP_VLAN = 20, 24, 17, 18
_VALUES = {"eth_src": 0x020000000001, "eth_dst": 0x020000000002, "eth_type": _IPV4, "ip_proto": 17, "udp_dst": 53}
_SELECT, _ALL, _FAILOVER, _NESTED = 1, 2, 3, 4
_NO_RECV, _NO_PACKET_IN = 4, 64

_FRAMES = {
    "plain": frames.frame(_VALUES),
    "tagged": frames.frame(_VALUES, ((0x8100, 5),)),
    "tagged twice": frames.frame(_VALUES, ((0x88A8, 5), (0x8100, 6))),
    "labelled": frames.frame(_VALUES, (), (17,)),
}


def _rule(table: int, instructions: bytes, in_port: int = 0) -> bytes:
    fields = (("in_port", in_port, None),) if in_port else ()
    return of.FlowMod(of.ADD, table, 7 + bool(in_port), fields, instructions).encode(9)


_OUT_2_3 = of.bucket(of.output(2), 5) + of.bucket(of.output(3), 1) + of.bucket(of.output(5), 2)
_GROUPS = (
    of.group_mod(1, of.ADD, of.SELECT_GROUP, _SELECT, _OUT_2_3),
    of.group_mod(2, of.ADD, 0, _ALL, of.bucket(of.output(of.IN_PORT)) + of.bucket(of.group_action(_SELECT))),
    of.group_mod(3, of.ADD, of.FAST_FAILOVER, _FAILOVER, of.bucket(of.group_action(_SELECT), 0, 4)),
    of.group_mod(
        4,
        of.ADD,
        of.SELECT_GROUP,
        _NESTED,
        of.bucket(of.output(of.CONTROLLER, 0xFFFF) + of.output(of.FLOOD) + of.output(of.IN_PORT) + of.output(6), 1),
    ),
)
_RULES = (
    *_GROUPS,
    _rule(0, of.apply_actions(of.group_action(_SELECT)), 1),
    _rule(0, of.write_actions(of.group_action(_NESTED)) + of.write_metadata(5, 7) + of.goto(1), 2),
    _rule(0, of.apply_actions(of.ethertype_action(_POP_MPLS, _IPV4)) + of.goto(1), 3),
    _rule(0, of.apply_actions(of.output(1)), 4),
    _rule(0, of.apply_actions(of.group_action(_ALL) + of.output(of.CONTROLLER, 0xFFFF)), 5),
    of.FlowMod(of.ADD, 0, 0, (), of.apply_actions(of.output(of.CONTROLLER, 0xFFFF))).encode(9),
    _rule(1, of.apply_actions(of.plain_action(_DEC_TTL) + of.output(4) + of.output(6))),
)

_ACTIONS = {
    "a select group": of.group_action(_SELECT),
    "outputs around it": of.output(1) + of.group_action(_SELECT) + of.output(4) + of.output(of.IN_PORT),
    "a group in a group": of.group_action(_ALL),
    "a group that watches a port": of.group_action(_FAILOVER),
    "to controllers, flooded and back": of.group_action(_NESTED),
    "a lookup": of.output(of.TABLE),
    "a lookup after pop_mpls": of.ethertype_action(_POP_MPLS, _IPV4) + of.output(of.TABLE),
    "the TTL after pop_mpls": of.ethertype_action(_POP_MPLS, _IPV4)
    + of.plain_action(_DEC_TTL)
    + of.output(2)
    + of.output(5),
    "another tag and a group": of.ethertype_action(_PUSH_VLAN, 0x8100)
    + of.set_field(("vlan_vid", 0x1007, None))
    + of.group_action(_SELECT),
    "to a controller behind it": of.group_action(_SELECT) + of.output(of.CONTROLLER, 0xFFFF),
    "registers, then a lookup": of.set_field(("reg0", 5, None)) + of.group_action(_ALL) + of.output(of.TABLE),
    "ct, then a lookup": of.ct(True, 1, None) + of.ct(False, 1, 1),
    "NORMAL and a group": of.output(of.NORMAL) + of.group_action(_SELECT),
    "outputs only": of.output(2) + of.output(5) + of.output(of.IN_PORT) + of.output(of.FLOOD),
}


@pytest.fixture(scope="module", params=[2, 3])
def both(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    """Oneswitchd over two or three switches, whose ports have executors of their own, and one bridge."""
    with Comparison(request.param, binary(), executor=HOME, stateful=True) as comparison:
        yield comparison


@pytest.mark.parametrize("actions", _ACTIONS.values(), ids=_ACTIONS)
def test_a_packet_out_from_a_port_does_what_it_does_on_one_bridge(both: Comparison, actions: bytes) -> None:
    both.reset()
    both.play(Send(tuple(message.hex() for message in _RULES)))
    for port in (*PORTS, 7):
        for about, frame in _FRAMES.items():
            both.play(Send((of.packet_out(port, port, actions, frame).hex(),), f"{about} from {port:#x}"))
    both.play(Check())
    both.finish()


@pytest.mark.parametrize("config", [_NO_RECV, _NO_PACKET_IN])
def test_a_port_s_configuration_applies_to_its_packet_outs(both: Comparison, config: int) -> None:
    both.reset()
    both.play(Send(tuple(message.hex() for message in _RULES)))
    for port in (1, 2, 5, 6):
        both.play(PortMod(port, config, config))
        for actions in (of.output(3), of.group_action(_ALL), of.output(of.TABLE)):
            message = of.packet_out(port, port, actions, _FRAMES["plain"])
            both.play(Send((message.hex(),), f"from {port}"))
        both.play(PortMod(port, 0, config))
    both.finish()
