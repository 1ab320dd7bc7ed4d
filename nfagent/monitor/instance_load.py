"""Load of instances: their own counters over the control socket, CPU time of their processes."""

import contextlib
import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from nfagent.control import Control, flow_count
from nfagent.errors import ControlError, ControlRefusedError
from nfagent.measurement import Load, Rate
from nfagent.monitor.subjects import Subject
from server.processes import PROC

_ANSWER_S = 0.5
_ALL_ANSWER_S = 1.0
_THREADS = 16
_PAUSE_S = 10.0
_BATCH = 64  # packets that a batch of the runtime has at most
_CPUCLOCK_SCHED = 2  # clock_getcpuclockid(3): ids of processes' clocks, linux/posix-timers.h


@dataclass(frozen=True)
class Counted:
    """What was counted of a process since it began; None: it is not known.

    Attributes:
        at: when, in seconds of a steady clock.
        cpu_ns: CPU time of the process.
        busy_ns: time of its workers in turns that brought packets.
    """

    at: float
    cpu_ns: int | None = None
    busy_ns: int | None = None
    batches: int = 0
    packets: int = 0
    octets: int = 0
    frames: int = 0
    flows: int | None = None


class LoadProbe:
    """Asks processes, side by side. One that does not answer in time is left alone for a while.

    Thread safety: one thread.
    """

    def __init__(self) -> None:
        self._mute: dict[str, float] = {}

    def look(self, subjects: Collection[Subject]) -> dict[str, Counted]:
        """Return the processes' counters, by incarnation."""
        now, known = time.monotonic(), {subject.incarnation for subject in subjects}
        self._mute = {key: until for key, until in self._mute.items() if until > now and key in known}
        pool = ThreadPoolExecutor(_THREADS, "ask instances")
        asked = {
            subject.incarnation: pool.submit(_asked, subject, subject.control)
            for subject in subjects
            if subject.control is not None and subject.incarnation not in self._mute
        }
        wait(asked.values(), _ALL_ANSWER_S)
        pool.shutdown(wait=False, cancel_futures=True)  # nobody had time for those: they are asked the next time
        answers = {incarnation: self._answer(incarnation, future) for incarnation, future in asked.items()}
        return {each.incarnation: answers.get(each.incarnation) or _unasked(each) for each in subjects}

    def _answer(self, incarnation: str, asked: Future[Counted]) -> Counted | None:
        if asked.cancelled():
            return None
        try:
            return asked.result(0)
        except ControlRefusedError:
            self._mute[incarnation] = float("inf")  # it has none
        except (ControlError, TimeoutError):
            self._mute[incarnation] = time.monotonic() + _PAUSE_S
        return None


def _asked(subject: Subject, control: str) -> Counted:
    counters = Control(Path(control)).ask("counters", timeout_s=_ANSWER_S)
    counted = _unasked(subject)
    if not isinstance(counters.get("busy_ns"), int):
        return counted
    get = {name: value for name, value in counters.items() if isinstance(value, int | float)}
    return replace(
        counted,
        busy_ns=int(get["busy_ns"]),
        batches=int(get.get("batches", 0)),
        packets=int(get.get("packets_in", 0)),
        octets=int(get.get("bytes_in", 0) + get.get("bytes_out", 0)),
        frames=int(get.get("packets_in", 0) + get.get("packets_out", 0)),
        flows=flow_count(get),
    )


def _unasked(subject: Subject) -> Counted:
    cpu = cpu_time_ns(subject.pid) if subject.pid is not None else None
    return Counted(time.monotonic(), cpu)


def cpu_time_ns(pid: int) -> int | None:
    """CPU time that a process and those below it have used; None: there is no such process.

    Words that enter a PID namespace wait outside of it: what works is then a child of the process that was started.
    """
    try:
        used = time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return None
    return used + sum(cpu_time_ns(child) or 0 for child in _children(pid))


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):  # it has ended, or the kernel has no CONFIG_PROC_CHILDREN
        return [int(each) for each in (PROC / f"{pid}/task/{pid}/children").read_text().split()]
    return []


def load(subject: Subject, before: Counted, now: Counted, traffic: Rate | None) -> Load:
    """Between two looks at one process.

    Args:
        subject: whose.
        before: the earlier look.
        now: the later one.
        traffic: over its ports, as the switches counted; None: they did not, and it counts itself.
    """
    seconds = max(now.at - before.at, 1e-6)
    busy = None if before.busy_ns is None or now.busy_ns is None else max(0, now.busy_ns - before.busy_ns)
    cpu = None if before.cpu_ns is None or now.cpu_ns is None else max(0, now.cpu_ns - before.cpu_ns)
    used = cpu if cpu is not None else busy or 0
    if busy is not None:
        batches, packets = now.batches - before.batches, now.packets - before.packets
        utilisation = util_plus(busy / 1e9, seconds * subject.workers, packets, batches)
    else:
        utilisation = min(1.0, used / 1e9 / (seconds * subject.workers))
    if traffic is None:
        octets, frames = max(0, now.octets - before.octets), max(0, now.frames - before.frames)
        if busy is None:
            octets = frames = 0  # it did not say, once or twice: what it has counted since it began is not of this time
        traffic = Rate(octets * 8 / 1e6 / seconds, frames / seconds)
    return Load(utilisation, round(used / 1e6 / seconds), traffic, now.flows)


def util_plus(busy_s: float, available_s: float, packets: int, batches: int) -> float:
    """util+ of HNLB, section IV: time spent on packets, corrected for how full the batches were.

    It is 0 without traffic, and 1 where every batch is full and every moment is used; between the two it is a fit.
    """
    if batches <= 0 or available_s <= 0:
        return 0.0
    fullness = min(1.0, packets / (batches * _BATCH))
    return min(1.0, busy_s / available_s) * (1 + fullness) / 2
