"""A clock that stands still until somebody waits."""

import heapq
import itertools
from collections.abc import Callable

_START = 1_000_000_000.0


class Clock:
    """Time of a made-up world, in seconds; it takes the place of the module ``time``'s functions."""

    def __init__(self) -> None:
        self.now = _START
        self._due: list[tuple[float, int, str, Callable[[], None]]] = []
        self._ticking: set[str] = set()
        self._order = itertools.count()

    def read(self) -> float:
        """Return the time now: both of ``time.time`` and ``time.monotonic``."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass, and do what is due meanwhile."""
        end = self.now + max(seconds, 0.0)
        while self._due and self._due[0][0] <= end:
            self.now, _, _, act = heapq.heappop(self._due)
            act()
        self.now = max(self.now, end)

    def at(self, seconds: float, what: str, act: Callable[[], None]) -> None:
        """Have something, which has a name, done in some seconds."""
        heapq.heappush(self._due, (self.now + seconds, next(self._order), what, act))

    def tick(self, what: str, seconds: float, act: Callable[[], bool]) -> None:
        """Have something done again and again, from some seconds from now on, for as long as it returns True."""
        if what in self._ticking:
            return

        def once() -> None:
            self._ticking.discard(what)
            if act():
                self.tick(what, seconds, act)

        self._ticking.add(what)
        self.at(seconds, what, once)

    def expected(self) -> list[tuple[float, str]]:
        """What is due, when, and its name, without what is done again and again."""
        return [(when, what) for when, _, what, _ in self._due if what not in self._ticking]

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now - _START

    @property
    def is_expecting(self) -> bool:
        """Whether something is due later."""
        return len(self._due) > len(self._ticking)
