"""The series: one round of faults after the other, under traffic."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import httpx
from rich.console import Console
from rich.markup import escape

from lab.agent_events import AgentEvents
from lab.chaos.faults import Fault, Round, available, draw, strike
from lab.chaos.service import Service
from lab.chaos.surroundings import Surroundings
from lab.chaos.tally import ENDED_S, Outcome, ShownOutage, Tally
from lab.chaos.watch import Watch, advice
from lab.demo.balancer import NAME, Balancer
from lab.demo.site import DATA_VIP, SECOND, SNIC, WEB_VIP, Site, balancer_config, one_function
from lab.errors import LabError
from lab.http_traffic import HttpClient
from lab.spec import HYPERVISOR

_KEPT, _NEW = 2, 20
"""Requests per second; each new one opens a connection of its own, as a new client does."""
_REQUEST_S = 1.0
_CALM_S = 30.0
_ANSWER_S = 2.0
_ASKED = 2


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
    surroundings = Surroundings()
    for each in surroundings.left_out:
        console.print(f"[yellow]{escape(each)}[/yellow]", highlight=False)
    tally = play(console, surroundings, lambda: _first(faults, draw(seed, available(surroundings))), seed)
    _print(console, tally)
    if as_json:
        print(json.dumps({"holds": tally.holds, "left_out": surroundings.left_out} | tally.document()))
    return tally.holds


def play(console: Console, surroundings: Surroundings, rounds: Callable[[], Iterator[Round]], seed: int) -> Tally:
    """Play rounds of faults; ``rounds`` is called when it is known which kinds there can be.

    Raises:
        LabError: something did not start.
    """
    tally = Tally(seed)
    with Site("chaos", one_function(WEB_VIP, DATA_VIP), console, {}, surroundings.make) as site:
        with AgentEvents(site.agent.client) as events:
            Balancer(site.agent, events, NAME, "l4lb").deploy(balancer_config(site.lab))
        site.controller.wait_for_line(rf"chain: .* {site.function_port}")
        console.print(
            f"dashboard: {site.dashboard}; seed {seed}: the same again with --seed {seed}",
            highlight=False,
            soft_wrap=True,
        )
        client = HttpClient(site.lab, SECOND, WEB_VIP, _KEPT, timeout_s=_REQUEST_S)
        client.rate(_KEPT, _NEW)
        client.await_answers(_NEW)
        with Service(client) as service, httpx.Client(base_url=site.agent.address) as looking, Watch(looking) as watch:
            for each in rounds():
                outcome = _RoundRun(site, surroundings, service, watch, each).run()
                tally.outcomes.append(outcome)
                mark = "[green]ok[/green]  " if outcome.holds else "[red]FAIL[/red]"
                console.print(f"{mark} {tally.faults:>4} {escape(str(outcome))}", highlight=False, soft_wrap=True)
            report = service.stop()
        tally.sent, tally.answered = report.sent, report.answered
    return tally


def _first(faults: int, rounds: Iterator[Round]) -> Iterator[Round]:
    """Yield rounds of that many faults together."""
    left = faults
    while left > 0:
        found = next(rounds)
        yield Round(found.faults[:left], found.moves)
        left -= len(found.faults)


class _RoundRun:
    """One round: it lets its faults happen, mends each after its time, and waits until all is well."""

    def __init__(self, site: Site, surroundings: Surroundings, service: Service, watch: Watch, faults: Round) -> None:
        self._site, self._surroundings, self._service, self._watch = site, surroundings, service, watch
        self._round = faults
        self._troubles: list[str] = []
        self._advice: list[str] = []
        self._struck = self._told = 0.0

    def run(self) -> Outcome:
        self._watch.begin()
        self._service.begin()
        if self._round.moves:
            self._move()
        self._struck = time.monotonic()
        asking = threading.Timer(ENDED_S, self._ask_for_advice)
        asking.start()
        self._mend(self._strike())
        mended = time.monotonic()
        self._service.await_answer(ENDED_S + _REQUEST_S)
        calm = self._watch.await_calm(_CALM_S)
        asking.cancel()
        asking.join()
        return Outcome(
            self._round,
            round(mended - self._struck, 2),
            tuple(self._outages_of_round(mended)),
            self._watch.shown_after(self._struck),
            tuple(self._troubles),
            calm,
        )

    def _strike(self) -> list[tuple[Fault, Callable[[], None]]]:
        """Let all happen, first what asks the agent where the function runs."""
        mends = []
        for fault in sorted(self._round.faults, key=lambda fault: fault.part != NAME):
            try:
                mends.append((fault, strike(self._site, self._surroundings, fault)))
            except (LabError, OSError) as error:
                self._troubles.append(f"{fault} could not happen: {error}")
        return mends

    def _mend(self, mends: Sequence[tuple[Fault, Callable[[], None]]]) -> None:
        for fault, mend in sorted(mends, key=lambda each: each[0].hold_s):
            time.sleep(max(0.0, self._struck + fault.hold_s - time.monotonic()))
            try:
                mend()
            except (LabError, OSError) as error:
                self._troubles.append(f"{fault} could not be mended: {error}")

    def _ask_for_advice(self) -> None:
        """Ask what a person should do, if an outage goes on; ask again if doctor finds nothing: it may have ended."""
        for _ in range(_ASKED):
            if self._advice or all(each.end is not None for each in self._service.outages()):
                return
            self._advice = advice(self._site.lab.server_toml, self._site.agent.config)
            self._told = time.monotonic()

    def _outages_of_round(self, mended: float) -> Iterator[ShownOutage]:
        for each in self._service.outages():
            ended = each.end is not None
            yield ShownOutage(
                after_s=round(each.start - self._struck, 2),
                out_s=round(each.lasts_s, 2) if ended else None,
                late_s=round(max(0.0, each.start + each.lasts_s - mended), 2) if ended else None,
                shown_s=self._watch.shown_after(each.start),
                advice=tuple(self._advice),
                told_s=round(max(0.0, self._told - each.start), 2),
            )

    def _move(self) -> None:
        """Ask for a move to the other place; that it is refused is as good."""
        path = f"/api/v1/instances/{NAME}"
        with contextlib.suppress(httpx.HTTPError, KeyError, TypeError, ValueError):
            at = self._site.agent.client.get(path, timeout=_ANSWER_S).json()["placement"]["location"]
            order = {"instance": NAME, "target": SNIC if at == HYPERVISOR else HYPERVISOR}
            self._site.agent.client.post("/api/v1/migrations", json=order, timeout=_ANSWER_S)


def _print(console: Console, tally: Tally) -> None:
    rows = tally.rows()
    width = max(len(name) for name, _ in rows)
    console.print()
    for name, text in rows:
        console.print(f" [bold]{escape(name.ljust(width))}[/bold]  {text}", highlight=False, soft_wrap=True)
    console.print(f" {tally.answered} of {tally.sent} requests answered", highlight=False)
