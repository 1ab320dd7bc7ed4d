"""The fate of HTTP requests. Pure arithmetic; `lab.http_load` feeds it.

A request counts in the phase in which it began. Times are seconds since 1970.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

_DELAYS_MAX = 100_000

Kind = Literal["kept", "new"]
"""Over a kept connection, or over one of its own."""


@dataclass(frozen=True)
class Failure:
    """A request without a complete answer.

    Attributes:
        began, ended: when.
        opened: when its connection was opened; None: it could not be.
        why: the error, in words.
    """

    kind: Kind
    began: float
    ended: float
    opened: float | None
    why: str


@dataclass
class Count:
    """Counts of the requests of one kind in one phase.

    Attributes:
        skipped: due, but not sent because all kept connections were busy.
        first_answer: when the first was answered; None: never.
        delays_ms: of the first 100,000 answered ones.
        answers: answered ones, by request and by the server that answered.
    """

    sent: int = 0
    answered: int = 0
    skipped: int = 0
    first_answer: float | None = None
    delays_ms: list[float] = field(default_factory=list)
    answers: dict[str, dict[str, int]] = field(default_factory=dict)

    def answered_by(self, request: str, server: str) -> None:
        """Count the server of an answer."""
        servers = self.answers.setdefault(request, {})
        servers[server] = servers.get(server, 0) + 1

    def took(self, began: float, ended: float) -> None:
        """Count an answered request."""
        self.answered += 1
        if len(self.delays_ms) < _DELAYS_MAX:  # a load may run for days
            self.delays_ms.append(round((ended - began) * 1000, 2))
        if self.first_answer is None:
            self.first_answer = ended

    def delay_ms(self, share: float) -> float:
        """Return a percentile, such as 0.99; 0 without answers."""
        ordered = sorted(self.delays_ms)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2) if ordered else 0.0


@dataclass
class HttpReport:
    """The result of a load.

    Attributes:
        phases: by name, in order; in each, counts by kind.
        failures: all of them.
    """

    phases: dict[str, dict[Kind, Count]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def sent(self) -> int:
        """Requests."""
        return sum(count.sent for counts in self.phases.values() for count in counts.values())

    @property
    def answered(self) -> int:
        """Count the requests with a complete answer."""
        return sum(count.answered for counts in self.phases.values() for count in counts.values())

    def failed_within(self, begin: float, end: float) -> list[Failure]:
        """Return the failures that an outage explains.

        Args:
            begin: of the outage. A connection that was open then may have lost its state for good.
            end: when a request that began after ``begin`` was answered.
        """
        return [
            failure
            for failure in self.failures
            if failure.ended >= begin
            and (failure.began <= end or (failure.opened is not None and failure.opened <= end))
        ]

    def to_json(self) -> dict[str, Any]:
        """Convert to plain dicts, lists, strings and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore what `to_json` returned."""
        phases = {
            name: {kind: Count(**count) for kind, count in counts.items()} for name, counts in data["phases"].items()
        }
        return cls(phases, [Failure(**each) for each in data["failures"]])


def by_server(answers: dict[str, dict[str, int]], *requests: str) -> dict[str, int]:
    """Count the answers of each server, to these requests or to all."""
    found: Counter[str] = Counter()
    for request, servers in answers.items():
        if not requests or request in requests:
            found.update(servers)
    return dict(sorted(found.items()))


def told(servers: dict[str, int]) -> str:
    """Describe what `by_server` returned."""
    return ", ".join(f"{name} {count}" for name, count in servers.items()) or "no answers"
