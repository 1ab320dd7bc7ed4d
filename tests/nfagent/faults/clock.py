"""A clock that stands still until somebody waits."""

import heapq
import itertools
from collections.abc import Callable

_START = 1_000_000_000.0


class Clock:
    """Time of a made-up world, in seconds; it takes the place of the module ``time``'s functions."""

    def __init__(self) -> None:
        self.now = _START
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def read(self) -> float:
        """Return the time now: both of ``time.time`` and ``time.monotonic``."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass, and do what is due meanwhile."""
        end = self.now + max(seconds, 0.0)
        while self._due and self._due[0][0] <= end:
            self.now, _, act = heapq.heappop(self._due)
            act()
        self.now = max(self.now, end)

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Have something done in some seconds."""
        heapq.heappush(self._due, (self.now + seconds, next(self._order), act))

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now - _START

    @property
    def is_expecting(self) -> bool:
        """Whether something is due later."""
        return bool(self._due)
