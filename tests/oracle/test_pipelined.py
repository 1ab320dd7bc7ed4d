"""Requests whose answers tell the state before the messages behind them, as those of one bridge."""

import itertools
import struct
from collections.abc import Iterator

import pytest

from server.names import HOME
from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.steps import Check, Send

_xids = itertools.count(1)
_EVERY_GROUP, _EVERY_METER = struct.pack("!I4x", of.GROUP_ALL), struct.pack("!I4x", of.ALL_IDS)
_EVERY_FLOW = struct.pack("!B3xII4xQQ", of.ALL_TABLES, of.ANY, of.ANY, 0, 0) + of.match(())

_REQUESTS = {
    "flows": (of.FLOW, _EVERY_FLOW),
    "aggregate": (of.AGGREGATE, _EVERY_FLOW),
    "tables": (of.TABLES, b""),
    "groups": (of.GROUP, _EVERY_GROUP),
    "a group": (of.GROUP, struct.pack("!I4x", 2)),
    "group descriptions": (of.GROUP_DESC, b""),
    "meters": (of.METER, _EVERY_METER),
    "a meter": (of.METER, struct.pack("!I4x", 2)),
    "meter configurations": (of.METER_CONFIG, _EVERY_METER),
}


def _rule(command: int, port: int, instructions: bytes, cookie: int = 0, flags: int = 0) -> bytes:
    fields = (("in_port", port, None),) if port else ()
    return of.FlowMod(command, 0, 7, fields, instructions, cookie, flags=flags).encode(next(_xids))


def _group(command: int, number: int, to: int = 1, kind: int = 0) -> bytes:
    buckets = of.bucket(of.output(to)) if command < of.DELETE_GROUP else b""
    return of.group_mod(next(_xids), command, kind, number, buckets)


def _meter(command: int, number: int, rate: int = 1) -> bytes:
    return of.meter_mod(next(_xids), command, 1, number, of.band(1, rate) if command < of.DELETE_GROUP else b"")


def _to(group: int = 0, meter: int = 0) -> bytes:
    return (of.meter(meter) if meter else b"") + of.apply_actions(of.group_action(group) if group else of.output(1))


_BEFORE = (
    *(_group(of.ADD, number) for number in (1, 2, 3)),
    *(_meter(of.ADD, number) for number in (1, 2, 3)),
    *(_rule(of.ADD, port, _to(1 + port % 2, 1 + port % 3), 5) for port in range(5)),
)
_BEHIND = {
    "more rules": (_rule(of.ADD, 5, _to(2, 3)), _rule(of.ADD, 6, _to(2, 1))),
    "rules are replaced": (_rule(of.ADD, 0, _to(3, 2), 9, of.SEND_FLOW_REM), _rule(of.ADD, 1, _to(), 8)),
    "rules are changed": (_rule(of.MODIFY, 1, _to(3, 3)), _rule(of.MODIFY, 0, _to())),
    "rules are gone": (_rule(of.DELETE, 2, b""),),
    "all rules are gone": (_rule(of.DELETE, 0, b""),),
    "groups are changed": (_group(of.MODIFY, 1, 3, of.SELECT_GROUP), _group(of.ADD, 4)),
    "a group is gone": (_group(of.DELETE_GROUP, 2),),
    "all groups are gone": (_group(of.DELETE_GROUP, of.GROUP_ALL), _group(of.ADD, 1, 4)),
    "meters are changed": (_meter(of.MODIFY, 1, 70), _meter(of.ADD, 4)),
    "a meter is gone": (_meter(of.DELETE_GROUP, 2),),
    "all meters are gone": (_meter(of.DELETE_GROUP, of.METER_ALL), _meter(of.ADD, 1, 4)),
}


_REFUSED = (
    _group(of.ADD, 1, 4),
    _meter(of.ADD, 1, 9),
    _rule(of.ADD, 0, _to(99), 77),
    _rule(of.ADD, 6, _to(99)),
    _group(of.MODIFY, 9),
    _meter(of.MODIFY, 9),
)


@pytest.fixture(scope="module")
def both() -> Iterator[Comparison]:
    """Oneswitchd over two switches, and one bridge."""
    with Comparison(2, binary(), executor=HOME) as comparison:
        yield comparison


@pytest.mark.parametrize("behind", _BEHIND.values(), ids=_BEHIND)
def test_an_answer_tells_the_state_before_the_messages_behind(both: Comparison, behind: tuple[bytes, ...]) -> None:
    for about, (kind, body) in _REQUESTS.items():
        both.reset()
        both.play(Send(tuple(message.hex() for message in _BEFORE)))
        request = of.multipart(next(_xids), kind, body)
        both.play(Send(tuple(message.hex() for message in (request, *behind)), about))
        both.play(Check())
        both.finish()


def test_an_answer_does_not_tell_of_refused_messages_before(both: Comparison) -> None:
    for about, (kind, body) in _REQUESTS.items():
        both.reset()
        both.play(Send(tuple(message.hex() for message in _BEFORE)))
        request = of.multipart(next(_xids), kind, body)
        both.play(Send(tuple(message.hex() for message in (*_REFUSED, request, *_BEHIND["more rules"])), about))
        both.play(Check())
        both.finish()
