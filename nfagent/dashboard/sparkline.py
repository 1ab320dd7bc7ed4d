"""A figure over the last minutes, as the path of a small SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 120, 24

Samples = Sequence[tuple[float, float]]
"""Times, ascending, with the figure at each."""


@dataclass(frozen=True)
class Range:
    """The time from the left edge to the right one, and the seconds of which the mean is drawn as a point."""

    window_s: float
    bucket_s: float


RECENT = Range(300.0, 5.0)
DAY = Range(86_400.0, 900.0)


@dataclass(frozen=True)
class Sparkline:
    """Paths in a box of `WIDTH` x `HEIGHT`; time goes from left to right, the right edge is the newest sample.

    Attributes:
        line: interrupted where nothing was measured.
        area: below it.
    """

    line: str
    area: str


def draw(samples: Samples, end: float, ceiling: float, over: Range = RECENT) -> Sparkline | None:
    """Draw the samples.

    Args:
        samples: drawn as means of buckets, so that the shape stays constant while it moves.
        end: the time at the right edge.
        ceiling: the figure at the upper edge.
        over: the time range.

    Returns:
        None with fewer than two points.
    """
    runs = _runs(samples, end, over)
    if ceiling <= 0 or sum(len(run) for run in runs) < 2:
        return None
    line, area = [], []
    for run in runs:
        points = [(_across(at, end, over), _up(value, ceiling)) for at, value in run]
        drawn = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        line.append(f"M{drawn}")
        area.append(f"M{points[0][0]:.1f} {HEIGHT}L{drawn}L{points[-1][0]:.1f} {HEIGHT}Z")
    return Sparkline("".join(line), "".join(area))


def _runs(samples: Samples, end: float, over: Range) -> list[list[tuple[float, float]]]:
    """Return means of the buckets, each at its last sample's time, in runs without a gap."""
    buckets: dict[int, list[tuple[float, float]]] = {}
    for at, value in samples:
        if end - over.window_s < at <= end:
            buckets.setdefault(int(at // over.bucket_s), []).append((at, value))
    runs: list[list[tuple[float, float]]] = []
    previous = None
    for number, found in buckets.items():
        if previous is None or number > previous + 1:
            runs.append([])
        runs[-1].append((found[-1][0], sum(value for _, value in found) / len(found)))
        previous = number
    return runs


def _across(at: float, end: float, over: Range) -> float:
    return WIDTH * max(0.0, 1 - (end - at) / over.window_s)


def _up(value: float, ceiling: float) -> float:
    # Leave a pixel at both edges, which would cut off half of the line's width.
    return 1 + (HEIGHT - 2) * (1 - min(max(value / ceiling, 0.0), 1.0))
