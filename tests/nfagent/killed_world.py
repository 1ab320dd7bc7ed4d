"""A server with a load balancer under traffic whose processes are killed, and the invariants afterwards."""

import contextlib
import os
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from lab.agent import AgentProcess
from lab.balancer import Balancer, balancer_spec
from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.flow_stream import FlowStream
from lab.flow_tally import FlowTally
from lab.processes import children
from lab.server import Lab
from nfagent.model import Migration, Running
from nfagent.store import migrations, processes
from server.processes import PROC
from tests.nfagent.kill_plans import Plan

FLOWS = 50
PPS = (
    500  # while the agent is away after a flip they wait, and are then released at once: a switch's queues have an end
)
_STAY: dict[str, Any] = {"decide": {"enabled": False}}  # nothing else moves it
_SETTINGS = {"memfd": _STAY, "copy": _STAY | {"migrate": {"mode": "copy"}}}
_SETTLED_S = 60.0
_FLOWS_AGAIN_S = 60.0
_POLL_S = 0.001
_STOPPED_S = 10.0
_GAPS = 5
_PAUSE_S = 0.02  # ten times the interval between two packets
_CERTAIN_S = 0.15  # the machine rarely stalls everything for longer, even while a program starts
_BEFORE_S = 5.0  # that say how often it does
_REPEATED = 5
_NOISE_S = 0.5
_RECOVERED_S = 0.1  # after the end of a migration


