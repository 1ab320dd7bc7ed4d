"""The counts of ``uno-lab tiara``, and their verdict."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.checks import Check

EVICTED, FULL = (f'operations{{outcome="{name}"}}' for name in ("evicted", "full"))
HIT, MISS, SLOW = (f'packets{{event="{name}"}}' for name in ("hit", "miss", "slow path only"))


@dataclass(frozen=True)
class Event:
    """A part that failed.

    Attributes:
        name: what happened.
        sent, failed: requests meanwhile.
        allowed: failures that it explains: connections of the server that failed.
    """

    name: str
    sent: int
    failed: int
    allowed: int

    @property
    def lost(self) -> int:
        """Count the failures of other parts."""
        return max(self.failed - self.allowed, 0)


@dataclass
class Summary:
    """The counts of the story.

    Attributes:
        fast_share: of the packets of established connections, while nothing fails.
        flooded_share: the same, during a flood of SYNs.
        evicted: entries that gave their place to other connections, in a table that is too small.
        events: in order.
        sent, failed: requests of the whole story.
    """

    fast_share: float | None = None
    flooded_share: float | None = None
    evicted: int | None = None
    events: list[Event] = field(default_factory=list)
    sent: int = 0
    failed: int = 0

    @property
    def lost(self) -> int:
        """Count the requests that no failure of their own server explains."""
        explained = sum(event.failed - event.lost for event in self.events)
        return self.failed - explained

    def check(self) -> Check:
        """Check that nothing was lost."""
        with_servers = self.failed - self.lost
        detail = f"{self.lost} of {self.sent} requests lost"
        if with_servers:
            detail += f"\n{with_servers} failed with the server that they were at"
        return Check("every request counted", not self.lost, detail, self.figures())

    def figures(self) -> dict[str, Any]:
        """For --format=json."""
        return {
            "requests": self.sent,
            "lost": self.lost,
            "failed_with_their_server": self.failed - self.lost,
            "fast_share": self.fast_share,
            "flooded_share": self.flooded_share,
            "evicted": self.evicted,
            "events": [dataclasses.asdict(event) | {"lost": event.lost} for event in self.events],
        }

    def numbers(self) -> list[tuple[str, str]]:
        """For people."""
        rows = [("HTTP requests", f"{self.sent} sent, {self.lost} lost")]
        if self.fast_share is not None:
            rows.append(("fast path", f"{100 * self.fast_share:.1f} % of the packets of established connections"))
        if self.flooded_share is not None:
            rows.append(("in a flood of SYNs", f"{100 * self.flooded_share:.1f} % of them"))
        if self.evicted is not None:
            rows.append(("small table", f"{self.evicted} idle connections gave their places to others"))
        for event in self.events:
            explained = f", {event.failed - event.lost} failed with their server" if event.failed else ""
            rows.append((event.name, f"{event.sent} requests, {event.lost} lost{explained}"))
        return rows


def share_of_hits(before: Mapping[str, float], after: Mapping[str, float], syns: int = 0) -> float:
    """Return the share of the packets between two readings of the T-NIC's counters that took the fast path.

    Args:
        before: the first reading.
        after: the second.
        syns: packets of a flood that do not count. If some of them got lost, the share may exceed 1.
    """
    hit, miss, slow = (after[name] - before[name] for name in (HIT, MISS, SLOW))
    return hit / max(hit + miss + slow - syns, 1)


def kept_at(answers: Mapping[str, int], kept: int) -> dict[str, int]:
    """Return how many kept connections each server has, at most: each connection has about as many requests."""
    total = sum(answers.values())
    return {name: -(-count * kept // max(total, 1)) for name, count in answers.items()}
