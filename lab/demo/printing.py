"""What the demo has counted, and how it is printed."""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.checks import Check
from lab.demo.site import Site
from lab.http_report import Failure, HttpReport
from lab.tally import StreamReport

_SHOWN = 3


@dataclass
class Summary:
    """What the story has counted.

    Attributes:
        dashboard: address.
        overflowed: frames that ports' receive buffers had no room for, by switch and port.
        moves: the planned ones, as REST shows them.
        outside, second, again: of the client behind the sNIC's wire, of the other one, of the first after the revival.
        killed, back: when the sNIC died, and when a request that began after that was answered, in seconds since 1970.
        host_cores_before, host_cores_after, nic_cores_after: CPU seconds per second of the NFs, under the same traffic.
    """

    dashboard: str
    overflowed: dict[str, dict[str, int]] = field(default_factory=dict)
    moves: list[dict[str, Any]] = field(default_factory=list)
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
        """HTTP requests of all clients."""
        return sum(report.sent for report in (self.outside, self.second, self.again))

    @property
    def failed_inside(self) -> list[Failure]:
        """Requests that the sNIC's death explains."""
        if self.killed is None:
            return []
        return self.second.failed_within(self.killed, self.back if self.back is not None else float("inf"))

    @property
    def failed_outside(self) -> list[Failure]:
        """Requests that nothing explains."""
        inside = self.failed_inside
        unexplained = [each for each in self.second.failures if each not in inside]
        return self.outside.failures + self.again.failures + unexplained

    def check(self) -> Check:
        """Whether nothing was lost that should not be."""
        stream, failed = self.stream, self.failed_outside
        counts = (stream.lost, stream.duplicated, stream.reordered) if stream else None
        detail = f"{len(failed)} of {self.sent} requests failed outside of the sNIC's death"
        if counts:
            detail += ", {} packets lost, {} duplicated, {} reordered".format(*counts)
        for each in failed[:_SHOWN]:
            detail += f"\n{each.kind} connection, after {each.ended - each.began:.2f} s: {each.why}"
        for switch, ports in self.overflowed.items():
            for port, count in ports.items():
                detail += (
                    f"\n{count} frames had no room in the receive buffer of {port} of {switch}: this machine was busy"
                )
        return Check("every request and packet counted", not failed and counts == (0, 0, 0), detail, self.figures())

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
            "duplicated": self.stream.duplicated if self.stream else None,
            "reordered": self.stream.reordered if self.stream else None,
            "moves": len(self.moves),
            "freeze_us": [move["report"].get("freeze_us") for move in self.moves],
            "host_cores": [_rounded(self.host_cores_before), _rounded(self.host_cores_after)],
            "nic_cores": _rounded(self.nic_cores_after),
            "delays_ms": {"out1": _delays(self.outside), "out2": _delays(self.second)},
        }


def print_begin(console: Console, summary: Summary) -> None:
    """Say where to watch."""
    console.print(f"... watch it at {summary.dashboard}", highlight=False, soft_wrap=True)


def print_summary(console: Console, summary: Summary) -> None:
    """The numbers."""
    figures = summary.figures()
    table = Table(box=None, show_header=False, pad_edge=True)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("HTTP requests", f"{figures['requests']} sent, {figures['failed']} failed")
    if figures["outage_s"] is not None:
        lost = f"{figures['outage_s']} s without service, {figures['failed_in_outage']} requests failed"
        table.add_row("the sNIC's death", lost)
    counts = f"{figures['packets']} sent, {figures['lost']} lost, {figures['duplicated']} duplicated"
    table.add_row("numbered packets", f"{counts}, {figures['reordered']} reordered")
    for freeze in figures["freeze_us"]:
        table.add_row("planned move", "?" if freeze is None else f"frozen for {freeze / 1000:.2f} ms")
    before, after = figures["host_cores"]
    table.add_row("host CPU of NFs", f"{_cores(before)} before the move, {_cores(after)} after")
    for name, phases in figures["delays_ms"].items():
        text = ", ".join(f"{phase} {delay['p50']:g} / {delay['p99']:g}" for phase, delay in phases.items())
        table.add_row(f"{name}, p50 / p99 ms", text)
    console.print()
    console.print(table)


def print_end(console: Console, site: Site, holds: bool, *, keep: bool) -> None:
    """What to look at now."""
    console.print()
    if holds and not keep:
        console.print("Next: `.venv/bin/uno-lab demo --keep` leaves it running to look around.")
    if holds:
        return
    here = site.lab.directory
    console.print("[red]Not all of it holds.[/red] What was said meanwhile:")
    for path, what in (
        (site.agent.log, "the agent: why it moved what, what failed"),
        (here / "nfagent/state/log", "the load balancer's processes"),
        (site.oneswitchd.log, "oneswitchd"),
        (site.controller.log, "the controller"),
        (here / "switches", "Open vSwitch, a directory for each switch"),
    ):
        console.print(f"  {path}  {what}", highlight=False, soft_wrap=True)


def print_json(holds: bool, results: list[Check], summary: Summary) -> None:
    """One object on standard output."""
    checks = [dataclasses.asdict(each) for each in results]
    print(json.dumps({"holds": holds, "checks": checks, "figures": summary.figures(), "moves": summary.moves}))


def _delays(report: HttpReport) -> dict[str, dict[str, float]]:
    found = {}
    for name, counts in report.phases.items():
        both = counts["new"]
        if both.answered:
            found[name] = {"p50": both.delay_ms(0.5), "p99": both.delay_ms(0.99)}
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _cores(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f} cores"