class World:
    """One lab, agent and instance for its whole life, while processes come and go.

    Args:
        mode: how state moves: ``memfd``, ``copy``.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._ends = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self._ends.close()
            raise

    def _start(self) -> None:
        enter = self._ends.enter_context
        patch = enter(pytest.MonkeyPatch.context())
        self.directory = Path(enter(tempfile.TemporaryDirectory(prefix="uk-", dir="/tmp")))
        patch.setenv(ENVIRONMENT, str(self.directory))
        self.lab = enter(Lab(balancer_spec()).start())
        self._start_oneswitchd()
        self._ends.callback(self._stop_oneswitchd)
        self.agent = enter(AgentProcess(self.lab, self.directory / "agent", _SETTINGS[self.mode]))
        self.balancer = Balancer(self.lab, self.oneswitchd, self.agent, FLOWS)
        self._db = enter(contextlib.closing(_connect(self.directory / "agent/state/nfagent.db")))
        self.stream: FlowStream = enter(self.balancer.traffic(self.directory))
        self.tally = FlowTally()
        self.stream.fill()
        self.stream.set_rate(PPS)
        # The report compares pauses with those of the traffic before, which must have lasted for a moment.
        before = self.stream.sent() + PPS
        await_true(lambda: self.stream.sent() > before, _SETTLED_S)
        self.checked = 0
        self._arrived: list[tuple[float, float, int]] = []

    def _start_oneswitchd(self) -> None:
        self.oneswitchd = Oneswitchd(self.lab.server_toml)
        self.oneswitchd.wait_up()

    def _stop_oneswitchd(self) -> None:
        self.oneswitchd.stop()

    def kill_oneswitchd(self) -> None:
        """Kill oneswitchd."""
        self.oneswitchd.stop(signal.SIGKILL)

    def start_oneswitchd(self) -> None:
        """Start oneswitchd again."""
        self._start_oneswitchd()

    def dashboard(self) -> str:
        """Return the dashboard's page as an operator sees it."""
        return self.agent.client.get("/dashboard").text

    def daemon_pid(self, switch: str, daemon: str) -> int | None:
        """Return the PID of a switch's daemon."""
        state = next(each for each in self.lab.state.switches if each.name == switch)
        return state.processes.get(daemon)

    def location(self) -> str:
        """Return the instance's location according to the API."""
        return self.balancer.show()["placement"]["location"]

    def migration(self, epoch: int) -> Migration:
        """Return a migration from the journal, without a request to the agent."""
        found = migrations.find(self._db, epoch)
        assert found is not None
        return found

    def newest(self) -> Migration:
        """Return the newest migration: a later one may have evacuated the instance from a dead switch."""
        (found,) = migrations.page(self._db, self.balancer.id, None, 1, None)
        return found

    def process_at(self, location: str) -> int | None:
        """Return the network function's own PID: it is a child of the program that entered its namespaces."""
        row = next((each for each in self.rows() if each.location == location), None)
        if row is None or row.pid is None:
            return None
        inside = children(row.pid)
        return row.own_pid or (inside[0] if inside else None)

    def rows(self) -> list[Running]:
        """Return the instance's processes from the store, without a request to the agent."""
        return processes.of(self._db, self.balancer.id)

    # ---- invariants after a migration

    def packets(self) -> dict[str, Any]:
        """Return the effects on packets since the last call; ``gaps``: first and last of consecutive lost ones."""
        before = (self.tally.duplicated, self.tally.reordered, self.tally.strayed)
        upto = self.stream.sent() + FLOWS  # each flow has sent again, which shows whether its state was lost
        newest, deadline = -1, time.monotonic() + _FLOWS_AGAIN_S
        # What waits behind an outage arrives late; it would hide the beginning of the next one.
        while (newest < upto or self.stream.sent() - newest > FLOWS) and time.monotonic() < deadline:
            arrivals = list(self.stream.arrivals())
            self.tally.add(arrivals)
            self._arrived += [(each.arrived_ns / 1e9, each.sent_ns / 1e9, each.number) for each in arrivals]
            newest = max([newest, *(each.number for each in arrivals)])
            if newest >= upto and self.tally.lost(upto, newest - FLOWS):
                upto = newest + FLOWS  # the outage went on; what it cost belongs to this fault
            time.sleep(_POLL_S)
        lost = self.tally.lost(self.checked, upto)
        self.checked = upto
        after = (self.tally.duplicated, self.tally.reordered, self.tally.strayed)
        counted = dict(zip(("duplicated", "reordered", "strayed"), map(int.__sub__, after, before), strict=True))
        return {"flows": newest >= upto, "lost": len(lost), "gaps": _runs(lost)[:_GAPS], **counted}

    def outage_s(self, since: float, until: float) -> "Seen":
        """Measure how long no packet arrived between two moments; call `packets` before.

        Arrivals more than 5 s older than the newest are forgotten.
        """
        found = Seen.of(self._arrived, since, until)
        newest = max(self._arrived, default=(0.0,))[0]
        self._arrived = [each for each in self._arrived if each[0] >= newest - _BEFORE_S]
        return found

    def inconsistencies(self) -> list[str]:
        """Return contradictions to the API, after time to settle."""
        deadline = time.monotonic() + _SETTLED_S
        while (problems := list(self._inconsistencies())) and time.monotonic() < deadline:
            time.sleep(0.02)
        return problems

    def _inconsistencies(self) -> Iterator[str]:
        shown = self.balancer.show()
        if (shown["status"], shown["reason"]) != ("active", None):
            yield f"the instance is {shown['status']}: {shown['reason']}"
            return
        place = shown["placement"]
        rows = [(each.role, each.location, each.slot, each.own_pid, each.phase) for each in self.rows()]
        if rows != [("serving", place["location"], place["slot"], place["pid"], "active")]:
            yield f"processes by the store: {rows}; by the API: {place}"
        yield from self._switches(place)
        yield from self._processes(place)

    def _switches(self, place: dict[str, Any]) -> Iterator[str]:
        for switch in self.agent.client.get("/api/v1/switches").json()["switches"]:
            taken = [slot["name"] for slot in switch["slots"] if slot["taken"] is not None]
            if taken != ([place["slot"]] if switch["name"] == place["location"] else []):
                yield f"slots taken at {switch['name']}: {taken}; it is at {place}"
        slots = {slot.name: slot for slot in self.lab.state.slots}
        home = (place["location"], slots[place["slot"]].interfaces[0])
        known = {port.number for port in self.lab.state.ports} | {self.balancer.number}
        for port in self.oneswitchd.client.ports():
            if port.number not in known:
                yield f"oneswitchd has a port {port.number} of nobody"
            if port.number == self.balancer.number and (port.switch, port.interface) != home:
                yield f"oneswitchd has the port at {port.switch} {port.interface}, the instance is at {home}"
            if port.move is not None or port.state != "up":
                yield f"port {port.number} is {port.state} ({port.reason}), moving: {port.move}"

    def _processes(self, place: dict[str, Any]) -> Iterator[str]:
        key = f"{self.balancer.id}.{place['location']}"
        runtime = str(self.agent.runtime)
        for pid, words in _commands():
            text = " ".join(words)
            if runtime in text and pid != self.agent.pid and f"{runtime}/{key}." not in text:
                yield f"process {pid} is left over: {text}"
        ours = [pid for pid, words in _commands() if f"{runtime}/{key}.sock" in words]
        leaders = [each.pid for each in self.rows() if each.own_pid == place["pid"]]
        if not leaders:
            yield f"the API tells of process {place['pid']}, the store does not"
            return
        expected = [leaders[0], *children(leaders[0] or 0)]
        if place["pid"] not in expected:
            yield f"the API tells of process {place['pid']}, there are {expected}"
        if sorted(ours) != sorted(expected):
            yield f"processes {ours} run for {key}, expected {expected}"
        known = {f"{key}.{suffix}" for suffix in ("lock", "json", "sock")}
        files = {path.name for path in self.agent.runtime.iterdir()}
        if files != known:
            yield f"files in {runtime}: {sorted(files)}; expected {sorted(known)}"

    def complaints(self) -> list[str]:
        """Return unexpected errors from the agent's log."""
        return [line for line in self.agent.log.read_text().splitlines() if line.startswith("Traceback")]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends.close()


