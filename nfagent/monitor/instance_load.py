"""Load of instances: their own counters over the control socket, CPU time of their processes."""

import contextlib
import re
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from nfagent.control import Connection, flow_count
from nfagent.errors import ControlError, ControlRefusedError
from nfagent.measurement import Load, Offload, OffloadState, Passed, Rate
from nfagent.monitor.subjects import Subject
from server.processes import PROC

_ANSWER_S = 0.5
_ALL_ANSWER_S = 1.0
_THREADS = 16
_PAUSE_S = 10.0
_BATCH = 64  # maximum packets of a batch of the runtime
_DROPPED = re.compile(r'packets_dropped\{reason="(.*)"\}', re.DOTALL)
_OFFLOADS = "offload_flows"  # a counter of instances whose status has `offload`
_CPUCLOCK_SCHED = 2  # clock_getcpuclockid(3): ids of processes' clocks, linux/posix-timers.h


@dataclass(frozen=True)
class Counted:
    """A process's counters since its start; None: unknown.

    Attributes:
        at: time in seconds of a steady clock.
        cpu_ns: CPU time of the process.
        busy_ns: time of its workers in turns with packets.
    """

    at: float
    cpu_ns: int | None = None
    busy_ns: int | None = None
    batches: int = 0
    packets: int = 0
    octets: int = 0
    frames: int = 0
    flows: int | None = None
    offload: "OffloadStatus | None" = None
    passed: Passed | None = None


class OffloadStatus(BaseModel):
    """The member ``offload`` of an instance's status; see nfs/README.md."""

    state: OffloadState
    why: str | None
    flows: int
    capacity: int
    share: float
    packets: int
    bytes: int
    refused: dict[str, int]

    model_config = ConfigDict(frozen=True)


class LoadProbe:
    """Queries processes in parallel. Skips an unresponsive one for a while.

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
        pool.shutdown(wait=False, cancel_futures=True)  # not queried in time; they are queried next time
        answers = {incarnation: self._answer(incarnation, future) for incarnation, future in asked.items()}
        return {each.incarnation: answers.get(each.incarnation) or _unasked(each) for each in subjects}

    def _answer(self, incarnation: str, asked: Future[Counted]) -> Counted | None:
        if asked.cancelled():
            return None
        try:
            return asked.result(0)
        except ControlRefusedError:
            self._mute[incarnation] = float("inf")  # it has no counters
        except (ControlError, TimeoutError):
            self._mute[incarnation] = time.monotonic() + _PAUSE_S
        return None


def _asked(subject: Subject, control: str) -> Counted:
    with Connection(Path(control), _ANSWER_S) as connection:
        counters = connection.ask("counters")
        status = connection.ask("status") if _OFFLOADS in counters else {}
    counted = _unasked(subject)
    if not isinstance(counters.get("busy_ns"), int):
        return counted
    get = {name: value for name, value in counters.items() if isinstance(value, int | float)}
    passed = _passed(get)
    return replace(
        counted,
        busy_ns=int(get["busy_ns"]),
        batches=int(get.get("batches", 0)),
        packets=passed.packets_in,
        octets=passed.bytes_in + passed.bytes_out,
        frames=passed.packets_in + passed.packets_out,
        flows=flow_count(get),
        offload=_offload_status(status),
        passed=passed,
    )


def _passed(counters: Mapping[str, float]) -> Passed:
    found = ((_DROPPED.fullmatch(name), count) for name, count in counters.items())
    return Passed(
        packets_in=int(counters.get("packets_in", 0)),
        bytes_in=int(counters.get("bytes_in", 0)),
        packets_out=int(counters.get("packets_out", 0)),
        bytes_out=int(counters.get("bytes_out", 0)),
        # The name has Prometheus' escapes.
        dropped={re.sub(r"\\(.)", r"\1", match[1]): int(count) for match, count in found if match},
    )


def _offload_status(status: Mapping[str, Any]) -> OffloadStatus | None:
    try:
        return OffloadStatus.model_validate(status["offload"])
    except (KeyError, ValidationError):  # it began to hold packets in between, or is of another version
        return None


def _unasked(subject: Subject) -> Counted:
    cpu = cpu_time_ns(subject.pid) if subject.pid is not None else None
    return Counted(time.monotonic(), cpu)


def cpu_time_ns(pid: int) -> int | None:
    """Return the CPU time of a process and its descendants; None: it does not exist.

    A command that enters a PID namespace waits outside it; the working process is then its child.
    """
    try:
        used = time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return None
    return used + sum(cpu_time_ns(child) or 0 for child in _children(pid))


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):  # it has ended, or the kernel lacks CONFIG_PROC_CHILDREN
        return [int(each) for each in (PROC / f"{pid}/task/{pid}/children").read_text().split()]
    return []


def load(subject: Subject, before: Counted, now: Counted, traffic: Rate | None) -> Load:
    """Compute the load between two readings of one process.

    Args:
        subject: the process.
        before: the earlier reading.
        now: the later one.
        traffic: its interfaces' traffic as counted by the switches, so without packets that these carry for it; None:
            use its own counters.
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
            octets = frames = 0  # one reading is missing: a total since the start is not this interval's
        traffic = Rate(octets * 8 / 1e6 / seconds, frames / seconds)
    return Load(
        utilisation, round(used / 1e6 / seconds), traffic, now.flows, _offload(before, now, seconds), now.passed
    )


def _offload(before: Counted, now: Counted, seconds: float) -> Offload | None:
    if now.offload is None:
        return None
    earlier = before.offload or now.offload
    packets = max(0, now.offload.packets - earlier.packets)
    octets = max(0, now.offload.bytes - earlier.bytes)
    return Offload(**dict(now.offload), traffic=Rate(octets * 8 / 1e6 / seconds, packets / seconds))


def util_plus(busy_s: float, available_s: float, packets: int, batches: int) -> float:
    """Compute util+ of HNLB, section IV: time spent on packets, corrected for the fill of batches.

    It is 0 without traffic, and 1 if every batch is full and all time is used; in between it is a fit.
    """
    if batches <= 0 or available_s <= 0:
        return 0.0
    fullness = min(1.0, packets / (batches * _BATCH))
    return min(1.0, busy_s / available_s) * (1 + fullness) / 2
