"""Controllers' groups with the numbers of hidden ones: of floods, watched ports, and watched ports with groups."""

from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.steps import Check, Inject, Interface, Move, RestartOneswitchd, RestartSwitch, Send, Step

_FRAME = (bytes.fromhex("0200000000020200000000018100") + bytes(46)).hex()
_FLOOD, _ALL = 0xFFFFFE00, 0xFFFEFFFF
_PORT_2, _PORT_4, _PORT_5, _PORT_6 = (0xFFFE0000 + port for port in (2, 4, 5, 6))
# That of port 2 and group 9: the port's number times 31, plus the group's, of 255.
_BOTH = 0xFFFEFF00 + (2 * 31 + 9) % 255
# The type of a group that sends to all its buckets.
_TO_ALL = 0
# A hidden group steps aside to the first free number below 0xfffe0000.
_ASIDE = 0xFFFDFFFF


@pytest.fixture(scope="module")
def server() -> Iterator[Comparison]:
    with Comparison(2, binary()) as comparison:
        yield comparison


@pytest.fixture
def both(server: Comparison) -> Comparison:
    server.reset()
    return server


def play(both: Comparison, *steps: Step | bytes) -> None:
    """Play steps, or messages; after each, packets are sent, and all that can be read is compared."""
    for step in steps:
        both.play(Send((step.hex(),)) if isinstance(step, bytes) else step)
        for port in (1, 3):
            both.play(Inject(port, (_FRAME,)))
        both.play(Check())


def made(number: int, *buckets: bytes, kind: int = _TO_ALL) -> bytes:
    return of.group_mod(number & 0xFFFF, of.ADD, kind, number, b"".join(buckets) or of.bucket(of.output(4)))


def deleted(number: int) -> bytes:
    return of.group_mod(7, of.DELETE_GROUP, _TO_ALL, number)


def rule(port: int, actions: bytes, **kwargs: int) -> bytes:
    fields = (("in_port", port, None),)
    return of.FlowMod(fields=fields, instructions=of.apply_actions(actions), **kwargs).encode(9)


def failover(number: int, *watches: tuple[int, int, int]) -> bytes:
    """Return a group; of each bucket the port and the group that it watches, and the port that it outputs to."""
    buckets = (of.bucket(of.output(to), 0, port, watched) for port, watched, to in watches)
    return made(number, *buckets, kind=of.FAST_FAILOVER)


def bundle(*parts: bytes) -> bytes:
    opened, committed = (of.bundle_control(1, 5, what, 3) for what in (0, 4))
    return b"".join((opened, *(of.bundle_add(part, 5, 3) for part in parts), committed))


@pytest.mark.parametrize(
    "message",
    [
        rule(1, of.group_action(_FLOOD)),
        rule(1, of.group_action(_FLOOD), command=1),
        of.packet_out(3, 1, of.group_action(_FLOOD), bytes.fromhex(_FRAME)),
        of.group_mod(4, 1, _TO_ALL, _FLOOD, of.bucket(of.output(2))),
        of.group_mod(4, of.ADD, 9, _FLOOD, of.bucket(of.output(2))),
        deleted(_FLOOD),
        made(1, of.bucket(of.group_action(_FLOOD))),
        failover(1, (of.ANY, _FLOOD, 2)),
        of.FlowMod(command=3, cookie=5, out_group=_FLOOD).encode(5),
    ],
    ids=["rule", "modification", "packet-out", "unknown", "malformed", "deletion", "chain", "watch", "filter"],
)
def test_a_hidden_group_does_not_exist(both: Comparison, message: bytes) -> None:
    both.play(Send((rule(3, of.output(of.FLOOD)).hex(),)))
    play(both, message, made(2))


def test_floods_go_on_while_controllers_have_the_numbers_of_their_groups(both: Comparison) -> None:
    both.play(Send((rule(1, of.output(of.FLOOD), idle=300, cookie=5, flags=1).hex(), rule(3, of.output(of.ALL)).hex())))
    play(
        both,
        made(1, of.bucket(of.output(of.FLOOD))),
        made(_FLOOD),
        rule(1, of.output(2) + of.group_action(_FLOOD)),
        RestartOneswitchd(),
        made(_ASIDE, of.bucket(of.output(of.ALL))),
        rule(3, of.output(of.FLOOD) + of.output(5)),
        Move(3, 1),
        made(_ALL),
        deleted(_FLOOD),
        made(_ASIDE - 1),
        deleted(of.GROUP_ALL),
        RestartSwitch(1),
        RestartOneswitchd(),
    )


def test_ports_are_watched_while_controllers_have_the_numbers_of_their_groups(both: Comparison) -> None:
    both.play(Send((made(9).hex(), failover(1, (2, of.ANY, 2), (4, 9, 5)).hex(), rule(1, of.group_action(1)).hex())))
    play(
        both,
        made(_PORT_2),
        Interface(2, False),
        made(_PORT_4),
        RestartOneswitchd(),
        failover(2, (2, 9, 5), (of.ANY, _PORT_2, 6)),
        rule(3, of.group_action(2)),
        Interface(2, True),
        Move(2, 1),
        deleted(_PORT_2),
        made(_BOTH),
        deleted(9),
        Interface(2, False),
        RestartSwitch(0),
        Interface(2, True),
        RestartOneswitchd(),
    )


def test_a_bundle_may_need_what_it_names(both: Comparison) -> None:
    flood = rule(1, of.output(of.FLOOD))
    group = failover(1, (5, of.ANY, 2), (6, 9, 5))
    play(both, bundle(made(9), group, made(_PORT_5), made(_FLOOD), flood, rule(3, of.group_action(1))))
    play(both, bundle(deleted(_PORT_5), made(_ASIDE), made(_PORT_6)), Interface(5, False), Interface(5, True))