@dataclass(frozen=True)
class Seen:
    """The time without arrivals, in pauses longer than usual.

    Attributes:
        least_s: sum of pauses that only an outage causes, without those of the sender, which shares the machine.
        most_s: sum including these and shorter pauses, which may be an outage or not.
        noise_s: longest pause before and after: the machine's own, without any fault.
        pauses: counted pauses: start, relative to the beginning, and duration.
    """

    least_s: float = 0.0
    most_s: float = 0.0
    noise_s: float = 0.0
    pauses: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, arrivals: list[tuple[float, float, int]], since: float, until: float) -> "Seen":
        """Measure between two moments, from each packet's arrival, sending time and number."""
        least = most = noise = 0.0
        newest, pauses = -1, []
        certain_s = _certain_s(arrivals, since)
        for (before, _, number), (after, sent, next_number) in pairwise(sorted(arrivals)):
            newest = max(newest, number)
            start, end = max(before, since), min(after, until)
            if after < since - _NOISE_S:
                continue
            if after < since or before > until + _RECOVERED_S:
                noise = max(noise, after - before)
            elif end - start > _PAUSE_S:
                most += end - start
                pauses.append((round(start - since, 4), round(end - start, 4)))
                began = start if next_number > newest + 1 else max(start, sent)  # otherwise packets were lost
                least += end - began if end - began > certain_s else 0.0
        return cls(least, most, noise, tuple(pauses))


def _certain_s(arrivals: list[tuple[float, float, int]], since: float) -> float:
    """Return the shortest pause that only an outage causes, as nfagent/migrate/served.py does."""
    arrived = sorted(at for at, _, _ in arrivals if since - _BEFORE_S <= at <= since)
    pauses = sorted(after - before for before, after in pairwise(arrived))
    return max(_CERTAIN_S, 2 * pauses[-_REPEATED]) if len(pauses) >= _REPEATED else _CERTAIN_S


class Fault:
    """A fault of a process of a world, which can be undone.

    Args:
        world: with the process.
        plan: of the fault.
        source: present location of the instance.
        target: of its migration.
    """

    def __init__(self, world: World, plan: Plan, source: str, target: str) -> None:
        self._world, self._plan = world, plan
        self._target = target
        self._old, self._new = world.process_at(source), None
        place = plan.switch_and_daemon
        self._daemon = place and ({"source": source, "target": target}[place[0]], place[1])
        self._undo: Callable[[], None] | None = None

    def find_new(self) -> bool:
        """Look for the new process; tell whether it exists."""
        self._new = self._world.process_at(self._target)
        return self._new is not None

    def do(self) -> bool:
        """Cause the fault; tell whether its victim existed."""
        pid = self._pid()
        if pid is None:
            return False
        if self._plan.how == "stop":
            signal_to(pid, signal.SIGSTOP)
            # Other threads continue until the one that gets the signal has had the CPU.
            await_true(lambda: _is_stopped(pid), _STOPPED_S)
            self._undo = lambda: signal_to(pid, signal.SIGCONT)
        elif self._daemon is not None:
            switch, daemon = self._world.lab.switch(self._daemon[0]), self._daemon[1]
            switch.kill(daemon)
            self._undo = lambda: switch.start(daemon)
        elif self._plan.victim == "agent":
            self._world.agent.kill()
            self._undo = self._world.agent.start
        elif self._plan.victim == "oneswitchd":
            self._world.kill_oneswitchd()
            self._undo = self._world.start_oneswitchd
        else:
            signal_to(pid, signal.SIGKILL)
        return True

    def undo(self) -> None:
        """Restart or resume the victim unless that has happened."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def _pid(self) -> int | None:
        if self._daemon is not None:
            return self._world.daemon_pid(*self._daemon)
        return {
            "agent": lambda: self._world.agent.pid,
            "oneswitchd": lambda: self._world.oneswitchd.pid,
            "old": lambda: self._old,
            "new": lambda: self._new,
        }[self._plan.victim]()


def signal_to(pid: int, number: signal.Signals) -> None:
    """Send a signal if the process still lives."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    """Tell whether no thread of a process runs on; true if it has ended."""
    states = []
    for thread in (PROC / f"{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            # The state follows the command's name (proc_pid_stat(5)).
            states.append(thread.read_text().rpartition(")")[2].split()[0])
    return not set(states) - set("TtZX")


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def await_true(done: Callable[[], bool], timeout_s: float) -> bool:
    """Poll every millisecond; tell whether the condition became true."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def _commands() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                yield int(entry.name), words
