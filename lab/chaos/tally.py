"""What became of the faults: outages, whether people were shown them, and when they ended."""

from dataclasses import asdict, dataclass, field
from typing import Any

from lab.chaos.faults import Fault
from lab.chaos.watch import CHANNELS

OUTAGE_S = 1.0
"""A shorter time without an answered request is not an outage."""
SHOWN_S, ENDED_S = 5.0, 15.0


@dataclass(frozen=True)
class Outcome:
    """What became of a fault.

    Attributes:
        out_s: until a request that began after the fault was answered; None: none was, within the time limit.
        mended_s: when a person had mended the fault, after it.
        shown_s: after how many seconds each channel showed a fault, by channel.
        calm: whether the dashboard knew no fault in the end.
    """

    fault: Fault
    out_s: float | None
    mended_s: float
    shown_s: dict[str, float] = field(default_factory=dict)
    calm: bool = True

    @property
    def is_outage(self) -> bool:
        """Tell whether requests were not answered for a while."""
        return self.out_s is None or self.out_s > OUTAGE_S

    @property
    def silent(self) -> list[str]:
        """Return the channels that showed an outage late or never. What ended before `SHOWN_S` need not be shown."""
        if not self.is_outage or (self.out_s is not None and self.out_s <= SHOWN_S):
            return []
        return [name for name in CHANNELS if self.shown_s.get(name, SHOWN_S + 1) > SHOWN_S]

    @property
    def is_late(self) -> bool:
        """Tell whether the outage went on for too long after a person had mended its cause."""
        return self.out_s is None or self.out_s - self.mended_s > ENDED_S

    @property
    def holds(self) -> bool:
        """Tell whether all is as promised."""
        return not self.silent and not self.is_late and self.calm

    def __str__(self) -> str:
        if self.out_s is None:
            text = "no request was answered any more"
        elif self.is_outage:
            text = f"out for {self.out_s:.1f} s"
        else:
            text = "served all the time"
        if self.silent:
            text += f"; not shown within {SHOWN_S:g} s by {', '.join(self.silent)}"
        if not self.calm:
            text += "; the dashboard still knows a fault"
        return f"{self.fault}, mended after {self.mended_s:.1f} s: {text}"


@dataclass
class Tally:
    """All outcomes of a series."""

    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    sent: int = 0
    answered: int = 0

    @property
    def holds(self) -> bool:
        """Tell whether all outcomes hold."""
        return all(each.holds for each in self.outcomes)

    def rows(self) -> list[tuple[str, str]]:
        """Return a line for each kind of fault: how often, outages, and the longest of them."""
        found: dict[str, list[Outcome]] = {}
        for each in self.outcomes:
            found.setdefault(str(each.fault), []).append(each)
        return [(name, _row(outcomes)) for name, outcomes in sorted(found.items())]

    def document(self) -> dict[str, Any]:
        """Return all of it for ``--format=json``."""
        outcomes = [
            asdict(each) | {"outage": each.is_outage, "silent": each.silent, "holds": each.holds}
            for each in self.outcomes
        ]
        return {"seed": self.seed, "sent": self.sent, "answered": self.answered, "faults": outcomes}


def _row(outcomes: list[Outcome]) -> str:
    outages = [each for each in outcomes if each.is_outage]
    longest = max((each.out_s or 0.0 for each in outages), default=0.0)
    silent = sum(bool(each.silent) for each in outcomes)
    return f"{len(outcomes)} times, {len(outages)} outages, the longest {longest:.1f} s, {silent} silent"
