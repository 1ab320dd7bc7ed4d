"""The tally of faults: outages, whether people were shown them, and when they ended."""

from dataclasses import asdict, dataclass, field
from typing import Any

from lab.chaos.faults import Round
from lab.chaos.watch import SHOWN_S

ENDED_S = 15.0


@dataclass(frozen=True)
class ShownOutage:
    """An outage, and how people were shown it.

    Attributes:
        after_s: when it began, after the faults.
        out_s: how long it lasted; None: it had not ended when the wait for its end was over.
        late_s: how long after the last fault was mended it ended; 0: before; None: as ``out_s``.
        shown_s: after how many seconds each channel showed a fault, by channel.
        advice: what a person was told to do after `ENDED_S`.
        told_s: when doctor, asked after `ENDED_S`, had answered; 0: it was not asked. An outage that ended meanwhile
            needs no advice.
    """

    after_s: float
    out_s: float | None
    late_s: float | None
    shown_s: dict[str, float] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    told_s: float = 0.0

    @property
    def is_long(self) -> bool:
        """Tell whether it has to be shown."""
        return self.out_s is None or self.out_s > SHOWN_S

    @property
    def is_late(self) -> bool:
        """Tell whether it went on for too long after its cause was mended, or a person was not told what to do."""
        if self.out_s is None or self.late_s is None or self.late_s > ENDED_S:
            return True
        return self._lacks_advice(self.out_s)

    def _lacks_advice(self, out_s: float) -> bool:
        return out_s > max(ENDED_S, self.told_s) and not self.advice

    def __str__(self) -> str:
        text = "no request was answered any more" if self.out_s is None else f"out for {self.out_s:.1f} s"
        if self.out_s is not None and self._lacks_advice(self.out_s):
            text += "; no person was told what to do"
        return text


@dataclass(frozen=True)
class Outcome:
    """The result of a round of faults.

    Attributes:
        mended_s: when a person mended the last fault, in seconds after the first one began.
        outages: of the service, without those of less than a second.
        shown_s: after how many seconds each channel showed a fault, by channel.
        troubles: why a fault could not happen, or be mended.
        calm: whether dashboard, metrics and list of faults knew no fault in the end.
    """

    round: Round
    mended_s: float
    outages: tuple[ShownOutage, ...] = ()
    shown_s: dict[str, float] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    calm: bool = True

    @property
    def silent(self) -> list[str]:
        """Return the channels that showed an outage, of the service or of a part, late or never."""
        long = [each.shown_s for each in self.outages if each.is_long]
        long += [self.shown_s] if self.round.lasting else []
        return [name for name in self.round.channels if any(each.get(name, SHOWN_S + 1) > SHOWN_S for each in long)]

    @property
    def longest_s(self) -> float:
        """Return the length of the longest outage that ended."""
        return max((each.out_s or 0.0 for each in self.outages), default=0.0)

    @property
    def holds(self) -> bool:
        """Tell whether all is as promised."""
        return self.calm and not self.troubles and not self.silent and not any(each.is_late for each in self.outages)

    def __str__(self) -> str:
        texts = [str(each) for each in self.outages] or ["served all the time"]
        texts += self.troubles
        if self.silent:
            texts.append(f"not shown within {SHOWN_S:g} s by {', '.join(self.silent)}")
        if not self.calm:
            texts.append("a fault is still shown")
        return f"{self.round}, mended after {self.mended_s:.1f} s: {'; '.join(texts)}"


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

    @property
    def faults(self) -> int:
        """Return how many faults there were."""
        return sum(len(each.round.faults) for each in self.outcomes)

    def rows(self) -> list[tuple[str, str]]:
        """Return a line for each kind of fault: how often, in how many rounds with an outage, the longest of them."""
        found: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            for each in outcome.round.faults:
                found.setdefault(str(each), []).append(outcome)
        return [(name, _row(outcomes)) for name, outcomes in sorted(found.items())]

    def document(self) -> dict[str, Any]:
        """Return all of it for ``--format=json``."""
        rounds = [asdict(each) | {"silent": each.silent, "holds": each.holds} for each in self.outcomes]
        return {
            "seed": self.seed,
            "faults": self.faults,
            "outages": sum(len(each.outages) for each in self.outcomes),
            "silent": sum(bool(each.silent) for each in self.outcomes),
            "sent": self.sent,
            "answered": self.answered,
            "rounds": rounds,
        }


def _row(outcomes: list[Outcome]) -> str:
    out = [each for each in outcomes if each.outages]
    longest = max((each.longest_s for each in out), default=0.0)
    bad = sum(not each.holds for each in outcomes)
    return f"{len(outcomes)} times, {len(out)} with outages, the longest {longest:.1f} s, {bad} not as promised"
