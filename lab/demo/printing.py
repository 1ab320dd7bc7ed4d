"""The demo's output."""

from rich.console import Console

from lab.demo.counting import Summary
from lab.demo.site import Site
from lab.demo.traffic import LITTLE, MUCH
from lab.programs import typed


def print_begin(console: Console, site: Site) -> None:
    """Print the dashboard's address."""
    console.print(f"... watch it at {site.dashboard}", highlight=False, soft_wrap=True)


def numbers(summary: Summary) -> list[tuple[str, str]]:
    """Return the counts for people."""
    figures = summary.figures()
    outside = "" if figures["outage_s"] is None else " outside of the sNIC's death"
    rows = [("HTTP requests", f"{figures['requests']} sent, {figures['failed']} failed{outside}")]
    if figures["outage_s"] is not None:
        lost = f"{figures['outage_s']} s without service, {figures['failed_in_outage']} requests failed"
        rows.append(("the sNIC's death", lost))
    counts = f"{figures['packets']} sent, {figures['lost']} lost ({figures['lost_in_moves']} in moves)"
    rows.append(("numbered packets", f"{counts}, {figures['duplicated']} duplicated, {figures['reordered']} reordered"))
    for freeze in figures["freeze_us"]:
        frozen = "?" if freeze is None else f"frozen for {freeze / 1000:.2f} ms"
        rows.append(("planned move", frozen))
    before, after = figures["host_cores"]
    rows.append(("host CPU of NFs", f"{_millicores(before)} before the move, {_millicores(after)} after"))
    for name, phases in figures["delays_ms"].items():
        told = [(level.name, phases[level.name]) for level in (LITTLE, MUCH) if level.name in phases]
        text = ", ".join(f"{phase} traffic {delay['p50']:.1f} / {delay['p99']:.1f} ms" for phase, delay in told)
        rows.append((f"{name}, p50 / p99", text))
    return rows


def print_end(console: Console, site: Site, holds: bool, *, keep: bool, command: str | None = None) -> None:
    """Print the next steps; ``command`` None: the command has the site's name."""
    console.print()
    if holds and not keep:
        console.print(f"Next: `{typed('uno-lab')} {command or site.name} --keep` leaves it running.")
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


def _millicores(cores: float | None) -> str:
    return "?" if cores is None else f"{cores * 1000:.0f} millicores"
