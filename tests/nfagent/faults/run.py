"""Runs: scenarios with faults, driven to their end, and their invariants."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nfagent import control, health, locations, reconcile, wiring
from nfagent.catalog import Catalog
from nfagent.config import AgentConfig
from nfagent.errors import AgentError
from nfagent.migrate import beside, migrator, peer, protocol
from nfagent.reconcile import WAKING
from nfagent.store import database, events, migrations
from server.config import ServerConfig
from tests.nfagent.faults import invariants, scenarios
from tests.nfagent.faults.clock import Clock
from tests.nfagent.faults.machine import FakeConnection, FakePulse
from tests.nfagent.faults.points import AgentDiedError, Fault, Point, name, parse
from tests.nfagent.faults.state import Moment, moment
from tests.nfagent.faults.switches import FakePlumbing
from tests.nfagent.faults.world import FaultyStore, World

_SERVER = """
[oneswitchd]
datapath_id = "00000000000000a1"
api = "unix:/nonexistent/oneswitchd.sock"
[[switch]]
name = "hypervisor"
virt = "unix:/nonexistent/virt.mgmt"
edge = "unix:/nonexistent/edge.mgmt"
[[switch]]
name = "snic0"
virt = "tcp:127.0.0.1:1"
edge = "tcp:127.0.0.1:2"
link = { hypervisor = "pcie-snic0", local = "pf0hpf" }
"""
_AGENT = """
nf = ""
[[kind]]
name = "nf"
movable = true
ports = [1, 1]
command = ["nf"]
[[kind]]
name = "opaque"
ports = [1, 1]
command = ["opaque"]
[[location]]
switch = "hypervisor"
slot = [{ name = "s0", wires = [{ edge = "vf0", inside = "lo" }] }]
[[location]]
switch = "snic0"
slot = [{ name = "s1", wires = [{ edge = "pf0vf0", inside = "lo" }] }]
"""
_STEPS = 24  # steps of the reconciler after the last fault, at most: minutes
_ALIKE = 5  # of them
_LEAST_S = 0.5  # between two of them, on average, where they never end
_QUIET = 3  # steps in which nothing changed
_DEATHS = 4
_AFTER_A_FAULT_S = 30.0


@dataclass(frozen=True)
class Result:
    """The outcome of a run."""

    name: str
    points: list[Point]
    violations: list[str]
    steps: int
    seconds: float
    outcomes: tuple[str | None, ...]  # its migrations, the newest first
    notes: list[str]
    moments: list[Moment]  # one per point, on request


class Lab:
    """Makes worlds and runs them, one at a time, in one thread.

    Args:
        directory: for the store's lock.
    """

    def __init__(self, directory: Path) -> None:
        self._config, self._server = AgentConfig.parse(_AGENT), ServerConfig.parse(_SERVER)
        self._catalog = Catalog.of(self._config, self._server)
        self._store = FaultyStore(directory / "store")
        self._empty = sqlite3.connect(":memory:")
        self._store.read.backup(self._empty)

    def close(self) -> None:
        """Release all resources."""
        self._store.close()
        self._empty.close()

    def run(self, scenario: str, *faults: Fault, is_tracing: bool = False) -> Result:
        """Run a scenario with faults until it is quiet; then delete the instance."""
        found = scenarios.ALL[scenario]
        self._empty.backup(self._store.read)
        self._store.begin_again()
        clock = Clock()
        before = _open_files()
        with _made_up(clock) as bind:
            world = World(
                self._store,
                self._config,
                self._server,
                self._catalog,
                clock,
                copies=found.copies,
                remote=found.remote,
                bind=bind,
            )
            found.begin(world, lambda: drive(world, []))
            for fault in faults:
                world.plan.setdefault(fault.index, []).append(fault)
            world.is_recording, world.is_tracing = True, is_tracing
            steps = _played(world)
            world.machines.close()
        if (left := _open_files() - before) > 0:
            world.violations.append(f"{left} files were left open")
        outcomes = tuple(each.outcome for each in migrations.page(self._store.read, None, None, _STEPS, None))
        called, ran = name(scenario, faults), (world.points, world.violations, steps, clock.elapsed)
        return Result(called, *ran, outcomes, world.notes, world.moments)

    def replay(self, text: str) -> Result:
        """Run the scenario and faults of a name."""
        scenario, faults = parse(text)
        return self.run(scenario, *faults)


def _played(world: World) -> int:
    restless: list[str] = []
    steps = drive(world, restless)
    world.is_recording = False
    world.look()  # a machine that recovered meanwhile is swept
    if not (world.is_lost and restless):  # a retrying agent may be at any step
        world.violations += invariants.settled(world, lost=world.is_lost) or restless
    world.delete()
    drive(world, [])
    world.violations += invariants.deleted(world, lost=world.is_lost)
    return steps


class _Tries:
    """Counts the reconciler's steps since the last fault, so that it has as many after each."""

    def __init__(self, world: World) -> None:
        self._world, self.number = world, 0
        self._begin()

    def _begin(self) -> None:
        self._first, self._began, self._happened = self.number, self._world.clock.elapsed, self._world.happened
        self._moment: Moment = ()
        self._alike = 0

    def go_on(self) -> bool:
        """Count a step; return False after enough, or after several without change while a part is lost."""
        if self._happened != self._world.happened:
            self._begin()
        if self._world.is_lost:
            before, self._moment = self._moment, moment(self._world)
            self._alike = self._alike + 1 if self._moment == before else 0
        if self.number >= self._first + _STEPS or self._alike >= _ALIKE:
            return False
        self.number += 1
        return True

    def are_hasty(self) -> bool:
        """Tell whether there was no pause between the steps."""
        return self._world.clock.elapsed - self._began < (self.number - self._first) * _LEAST_S


