"""The remainder of a run, as a number that is equal for equal remainders."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tests.nfagent.faults.points import Point
from tests.nfagent.faults.state import Moment

_LONGEST = 12  # the longest repeated sequence, in points
_REPEATED = 3  # times


def ahead(points: Sequence[Point], moments: Sequence[Moment]) -> list[int]:
    """Return, for each point, a digest of its external state and of all later points.

    Ineffective repetitions count as two: a fault in the fifth of forty equal attempts is one in the first of them. A
    run that ends with equal attempts continues them without end.
    """
    signs = [hash((point.border, point.what, moment)) for point, moment in zip(points, moments, strict=True)]
    short, places = _without_repetitions(signs)
    numbers = _numbered(short)
    return [numbers[place] for place in places]


def _numbered(signs: list[int]) -> list[int]:
    numbers = [0] * len(signs)
    begin, period = _last_repetition(signs)
    for index in range(begin, len(signs)):
        at = begin + (index - begin) % period
        numbers[index] = hash(("again", *signs[at : at + period]))
    later: Hashable = numbers[begin] if begin < len(signs) else "end"
    for index in reversed(range(begin)):
        later = numbers[index] = hash((signs[index], later))
    return numbers


def _last_repetition(signs: list[int]) -> tuple[int, int]:
    """Return start and length of the final repetition; the run's end if it has none."""
    end = len(signs)
    for period in range(1, end // 2 + 1):
        if signs[end - period :] == signs[end - 2 * period : end - period]:
            begin = end - period
            while begin > 0 and signs[begin - 1] == signs[begin - 1 + period]:
                begin -= 1
            return begin, period
    return end, 1


def _without_repetitions(signs: list[int]) -> tuple[list[int], list[int]]:
    """The same with the first and the last of repetitions, and where each place is there."""
    places = list(range(len(signs)))
    for period in range(1, _LONGEST + 1):
        signs, moved = _without(signs, period)
        places = [moved[place] for place in places]
    return signs, places


def _without(signs: list[int], period: int) -> tuple[list[int], list[int]]:
    kept: list[int] = []
    moved = [0] * len(signs)
    at = 0
    while at < len(signs):
        same = at
        while same + period < len(signs) and signs[same + period] == signs[same]:
            same += 1
        times = (same - at + period) // period
        if same > at and times >= _REPEATED:
            last = at + (times - 1) * period
            for place in range(at, last):
                moved[place] = len(kept) + (place - at) % period
            kept += signs[at : at + period]
            at = last
        else:
            moved[at] = len(kept)
            kept.append(signs[at])
            at += 1
    return kept, moved
