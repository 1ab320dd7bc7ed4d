"""Starts, finds and stops processes of instances.

A process has a *key*, INSTANCE.LOCATION, and at most one process has a given key: it locks the file KEY.lock while it
lives, and the kernel releases the lock when it ends, even after crashes of others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nfagent.launch.commands import Places
from nfagent.launch.logs import Part, Position

__all__ = ["CONFIG_WORD", "Examined", "Launcher", "Places", "Process", "Task"]


@dataclass(frozen=True)
class Process:
    """A running process: its id and start time on its machine, and its incarnation."""

    pid: int
    started: int
    incarnation: str


@dataclass(frozen=True)
class Task:
    """A process to start.

    Attributes:
        enter: command prefix that enters the slot's namespaces.
        command: the command.
        config: text of the file ``{config}``.
        variables: added to its environment.
        descriptors: open files for it, by their number there.
    """

    key: str
    incarnation: str
    enter: tuple[str, ...]
    command: tuple[str, ...]
    config: str
    variables: dict[str, str]
    descriptors: dict[int, int] = field(default_factory=dict)


CONFIG_WORD = "{config}"
"""The word of an examining command that becomes the path of the configuration."""


@dataclass(frozen=True)
class Examined:
    """The findings of a command about a configuration.

    Attributes:
        command: its words.
        file: where the configuration was, as the command names it.
        status: its exit status; those of a shell if it cannot run.
        said: its standard error.
    """

    command: tuple[str, ...]
    file: str
    status: int
    said: str


class Launcher(Protocol):
    """Processes at one location. All methods raise `LaunchError` if the location does not answer."""

    def places(self, key: str, interfaces: tuple[str, ...]) -> Places:
        """Return the names of a process's files and interfaces where it runs."""
        ...

    def control_path(self, key: str) -> Path:
        """Return the path of its control socket on this machine."""
        ...

    def start(self, task: Task) -> Process:
        """Start a process. Return a running one of this incarnation; stop one of another incarnation first."""
        ...

    def find(self, key: str) -> Process | None:
        """Return the process of a key, if one runs."""
        ...

    def stop(self, key: str, grace_s: float) -> None:
        """End the process of a key and its children, by force after ``grace_s``. Delete its files but not its log."""
        ...

    def kill(self, key: str, incarnation: str) -> None:
        """Kill the process of a key and incarnation, even if stopped; its end is handled as any other."""
        ...

    def all_keys(self) -> list[str]:
        """Return all keys that have files."""
        ...

    def last_words(self, key: str) -> str:
        """Return the end of its output."""
        ...

    def read_log(self, key: str, after: Position | None, most: int, *, older: bool = False) -> Part | None:
        """Return at most ``most`` bytes of its output: behind a position, or else the newest. None: it has no log.

        ``older``: of the process before it, or what was cut off its own log.
        """
        ...

    def tend_logs(self, kept: Callable[[str], bool]) -> None:
        """Truncate long logs; remove those of keys that are not ``kept`` and have no process."""
        ...

    def ending(self, process: Process) -> str:
        """Return how a process has ended, such as `` with exit status 3``, if that is known."""
        ...

    def call(self, enter: tuple[str, ...], command: list[str]) -> None:
        """Run a short command and wait for its end."""
        ...

    def examine(self, enter: tuple[str, ...], command: tuple[str, ...], config: str) -> Examined:
        """Run a short command on the text of a configuration, where a process would run, and wait for its end."""
        ...

    def own_pid(self, process: Process, enter: tuple[str, ...]) -> int:
        """Return the program's own process, if a wrapper that entered its namespaces waits for it."""
        ...

    def pidfd(self, process: Process) -> int | None:
        """Return a descriptor that becomes readable when the process ends; None: poll instead."""
        ...
