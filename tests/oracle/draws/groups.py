"""Group-mods and meter-mods of OpenFlow 1.3."""

from typing import Protocol

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools, rules
from tests.oracle.draws.model import Draw, Model


class BucketActions(Protocol):
    """Returns the actions of a bucket, which may name some groups; `odd` ones among them, which switches refuse."""

    def __call__(self, chain: tuple[int, ...], *, odd: bool = True) -> st.SearchStrategy[bytes]: ...


def change_groups(draw: Draw, model: Model, done: BucketActions | None = None) -> bytes:
    """Draw an ADD, MODIFY or DELETE of a group; chains lead to lower numbers, which excludes loops.

    ``done``: actions of buckets in another version.
    """
    group = draw(st.sampled_from(pools.GROUPS))
    usual = of.MODIFY if group in model.groups else of.ADD
    command = draw(st.sampled_from((usual, usual, usual, 0, 1, 2)))
    if command == 2:
        if draw(st.integers(0, 3)) == 0:
            group = draw(st.sampled_from((9, of.GROUP_ALL, of.ANY, 0xFFFFFD00)))
        model.groups.pop(group, None)
        if group == of.GROUP_ALL:
            model.groups.clear()
        return of.group_mod(model.next_xid(), 2, draw(st.sampled_from((0, 3))), group)
    kind = draw(st.sampled_from((0, 0, of.SELECT_GROUP, 2, 2, of.FAST_FAILOVER)))
    if draw(st.integers(0, 29)) == 0:
        kind, group = draw(st.sampled_from(((4, group), (0, of.GROUP_ALL), (0, of.ANY), (0, 0xFFFFFF00))))
    chain = tuple(each for each in model.groups if each < group)
    if kind <= of.FAST_FAILOVER and group <= max(pools.GROUPS):
        model.groups.setdefault(group, kind)
        model.kinds.setdefault(group, set()).add(kind)
    own = None if done is None else done(chain)
    buckets = model.note(draw(rules.buckets(kind, chain, model.stateful, own)))
    return of.group_mod(model.next_xid(), command, kind, group, buckets)


def change_meters(draw: Draw, model: Model) -> bytes:
    """Draw an ADD, MODIFY or DELETE of a meter."""
    number = draw(st.sampled_from(pools.METERS))
    usual = of.MODIFY if number in model.meters else of.ADD
    command = draw(st.sampled_from((usual, usual, usual, 0, 1, 2)))
    if draw(st.integers(0, 14)) == 0:
        number = draw(st.sampled_from((0, 9, of.METER_ALL, 0xFFFFFFFD, 0xFFFF0001)))
    if model.keeps_meters and command == 2 and number in (*pools.METERS, of.METER_ALL):
        command = of.MODIFY
    flags = draw(st.sampled_from((1, 1, 2, 4 | 1, 8 | 2, 0, 3)))
    if command == 2:
        model.meters.discard(number)
        if number == of.METER_ALL:
            model.meters.clear()
        return of.meter_mod(model.next_xid(), 2, flags, number)
    if number in pools.METERS:
        model.meters.add(number)
    return of.meter_mod(model.next_xid(), command, flags, number, draw(rules.bands()))
