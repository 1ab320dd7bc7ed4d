"""Buckets that come and go: Open vSwitch takes more of them into a group by and by than in one message."""

import struct
from collections.abc import Callable

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.dialects import messages15 as m
from tests.oracle.peer import Peer, ask, frame
from tests.oracle.steps import Check, Execute, Inject, Move, RestartOneswitchd, RestartSwitch
from tests.oracle.test_openflow15 import bucket, bundle, entries, group_mod, in_15, message, multipart

_ALL, _SELECT, _INDIRECT, _FAST_FAILOVER = range(4)
_DESCRIBED = multipart(of.GROUP_DESC, struct.pack("!I4x", of.GROUP_ALL))
_COUNTED = multipart(of.GROUP, struct.pack("!I4x", 1))
_NICIRA = 0x2320
_PACKET = "ffffffffffff0200000000010800" + "00" * 46


def out(number: int, port: int, *, weight: int = 0, watched: int = of.ANY, kind: int = _ALL) -> bytes:
    """Return a bucket that outputs to a port."""
    return bucket(number, of.output(port), m.watching(kind, weight, watched, of.ANY))


def insert(*buckets: bytes, kind: int = _ALL, place: int = m.LAST_BUCKET, group: int = 1) -> bytes:
    """Return an insertion."""
    return group_mod(m.INSERT_BUCKET, kind, *buckets, place=place, group=group)


def remove(place: int, kind: int = _ALL, group: int = 1) -> bytes:
    """Return a removal."""
    return group_mod(m.REMOVE_BUCKET, kind, place=place, group=group)


def add(kind: int, *buckets: bytes) -> bytes:
    """Return an addition."""
    return group_mod(0, kind, *buckets)


_ONE = out(7, 2)
CHANGES = {
    "a weight": add(_ALL, _ONE) + insert(out(3, 5, weight=9)),
    "a weight in an indirect group": add(_INDIRECT, _ONE) + insert(out(3, 5, weight=9), kind=_SELECT),
    "a second bucket": add(_INDIRECT, _ONE) + insert(out(3, 5)) + insert(out(900, 6), kind=_INDIRECT),
    "no bucket": add(_INDIRECT, _ONE) + remove(m.ALL_BUCKETS),
    "another bucket": add(_INDIRECT, _ONE) + remove(7) + insert(out(3, 5), place=m.FIRST_BUCKET),
    "no watch": add(_FAST_FAILOVER, out(7, 2, watched=2)) + insert(out(3, 5), place=m.FIRST_BUCKET),
    "a watch": add(_ALL, _ONE) + insert(out(3, 5, watched=5, kind=_FAST_FAILOVER), kind=_FAST_FAILOVER),
    "a watch of a select group": add(_SELECT, out(7, 2, weight=1, kind=_SELECT))
    + insert(out(3, 5, watched=17, weight=1, kind=_SELECT), kind=_SELECT),
    "nothing": add(_ALL, _ONE) + insert(place=m.FIRST_BUCKET) + insert(place=7),
    "a modification afterwards": add(_ALL, _ONE)
    + insert(out(3, 5, weight=9))
    + group_mod(1, _ALL, _ONE, out(4, 6))
    + insert(out(3, 5), place=7),
    "a wrong number": add(_ALL, _ONE) + insert(out(7, 5)) + insert(out(8, 5), place=99) + remove(99),
    "two buckets for an indirect one": add(_INDIRECT, _ONE) + insert(out(8, 5), out(9, 5), kind=_INDIRECT),
    "in a bundle": add(_ALL, _ONE) + bundle(insert(out(3, 5, weight=9)), remove(7), insert(out(4, 6), place=3)),
    "in a bundle that fails": add(_INDIRECT, _ONE) + bundle(insert(out(3, 5)), remove(99)),
}


def answers(both: Comparison, data: bytes) -> None:
    """Require that both answer equally."""
    ours, reference = (ask(target, data, version=m.VERSION) for target in both.targets)
    assert ours == reference


def shown(both: Comparison, request: bytes, strip: Callable[[bytes], bytes] = bytes) -> None:
    """Require that both show the same groups."""
    ours, reference = ([*map(strip, entries(target, request))] for target in both.targets)
    assert ours == reference


def _without_age(entry: bytes) -> bytes:
    return entry[:32] + entry[40:]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_buckets_is_taken_as_by_one_bridge(both: Comparison, change: bytes) -> None:
    answers(both, change)
    shown(both, _DESCRIBED)
    assert both.ours.dump() == both.reference.dump()


def test_an_empty_insertion_behind_all_changes_nothing(both: Comparison) -> None:
    """Open vSwitch 3.1 hangs."""
    target = both.targets[0]
    assert ask(target, add(_ALL, _ONE) + insert(), version=m.VERSION) == []
    assert len(entries(target, _DESCRIBED)) == 1


def test_counters_of_other_buckets_go_on(both: Comparison) -> None:
    """Those of the group begin at 0."""
    rule = in_15(of.FlowMod(instructions=of.apply_actions(of.group_action(1))).encode(9))
    answers(both, add(_ALL, _ONE, out(3, 5)) + rule)
    for change in (
        b"",
        insert(out(4, 6, weight=9), place=7),
        remove(7),
        insert(out(7, 2), place=m.FIRST_BUCKET),
        bundle(remove(3), insert(out(3, 5))),
    ):
        answers(both, change)
        for port in (1, 2):
            both.play(Inject(port, (_PACKET,) * port))
        both.play(Check())
        shown(both, _COUNTED, _without_age)


def test_every_executor_has_such_groups(both: Comparison) -> None:
    rule = in_15(of.FlowMod(instructions=of.apply_actions(of.group_action(1))).encode(9))
    answers(both, add(_INDIRECT, _ONE) + insert(out(3, 5, weight=9)) + insert(out(900, 6), place=m.FIRST_BUCKET) + rule)
    ports = range(1, len(both.ours.spec.ports) + 1)
    for port in ports:
        both.play(Execute(port, 0))
    for step in (Execute(1, 1), Move(2, 1), RestartOneswitchd(), RestartSwitch(1)):
        both.play(step)
        both.play(Inject(1, (_PACKET,)))
        answers(both, insert(out(5, 6), place=3) + remove(5))
        shown(both, _DESCRIBED)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_changes_of_buckets_are_forwarded_as_by_one_bridge(both: Comparison, version: int) -> None:
    """OpenFlow 1.5 gets them as they were sent, and others the whole group."""
    chosen = struct.pack("!HHI", 11, 8, 3)
    choice = {4: frame(of.EXPERIMENTER, struct.pack("!II", _NICIRA, 27) + chosen)}
    heard: list[list[str]] = []
    for target in both.targets:
        sender, other = Peer(target, frame(0, version=6), 6), Peer(target, frame(0, version=version), version)
        other.send(choice.get(version) or frame(of.SET_ASYNC, chosen, version))
        assert other.answers() == []
        sender.send(
            add(_INDIRECT, _ONE)
            + insert(out(3, 5, weight=9), place=7)
            + remove(7)
            + insert(out(8, 6), kind=_SELECT)
            + message(of.BARRIER_REQUEST)
        )
        sender.answers()
        heard.append(other.answers())
        sender.close()
        other.close()
    assert heard[0] == heard[1]
    assert len(heard[0]) == 4
