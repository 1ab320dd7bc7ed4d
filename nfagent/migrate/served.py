"""Times in which an instance's processes processed no packets, as they report them."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Interval = tuple[float, float]
"""From and to, in seconds of the machine's steady clock."""

_KEPT = 256  # pauses that a process remembers per worker (nfs/runtime/src/worker/pauses.rs)
_BEFORE_S = (0.5, 5.0)  # of traffic that show usual pauses; the longer time if the shorter had none
_ENOUGH_S = 0.05  # a process that another migration has just started may have served no longer
_DRIFT_S = 1.0  # drift between two machines' clocks while a migration waits
_RARE_S = 1.0  # traffic that usually pauses for longer does not count
_TRAFFICS_OWN = 5  # multiple of the usual pause
_MACHINES_OWN = 2
_REPEATED = 5
_INSTANT_S = 1e-6
_NEVER = (float("inf"), float("inf"))
_RECURS = 3  # pauses at least half as long, itself included


@dataclass(frozen=True)
class _Usual:
    """A usual pause; certain: pauses that did not recur took less than half of the time."""

    pause_s: float
    is_certain: bool


@dataclass
class Served:
    """Measurements of one process.

    Attributes:
        low: its earliest possible start; its clock counts from then.
        high: its latest possible start.
        until: time of its last answer.
        idle: times until then without processed packets, oldest first.
    """

    low: float
    high: float
    until: float
    idle: list[Interval] = field(default_factory=list)

    @classmethod
    def told(cls, before: "Served | None", answer: bytes, asked: float, heard: float, since: float) -> Self:
        """Add an answer to ``pauses``, requested and received at these times.

        Args:
            before: earlier measurements.
            answer: ``{"ok": {"age_us": ..., "pauses_us": [[from, to or null], ...]}}``, in microseconds since its
                start.
            asked: when the request was sent.
            heard: when the answer was read.
            since: start of the relevant time.

        Raises:
            ValueError, KeyError, TypeError: the answer is invalid.
        """
        told = json.loads(answer)["ok"]
        age_s = told["age_us"] / 1e6
        low, high = asked - age_s, heard - age_s
        is_same = before is not None and low <= min(before.until, before.high + _DRIFT_S)
        if before is not None and is_same:
            low, high = max(low, min(before.low, high)), min(high, max(before.high, low))
        began = (low + high) / 2
        until = began + age_s
        idle = [(began + start / 1e6, until if end is None else began + end / 1e6) for start, end in told["pauses_us"]]
        # It processed packets between two pauses, also where these touch.
        idle = [
            (start, min(end, after - _INSTANT_S)) for (start, end), (after, _) in itertools.pairwise([*idle, _NEVER])
        ]
        known_from = idle[0][0] if len(idle) >= _KEPT else began
        if before is not None:
            earlier = [*before.idle, (before.until, began)] if not is_same else before.idle
            idle = [*_within(earlier, since, known_from), *idle]
        elif began > since:
            idle = [(since, began), *idle]
        return cls(low, high, until, idle)

    @classmethod
    def loaded(cls, kept: dict[str, Any]) -> Self:
        """Restore the `vars` of another one."""
        return cls(kept["low"], kept["high"], kept["until"], [(start, end) for start, end in kept["idle"]])

    def own_pause_s(self, before: float) -> float | None:
        """Return the longest pause that traffic and machine make by themselves; None: no traffic.

        This is five times the pause that most likely contains a random moment before that time, or twice the
        fifth-longest pause: a busy machine stops all its processes for a moment, again and again.
        """
        # Until its first packet, the migration that started it had it wait.
        served_from = next((end for start, end in self.idle if start <= self.high < end), self.high)
        starts = [max(before - each, served_from) for each in _BEFORE_S]
        found = [usual for start in starts if (usual := self._usual_within(start, before)) is not None]
        if not found:
            return None
        usual_s = next((each.pause_s for each in found if each.is_certain), found[0].pause_s)
        pauses = sorted(end - start for start, end in _within(self.idle, starts[-1], before))
        repeated_s = pauses[-_REPEATED] if len(pauses) >= _REPEATED else 0.0
        return max(_TRAFFICS_OWN * usual_s, _MACHINES_OWN * min(repeated_s, _RARE_S))

    def _usual_within(self, start: float, end: float) -> "_Usual | None":
        """Return the usual pause: one that recurs, for another one may have been an outage, too."""
        pauses = sorted(stop - begin for begin, stop in _within(self.idle, start, end))
        length_s = end - start
        while pauses and sum(each >= pauses[-1] / 2 for each in pauses) < _RECURS:
            length_s -= pauses.pop()
        if length_s < _ENOUGH_S:
            return None
        is_certain = length_s > (end - start) / 2
        left = length_s / 2
        for pause in reversed(pauses):
            left -= pause
            if left <= 0:
                return _Usual(pause, is_certain) if pause < min(_RARE_S, length_s) else None
        return _Usual(0.0, is_certain)

    def idle_until(self, now: float) -> list[Interval]:
        """Return its idle times up to now; it counts as idle since its last answer."""
        return union([*_within(self.idle, float("-inf"), now), (min(self.until, now), now)])


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union, oldest first, in pieces that do not touch."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def common(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Return the intersection; both inputs are sorted and do not overlap."""
    found: list[Interval] = []
    at = 0
    for start, end in one:
        while at < len(other) and other[at][1] <= start:
            at += 1
        for begin, stop in itertools.takewhile(lambda each, end=end: each[0] < end, itertools.islice(other, at, None)):
            found.append((max(start, begin), min(end, stop)))
    return found


def _within(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    return [(max(a, start), min(b, end)) for a, b in intervals if min(b, end) > max(a, start)]
