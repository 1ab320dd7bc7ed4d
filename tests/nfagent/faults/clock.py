"""A clock that advances only when something waits."""

import heapq
import itertools
from collections.abc import Callable

_START = 1_000_000_000.0


class Clock:
    """Time of a simulated world, in seconds; replaces the functions of the module ``time``."""

    def __init__(self) -> None:
        self.now = _START
        self._due: list[tuple[float, int, str, Callable[[], None]]] = []
        self._ticking: set[str] = set()
        self._order = itertools.count()

    def read(self) -> float:
        """Return the time now: both of ``time.time`` and ``time.monotonic``."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the time and run actions that are due meanwhile."""
        end = self.now + max(seconds, 0.0)
        while self._due and self._due[0][0] <= end:
            self.now, _, _, act = heapq.heappop(self._due)
            act()
        self.now = max(self.now, end)

    def at(self, seconds: float, what: str, act: Callable[[], None]) -> None:
        """Schedule a named action in some seconds."""
        heapq.heappush(self._due, (self.now + seconds, next(self._order), what, act))

    def tick(self, what: str, seconds: float, act: Callable[[], bool]) -> None:
        """Schedule a repeated action, starting in some seconds, as long as it returns True."""
        if what in self._ticking:
            return

        def once() -> None:
            self._ticking.discard(what)
            if act():
                self.tick(what, seconds, act)

        self._ticking.add(what)
        self.at(seconds, what, once)

    def expected(self) -> list[tuple[float, str]]:
        """Return scheduled actions with their times and names, without repeated ones."""
        return [(when, what) for when, _, what, _ in self._due if what not in self._ticking]

    @property
    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return self.now - _START

    @property
    def is_expecting(self) -> bool:
        """Tell whether anything is scheduled."""
        return len(self._due) > len(self._ticking)
