"""The steps of ``uno-lab tiara``, in order."""

import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from lab.checks import Check
from lab.ends import End
from lab.errors import ControlError
from lab.http_report import told
from lab.http_traffic import HttpClient
from lab.story import tell
from lab.tiara.counting import EVICTED, FULL, Event, Summary, kept_at, share_of_hits
from lab.tiara.settings import CLIENT, MUXES, NIC, PORT, SERVERS, SWITCH, VIP, WIDTH, mux_config
from lab.tiara.site import Site

_KEPT, _KEPT_RATE, _NEW_RATE = 12, 150.0, 20.0
_TIMEOUT_S = 3.0
"""Of a request: longer than a dead T-NIC or load balancer goes unnoticed (1 s)."""
_UNNOTICED_S = 1.5
"""New connections may be sent to a failed server for so long."""
_SAME = 150
"""Answers that show that something stays so."""
_NOTICED = 5
"""Times that many answers may come before none is of a failed server any more."""
_FAST = 0.9
"""The least share of the fast path, while nothing fails."""
_FLOODED_RATE, _SYNS = 50.0, 1000.0
"""Requests over kept connections, two packets each, and SYNs per second: 91 % of the packets are SYNs."""
_FLOODED = 0.99
"""The least share of the fast path in the flood: it costs established connections 1 % of their hits at most."""
_SMALL = 4
"""Indexes of a table that is too small for the kept connections."""
_TRIES = 20
_REMOVED, _HUNG, _KILLED = (server.name for server in SERVERS)


