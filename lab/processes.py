"""Process ids across the lab's PID namespace."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from server.processes import PROC, start_time


def children(pid: int) -> list[int]:
    """Return the running children of ``pid``."""
    return [child for child, parent in _parents() if parent == pid]


def in_network_namespaces(paths: Sequence[str]) -> dict[str, list[int]]:
    """Return the processes in each of the network namespaces with those paths, as far as this user may see."""
    wanted = {Path(path).stat().st_ino: path for path in paths}
    found: dict[str, list[int]] = {path: [] for path in paths}
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (path := wanted.get((entry / "ns/net").stat().st_ino)):
                found[path].append(int(entry.name))
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its ended threads, in seconds, to the nanosecond; 0 if it has ended."""
    # As clock_getcpuclockid(3), which Python does not have: CPUCLOCK_SCHED of a process in Linux's posix-timers.h.
    clock = (~pid << 3) | 2
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0


def _parents() -> Iterator[tuple[int, int]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            yield int(entry.name), int(stat[stat.rindex(")") + 2 :].split()[1])


class OuterProc:
    """The /proc from before the lab's own was mounted over it: process ids as the user outside sees them.

    Create it before that mount. The open directory lasts as long as the process.
    """

    def __init__(self) -> None:
        self._proc = Path(f"/proc/self/fd/{os.open(PROC, os.O_RDONLY | os.O_DIRECTORY)}")
        self.own_pid = _namespaced(self._proc / "self")[0]

    def outer_pid(self, inner: int) -> int:
        """Return the outer process id of ``inner``, a process of this namespace; 0 if it has ended."""
        namespace = (self._proc / "self/ns/pid").readlink()
        for entry in self._proc.iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                numbers = _namespaced(entry)
                if numbers[-1] == inner and (entry / "ns/pid").readlink() == namespace:
                    return numbers[0]
        return 0

    def start_time(self) -> int:
        """Return this process's start time in clock ticks since boot."""
        return start_time(self.own_pid, self._proc) or 0


def _namespaced(entry: Path) -> list[int]:
    """Return the ids of a process, from the namespace of this /proc to its own."""
    for line in (entry / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return [int(number) for number in line.split()[1:]]
    raise OSError(f"{entry}/status has no NSpid: Linux 4.1 or later is needed")
