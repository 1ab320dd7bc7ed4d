"""Counters of ports that only OpenFlow 1.4 and later have: the custom ones of dummy devices."""

import struct

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.dialects.openflow14 import intel_counters
from tests.oracle.peer import ask, frame
from tests.oracle.steps import Check, Inject, Move, Reconnect, RestartOneswitchd, Send

_PORT, _CUSTOM = 2, 304
_FRAME = (bytes.fromhex("ffffffffffff0200000000020800") + bytes(46)).hex()


def custom(target: str, version: int, port: int = _PORT) -> dict[str, int]:
    """Return a port's custom counters."""
    body = struct.pack("!HH4xI4x", of.PORT_STATS, 0, port)
    answer = ask(target, frame(of.MULTIPART_REQUEST, body, version), version=version)
    return intel_counters(bytes.fromhex(answer[0])[16 + _CUSTOM :])


@pytest.mark.parametrize("version", [5, 6])
def test_counters_go_on_where_a_port_moves_and_after_a_restart(both: Comparison, version: int) -> None:
    ours, reference = both.targets
    rule = of.FlowMod(instructions=of.apply_actions(of.output(_PORT)), fields=(("in_port", 1, None),))
    both.play(Reconnect(0, version))
    both.play(Send((rule.encode(1).hex(),), "a rule"))
    for place in (1, 0, 1):
        both.play(Inject(_PORT, (_FRAME,) * 3))
        both.play(Inject(1, (_FRAME,) * 2))
        both.play(Check())
        both.play(Move(_PORT, place))
        both.play(Check())
    before = custom(ours, version)
    assert before["rx_q0_packets"] >= 9
    assert list(before) == list(custom(reference, version))
    both.play(RestartOneswitchd())
    assert custom(ours, version) == before


@pytest.mark.parametrize("version", [5, 6])
def test_local_has_the_counters_that_it_has_in_one_bridge(both: Comparison, version: int) -> None:
    ours, reference = (list(custom(target, version, of.LOCAL)) for target in both.targets)
    assert ours == reference
    assert ours
