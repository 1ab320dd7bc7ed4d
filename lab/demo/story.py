"""The steps of the demo, in order."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from lab.agent_events import AgentEvents
from lab.checks import Check, one_switch
from lab.demo.balancer import NAME, Balancer, moment
from lab.demo.counting import Summary
from lab.demo.keeping import keep_running
from lab.demo.playing import play
from lab.demo.printing import numbers
from lab.demo.sampling import CpuSampler
from lab.demo.site import DATA_VIP, OUTSIDE, SECOND, SNIC, WEB_VIP, WEBS, Site, balancer_config, one_function
from lab.demo.traffic import LITTLE, MUCH, Traffic
from lab.errors import ControlError
from lab.spec import HYPERVISOR

_LITTLE_S, _MUCH_S, _CALM_S, _AFTER_S = 4.0, 4.0, 13.0, 4.0
_BACK_S, _SERVED = 30.0, 20
# The agent samples four times a second and remembers 12 s; by default it samples every second and remembers 30 s.
_SETTINGS: dict[str, Any] = {"monitor": {"period_s": 0.25}, "decide": {"period_s": 0.25, "window": 50}}


class Story:
    """The checks, and what they record for later ones.

    Args:
        site: the running demo.
        events: events of its agent.
        cpu: CPU time of its network functions.
    """

    def __init__(self, site: Site, events: AgentEvents, cpu: CpuSampler) -> None:
        self._site, self._events, self._cpu = site, events, cpu
        self._balancer = Balancer(site.agent, events, NAME, "l4lb")
        self._traffic: Traffic | None = None
        self.summary = Summary()

    def checks(self) -> list[Callable[[], Check]]:
        """Return the checks, in order."""
        return [self.one_switch, self.deploy, self.little, self.rise, self.fall, self.death, self.revival, self.counted]

    def numbers(self) -> list[tuple[str, str]]:
        """Return the counts for people."""
        return numbers(self.summary)

    def document(self) -> dict[str, Any]:
        """Return the counts for ``--format=json``."""
        return {"figures": self.summary.figures(), "moves": self.summary.moves}

    def one_switch(self) -> Check:
        """Show one datapath to the controller, with the ports of both switches."""
        return one_switch(self._site.controller, self._site.lab.state)

    def deploy(self) -> Check:
        """Order a load balancer from the agent, without a location."""
        shown = self._balancer.deploy(balancer_config(self._site.lab))
        port, location = shown["ports"][0], shown["placement"]["location"]
        self._site.controller.wait_for_line(rf"chain: .* {self._site.function_port}")
        self._traffic = Traffic(self._site.lab, port["mac"])
        detail = f"active at {location}, virtual port {port['number']}, for {len(WEBS)} web servers"
        return Check(f"{NAME}, a layer-4 load balancer, deployed by REST", location == HYPERVISOR, detail)

    def little(self) -> Check:
        """Send little traffic: it stays on the host."""
        self._flow(LITTLE.name).set(LITTLE)
        time.sleep(_LITTLE_S)
        status = self._flow(LITTLE.name).outside.status()
        moves = self._balancer.moves()
        holds = status["answered"] > 0 and not status["failed"] and not moves
        detail = (
            f"{status['answered']} requests answered, {status['failed']} failed; it runs at {self._balancer.location()}"
        )
        if moves:
            detail += f"\nbut a move to {moves[0]['target']} has begun already; the agent says: {self._balancer.why()}"
        return Check("little traffic", holds, detail)

    def rise(self) -> Check:
        """Raise the traffic: it moves to the sNIC, with its connections."""
        began = time.time()
        self._flow(MUCH.name).set(MUCH)
        move = self._balancer.await_move(0)
        if move is None:
            # The agent's log is deleted with the lab.
            raise ControlError(f"{NAME} did not move to {SNIC}; the agent says: {self._balancer.why()}")
        time.sleep(_MUCH_S)
        ended = moment(move["ended"])
        frozen = next((step["at"] for step in move["report"]["steps"] if step["step"] == "freeze"), ended)
        summary = self.summary
        summary.moves = [move]
        summary.host_cores_before = self._cpu.cores(HYPERVISOR, began, frozen)
        summary.host_cores_after = self._cpu.cores(HYPERVISOR, ended, time.time())
        summary.nic_cores_after = self._cpu.cores(SNIC, ended + 1.0, time.time())
        return Check("traffic rises", *self._moved(move, SNIC))

    def fall(self) -> Check:
        """Lower the traffic: it does not flap."""
        self._flow(LITTLE.name).set(LITTLE)
        time.sleep(_CALM_S)
        more = len(self._balancer.moves()) - len(self.summary.moves)
        detail = f"it stays at {self._balancer.location()} for {_CALM_S:.0f} s" if not more else f"{more} more moves"
        return Check("traffic falls", more == 0, detail)

    def _reaches(self) -> bool:
        """Tell whether the client behind the sNIC's wire gets an answer from the load balancer."""
        command = ["ping", "-q", "-c", "1", "-W", "1", WEB_VIP]
        return self._site.lab.exec(OUTSIDE, command, timeout_s=_BACK_S, check=False).returncode == 0

    def _moved(self, move: dict[str, Any], target: str) -> tuple[bool, str]:
        """Tell whether a migration led there, and describe it."""
        location = self._balancer.location()
        if move["outcome"] != "done" or location != target:
            return False, f"{move['outcome']} at step {move['step']}: {move['reason']}; it runs at {location}"
        took_s = moment(move["ended"]) - moment(move["requested"])
        return True, f"it moved to {location} in {took_s:.1f} s, frozen for {move['report']['freeze_us'] / 1000:.1f} ms"

    def death(self) -> Check:
        """Kill the sNIC: service returns on the host."""
        traffic, summary, lab = self._flow("death"), self.summary, self._site.lab
        summary.outside, summary.stream = traffic.end_outside()
        summary.overflowed = {each.name: lab.switch(each.name).overflowed() for each in lab.state.switches}
        traffic.set_second_alone()
        summary.killed = traffic.second.phase("dies")
        lab.switch(SNIC).power_off()
        traffic.second.phase("killed")
        self._events.wait(lambda: traffic.second.status()["first_answer"]["new"], _BACK_S)
        summary.back = traffic.second.status()["first_answer"]["new"]
        traffic.second.phase("after")
        traffic.set_second_as_before()
        time.sleep(_AFTER_S)
        shown = self._balancer.show()
        location = shown["placement"]["location"]
        if summary.back is None:
            state = f"{NAME} is {shown['status']} at {location}: {shown['reason']}"
            detail = f"no request was answered within {_BACK_S:.0f} s; {state}"
            return Check(f"{SNIC} dies", False, detail)
        detail = f"{SECOND} is served again after {summary.back - summary.killed:.1f} s; {NAME} runs at {location}"
        lost = [event.data.get("flows") for event in self._events.all("instance.recovered")]
        detail += f"\nthe state of {lost[-1] if lost and lost[-1] is not None else 'its'} connections died with it"
        detail += f"\n({OUTSIDE} is cut off: its wire ends in {SNIC}; its traffic was ended before)"
        return Check(f"{SNIC} dies, its switch and what runs there", location == HYPERVISOR, detail)

    def revival(self) -> Check:
        """Power the sNIC on: the client behind its wire is served again."""
        traffic, began = self._flow("revival"), time.monotonic()
        self._site.lab.switch(SNIC).power_on()
        while not (reached := self._reaches()) and time.monotonic() < began + _BACK_S:
            pass
        detail = f"{OUTSIDE} reaches {NAME} again after {time.monotonic() - began:.1f} s"
        if not reached:
            return Check(f"{SNIC} has power again", False, f"{OUTSIDE} does not reach {NAME} within {_BACK_S:.0f} s")
        traffic.begin_outside_again()
        served = self._events.wait(lambda: traffic.outside.status()["answered"] >= _SERVED, _BACK_S)
        if not served:
            detail += f", but is not served within {_BACK_S:.0f} s: {traffic.outside.status()}"
        self.summary.again = traffic.end_outside_again()
        self.summary.second = traffic.end_second()
        self.summary.migrations = self._balancer.moves()
        return Check(f"{SNIC} has power again", bool(served), detail)

    def counted(self) -> Check:
        """Check that nothing was lost."""
        return self.summary.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the traffic, if it still flows."""
        if self._traffic is not None:
            self._traffic.close()

    def _flow(self, when: str) -> Traffic:
        if self._traffic is None:
            raise ControlError(f"no traffic to change to {when!r}: {NAME} was not deployed")
        return self._traffic


@contextmanager
def _open(site: Site) -> Iterator[Story]:
    with (
        CpuSampler(site.lab, (HYPERVISOR, SNIC)) as cpu,
        AgentEvents(site.agent.client) as events,
        Story(site, events, cpu) as story,
    ):
        yield story


def run(console: Console, *, keep: bool = False, as_json: bool = False) -> bool:
    """Tell the story on a server of its own; see `play`."""
    site = Site("demo", one_function(WEB_VIP, DATA_VIP), console, _SETTINGS)
    return play(site, _open, keep_running, console, keep=keep, as_json=as_json)
