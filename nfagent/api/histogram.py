"""Histograms for Prometheus. Thread-safe."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from nfagent.api.exposition import labels

SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Limits for answers to requests."""

WIDE_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
"""Limits for steps of migrations, from a freeze of microseconds to a step that waits."""


@dataclass
class _Series:
    counts: list[int]
    total: float = 0.0


@dataclass
class Histogram:
    """Durations in seconds, by labels.

    Attributes:
        name: without ``nfagent_``.
        what: help text.
        limits: upper limits of the buckets, ascending; a last one has none.
    """

    name: str
    what: str
    limits: Sequence[float]
    _series: dict[str, _Series] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, seconds: float, **names: str) -> None:
        """Count a duration in the series with these labels."""
        with self._lock:
            series = self._series.setdefault(labels(**names), _Series([0] * (len(self.limits) + 1)))
            series.counts[bisect_left(self.limits, seconds)] += 1
            series.total += seconds

    def text(self) -> str:
        """Format all series; nothing without one."""
        with self._lock:
            if not self._series:
                return ""
            full = f"nfagent_{self.name}"
            lines = [f"# HELP {full} {self.what}", f"# TYPE {full} histogram"]
            for named, series in sorted(self._series.items()):
                lines += _lines(full, named, self.limits, series)
        return "\n".join(lines) + "\n"


def _lines(full: str, named: str, limits: Sequence[float], series: _Series) -> list[str]:
    lines, below = [], 0
    for limit, count in zip([*map(str, limits), "+Inf"], series.counts, strict=True):
        below += count
        lines.append(f"{full}_bucket{{{','.join(filter(None, (named, labels(le=limit))))}}} {below}")
    braced = f"{{{named}}}" if named else ""
    return [*lines, f"{full}_sum{braced} {series.total:.6f}", f"{full}_count{braced} {below}"]