def drive(world: World, violations: list[str]) -> int:
    """Run the reconciler until nothing changes; return the number of steps."""
    quiet = deaths = 0
    tries = _Tries(world)
    while tries.go_on():
        last = world.store.last_event  # the store is used by one thread
        try:
            if world.is_dead:
                deaths += 1
                world.start_agent()
            idle = world.reconciler.idle
            idle.is_woken = False
            delay = world.reconciler.step(world.instance)
            if delay is None:
                return tries.number
            if not idle.is_woken and not _calls(world, last):
                world.clock.sleep(delay)
            quiet = quiet if world.store.last_event == last and not idle.is_woken else 0
        except AgentDiedError:
            assert deaths <= _DEATHS
            continue
        except Exception as error:  # noqa: BLE001  as `Schedule` does
            world.failures.append(error)
            if not isinstance(error, (AgentError, sqlite3.Error)):
                violations.append(f"a step failed: {error!r}")
            delay, quiet = _AFTER_A_FAULT_S, 0
            with contextlib.suppress(AgentDiedError):  # while the agent waits
                world.clock.sleep(delay)
        quiet += 1
        if quiet >= _QUIET and invariants.may_rest(world, delay):
            return tries.number
    if tries.are_hasty():
        world.violations.append(f"it is tried again without a pause; {invariants.standing(world)}")
    violations.append(f"it does not come to rest; {invariants.standing(world)}")
    return tries.number


def _calls(world: World, last: int) -> bool:
    """Tell whether a later event requires a step."""
    if world.store.last_event == last:
        return False
    return any(each.type.startswith(WAKING) for each in events.after(world.store.read, last, 100, None))


class _LateFuture(Future[Any]):
    """A future that runs when it is awaited, or polled for the third time."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__()
        self._act, self._asked = act, 0

    def done(self) -> bool:
        self._asked += 1
        if self._asked > 2:
            self._run()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        self._run()
        return super().result(0)

    def _run(self) -> None:
        if super().done():
            return
        try:
            self.set_result(self._act())
        except BaseException as error:  # noqa: BLE001
            self.set_exception(error)


class _NoThreads:
    """Replaces `ThreadPoolExecutor`."""

    def __init__(self, *_: Any) -> None:
        self._left: list[_LateFuture] = []

    def submit(self, act: Callable[..., Any], *arguments: Any) -> _LateFuture:
        self._left.append(_LateFuture(lambda: act(*arguments)))
        return self._left[-1]

    def shutdown(self, *, wait: bool) -> None:
        """Begin nothing more: what nothing waits for never runs."""
        assert not wait

    def __enter__(self) -> _NoThreads:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._left:
            with contextlib.suppress(BaseException):
                each.result()


class _PassingEvent:
    """Replaces `threading.Event`: it happens after it was asked once, and not while something waits for it."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        was_set, self._is_set = self._is_set, True
        return was_set

    def wait(self, timeout: float = 0.0) -> bool:
        time.sleep(timeout)
        return self._is_set


