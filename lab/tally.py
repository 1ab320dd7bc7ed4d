"""The fate of a stream's frames. Pure arithmetic; `lab.stream` feeds it."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Self

_GAPS_MAX = 10_000
_HOLES_MAX = 100


@dataclass(frozen=True)
class StreamReport:
    """The result of a stream.

    Attributes:
        sent: data frames sent; None if neither the sender nor its last frames reported it.
        received: distinct data frames that arrived.
        lost: sent but never arrived; None if ``sent`` is.
        duplicated: repeated arrivals of a frame.
        reordered: frames that arrived after one with a higher number.
        longest_gap_ms: the longest time between consecutive arrivals, without duplicates.
        longest_pause_ms: the longest time between two frames at the sender; the network is not to blame for a gap of
            that length. None if unknown.
        delay_mean_ms, delay_max_ms: from the sender's clock to the arrival in the receiver's kernel.
        overflowed: frames lost to a full buffer of the receiver's own socket; they also count as lost.
        by_interface: arrivals at each of the receiver's interfaces.
        holes: gaps: number of missing frames, and when the next one was sent, in seconds since 1970. The first 100
            gaps; frames missing at the end are not included.
    """

    sent: int | None
    received: int
    lost: int | None
    duplicated: int
    reordered: int
    longest_gap_ms: float
    longest_pause_ms: float | None = None
    delay_mean_ms: float = 0.0
    delay_max_ms: float = 0.0
    overflowed: int = 0
    by_interface: dict[str, int] = field(default_factory=dict)
    holes: list[tuple[int, float]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain numbers, strings and dicts."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore what `to_json` returned."""
        return cls(**{**data, "holes": [(count, at) for count, at in data["holes"]]})

    def with_sender(self, sent: int, longest_pause_ms: float) -> "StreamReport":
        """Return the report with the sender's figures."""
        known = {"sent": sent, "lost": sent - self.received, "longest_pause_ms": longest_pause_ms}
        return StreamReport(**{**asdict(self), **known})


class Tally:
    """Counts arrivals.

    Example:
        >>> tally = Tally()
        >>> for number, at_ms in [(0, 0), (2, 1), (1, 2), (1, 3), (4, 20)]:
        ...     tally.arrived(number, at_ms * 1_000_000, at_ms * 1_000_000, "eth0")
        >>> report = tally.report(sent=5)
        >>> report.lost, report.duplicated, report.reordered, report.longest_gap_ms
        (1, 1, 1, 18.0)
    """

    def __init__(self) -> None:
        self._seen = bytearray()
        self._highest = -1
        self._last_ns: int | None = None
        self._longest_gap_ns = 0
        self._received = self._duplicated = self._reordered = 0
        self._delay_sum_ns = self._delay_max_ns = 0
        self._by_interface: Counter[str] = Counter()
        self._gaps: list[tuple[int, int, int]] = []

    def arrived(self, number: int, sent_ns: int, at_ns: int, interface: str) -> None:
        """Count an arrival.

        Args:
            number: of the frame, from 0.
            sent_ns: by the sender's clock.
            at_ns: when it arrived, by the same clock.
            interface: its interface.
        """
        self._by_interface[interface] += 1
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 4096 - len(self._seen)))
        if self._seen[number]:
            self._duplicated += 1
            return
        self._seen[number] = 1
        self._received += 1
        if number < self._highest:
            self._reordered += 1
        else:
            if number > self._highest + 1 and len(self._gaps) < _GAPS_MAX:
                self._gaps.append((self._highest + 1, number, sent_ns))
            self._highest = number
        if self._last_ns is not None:
            self._longest_gap_ns = max(self._longest_gap_ns, at_ns - self._last_ns)
        self._last_ns = at_ns
        delay = at_ns - sent_ns
        self._delay_sum_ns += delay
        self._delay_max_ns = max(self._delay_max_ns, delay)

    def report(self, sent: int | None, overflowed: int = 0) -> StreamReport:
        """Return the result, given the number of sent frames."""
        return StreamReport(
            sent=sent,
            received=self._received,
            lost=None if sent is None else sent - self._received,
            duplicated=self._duplicated,
            reordered=self._reordered,
            longest_gap_ms=self._longest_gap_ns / 1e6,
            delay_mean_ms=round(self._delay_sum_ns / max(1, self._received) / 1e6, 3),
            delay_max_ms=round(self._delay_max_ns / 1e6, 3),
            overflowed=overflowed,
            by_interface=dict(self._by_interface),
            holes=self._holes(),
        )

    def _holes(self) -> list[tuple[int, float]]:
        """Return the frames still missing from known gaps."""
        missing = ((self._seen[first:end].count(0), sent_ns / 1e9) for first, end, sent_ns in self._gaps)
        return [(count, at) for count, at in missing if count][:_HOLES_MAX]
