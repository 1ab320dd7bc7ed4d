"""The counts of ``uno-lab demo --chain``, and their verdict."""

from dataclasses import dataclass, field
from typing import Any

from lab.checks import Check
from lab.http_report import HttpReport
from lab.tally import StreamReport

_SHOWN = 3
_BETWEEN = 0.5
"""Part of a hop's packets that the next one must have got at least: counters are read at slightly different times."""


@dataclass(frozen=True)
class Passage:
    """Packets into each function meanwhile, by its name: from the clients, and from the load balancer back."""

    tenant: str
    inward: dict[str, int]
    outward: dict[str, int]

    @property
    def holds(self) -> bool:
        """Tell whether every hop got packets, both ways, and about as many as the first."""
        ways = (list(self.inward.values()), list(self.outward.values()))
        return all(way[0] > 0 and min(way) >= _BETWEEN * way[0] for way in ways)

    def __str__(self) -> str:
        """Return one line."""
        ways = (" -> ".join(f"{name} {count}" for name, count in way.items()) for way in (self.inward, self.outward))
        return f"{self.tenant}: {'; back '.join(ways)} packets"


@dataclass
class Summary:
    """The counts of the story.

    Attributes:
        guard: the kind of the first function.
        hosts: addresses that each tenant's monitor has found.
        move: as REST shows it.
    """

    guard: str = ""
    passages: list[Passage] = field(default_factory=list)
    hosts: dict[str, list[str]] = field(default_factory=dict)
    move: dict[str, Any] = field(default_factory=dict)
    streams: dict[str, StreamReport] = field(default_factory=dict)
    reports: dict[str, HttpReport] = field(default_factory=dict)

    def check(self) -> Check:
        """Check that nothing was lost."""
        counts, failures = self.figures(), [each for report in self.reports.values() for each in report.failures]
        wrong = sum(counts[name] for name in ("failed", "lost", "duplicated", "reordered"))
        detail = f"{counts['failed']} of {counts['requests']} requests failed; of {counts['packets']} packets"
        detail += f" {counts['lost']} lost, {counts['duplicated']} duplicated, {counts['reordered']} reordered"
        for each in failures[:_SHOWN]:
            detail += f"\n{each.kind} connection, after {each.ended - each.began:.2f} s: {each.why}"
        return Check("every request and packet counted", wrong == 0 and counts["packets"] > 0, detail, counts)

    def figures(self) -> dict[str, Any]:
        """For --format=json."""
        streams, report = self.streams.values(), self.move.get("report", {})
        return {
            "guard": self.guard,
            "requests": sum(each.sent for each in self.reports.values()),
            "failed": sum(len(each.failures) for each in self.reports.values()),
            "packets": sum(each.sent or 0 for each in streams),
            "lost": sum(each.lost or 0 for each in streams),
            "duplicated": sum(each.duplicated for each in streams),
            "reordered": sum(each.reordered for each in streams),
            "hops": {each.tenant: {"inward": each.inward, "outward": each.outward} for each in self.passages},
            "hosts": self.hosts,
            "freeze_us": report.get("freeze_us"),
            "state_bytes": report.get("state_bytes"),
        }

    def numbers(self) -> list[tuple[str, str]]:
        """Return the counts for people."""
        counts = self.figures()
        lost = f"{counts['lost']} lost, {counts['duplicated']} duplicated, {counts['reordered']} reordered"
        rows = [
            ("HTTP requests", f"{counts['requests']} sent, {counts['failed']} failed"),
            ("numbered packets", f"{counts['packets']} sent, {lost}"),
        ]
        rows += [(f"hops of {each.tenant}", str(each).partition(": ")[2]) for each in self.passages]
        rows += [(f"found for {tenant}", ", ".join(hosts)) for tenant, hosts in self.hosts.items()]
        if counts["freeze_us"] is not None:
            state = counts["state_bytes"] / 1e6
            rows.append(("the move", f"frozen for {counts['freeze_us'] / 1000:.2f} ms, {state:.2f} MB of state"))
        return rows