class _NoThread:
    """Replaces `threading.Thread`; it runs when started."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._run = lambda: target(*args)

    def start(self) -> None:
        """Run the target."""
        self._run()

    def join(self) -> None:
        """Do nothing: it has ended."""


class _NoOutage:
    """Replaces `nfagent.migrate.outage.Outage`, which uses sockets; ``world`` is set on a subclass."""

    world: World

    def __init__(
        self,
        sockets: list[Path],
        switches: list[str],
        single_threaded: Callable[[], set[str]],
        is_in_step: Callable[[], bool],
        file: Path,
        requested: float,
    ) -> None:
        assert callable(single_threaded)
        assert requested <= time.monotonic()
        names = ", ".join(path.name for path in sockets)
        self._what = f"measure {names} and {', '.join(switches)} into {file.name}"
        self._is_in_step = is_in_step

    def start(self) -> None:
        """Begin. The real one asks when a switch was away, and survives any error."""
        was_recording, self.world.is_recording = self.world.is_recording, False
        state = "in step" if self._is_in_step() else "out of step"
        self.world.is_recording = was_recording
        self.world.note(f"{self._what}, {state}")

    def seconds(self, freeze_s: float = 0.0) -> float:
        return max(0.004, freeze_s)

    def stop(self, *, ended: bool) -> None:
        """End the measurement."""
        self.world.note(f"measured, {'for good' if ended else 'so far'}")


class _NoTeller:
    """Replaces a thread of `nfagent.locations`."""

    def __init__(
        self, location: str, change: locations.Transition, changed: Callable[[str, locations.Transition], None]
    ) -> None:
        self._tell = lambda: changed(location, change)

    def tell(self) -> None:
        self._tell()


@contextlib.contextmanager
def _made_up(clock: Clock) -> Iterator[Callable[[World], None]]:
    """Simulate time, threads, sockets and switches; the yielded function binds them to a world."""
    connection, plumbing = type("Connection", (FakeConnection,), {}), type("Plumbing", (FakePlumbing,), {})
    pulse, outage = type("Pulse", (FakePulse,), {}), type("Outage", (_NoOutage,), {})

    def bind(world: World) -> None:
        connection.world = plumbing.world = pulse.world = outage.world = world

    def is_stopped(pid: int) -> bool:
        return pulse.world.machines.is_stopped(pid)

    with pytest.MonkeyPatch.context() as patch:
        for attribute, value in (("time", clock.read), ("monotonic", clock.read), ("sleep", clock.sleep)):
            patch.setattr(time, attribute, value)
        patch.setattr(control, "Connection", connection)
        patch.setattr(peer, "Connection", connection)
        patch.setattr(health, "Pulse", pulse)
        patch.setattr(health, "_is_stopped", is_stopped)
        patch.setattr(wiring, "ServerPlumbing", plumbing)
        patch.setattr(wiring, "Plumbing", plumbing)
        patch.setattr(locations, "_Teller", _NoTeller)
        patch.setattr(migrator, "Outage", outage)
        patch.setattr(protocol, "ThreadPoolExecutor", _NoThreads)
        patch.setattr(beside, "threading", SimpleNamespace(Event=_PassingEvent, Thread=_NoThread, Lock=threading.Lock))
        patch.setattr(reconcile, "threading", SimpleNamespace(Thread=_NoThread))
        yield bind


@contextlib.contextmanager
def lab(directory: Path) -> Iterator[Lab]:
    """A laboratory whose store is in memory."""
    logging.disable(logging.CRITICAL)
    gc.collect()  # files of earlier tests would hide files that a run leaks
    connect = database.sqlite3.connect

    def in_memory(_: object, **options: Any) -> sqlite3.Connection:
        return connect(":memory:", **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "sqlite3", SimpleNamespace(**(vars(sqlite3) | {"connect": in_memory})))
        made = Lab(directory)
        try:
            yield made
        finally:
            made.close()
            logging.disable(logging.NOTSET)
            gc.collect()


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
