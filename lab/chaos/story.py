"""The series: one fault after the other, under traffic."""

import itertools
import json
import time

import httpx
from rich.console import Console
from rich.markup import escape

from lab.agent_events import AgentEvents
from lab.chaos.faults import Fault, draw, strike
from lab.chaos.tally import ENDED_S, Outcome, Tally
from lab.chaos.watch import Watch
from lab.demo.balancer import NAME, Balancer
from lab.demo.site import DATA_VIP, SECOND, WEB_VIP, Site, balancer_config
from lab.http_traffic import HttpClient

_KEPT, _NEW = 2, 20
"""Requests per second; each new one opens a connection of its own, as a new client does."""
_REQUEST_S = 1.0
_CALM_S = 30.0
_POLL_S = 0.05


def run(console: Console, *, faults: int, seed: int, as_json: bool = False) -> bool:
    """Start a server with a load balancer under traffic, break it, and print the tally; return whether all holds.

    Args:
        console: for people; on standard error when ``as_json``.
        faults: how many.
        seed: of the series.
        as_json: print one JSON object on standard output at the end.

    Raises:
        LabError: something did not start.
    """
    tally = Tally(seed)
    with Site("chaos", (WEB_VIP, DATA_VIP), console, {}) as site:
        with AgentEvents(site.agent.client) as events:
            Balancer(site.agent, events, NAME, "l4lb").deploy(balancer_config(site.lab))
        site.controller.wait_for_line(rf"chain: .* {site.function_port}")
        console.print(
            f"dashboard: {site.dashboard}; seed {seed}: the same again with --seed {seed}",
            highlight=False,
            soft_wrap=True,
        )
        with (
            HttpClient(site.lab, SECOND, WEB_VIP, _KEPT, timeout_s=_REQUEST_S) as client,
            httpx.Client(base_url=site.agent.address) as looking,
            Watch(looking) as watch,
        ):
            client.rate(_KEPT, _NEW)
            client.await_answers(_NEW)
            for number, fault in enumerate(itertools.islice(draw(seed), faults), 1):
                outcome = _suffer(site, client, watch, fault, f"fault-{number}")
                tally.outcomes.append(outcome)
                mark = "[green]ok[/green]  " if outcome.holds else "[red]FAIL[/red]"
                console.print(f"{mark} {number:>4} {escape(str(outcome))}", highlight=False, soft_wrap=True)
            report = client.stop()
        tally.sent, tally.answered = report.sent, report.answered
    _print(console, tally)
    if as_json:
        print(json.dumps({"holds": tally.holds} | tally.document()))
    return tally.holds


def _suffer(site: Site, client: HttpClient, watch: Watch, fault: Fault, phase: str) -> Outcome:
    """Let a fault happen, mend it after its time, and wait until all is well."""
    watch.begin()
    struck = client.phase(phase)
    mend = strike(site, fault)
    served = _answered_at(client, struck + fault.hold_s)
    time.sleep(max(0.0, struck + fault.hold_s - time.time()))
    mend()
    mended = time.time()
    if served is None:
        served = _answered_at(client, mended + ENDED_S + _REQUEST_S)
    shown = watch.shown()
    calm = watch.await_calm(_CALM_S)
    return Outcome(fault, None if served is None else served - struck, mended - struck, shown, calm)


def _answered_at(client: HttpClient, until: float) -> float | None:
    """Wait until a request of this phase over a new connection was answered; return when, None if none was."""
    while True:
        found: float | None = client.status()["first_answer"]["new"]
        if found is not None or time.time() > until:
            return found
        time.sleep(_POLL_S)


def _print(console: Console, tally: Tally) -> None:
    rows = tally.rows()
    width = max(len(name) for name, _ in rows)
    console.print()
    for name, text in rows:
        console.print(f" [bold]{escape(name.ljust(width))}[/bold]  {text}", highlight=False, soft_wrap=True)
    console.print(f" {tally.answered} of {tally.sent} requests answered", highlight=False)
