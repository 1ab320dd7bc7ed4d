"""Converts measurements of traffic and load into the whole numbers of a problem.

A number keeps its level while the measurement stays within a band below it, so that noise does not change the problem.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from nfagent.capacity import Capacity
from nfagent.decide.situation import Situation
from nfagent.measurement import Coefficient, Measurement
from nfagent.monitor.learning import cost, is_trusted

K = TypeVar("K")

_STEP = 1.1
_KEEP = 0.75
_LEARNT_CHANGE = 0.1


@dataclass(frozen=True)
class Moment:
    """Traffic and load at a moment; whole Mbps and millicores.

    Attributes:
        demands: Mbps by vertices, from -> to.
        traffic: Mbps in and out, by instance.
        millicores: used at its location, by instance.
    """

    demands: Mapping[tuple[str, str], int] = field(default_factory=dict)
    traffic: Mapping[str, int] = field(default_factory=dict)
    millicores: Mapping[str, int] = field(default_factory=dict)


def peak(moments: Iterable[Moment]) -> Moment:
    """Return the maximum of every number: limits that hold for it hold for each of the demands."""
    demands: dict[tuple[str, str], int] = {}
    traffic: dict[str, int] = {}
    millicores: dict[str, int] = {}
    for moment in moments:
        _raise(demands, moment.demands)
        _raise(traffic, moment.traffic)
        _raise(millicores, moment.millicores)
    return Moment(demands, traffic, millicores)


def _raise(most: dict[K, int], amounts: Mapping[K, int]) -> None:
    for key, amount in amounts.items():
        if amount > most.get(key, 0):
            most[key] = amount


class Levels:
    """Remembers the level of each number."""

    def __init__(self) -> None:
        self._levels: dict[object, int] = {}

    def moment(self, situation: Situation, measured: Measurement) -> Moment:
        """Convert a measurement to the situation's vertices."""
        sums: dict[tuple[str, str], float] = {}
        for (source, target), rate in measured.matrix.items():
            for pair in _path(situation, source, target):
                sums[pair] = sums.get(pair, 0.0) + rate.mbps
        loads = measured.instances
        moment = Moment(
            {pair: level for pair, mbps in sums.items() if (level := self._level(pair, mbps))},
            {name: level for name, load in loads.items() if (level := self._level((name, 0), load.traffic.mbps))},
            {name: level for name, load in loads.items() if (level := self._level((name, 1), load.millicores, 5))},
        )
        keys = {*sums, *((name, which) for name in loads for which in (0, 1))}
        self._levels = {key: level for key, level in self._levels.items() if key in keys}
        return moment

    def _level(self, key: object, value: float, nothing: float = 0.5) -> int:
        before = self._levels.get(key, 0)
        if value < nothing:
            level = 0
        elif before and _KEEP * before <= value <= before:
            level = before
        else:
            level = level_above(value)
        self._levels[key] = level
        return level


def level_above(value: float) -> int:
    """Return the next level that is not below: 1, 2, 3, ..., then in steps of a tenth."""
    if value <= 10:
        return math.ceil(value)
    return math.ceil(10 * _STEP ** math.ceil(math.log(value / 10, _STEP) - 1e-9))


def _path(situation: Situation, source: int, target: int) -> Iterable[tuple[str, str]]:
    """Return traffic between vertices, through the executing switch; leave out unknown vertices."""
    ends = [situation.vertices.get(source), situation.detours.get(source), situation.vertices.get(target)]
    known = [end for end in ends if end is not None]
    if ends[0] is None or ends[2] is None:
        return
    for one, other in pairwise(known):
        if one != other:
            yield one, other


class Costs:
    """Learnt costs of functions at locations, steady despite small changes."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], Coefficient] = {}
        self._rates: dict[tuple[str, str, float], Coefficient] = {}

    def learn(self, learnt: Iterable[Coefficient]) -> bool:
        """Apply significant changes; return whether there were any."""
        changed = False
        for each in learnt:
            used = self._used.get((each.kind, each.location_class))
            if used is None or _differs(used, each):
                self._used[each.kind, each.location_class] = each
                changed = True
        if changed:
            self._rates.clear()
        return changed

    def millicores(self, kind: str, here: Capacity, there: Capacity, mbps: int, measured: int) -> int:
        """Return a function's cost at a location: by its kind's learnt cost, else as measured and scaled.

        Args:
            kind: kind of the function.
            here: the location where it runs.
            there: the location in question.
            mbps: its traffic.
            measured: millicores that it uses here.
        """
        factor = max(here, there, key=lambda each: each.location_class == "nic").core_factor
        goal = self.rate(kind, there.location_class, factor)
        if goal.samples and mbps:
            return math.ceil(goal.millicores_per_mbps * mbps)
        if here.location_class == there.location_class:
            return math.ceil(measured * there.core_factor / here.core_factor - 1e-9)
        ratio = goal.millicores_per_mbps / self.rate(kind, here.location_class, factor).millicores_per_mbps
        return math.ceil(measured * ratio - 1e-9)

    def rate(self, kind: str, location_class: str, core_factor: float) -> Coefficient:
        """Return the millicores for each Mbps; see `nfagent.monitor.learning.cost`."""
        key = (kind, location_class, core_factor)
        if key not in self._rates:
            self._rates[key] = cost(self._used.values(), kind, location_class, core_factor)
        return self._rates[key]


def _differs(used: Coefficient, learnt: Coefficient) -> bool:
    before, now = used.millicores_per_mbps, learnt.millicores_per_mbps
    return is_trusted(used) != is_trusted(learnt) or abs(before - now) > _LEARNT_CHANGE * max(before, now)
