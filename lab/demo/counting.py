"""The demo's counts, and their verdict."""

from dataclasses import dataclass, field
from typing import Any

from lab.checks import Check
from lab.demo.balancer import moment
from lab.http_report import Failure, HttpReport
from lab.tally import StreamReport

_SHOWN = 3
_MARGIN_S = 1.0


@dataclass
class Summary:
    """The counts of the story.

    Attributes:
        overflowed: frames dropped because a port's receive buffer was full, by switch and port.
        moves: the planned ones, as REST shows them.
        migrations: all of them.
        outside, second, again: of the client behind the sNIC's wire, of the other one, of the first after power
        returned.
        killed, back: when the sNIC died, and when a request that began after that was answered, in seconds since 1970.
        host_cores_before, host_cores_after, nic_cores_after: CPU seconds per second of the NFs, under the same traffic.
    """

    overflowed: dict[str, dict[str, int]] = field(default_factory=dict)
    moves: list[dict[str, Any]] = field(default_factory=list)
    migrations: list[dict[str, Any]] = field(default_factory=list)
    outside: HttpReport = field(default_factory=HttpReport)
    second: HttpReport = field(default_factory=HttpReport)
    again: HttpReport = field(default_factory=HttpReport)
    stream: StreamReport | None = None
    killed: float | None = None
    back: float | None = None
    host_cores_before: float | None = None
    host_cores_after: float | None = None
    nic_cores_after: float | None = None

    @property
    def sent(self) -> int:
        """Count the HTTP requests of all clients."""
        return sum(report.sent for report in (self.outside, self.second, self.again))

    @property
    def failed_inside(self) -> list[Failure]:
        """Return the failed requests that the sNIC's death explains."""
        if self.killed is None:
            return []
        return self.second.failed_within(self.killed, self.back if self.back is not None else float("inf"))

    @property
    def failed_outside(self) -> list[Failure]:
        """Return the failed requests without an explanation."""
        inside = self.failed_inside
        unexplained = [each for each in self.second.failures if each not in inside]
        return self.outside.failures + self.again.failures + unexplained

    @property
    def flaps(self) -> int:
        """Count unplanned migrations before the sNIC died; after power returns, traffic may justify another one."""
        known = [move["epoch"] for move in self.moves]
        died = self.killed if self.killed is not None else float("inf")
        return sum(each["epoch"] not in known and moment(each["requested"]) < died for each in self.migrations)

    @property
    def lost_in_moves(self) -> int:
        """Count packets missing from the time of the planned moves."""
        times = [(moment(move["requested"]) - _MARGIN_S, moment(move["ended"]) + _MARGIN_S) for move in self.moves]
        holes = self.stream.holes if self.stream else []
        return sum(count for count, at in holes if any(begin <= at <= end for begin, end in times))

    @property
    def lost_else(self) -> int:
        """Count packets missing from any other time."""
        return (self.stream.lost or 0) - self.lost_in_moves if self.stream else 0

    def check(self) -> Check:
        """Check that nothing was lost unexpectedly."""
        stream, failed = self.stream, self.failed_outside
        no_room = sum(count for ports in self.overflowed.values() for count in ports.values())
        holds = not failed and stream is not None and not stream.duplicated and not stream.reordered
        holds = holds and not self.lost_in_moves and self.lost_else <= no_room and not self.flaps
        detail = f"{len(failed)} of {self.sent} requests failed outside of the sNIC's death"
        if stream:
            detail += f", {self.lost_in_moves} packets lost in moves"
            detail += f", {stream.duplicated} duplicated, {stream.reordered} reordered"
        if self.flaps:
            detail += f"\nit moved {self.flaps} more times than its traffic justified"
        for each in failed[:_SHOWN]:
            detail += f"\n{each.kind} connection, after {each.ended - each.began:.2f} s: {each.why}"
        for switch, ports in self.overflowed.items():
            for port, count in ports.items():
                detail += f"\n{count} frames overflowed the buffer of {port} of {switch}: this machine is busy"
        if self.lost_else:
            detail += f"\n{self.lost_else} packets are missing from times without a move"
        return Check("every request and packet counted", holds, detail, self.figures())

    def figures(self) -> dict[str, Any]:
        """For --format=json."""
        outage = None if self.back is None or self.killed is None else round(self.back - self.killed, 2)
        return {
            "requests": self.sent,
            "failed": len(self.failed_outside),
            "failed_in_outage": len(self.failed_inside),
            "outage_s": outage,
            "packets": self.stream.sent if self.stream else 0,
            "lost": self.stream.lost if self.stream else None,
            "lost_in_moves": self.lost_in_moves,
            "duplicated": self.stream.duplicated if self.stream else None,
            "reordered": self.stream.reordered if self.stream else None,
            "moves": len(self.moves),
            "flaps": self.flaps,
            "freeze_us": [move["report"].get("freeze_us") for move in self.moves],
            "host_cores": [_rounded(self.host_cores_before), _rounded(self.host_cores_after)],
            "nic_cores": _rounded(self.nic_cores_after),
            "delays_ms": {"out1": _delays(self.outside), "out2": _delays(self.second)},
        }


def _delays(report: HttpReport) -> dict[str, dict[str, float]]:
    found = {}
    for name, counts in report.phases.items():
        both = counts["new"]
        if both.answered:
            found[name] = {"p50": both.delay_ms(0.5), "p99": both.delay_ms(0.99)}
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
