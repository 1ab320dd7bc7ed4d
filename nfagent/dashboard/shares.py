"""Shares of something, as bars."""

from dataclasses import dataclass
from typing import Literal

from nfagent.dashboard import figures

Level = Literal["calm", "high", "full"]

_HIGH, _FULL = 70, 90  # percent


@dataclass(frozen=True)
class Bar:
    """A share of something.

    Attributes:
        percent: width, from 0 to 100.
        text: the figure, which may exceed 100 %.
    """

    percent: int
    text: str

    @classmethod
    def of(cls, part: float, whole: float) -> "Bar":
        """Compute a share; 0 of 0 is 0."""
        share = part / whole if whole > 0 else 0.0
        return cls(max(0, min(100, round(100 * share))), figures.percent(share))

    @property
    def level(self) -> Level:
        """Return how close it is to its limit."""
        return "full" if self.percent >= _FULL else "high" if self.percent >= _HIGH else "calm"
