"""Simulated machines: processes by key, and their control sockets."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfagent.control import TIMEOUT_S, Answer
from nfagent.errors import ControlRefusedError, ControlUnreachableError, LaunchError
from nfagent.launch import Examined, Places, Process, Task
from nfagent.launch.logs import Part, Position
from tests.nfagent.faults.nf import Arena, Keeper, Nf, Request, inodes
from tests.nfagent.faults.switches import HUB

if TYPE_CHECKING:
    from tests.nfagent.faults.world import World

_PULSE_S = 1.0
RUNTIME = Path("/nonexistent/faults")


@dataclass
class FakeProcess:
    """A process, which may hang or have ended."""

    key: str
    location: str
    process: Process
    program: Nf | Keeper
    hung_since: float = 0.0
    hung_until: float = 0.0
    queued: list[Request] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self.program.is_alive

    @property
    def is_keeper(self) -> bool:
        """Tell whether the process is a keeper."""
        return isinstance(self.program, Keeper)


class Machines:
    """All processes of a server by key, on all its machines.

    Args:
        world: their world.
        remote: locations reached by ssh.
    """

    def __init__(self, world: World, remote: frozenset[str]) -> None:
        self._world, self.remote = world, remote
        self.processes: dict[str, FakeProcess] = {}
        self.arenas: dict[int, Arena] = {}
        self.refused: set[str] = set()  # verbs
        self._pid = 1000

    def launchers(self, locations: tuple[str, ...]) -> dict[str, FakeLauncher]:
        """Return a launcher per location; locations on this machine share one."""
        here = FakeLauncher(self._world, self, "", frozenset(locations) - self.remote)
        return {
            name: FakeLauncher(self._world, self, name, frozenset({name})) if name in self.remote else here
            for name in locations
        }

    def functions(self) -> list[FakeProcess]:
        """Return running processes other than keepers, in order of their start."""
        return [each for each in self.processes.values() if each.is_alive and not each.is_keeper]

    def keepers(self) -> list[FakeProcess]:
        """Return the running keepers."""
        return [each for each in self.processes.values() if each.is_alive and each.is_keeper]

    def spawn(self, task: Task, location: str) -> FakeProcess:
        """Start a process."""
        self._pid += 1
        key = task.key
        if key.startswith("keeper."):
            program: Nf | Keeper = Keeper()
        else:
            adopted = [self.arenas[inode] for inode in inodes(list(task.descriptors.values()))]
            program = Nf(
                {"text": task.config},
                hold="--hold" in task.command,
                adopted=adopted[0] if adopted else None,
                arenas=self.arenas,
                connect=self._listening,
                marked=self._world.switches.marked,
                wait=self._world.clock.sleep,
                is_stuck=self.is_stuck,
                is_stalled=lambda: not all(map(self._world.switches.is_up, (HUB, location))),
            )
        made = FakeProcess(key, location, Process(self._pid, self._pid, task.incarnation), program)
        self.processes.pop(key, None)
        self.processes[key] = made
        return made

    def _listening(self, address: str) -> Nf | None:
        for each in self.functions():
            assert isinstance(each.program, Nf)
            if each.program.listens == address:
                return each.program
        return None

    def is_stuck(self, program: Nf) -> bool:
        """Tell whether a program reads nothing now."""
        return self.is_hung(next(each for each in self.processes.values() if each.program is program))

    def kill(self, process: FakeProcess) -> None:
        """End a process at once."""
        process.program.is_alive = False
        if isinstance(process.program, Keeper):
            process.program.close()
        for request in process.queued:
            request.close()
        process.queued.clear()

    def is_stopped(self, pid: int) -> bool:
        """Tell whether the process with this id hangs."""
        return any(each.process.pid == pid and each.is_alive and self.is_hung(each) for each in self.processes.values())

    def hang(self, process: FakeProcess, seconds: float) -> None:
        """Make a process hang for a while; it handles requests afterwards."""
        if not self.is_hung(process):
            process.hung_since = self._world.clock.now
        process.hung_until = self._world.clock.now + seconds
        if seconds < math.inf:
            self._world.clock.at(seconds, "catch up", lambda: self._catch_up(process))

    def is_hung(self, process: FakeProcess) -> bool:
        """Tell whether the process hangs."""
        return self._world.clock.now < process.hung_until

    def _catch_up(self, process: FakeProcess) -> None:
        """Make a process that has recovered handle its requests."""
        while process.queued and not self.is_hung(process):
            request = process.queued.pop(0)
            try:
                _, descriptors = process.program.answer(request)
            except ControlRefusedError:
                continue
            finally:
                request.close()
            for descriptor in descriptors:
                os.close(descriptor)

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            if process.is_alive:
                self.kill(process)
        for arena in self.arenas.values():
            os.close(arena.descriptor)
        self.arenas.clear()

    def reaches(self, location: str) -> bool:
        """Tell whether this machine reaches that of a location."""
        return location not in self.remote or self._world.switches.is_up(location)


class FakeLauncher:
    """See `nfagent.launch.Launcher`."""

    def __init__(self, world: World, machines: Machines, name: str, locations: frozenset[str]) -> None:
        self._world, self._machines, self._name, self._locations = world, machines, name, locations

    def _cross(self, what: str, key: str, *, after: bool = True) -> None:
        """Be a fault point; afterwards, fail where the location cannot be reached."""
        self._world.cross("launch", f"{what} {self._world.short(key)}", LaunchError if after else None)
        self._reach()

    def _reach(self) -> None:
        if self._name and not self._machines.reaches(self._name):
            self._world.clock.sleep(5.0)
            raise LaunchError(f"{self._name} cannot be reached")

    def places(self, key: str, interfaces: tuple[str, ...]) -> Places:
        return Places(f"{key}.json", str(self._path(key)), interfaces)

    def _path(self, key: str) -> Path:
        return RUNTIME / f"{key}.sock"

    def control_path(self, key: str) -> Path:
        if self._name:
            self._reach()
        return self._path(key)

    def start(self, task: Task) -> Process:
        if task.descriptors and self._name:
            raise LaunchError(f"{task.key}: cannot pass open files to {self._name}")
        short, words = self._world.short(task.key), task.command[1:] if task.descriptors or task.config else ()
        self._world.note(f"start {short} {' '.join(words)} adopting {len(task.descriptors)}")
        with self._world.crossing("launch", f"start {short}", LaunchError):
            self._reach()
            found = self._machines.processes.get(task.key)
            if found is not None and found.is_alive:
                if found.process.incarnation == task.incarnation:
                    return found.process
                self._machines.kill(found)
            location = task.key.rpartition(".")[2] if not task.key.startswith("keeper.") else ""
            return self._machines.spawn(task, location).process

    def find(self, key: str) -> Process | None:
        self._cross("find", key)
        found = self._machines.processes.get(key)
        return found.process if found is not None and found.is_alive else None

    def stop(self, key: str, grace_s: float) -> None:
        self._world.note(f"stop {self._world.short(key)} within {grace_s:g} s")
        with self._world.crossing("launch", f"stop {self._world.short(key)}", LaunchError):
            self._reach()
            found = self._machines.processes.get(key)
            if found is not None and found.is_alive:
                if self._machines.is_hung(found):
                    self._world.clock.sleep(grace_s)
                self._machines.kill(found)

    def kill(self, key: str, incarnation: str) -> None:
        self._world.note(f"kill {self._world.short(key)}")
        with self._world.crossing("launch", f"kill {self._world.short(key)}", LaunchError):
            self._reach()
            found = self._machines.processes.get(key)
            if found is not None and found.process.incarnation == incarnation:
                self._world.kill(found)

    def all_keys(self) -> list[str]:
        self._reach()
        here = (lambda at: at == self._name) if self._name else (lambda at: at not in self._machines.remote)
        return sorted(key for key, each in self._machines.processes.items() if each.is_alive and here(each.location))

    def last_words(self, key: str) -> str:
        self._reach()
        return "it said nothing"

    def read_log(self, key: str, after: Position | None, most: int, *, older: bool = False) -> Part | None:
        self._reach()
        return None

    def ending(self, process: Process) -> str:
        return ""

    def tend_logs(self, kept: Callable[[str], bool]) -> None:
        """Do nothing: the simulation writes no logs."""

    def call(self, enter: tuple[str, ...], command: list[str]) -> None:
        self._cross("call", "ip")

    def examine(self, enter: tuple[str, ...], command: tuple[str, ...], config: str) -> Examined:
        raise LaunchError(f"kinds of the simulation have no {command}")

    def own_pid(self, process: Process, enter: tuple[str, ...]) -> int:
        return process.pid

    def pidfd(self, process: Process) -> int | None:
        return None


class FakeConnection:
    """See `nfagent.control.Connection`; ``world`` is set on a subclass."""

    world: World

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self.path, self._timeout_s = path, timeout_s
        found = self.world.machines.processes.get(path.stem)
        if found is None or not found.is_alive or not self.world.machines.reaches(found.location):
            raise ControlUnreachableError(f"{path.name}: nobody answers")
        self._process = found
        self._is_open = True

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        answer = self.exchange(verb, **arguments)
        for descriptor in answer.descriptors:
            os.close(descriptor)
        return answer.value

    def exchange(
        self,
        verb: str,
        *,
        timeout_s: float | None = None,
        descriptors: Any = (),
        meanwhile: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> Answer:
        beside: list[int] = []
        try:
            value = self._exchange(verb, timeout_s or self._timeout_s, meanwhile, descriptors, arguments, beside)
        except BaseException:
            Request(verb, {}, beside).close()
            raise
        return Answer(value, beside)

    @contextlib.contextmanager
    def begun(
        self, verb: str, *, timeout_s: float, meanwhile: Callable[[], None], **arguments: Any
    ) -> Iterator[Callable[[], Answer]]:
        """See `Connection.begun`: the process acts when the answer is waited for."""
        yield lambda: self.exchange(verb, timeout_s=timeout_s, meanwhile=meanwhile, **arguments)

    def _exchange(
        self,
        verb: str,
        limit: float,
        meanwhile: Callable[[], None] | None,
        descriptors: Any,
        arguments: dict[str, Any],
        beside: list[int],
    ) -> dict[str, Any]:
        world, process = self.world, self._process
        said = "".join(f" {name}={value}" for name, value in sorted(arguments.items()) if name != "secret")
        files = f" with {len(descriptors)} files" if descriptors else ""
        secret = " and the secret" if "secret" in arguments else ""
        world.note(f"ask {world.short(process.key)} {verb}{said}{files}{secret} within {limit:g} s")
        with world.crossing("control", f"ask {world.short(process.key)} {verb}", _refusal(verb), self._silence):
            if not self._is_open:
                raise ControlUnreachableError(f"{self.path.name}: the connection is closed")
            self._require(verb)
            is_far = process.location in world.machines.remote  # connections that pass no open files
            request = Request(verb, arguments, [] if is_far else [os.dup(each) for each in descriptors])
            if world.machines.is_hung(process):
                self._wait_for(request, verb, limit, meanwhile)
            try:
                if verb in world.machines.refused:
                    raise ControlRefusedError(verb, "schema", "another schema")
                value, given = process.program.answer(request)
                beside += given if not is_far else []
                Request(verb, {}, given if is_far else []).close()
            finally:
                request.close()
        return value

    def _wait_for(self, request: Request, verb: str, limit: float, meanwhile: Callable[[], None] | None) -> None:
        """Wait for a hanging process, which may recover in time."""
        world, process = self.world, self._process
        end = world.clock.now + limit
        try:
            while world.machines.is_hung(process):
                if world.clock.now >= end:
                    raise self._silence(f"no answer to {verb}: timed out")
                pause = min(process.hung_until, end) - world.clock.now
                world.clock.sleep(pause if meanwhile is None else min(pause, _PULSE_S))
                self._require(verb)
                if meanwhile is not None and world.machines.is_hung(process):
                    meanwhile()
        except BaseException:
            if process.is_alive:
                process.queued.append(request)
            else:
                request.close()
            raise

    def _require(self, verb: str) -> None:
        if not self._process.is_alive or not self.world.machines.reaches(self._process.location):
            raise self._silence(f"no answer to {verb}: the connection was closed")

    def _silence(self, said: str) -> ControlUnreachableError:
        self._is_open = False
        return ControlUnreachableError(f"{self.path.name}: {said}")

    def is_open(self) -> bool:
        return self._is_open and self._process.is_alive

    def close(self) -> None:
        self._is_open = False

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakePulse:
    """See `nfagent.pulse.Pulse`; ``world`` is set on a subclass."""

    world: World

    def __init__(self, target: str) -> None:
        self._key = Path(target.removeprefix("unix:")).stem
        found = self.world.machines.processes.get(self._key)
        is_hung = found is not None and self.world.machines.is_hung(found)
        self._heard = found.hung_since if found and is_hung else self.world.clock.now

    def look(self) -> None:
        found = self.world.machines.processes.get(self._key)
        if found is not None and found.is_alive:
            is_hung = self.world.machines.is_hung(found)  # otherwise it answered until now
            self._heard = max(self._heard, found.hung_since) if is_hung else self.world.clock.now

    def silent_s(self) -> float:
        return self.world.clock.now - self._heard

    def forgive(self) -> None:
        self._heard = self.world.clock.now

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _refusal(verb: str) -> Any:
    return lambda said: ControlRefusedError(verb, "test", said)
