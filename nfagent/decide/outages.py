"""Tracks locations that are down, or were until recently, and must not be used."""

import time
from collections.abc import Callable, Iterable

STEADY_S = 10.0
"""A disconnected location counts as down until it has been up for this time."""


class Outages:
    """Remembers disconnected locations.

    Args:
        names: of the locations.
        is_cut_off: tells whether one is disconnected now.
        clock: seconds of a steady clock.
    """

    def __init__(
        self, names: Iterable[str], is_cut_off: Callable[[str], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._names = tuple(names)
        self._is_cut_off = is_cut_off
        self._clock = clock
        self._last: dict[str, float] = {}

    def __call__(self) -> frozenset[str]:
        """Return the names of the locations."""
        now = self._clock()
        self._last |= {name: now for name in self._names if self._is_cut_off(name)}
        self._last = {name: at for name, at in self._last.items() if now - at < STEADY_S}
        return frozenset(self._last)
