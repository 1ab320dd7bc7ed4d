"""The steps of ``uno-lab l7``, in order."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from lab.agent_events import AgentEvents
from lab.checks import Check, one_switch
from lab.demo.balancer import Balancer
from lab.demo.playing import play
from lab.demo.site import OUTSIDE, SECOND, SNIC, WEB_VIP, WEBS, Site, one_function
from lab.ends import End
from lab.errors import ControlError
from lab.http_report import HttpReport, by_server, told
from lab.http_traffic import HttpClient
from lab.l7.counting import Summary
from lab.l7.keeping import keep_running
from lab.l7.routes import API, ASKS, HEAVY, LIGHT, WEIGHT, WWW, Ask, balancer_config
from lab.spec import HYPERVISOR
from nfagent.control import Control

NAME = "l7"
REQUESTS = (f"{WWW}/", f"{API}/users")
"""The requests of the steady load, in turn; the first for the pool ``web``, the second for the pool ``api``."""

_SETTINGS: dict[str, Any] = {"decide": {"enabled": False}}  # this story requests its moves itself
_KEPT = 10
_KEPT_RATE, _NEW_RATE = 120.0, 60.0
_SHARED = 60
"""New connections that show the weights."""
_SOON_S = 20.0
_SAME = 60
"""Answers that show that something stays so."""
_EACH = 10
"""Unfinished requests of each kind during a move."""
_WORDS = {"heads": "half-sent heads", "uploads": "half-sent bodies", "downloads": "half-received answers"}


class Story:
    """The checks, and what they record for later ones.

    Args:
        site: the running server.
        events: events of its agent.
    """

    def __init__(self, site: Site, events: AgentEvents) -> None:
        self._site, self._events = site, events
        self._balancer = Balancer(site.agent, events, NAME, "l7lb")
        self._stack = ExitStack()
        self._client: HttpClient | None = None
        self.summary = Summary()

    def checks(self) -> list[Callable[[], Check]]:
        """Return the checks, in order."""
        return [
            self.one_switch, self.deploy, self.routes, self.weights, self.death, self.revival, self.move_out,
            self.move_back, self.counted,
        ]  # fmt: skip

    def numbers(self) -> list[tuple[str, str]]:
        """Return the counts for people."""
        return self.summary.numbers()

    def document(self) -> dict[str, Any]:
        """Return the counts for ``--format=json``."""
        return {"figures": self.summary.figures(), "moves": self.summary.moves}

    def one_switch(self) -> Check:
        """Show one datapath to the controller, with the ports of both switches."""
        return one_switch(self._site.controller, self._site.lab.state)

    def deploy(self) -> Check:
        """Order a layer-7 load balancer from the agent."""
        shown = self._balancer.deploy(balancer_config(self._site.lab))
        location, number = shown["placement"]["location"], shown["ports"][0]["number"]
        self._site.controller.wait_for_line(rf"chain: .* {self._site.function_port}")
        control = Control(self._site.agent.runtime / f"{shown['id']}.{location}.sock")
        healthy = self._serve_all() and all(
            up for name, up in control.ask("counters").items() if name.startswith("backend_up")
        )
        detail = f"active at {location}, virtual port {number}"
        detail += f"\n{'all' if healthy else 'not all'} {len(WEBS)} web servers pass its health checks"
        return Check(f"{NAME}, a layer-7 load balancer, deployed by REST", healthy and location == HYPERVISOR, detail)

    def routes(self) -> Check:
        """Send requests over a single connection: each is routed by itself."""
        command = [sys.executable, "-m", "lab.l7.asking", WEB_VIP, *(f"{each.host}{each.path}" for each in ASKS)]
        done = self._site.lab.exec(OUTSIDE, command, timeout_s=_SOON_S, check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        lines, wrong = [], [done.stderr.strip()] if done.returncode else []
        for ask, answer in zip(ASKS, answers, strict=False):
            lines.append(f"{ask.host}{ask.path} -> {_shown(answer)}: {ask.why}")
            if not _is_right(ask, answer):
                wrong.append(f"{ask.host}{ask.path}: {answer}; expected {ask.status} of {ask.servers or NAME}")
        self.summary.asked += len(ASKS)
        self.summary.wrong += wrong
        detail = "\n".join([f"{len(answers)} of {len(ASKS)} requests answered", *lines, *wrong])
        return Check("each request of one connection is routed", not wrong, detail)

    def weights(self) -> Check:
        """Open connections: each server of a pool gets as many as its weight says."""
        requests = (REQUESTS[0],)
        with HttpClient(self._site.lab, OUTSIDE, WEB_VIP, 0, requests) as client:
            client.rate(0, 2 * _NEW_RATE)
            client.await_answers(_SHARED)
            report = client.stop()
        self._count(report)
        shares = by_server(report.phases["start"]["new"].answers)
        heavy, light = shares.get(HEAVY, 0), shares.get(LIGHT, 0)
        holds = abs(heavy - WEIGHT * light) <= WEIGHT + 1 and shares.keys() == {HEAVY, LIGHT} and not report.failures
        title = f"{HEAVY} has weight {WEIGHT}, {LIGHT} has weight 1"
        return Check(title, holds, f"{sum(shares.values())} new connections: {told(shares)}")

    def death(self) -> Check:
        """Kill a web server: the other one of its pool takes its requests."""
        client = self._client = self._stack.enter_context(HttpClient(self._site.lab, OUTSIDE, WEB_VIP, _KEPT, REQUESTS))
        client.rate(_KEPT_RATE, _NEW_RATE)
        client.await_answers(_SAME, HEAVY, REQUESTS[0])
        begin = time.time()
        self._site.webs[HEAVY].close()
        self.summary.killed = (begin, client.phase("dead"))
        client.await_answers(_SAME, LIGHT, REQUESTS[0])
        failed, answered = client.status()["failed"], client.answered(REQUESTS[0])
        answered.pop(HEAVY, None)  # sent before it was killed, and counted after that
        detail = f"{sum(answered.values())} requests for its pool answered: {told(answered)}; {failed} failed"
        holds = answered.keys() == {LIGHT} and answered[LIGHT] >= _SAME
        return Check(f"{HEAVY} is killed", holds, detail)

    def revival(self) -> Check:
        """Start the web server again: it gets requests again."""
        client, began = self._flow("revival"), time.monotonic()
        self._site.restart_web(HEAVY)
        client.phase("back")
        back = client.await_answers(1, HEAVY, REQUESTS[0])
        took_s = time.monotonic() - began
        client.await_answers(_SAME, HEAVY, REQUESTS[0])
        detail = f"it answers again {took_s:.1f} s after its start" if back else f"no answer within {_SOON_S:.0f} s"
        return Check(f"{HEAVY} is back", back, detail)

    def move_out(self) -> Check:
        """Move the load balancer to the smart NIC in the middle of requests."""
        return self._move(SNIC)

    def move_back(self) -> Check:
        """Move it back to the host in the middle of requests."""
        return self._move(HYPERVISOR)

    def counted(self) -> Check:
        """Check that nothing was lost."""
        report = self._flow("the last count").stop()
        self.summary.load.phases = report.phases
        self.summary.load.failures += report.failures
        return self.summary.check()

    def _move(self, target: str) -> Check:
        client, summary = self._flow("a move"), self.summary
        before = client.status()
        client.phase(f"to-{target}")
        arguments = [f"--address={WEB_VIP}", f"--host={WWW}", f"--each={_EACH}"]
        unfinished = End(self._site.lab, SECOND, "lab.l7.unfinished", arguments)
        try:
            move = self._balancer.move(target)
            report = unfinished.ask("finish", "report")
        finally:
            unfinished.close()
        client.await_answers(_SAME)
        after = client.status()
        right: dict[str, int] = report["right"]
        summary.moves.append(move)
        summary.unfinished.update({_WORDS[kind]: _EACH for kind in right})
        summary.wrong += report["wrong"]
        failed, location = after["failed"] - before["failed"], self._balancer.location()
        if move["outcome"] == "done":
            detail = f"frozen for {move['report']['freeze_us'] / 1000:.1f} ms; it runs at {location}"
        else:
            detail = f"{move['outcome']} at step {move['step']}: {move['reason']}; it runs at {location}"
        kinds = ", ".join(f"{count} {_WORDS[kind]}" for kind, count in right.items())
        began = len(right) * _EACH
        detail += f"\n{sum(right.values())} of {began} unfinished requests then completed correctly: {kinds}"
        detail += f"\n{after['answered'] - before['answered']} other requests answered meanwhile, {failed} failed"
        holds = move["outcome"] == "done" and location == target and not report["wrong"] and not failed
        return Check(f"{NAME} moves to {target} in the middle of requests", holds, detail)

    def _serve_all(self) -> bool:
        """Send requests from the moment of the deployment on; tell whether every web server answers some."""
        with HttpClient(self._site.lab, OUTSIDE, WEB_VIP, 0, REQUESTS) as client:
            client.rate(0, _NEW_RATE)
            served = all(client.await_answers(1, name) for name in WEBS)
            self._count(client.stop())
        return served

    def _count(self, report: HttpReport) -> None:
        """Count the requests of a client of a single step."""
        self.summary.load.failures += report.failures
        self.summary.asked += report.sent

    def _flow(self, when: str) -> HttpClient:
        if self._client is None:
            raise ControlError(f"no load flows before {when}: an earlier step failed")
        return self._client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def _shown(answer: dict[str, Any]) -> str:
    """Describe an answer in a few words."""
    if answer["location"]:
        return f"{answer['status']} to {answer['location']}"
    return answer["word"] if answer["status"] == 200 else str(answer["status"])


def _is_right(ask: Ask, answer: dict[str, Any]) -> bool:
    """Tell whether an answer is the expected one, on the same connection."""
    by_server_of = not ask.servers or answer["word"] in ask.servers
    return answer["status"] == ask.status and by_server_of and answer["same"]


@contextmanager
def _open(site: Site) -> Iterator[Story]:
    with AgentEvents(site.agent.client) as events, Story(site, events) as story:
        yield story


def run(console: Console, *, keep: bool = False, as_json: bool = False) -> bool:
    """Tell the story on a server of its own; see `play`."""
    site = Site(NAME, one_function(WEB_VIP), console, _SETTINGS)
    return play(site, _open, keep_running, console, keep=keep, as_json=as_json)
