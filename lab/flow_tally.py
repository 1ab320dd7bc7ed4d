"""The fate of the frames of many flows, computed from the records of their arrivals. Pure arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Arrival(NamedTuple):
    """An arrived frame: its number, flow, destination, and when it was sent and arrived (ns since 1970)."""

    number: int
    flow: int
    backend: bytes
    sent_ns: int
    arrived_ns: int

    @property
    def delay_ns(self) -> int:
        """Return its delay."""
        return self.arrived_ns - self.sent_ns


@dataclass
class FlowTally:
    """Counts in order of arrival.

    Attributes:
        received: distinct frames.
        duplicated: repeated arrivals of a frame.
        reordered: frames that arrived after a later one of their flow.
        strayed: frames that went to a different backend from the previous one of their flow.

    Example:
        >>> tally = FlowTally()
        >>> tally.add(Arrival(number, number % 2, b"", 0, 0) for number in (0, 1, 4, 2, 4, 5))
        >>> tally.received, tally.duplicated, tally.reordered, tally.lost(0, 6)
        (5, 1, 1, [3])
    """

    received: int = 0
    duplicated: int = 0
    reordered: int = 0
    strayed: int = 0
    _seen: bytearray = field(default_factory=bytearray, repr=False)
    _newest: dict[int, int] = field(default_factory=dict, repr=False)
    _backend: dict[int, bytes] = field(default_factory=dict, repr=False)

    def add(self, arrivals: Iterable[Arrival]) -> None:
        """Count arrivals."""
        for number, flow, backend, _, _ in arrivals:
            if number >= len(self._seen):
                self._seen.extend(bytes(number + 65536 - len(self._seen)))
            if self._seen[number]:
                self.duplicated += 1
                continue
            self._seen[number] = 1
            self.received += 1
            if number < self._newest.get(flow, -1):
                self.reordered += 1
            else:
                self._newest[flow] = number
            if self._backend.setdefault(flow, backend) != backend:
                self.strayed += 1
                self._backend[flow] = backend

    def lost(self, first: int, end: int) -> list[int]:
        """Return the numbers from ``first`` to before ``end`` that have not arrived."""
        known = self._seen[first:end]
        missing = [] if all(known) else [first + index for index, seen in enumerate(known) if not seen]
        return missing + list(range(max(first, len(self._seen)), end))
