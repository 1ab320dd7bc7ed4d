"""The demo's output."""

import dataclasses
import json

from rich.console import Console
from rich.table import Table

from lab.checks import Check
from lab.demo.counting import Summary
from lab.demo.site import Site
from lab.demo.traffic import LITTLE, MUCH


def print_begin(console: Console, site: Site) -> None:
    """Print the dashboard's address."""
    console.print(f"... watch it at {site.dashboard}", highlight=False, soft_wrap=True)


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
    counts = f"{figures['packets']} sent, {figures['lost']} lost ({figures['lost_in_moves']} in moves)"
    table.add_row("numbered packets", f"{counts}, {figures['duplicated']} duplicated, {figures['reordered']} reordered")
    for freeze in figures["freeze_us"]:
        table.add_row("planned move", "?" if freeze is None else f"frozen for {freeze / 1000:.2f} ms")
    before, after = figures["host_cores"]
    table.add_row("host CPU of NFs", f"{_millicores(before)} before the move, {_millicores(after)} after")
    for name, phases in figures["delays_ms"].items():
        told = [(level.name, phases[level.name]) for level in (LITTLE, MUCH) if level.name in phases]
        text = ", ".join(f"{phase} traffic {delay['p50']:.1f} / {delay['p99']:.1f} ms" for phase, delay in told)
        table.add_row(f"{name}, p50 / p99", text)
    console.print()
    console.print(table)


def print_end(console: Console, site: Site, holds: bool, *, keep: bool) -> None:
    """Print the next steps."""
    console.print()
    if holds and not keep:
        console.print(f"Next: `.venv/bin/uno-lab {site.name} --keep` leaves it running.")
    if holds:
        return
    here = site.lab.directory
    console.print("[red]Some checks failed.[/red] Logs:")
    for path, what in (
        (site.agent.log, "the agent: moves and their reasons, failures"),
        (here / "nfagent/state/log", "the load balancer's processes"),
        (site.oneswitchd.log, "oneswitchd"),
        (site.controller.log, "the controller"),
        (here / "switches", "Open vSwitch, a directory for each switch"),
    ):
        console.print(f"  {path}  {what}", highlight=False, soft_wrap=True)


def print_json(holds: bool, results: list[Check], summary: Summary) -> None:
    """Print one object on standard output."""
    checks = [dataclasses.asdict(each) for each in results]
    print(json.dumps({"holds": holds, "checks": checks, "figures": summary.figures(), "moves": summary.moves}))


def _millicores(cores: float | None) -> str:
    return "?" if cores is None else f"{cores * 1000:.0f} millicores"
