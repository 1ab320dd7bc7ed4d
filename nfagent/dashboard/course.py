"""Figures over the last minutes and over the last day, as small charts."""

from collections.abc import Sequence
from dataclasses import dataclass

from nfagent.dashboard import sparkline
from nfagent.dashboard.snapshot import Snapshot
from nfagent.dashboard.sparkline import DAY, Sparkline
from nfagent.measurement import Step
from nfagent.monitor.day import STEP_S


@dataclass(frozen=True)
class Course:
    """A figure's course; None: fewer than two points.

    Attributes:
        recent: of five minutes.
        day: of 24 hours.
    """

    recent: Sparkline | None
    day: Sparkline | None


def course(known: Snapshot, series: str, samples: list[tuple[float, float]], ceiling: float = 0.0) -> Course:
    """Draw a figure.

    Args:
        known: the server.
        series: its name in the store.
        samples: of the last minutes.
        ceiling: the figure at the upper edge; 0: the largest one.
    """
    most = ceiling or max((value for _, value in samples), default=0.0)
    # A series of zeros counts, too: a line at the bottom.
    recent = sparkline.draw(samples, known.measured.at, most or 1.0) if known.measured else None
    return Course(recent, _day(known.day.get(series, ()), known.at, ceiling))


def _day(steps: Sequence[Step], now: float, ceiling: float) -> Sparkline | None:
    samples = [(float(step.at), step.mean) for step in steps]
    most = ceiling or max((value for _, value in samples), default=0.0)
    # The right edge is the last whole step, so that the drawing changes once in five minutes.
    return sparkline.draw(samples, now // STEP_S * STEP_S, most or 1.0, DAY)
