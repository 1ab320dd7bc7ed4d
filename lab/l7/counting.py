"""The counts of ``uno-lab l7``, and their verdict."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lab.checks import Check
from lab.http_report import Failure, HttpReport

_SHOWN = 3


@dataclass
class Summary:
    """The counts of the story.

    Attributes:
        load: all requests of the steady load.
        killed: from when to when the web server was being killed, in seconds since 1970.
        asked: requests of the other clients.
        wrong: what was wrong with their answers.
        unfinished: the requests that were unfinished during a move, by kind.
        moves: as REST shows them.
    """

    load: HttpReport = field(default_factory=HttpReport)
    killed: tuple[float, float] | None = None
    asked: int = 0
    wrong: list[str] = field(default_factory=list)
    unfinished: Counter[str] = field(default_factory=Counter)
    moves: list[dict[str, Any]] = field(default_factory=list)

    @property
    def sent(self) -> int:
        """Count the requests of all clients."""
        return self.load.sent + self.asked + self.unfinished.total()

    @property
    def unanswered(self) -> list[Failure]:
        """Return the requests whose answer was awaited from the web server when it was killed."""
        if self.killed is None:
            return []
        begin, end = self.killed
        return [each for each in self.load.failures if each.began <= end and begin <= each.ended]

    @property
    def lost(self) -> list[str]:
        """Describe every other request without a right answer."""
        unanswered = self.unanswered
        failures = [each for each in self.load.failures if each not in unanswered]
        return self.wrong + [
            f"{each.kind} connection, after {each.ended - each.began:.2f} s: {each.why}" for each in failures
        ]

    def check(self) -> Check:
        """Check that nothing was lost."""
        detail = f"{len(self.lost)} of {self.sent} requests lost"
        if self.unanswered:
            detail += f"\n{len(self.unanswered)} failed because the killed web server had not answered yet"
        for each in self.lost[:_SHOWN]:
            detail += f"\n{each}"
        return Check("every request counted", not self.lost, detail, self.figures())

    def figures(self) -> dict[str, Any]:
        """For --format=json."""
        return {
            "requests": self.sent,
            "lost": len(self.lost),
            "unanswered_by_killed_server": len(self.unanswered),
            "unfinished_in_moves": dict(self.unfinished),
            "moves": len(self.moves),
            "freeze_us": [each["report"].get("freeze_us") for each in self.moves],
        }

    def numbers(self) -> list[tuple[str, str]]:
        """For people."""
        figures = self.figures()
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.unfinished.items())
        rows = [
            ("HTTP requests", f"{figures['requests']} sent, {figures['lost']} lost"),
            ("unfinished in moves", kinds or "none"),
        ]
        for move in self.moves:
            freeze = move["report"].get("freeze_us")
            frozen = "frozen for an unknown time" if freeze is None else f"frozen for {freeze / 1000:.2f} ms"
            rows.append((f"move to {move['target']}", frozen))
        return rows