class Story:
    """The checks, and what they record for later ones.

    Args:
        site: the running hosts.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stack = ExitStack()
        self._client: HttpClient | None = None
        self.summary = Summary()

    def checks(self) -> list[Callable[[], Check]]:
        """Return the checks, in order."""
        return [
            self.three_tiers, self.fast_path, self.flooded, self.nic_killed, self.nic_small, self.nic_back,
            self.nic_hung, self.mux_killed, self.mux_back, self.mux_hung, self.removed, self.hung, self.killed,
            self.counted,
        ]  # fmt: skip

    def numbers(self) -> list[tuple[str, str]]:
        """Return the counts for people."""
        return self.summary.numbers()

    def document(self) -> dict[str, Any]:
        """Return the counts for ``--format=json``."""
        return {"figures": self.summary.figures()}

    def three_tiers(self) -> Check:
        """Start a switch, a T-NIC and two load balancers, and wait for their first answers."""
        ready = self._site.until(lambda: all(self._alive().values()) and self._sessions() == len(MUXES))
        client = self._client = self._stack.enter_context(
            HttpClient(self._site.hosts, CLIENT, VIP, _KEPT, [f"{VIP}/"], _TIMEOUT_S)
        )
        client.rate(_KEPT_RATE, _NEW_RATE)
        everyone = all(client.await_answers(1, server.name) for server in SERVERS)
        alive = ", ".join(name for name, alive in self._alive().items() if alive)
        detail = f"{alive} answer; {self._sessions()} of {len(MUXES)} load balancers offload\n{told(client.answered())}"
        return Check("three tiers", ready and everyone and not self._status()["failed"], detail)

    def fast_path(self) -> Check:
        """Send requests over kept connections: their packets take the fast path."""
        client = self._flow()
        client.rate(_KEPT_RATE, 0)
        self._site.until(lambda: self._entries() >= _KEPT)
        before = self._counters(NIC)
        client.phase("fast")
        self._stays()
        share = self.summary.fast_share = round(share_of_hits(before, self._counters(NIC)), 4)
        client.rate(_KEPT_RATE, _NEW_RATE)
        detail = f"{100 * share:.1f} % of the packets, with {self._entries():.0f} connections in the table"
        return Check("the fast path carries established connections", share >= _FAST, detail)

    def flooded(self) -> Check:
        """Send SYNs of unknown clients: they get no entries, and established connections keep the fast path."""
        client = self._flow()
        client.rate(_FLOODED_RATE, 0)
        client.phase("flooded")
        client.await_answers(1)
        entries, before = self._entries(), self._counters(NIC)
        arguments = [f"--to={VIP}", f"--port={PORT}", f"--rate={_SYNS}"]
        flood = self._stack.enter_context(closing(End(self._site.hosts, CLIENT, "lab.syn_flood", arguments)))
        self._stays()
        syns = flood.ask("stop", "sent")["syns"]
        client.await_answers(sum(client.answered().values()) + 1)
        after = self._counters(NIC)
        share = share_of_hits(before, after, syns)
        self.summary.flooded_share = round(share, 4)
        client.rate(_KEPT_RATE, _NEW_RATE)
        detail = (
            f"{syns} SYNs; {100 * share:.1f} % of the other packets; {self._entries():.0f} connections in the table"
        )
        holds = _FLOODED <= share <= 1 and self._entries() == entries
        return Check("a flood of SYNs leaves them there", holds, detail)

    def nic_killed(self) -> Check:
        """Kill the T-NIC: the switch sends everything to the load balancers."""

        def kill() -> None:
            self._site.kill(NIC)
            self._site.until(lambda: not self._alive()[NIC])

        return self._event("the T-NIC is killed", kill)

    def nic_small(self) -> Check:
        """Start the T-NIC with a small table: idle connections give their places to others, which have requests."""
        client = self._flow()
        self._site.start(NIC, _SMALL)
        self._site.until(lambda: self._alive()[NIC] and self._sessions() == len(MUXES))
        full = self._site.until(lambda: self._counters(NIC)[FULL] >= _KEPT - _SMALL * WIDTH)
        client.rate(0, 0)
        # Each newcomer tries when it comes. Entries are idle after two detection periods.
        tries = iter(range(_TRIES))
        while self._counters(NIC)[EVICTED] < _SMALL and next(tries, None) is not None:
            with HttpClient(self._site.hosts, CLIENT, VIP, _KEPT, [f"{VIP}/"], _TIMEOUT_S) as other:
                other.rate(_KEPT_RATE, 0)
                full &= other.await_answers(_SAME)
        evicted = self.summary.evicted = int(self._counters(NIC)[EVICTED])
        client.rate(_KEPT_RATE, _NEW_RATE)
        self._site.kill(NIC)
        self._site.until(lambda: not self._alive()[NIC])
        detail = f"{evicted} gave their places to others, in a table with {_SMALL * WIDTH} entries"
        return Check("idle connections leave a table that is full", full and evicted >= _SMALL, detail)

    def nic_back(self) -> Check:
        """Start the T-NIC again, with an empty table: connections are offloaded again."""

        def back() -> None:
            self._site.start(NIC)
            self._site.until(lambda: self._alive()[NIC] and self._sessions() == len(MUXES))
            self._site.until(lambda: self._entries() >= _KEPT)

        check = self._event("the T-NIC is back", back)
        hits = share_of_hits(dict.fromkeys(self._counters(NIC), 0), self._counters(NIC))
        return Check(check.title, check.holds and hits > 0, f"{check.detail}; {self._entries():.0f} entries")

    def nic_hung(self) -> Check:
        """Let the T-NIC hang: the switch sends everything to the load balancers until it goes on, with its table."""
        return self._hung("the T-NIC hangs", NIC)

    def mux_hung(self) -> Check:
        """Let a load balancer hang: its entries stay, and the other one takes the rest."""
        return self._hung(f"{MUXES[1]} hangs", MUXES[1])

    def _hung(self, event: str, name: str) -> Check:
        def hang() -> None:
            self._site.hang(name)
            self._site.until(lambda: not self._alive()[name])

        check = self._event(event, hang)
        self._site.resume(name)
        back = self._site.until(lambda: self._alive()[name] and self._sessions() == len(MUXES))
        return Check(check.title, check.holds and back, check.detail)

    def mux_killed(self) -> Check:
        """Kill a load balancer: its entries stay, and the other one takes its new connections."""
        return self._event(f"{MUXES[0]} is killed", lambda: self._site.kill(MUXES[0]))

    def mux_back(self) -> Check:
        """Start it again, without its state: it begins with an empty part of the table."""

        def back() -> None:
            self._site.start(MUXES[0])
            self._site.until(lambda: self._alive()[MUXES[0]] and self._sessions() == len(MUXES))

        return self._event(f"{MUXES[0]} is back, without its state", back)

    def removed(self) -> Check:
        """Remove a server from the configuration: its connections end, and no packet reaches it any more."""
        rest = tuple(server for server in SERVERS if server.name != _REMOVED)

        def configure(servers: tuple[Any, ...]) -> Callable[[], None]:
            def each() -> None:
                for mux in MUXES:
                    self._site.ask(mux, "configure", config=mux_config(mux, servers))

            return each

        check = self._event(f"{_REMOVED} is removed", configure(rest), _REMOVED)
        configure(SERVERS)()
        return check

    def hung(self) -> Check:
        """Let a server hang: health checks notice it, and its connections go to the others."""
        check = self._event(f"{_HUNG} hangs", lambda: self._site.webs[_HUNG].signal(signal.SIGSTOP), _HUNG)
        self._site.webs[_HUNG].signal(signal.SIGCONT)
        return check

    def killed(self) -> Check:
        """Kill a server: its connections end, and the others go on."""
        check = self._event(f"{_KILLED} is killed", self._site.webs[_KILLED].close, _KILLED)
        self._site.start_web(_KILLED)
        return check

    def counted(self) -> Check:
        """Check that nothing was lost."""
        report = self._flow().stop()
        counts = [count for phase in report.phases.values() for count in phase.values()]
        self.summary.sent = sum(count.sent for count in counts)
        self.summary.failed = len(report.failures)
        return self.summary.check()

    def _event(self, name: str, happen: Callable[[], None], server: str | None = None) -> Check:
        """Let something happen; `server`: failures of its connections are expected, of others never."""
        client = self._flow()
        at_servers = client.answered(kinds=["kept"])
        allowed = 0
        if server is not None:
            client.await_answers(1, server)
            new = int(_NEW_RATE * _UNNOTICED_S)
            allowed = kept_at(at_servers, _KEPT).get(server, 0) + new
        before = self._status()
        phase = f"event{len(self.summary.events)}"
        client.phase(phase)
        happen()
        gone = set[str]() if server is None else {server}
        if gone:
            self._site.until(lambda: self._settled(gone))
        else:
            client.await_answers(_SAME)
        self._stays()
        for attempt in range(_NOTICED if gone else 0):
            # Until the removal of its entries has taken effect, the fast path leads to it.
            client.phase(f"{phase}-{attempt}")
            self._stays()
            if not gone & client.answered().keys():
                break
        after = self._status()
        event = Event(name, after["sent"] - before["sent"], after["failed"] - before["failed"], allowed)
        self.summary.events.append(event)
        detail = f"{event.sent} requests, {event.lost} lost; {told(client.answered())}"
        if event.failed:
            detail += f"\n{event.failed - event.lost} failed with {server}"
        return Check(name, not event.lost and not gone & client.answered().keys(), detail)

    def _settled(self, gone: set[str]) -> bool:
        """Tell whether no load balancer has connections to servers that are gone, and no request waits."""
        up = [self._up(mux) for mux in MUXES]
        return all(not gone & each for each in up) and self._status()["waiting"] == 0

    def _up(self, mux: str) -> set[str]:
        """Return the servers that a load balancer sends connections to."""
        return {each["name"] for each in self._site.ask(mux, "l4lb.backends")["backends"] if each["open"]}

    def _stays(self) -> None:
        """Wait for answers that show that it stays so."""
        client = self._flow()
        client.await_answers(sum(client.answered().values()) + _SAME)

    def _alive(self) -> dict[str, bool]:
        told = self._site.ask(SWITCH, "tswitch.show")
        return {each["name"]: each["alive"] for each in (*told["nics"], *told["muxes"])}

    def _sessions(self) -> int:
        sessions = self._site.ask(NIC, "tnic.show")["engines"].get("sessions", [])
        return sum(each["open"] for each in sessions)

    def _counters(self, name: str) -> dict[str, float]:
        return dict(self._site.ask(name, "counters"))

    def _entries(self) -> float:
        return self._counters(NIC).get("entries", 0)

    def _status(self) -> dict[str, Any]:
        status = self._flow().status()
        return status | {"waiting": status["sent"] - status["answered"] - status["failed"]}

    def _flow(self) -> HttpClient:
        if self._client is None:
            raise ControlError("no load flows: an earlier step failed")
        return self._client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def run(console: Console, *, keep: bool = False, as_json: bool = False) -> bool:
    """Start everything, tell the story, and print the results; return whether all checks hold.

    Args:
        console: for people; on standard error when ``as_json``.
        keep: leave it all running until Ctrl-C.
        as_json: print one JSON object on standard output at the end.

    Raises:
        LabError: something did not start, or ended; with its name.
    """
    console.print("[dim]... starting tswitch, tnic, two load balancers and three web servers[/dim]")
    with Site() as site:
        with Story(site) as story:
            holds = tell(story, site.require_running, console, as_json=as_json)
        if keep:
            keep_running(site, console)
    return holds


def keep_running(site: Site, console: Console) -> None:
    """Run until Ctrl-C."""
    console.print("\nIt keeps running; Ctrl-C ends it. Its control sockets, configurations and logs:")
    console.print(f"  {site.home}", highlight=False, soft_wrap=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        return
