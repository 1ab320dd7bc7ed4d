"""The steps of ``uno-lab demo --chain``, in order."""

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from lab.chain.counting import Passage, Summary
from lab.chain.keeping import keep_running
from lab.chain.tenants import SLOTS, TENANTS, Deployed, controller, deploy, strangers
from lab.checks import Check, one_switch
from lab.demo.playing import play
from lab.demo.site import SNIC, Site
from lab.errors import ControlError
from lab.frames import Endpoint
from lab.http_traffic import HttpClient
from lab.programs import environment
from lab.spec import HYPERVISOR
from lab.traffic import Stream

_SETTINGS: dict[str, Any] = {"decide": {"enabled": False}}  # this story requests its move itself
_KEPT = 5
_KEPT_RATE, _NEW_RATE = 20.0, 10.0
_ANSWERS = 100
_PACKETS_PER_S = 200.0
_PAGE = 1000
_ANSWER_S = 30.0
_COUNTED_S = 1.5  # Open vSwitch counts a cached flow's packets within half a second
_PORT = re.compile(r"port +(\d+): rx pkts=(\d+),.*?tx pkts=(\d+),", re.DOTALL)


class Story:
    """The checks, and what they record for later ones.

    Args:
        site: the running server.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stack = ExitStack()
        self._deployed: list[Deployed] = []
        self._clients: dict[str, HttpClient] = {}
        self._streams: dict[str, Stream] = {}
        self.summary = Summary()

    def checks(self) -> list[Callable[[], Check]]:
        """Return the checks, in order."""
        return [self.one_switch, self.deploy, self.serve, self.pass_hops, self.find_assets, self.move, self.counted]

    def numbers(self) -> list[tuple[str, str]]:
        """Return the counts for people."""
        return self.summary.numbers()

    def document(self) -> dict[str, Any]:
        """Return the counts for ``--format=json``."""
        return {"figures": self.summary.figures()}

    def one_switch(self) -> Check:
        """Show one datapath to the controller, with the ports of both switches."""
        return one_switch(self._site.controller, self._site.lab.state)

    def deploy(self) -> Check:
        """Order a firewall, an asset monitor and a load balancer for each tenant."""
        self._deployed = deploy(self._site)
        for number, _ in enumerate(TENANTS, 1):
            self._site.controller.wait_for_line(rf"chain {number}: .* -> ports ")
        self.summary.guard = self._deployed[0].firewall.show()["kind"]
        ways = [f"{each.tenant.name}: {' -> '.join(one.name for one in each.functions)}" for each in self._deployed]
        return Check("two tenants, a chain each, deployed by REST", True, "\n".join((ways[0], *ways[1:])))

    def serve(self) -> Check:
        """Send requests and numbered packets of both tenants through their chains."""
        for number, each in enumerate(self._deployed, 1):
            tenant, lab = each.tenant, self._site.lab
            client = self._stack.enter_context(HttpClient(lab, tenant.client, tenant.web_vip, _KEPT))
            client.rate(_KEPT_RATE, _NEW_RATE)
            self._clients[tenant.name] = client
            to = Endpoint(each.lb.ports[0]["mac"], tenant.data_vip)
            stream = Stream(lab, tenant.client, tenant.sink, rate=_PACKETS_PER_S, to=to, number=number)
            self._streams[tenant.name] = self._stack.enter_context(stream)
        answered = {name: client.await_answers(_ANSWERS) for name, client in self._clients.items()}
        webs = {name: client.answered() for name, client in self._clients.items()}
        right = all(set(webs[each.name]) == set(each.webs) for each in TENANTS)
        detail = "; ".join(f"{name}: {_listed(counts)}" for name, counts in webs.items())
        return Check("each tenant's own web servers answer", all(answered.values()) and right, detail)

    def pass_hops(self) -> Check:
        """Count the packets of each hop, by the virtual ports' counters."""
        before = self._packets()
        time.sleep(_COUNTED_S)
        after = self._packets()
        self.summary.passages = [self._passage(each, before, after) for each in self._deployed]
        holds = all(passage.holds for passage in self.summary.passages)
        return Check("packets pass every hop, both ways", holds, "\n".join(map(str, self.summary.passages)))

    def find_assets(self) -> Check:
        """Ask the monitors what they have found."""
        details, holds = [], True
        for each in self._deployed:
            tenant, hosts = each.tenant, self._hosts(each)
            found = {host["address"]: host for host in hosts}
            services = [
                one for one in found.get(tenant.web_vip, {"services": []})["services"] if one["role"] == "server"
            ]
            others = strangers(list(found), tenant, self._site.lab)
            holds = holds and self._site.lab.host(tenant.client).ip in found and bool(services) and not others
            told = ", ".join(f"{one['service']} at {tenant.web_vip}:{one['port']}" for one in services) or "no service"
            details.append(f"{tenant.name}: {len(found)} hosts; {told}")
            details += [f"{tenant.name}'s monitor knows {other}, which is not the tenant's" for other in others]
            self.summary.hosts[tenant.name] = sorted(found)
        return Check("each monitor knows its tenant's hosts, and no others", holds, "\n".join(details))

    def move(self) -> Check:
        """Move a monitor to the smart NIC under traffic, with all that it knows."""
        first = self._deployed[0]
        before = self._lines(first)
        self.summary.move = first.monitor.move(SNIC)
        location = first.monitor.show()["placement"]["location"]
        after = self._lines(first)
        kept = after[: len(before)] == before and location == SNIC
        frozen = self.summary.move["report"]["freeze_us"] / 1000
        state = self.summary.move["report"]["state_bytes"] / 1e6
        detail = f"{first.monitor.name} runs at {location}, frozen for {frozen:.1f} ms, with {state:.2f} MB of state"
        detail += f"; its {len(before)} lines are still there" if kept else "; it has forgotten lines"
        others = [one.show()["placement"]["location"] for each in self._deployed for one in each.functions]
        stay = others.count(HYPERVISOR) == len(others) - 1
        return Check("a monitor moves under traffic", kept and stay, detail)

    def counted(self) -> Check:
        """Check that nothing was lost."""
        self.summary.streams = {name: stream.stop() for name, stream in self._streams.items()}
        self.summary.reports = {name: client.stop() for name, client in self._clients.items()}
        return self.summary.check()

    def _packets(self) -> dict[int, tuple[int, int]]:
        """Return the packets from and to each virtual port so far."""
        command = ["ovs-ofctl", "-O", "OpenFlow13", "dump-ports", self._site.oneswitchd.management]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_ANSWER_S, env=environment())
        return {int(port): (int(received), int(sent)) for port, received, sent in _PORT.findall(told.stdout)}

    def _passage(
        self, each: Deployed, before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]
    ) -> Passage:
        def grown(function: int, port: int, way: int) -> int:
            number = each.functions[function].ports[port]["number"]
            return after[number][way] - before[number][way]

        names = [one.name for one in each.functions]
        return Passage(
            each.tenant.name,
            dict(zip(names, (grown(0, 0, 1), grown(1, 0, 1), grown(2, 0, 1)), strict=True)),
            dict(zip(names[1::-1], (grown(1, 1, 1), grown(0, 1, 1)), strict=True)),
        )

    def _hosts(self, each: Deployed) -> list[dict[str, Any]]:
        return self._asked(each, "", "hosts")

    def _lines(self, each: Deployed) -> list[str]:
        return [one["line"] for one in self._asked(each, "/lines", "lines")]

    def _asked(self, each: Deployed, what: str, member: str) -> list[dict[str, Any]]:
        answer = self._site.agent.client.get(
            f"/api/v1/instances/{each.monitor.id}/assets{what}", params={"limit": _PAGE}
        )
        if answer.is_error:
            raise ControlError(f"{each.monitor.name} does not say what it has found: {answer.text}")
        return answer.json()[member]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "nobody"


def run(console: Console, *, keep: bool = False, as_json: bool = False) -> bool:
    """Tell the story on a server of its own; see `play`."""
    site = Site("chain", controller(), console, _SETTINGS, slots=SLOTS)
    return play(site, Story, keep_running, console, keep=keep, as_json=as_json, command="demo --chain")
