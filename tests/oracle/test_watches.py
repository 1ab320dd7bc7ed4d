"""Buckets that watch both a port and a group: live if either is, as on one bridge."""

from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.steps import Check, Inject, Interface, RestartOneswitchd, Send

_FRAME = (bytes.fromhex("0200000000020200000000018100") + bytes(46)).hex()
_MODIFY = 1


@pytest.fixture(scope="module")
def both() -> Iterator[Comparison]:
    with Comparison(2, binary()) as comparison:
        yield comparison


def send(both: Comparison, *messages: bytes) -> None:
    both.play(Send(tuple(each.hex() for each in messages)))


def failover(command: int, group: int, *watches: tuple[int, int, int]) -> bytes:
    """Return a group; of each bucket the port and the group that it watches, and the port that it outputs to."""
    buckets = b"".join(of.bucket(of.output(to), 0, port, watched) for port, watched, to in watches)
    return of.group_mod(group, command, of.FAST_FAILOVER, group, buckets)


def rule() -> bytes:
    return of.FlowMod(fields=(("in_port", 1, None),), instructions=of.apply_actions(of.group_action(1))).encode(9)


def try_ports(both: Comparison) -> None:
    """Take the watched ports down and up, and send a packet through the group each time."""
    for port, up in ((2, False), (4, False), (2, True), (2, False), (4, True), (2, True)):
        both.play(Interface(port, up))
        both.play(Inject(1, (_FRAME,)))


def test_a_bucket_is_live_if_its_port_or_its_group_is(both: Comparison) -> None:
    send(both, failover(0, 9, (4, of.ANY, 4)), failover(0, 1, (2, 9, 5), (3, of.ANY, 6)), rule())
    both.play(Check())
    try_ports(both)
    # The watched group goes, and comes again; then another one is watched.
    both.play(Interface(2, False))
    for message in (
        of.group_mod(9, of.DELETE_GROUP, of.FAST_FAILOVER, 9),
        failover(0, 9, (4, of.ANY, 4)),
        failover(_MODIFY, 1, (2, 8, 5), (3, of.ANY, 6)),
        failover(0, 8, (1, of.ANY, 4)),
    ):
        send(both, message)
        both.play(Inject(1, (_FRAME,)))
        both.play(Check())
    both.play(RestartOneswitchd())
    both.play(Check())
    both.play(Interface(2, True))
    try_ports(both)
