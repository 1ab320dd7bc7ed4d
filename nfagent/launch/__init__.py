"""How a process of an instance is started, found again, and stopped.

A process has a *key*, INSTANCE.LOCATION, and there is never more than one of a key: it holds a lock on the file
KEY.lock for as long as it lives, which the kernel gives to one and takes back when it ends, whoever else crashes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nfagent.launch.commands import Places

__all__ = ["Launcher", "Places", "Process", "Task"]


@dataclass(frozen=True)
class Process:
    """A process that runs: its id and start time on its machine, and for which incarnation it was started."""

    pid: int
    started: int
    incarnation: str


@dataclass(frozen=True)
class Task:
    """A process to be started.

    Attributes:
        enter: words before the command, into the slot's namespaces.
        command: what is run.
        config: text of the file ``{config}``.
        variables: added to its environment.
        descriptors: open files that it gets, by the number that each has there.
    """

    key: str
    incarnation: str
    enter: tuple[str, ...]
    command: tuple[str, ...]
    config: str
    variables: dict[str, str]
    descriptors: dict[int, int] = field(default_factory=dict)


class Launcher(Protocol):
    """Processes at one location. All methods raise `LaunchError` where the location cannot be asked."""

    def places(self, key: str, interfaces: tuple[str, ...]) -> Places:
        """The names of a process's things where it runs."""
        ...

    def control_path(self, key: str) -> Path:
        """Its control socket, as this machine reaches it."""
        ...

    def start(self, task: Task) -> Process:
        """Start a process. One of this incarnation that runs already is returned; one of another is stopped first."""
        ...

    def find(self, key: str) -> Process | None:
        """The process of a key, if one runs."""
        ...

    def stop(self, key: str, grace_s: float) -> None:
        """End the process of a key, and its children; forced after ``grace_s``. Its files go, its log stays."""
        ...

    def kill(self, key: str, incarnation: str) -> None:
        """Kill the process of a key, if it is of this incarnation, stopped or not; its end is noticed as any other."""
        ...

    def all_keys(self) -> list[str]:
        """All keys that there are files of."""
        ...

    def last_words(self, key: str) -> str:
        """The end of what it wrote to standard output and error."""
        ...

    def tend_logs(self, kept: Callable[[str], bool]) -> None:
        """Cut logs that are too long; remove those of keys that are not ``kept`` and have no process."""
        ...

    def ending(self, process: Process) -> str:
        """How a process that is no more has ended, as `` with exit status 3``, where that is known."""
        ...

    def call(self, enter: tuple[str, ...], command: list[str]) -> None:
        """Run a short command and wait for its end."""
        ...

    def own_pid(self, process: Process, enter: tuple[str, ...]) -> int:
        """The program itself, where what entered its namespaces has started it and waits for it."""
        ...

    def pidfd(self, process: Process) -> int | None:
        """A descriptor that becomes readable when the process ends; None: it has to be asked for now and then."""
        ...
