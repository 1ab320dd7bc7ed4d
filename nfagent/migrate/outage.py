"""The outage of a migration, measured by the counts of packets that its processes send.

A thread looks at the counts of both processes every few milliseconds. A pause that is longer than those of the traffic
itself is an outage; so is the time in which a switch on the way does not answer. When somebody was served last is in a
file, so that an outage that the agent does not live to see the end of is measured by the next agent. Where the thread
could not look for a while, packets and batches of that time tell a steady service from a backlog, which takes few
batches.
"""

import contextlib
import json
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nfagent.pulse import Pulse, SwitchPulse

_TICK_S = 0.005
_SWITCH_TICK_S = 0.025
_HUNG_S = 0.08  # a bridge answers within a few milliseconds, or it forwards nothing
_PAUSE_S = 0.02
_TRAFFICS_OWN = 5  # times the pause that is usual between two looks at which something was sent
_FEW = 5  # looks at which something was sent: fewer do not say what is usual
_USUAL = 400
_KNOWN_PACE = 20  # packets: fewer do not say how fast they come
_LOOK_S = 0.3
_ASK_S = 0.002
_SILENT_S = 1.5  # of all processes: whoever does not answer for so long serves nobody
_LATE_S = 0.5  # a switch may answer so late while packets come through it
_STARVED_S = 0.05  # without a look: what was sent meanwhile is not known to the moment
_SAVE_S = 0.02
_STOP_S = 1.0


class Outage:
    """Measures from `start` to `stop`.

    Args:
        sockets: the control sockets of the processes that may serve.
        switches: where bridges on the way are managed, ``unix:PATH`` or ``tcp:HOST:PORT``.
        is_in_step: whether the switches have their rules; asked only after one of them did not answer.
        file: of what is known so far; it is there where an agent before this one has measured.
    """

    def __init__(
        self,
        sockets: Sequence[Path],
        switches: Sequence[str],
        is_in_step: Callable[[], bool],
        file: Path,
    ) -> None:
        self._processes = {path: Pulse(f"unix:{path}") for path in sockets}
        self._switches = [SwitchPulse(target) for target in switches]
        self._is_in_step = is_in_step
        self._file = file
        self._known = _Known(served=time.time())
        self._usual: deque[float] = deque(maxlen=_USUAL)
        self._early: list[_Interval] = []  # of before it is known what is usual
        self._gaps: list[_Interval] = []  # in which nobody looked, of before it is known how fast packets come
        self._sick = self._was_sick = False  # since something was sent last
        self._received = 0.0  # when a packet came last
        self._looked_at_switches = 0.0
        self._looked = time.time()  # and what came of it is in what is known
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="measure outage", daemon=True)

    def start(self) -> None:
        """Begin."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._known = _Known(**json.loads(self._file.read_text()))
            self._catch_up(_Counts(), float("inf"))
        self._looked = time.time()
        self._thread.start()

    def seconds(self) -> float:
        """How long it has been until now, all pauses together."""
        with self._lock:
            own_s = self._own_s()
            if own_s is None:
                return self._known.pauses_s
            current = self._looked - self._known.served
            others = [*self._early, *(_without_service(gap, self._known) for gap in self._gaps)]
            return self._known.pauses_s + sum(each for each in (current, *map(_length, others)) if each > own_s)

    def stop(self, *, ended: bool) -> None:
        """End; ``ended``: the migration has, too, so that no other agent goes on with this."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        for probe in (*self._switches, *self._processes.values()):
            probe.close()
        if ended:
            self._file.unlink(missing_ok=True)

    def _run(self) -> None:
        looked = saved = time.monotonic()
        while not self._stopping.wait(_TICK_S):
            was_sick = self._sick
            counts = self._look_at_processes()
            self._look_at_switches()
            now = time.monotonic()
            if now - looked > _STARVED_S and not was_sick:
                self._catch_up(counts, now - looked)  # whatever this look was told may be of before it
            elif counts.sent and not self._sick:
                self._note(time.time(), counts)
            looked = time.monotonic()
            self._looked = time.time()
            if now - saved > _SAVE_S and not self._stopping.is_set():
                saved = now
                self._save()

    def _own_s(self) -> float | None:
        """The shortest pause that is not the traffic's own; None: not known, as without traffic, so that none counts.

        Without traffic a pause counts if a switch or all processes were away.
        """
        if len(self._usual) >= _FEW:
            self._known.own_s = max(_PAUSE_S, _TRAFFICS_OWN * statistics.median(self._usual))
        if self._known.own_s is None and self._was_sick:
            return _PAUSE_S
        return self._known.own_s

    def _note(self, now: float, counts: "_Counts") -> None:
        """Something was sent since the last look."""
        with self._lock:
            known, own_s = self._known, self._own_s()
            interval = _Interval(now - known.served, counts)
            known.served, self._was_sick = now, False
            if own_s is not None:
                self._count(interval, own_s)
                return
            self._early.append(interval)
            self._usual.append(interval.seconds)
            if (own_s := self._own_s()) is not None:
                early, self._early = self._early, []
                self._usual.clear()
                for each in early:
                    self._count(each, own_s)

    def _count(self, interval: "_Interval", own_s: float) -> None:
        known = self._known
        if interval.seconds > own_s:
            known.pauses_s += interval.seconds
            return
        self._usual.append(interval.seconds)
        known.sent += interval.counts.sent
        known.batches += interval.counts.batches
        known.serving_s += interval.seconds
        if known.sent >= _KNOWN_PACE:
            self._pauses_in_gaps(own_s)

    def _pauses_in_gaps(self, own_s: float) -> None:
        gaps, self._gaps = self._gaps, []
        without = [_without_service(gap, self._known).seconds for gap in gaps]
        self._known.pauses_s += sum(each for each in without if each > own_s)

    def _catch_up(self, counts: "_Counts", blind_s: float) -> None:
        """Nobody has looked for a while: how much was sent meanwhile says for how long somebody was served.

        Args:
            counts: of what was seen already of that time.
            blind_s: how long it was.
        """
        if self._sick:
            return  # whatever was sent did not arrive
        awaited = [probe for probe in self._processes.values() if probe.silent_s() <= blind_s + _STARVED_S]
        for probe in self._processes.values():
            probe.close()  # an answer that waits there is of before
        deadline, asked = time.monotonic() + _LOOK_S, False
        while time.monotonic() < deadline and not self._stopping.is_set():
            counts += self._look_at_processes(once=asked, fresh=True)
            asked = True
            if not any(probe.is_asked for probe in awaited):
                break
            time.sleep(_ASK_S)
        for probe in (*self._switches, *awaited):
            probe.look(ask_again=False)  # what it has answered meanwhile counts for now
            probe.forgive()
        if counts.sent == 0:
            return
        with self._lock:
            now = time.time()
            self._gaps.append(_Interval(now - self._known.served, counts))
            self._known.served = now
            own_s = self._own_s()
            if own_s is not None and self._known.sent >= _KNOWN_PACE:
                self._pauses_in_gaps(own_s)

    def _save(self) -> None:
        with contextlib.suppress(OSError), self._lock:
            self._file.write_text(json.dumps(vars(self._known)))

    def _look_at_processes(self, *, once: bool = False, fresh: bool = False) -> "_Counts":
        """How much they have done since the last look, as far as they answer.

        Args:
            once: they are not asked again.
            fresh: one that is seen for the first time has begun since the last look.
        """
        done = _Counts()
        for path, probe in self._processes.items():
            answer = probe.look(ask_again=not once)
            if answer is None:
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError):
                status = json.loads(answer)["ok"]
                now = _Counts(*(int(status.get(name, 0)) for name in ("packets_out", "batches", "packets_in")))
                before = self._known.counts.get(str(path), [0, 0, 0] if fresh else vars(now).values())
                self._known.counts[str(path)] = list(vars(now).values())
                done += now.since(_Counts(*before))
        if done.received:
            self._received = time.monotonic()
        return done

    def _look_at_switches(self) -> None:
        now = time.monotonic()
        if now - self._looked_at_switches < _SWITCH_TICK_S:
            return
        self._looked_at_switches = now
        for probe in self._switches:
            probe.look()
        silent_s = max((probe.silent_s() for probe in self._switches), default=0.0)
        # A switch that has much to do answers late, and forwards.
        comes = silent_s < _LATE_S and now - self._received < _HUNG_S
        self._sick = not comes and (silent_s > _HUNG_S or (self._sick and not self._is_in_step()))
        hung = min((probe.silent_s() for probe in self._processes.values()), default=0.0) > _SILENT_S
        self._was_sick |= self._sick or hung


@dataclass(frozen=True)
class _Counts:
    """What processes have done: packets, and the batches in which they were processed."""

    sent: int = 0
    batches: int = 0
    received: int = 0

    def __add__(self, other: "_Counts") -> "_Counts":
        return _Counts(self.sent + other.sent, self.batches + other.batches, self.received + other.received)

    def since(self, before: "_Counts") -> "_Counts":
        """What was done since then, or since the process began, if that was later."""
        if self.sent < before.sent or self.received < before.received:
            return self
        return _Counts(self.sent - before.sent, self.batches - before.batches, self.received - before.received)


@dataclass(frozen=True)
class _Interval:
    """Some time, and what was done in it."""

    seconds: float
    counts: _Counts


@dataclass
class _Known:
    """What is known so far, in seconds since 1970 and packets.

    Attributes:
        served: when something was sent last.
        pauses_s: of all pauses before that.
        sent: packets, in ``serving_s`` without pauses.
        batches: in which those were.
        own_s: the shortest pause that is not the traffic's own.
        counts: of what each process has done in all, by its socket, in the order of `_Counts`.
    """

    served: float
    pauses_s: float = 0.0
    sent: int = 0
    batches: int = 0
    serving_s: float = 0.0
    own_s: float | None = None
    counts: dict[str, list[int]] = field(default_factory=dict)


def _length(interval: _Interval) -> float:
    return interval.seconds


def _without_service(gap: _Interval, known: _Known) -> _Interval:
    """What is left of a gap without the time in which it was served as steadily as usual.

    Packets that waited come as fast as the machine can, and so in few batches: these tell more than packets then.
    """
    if not known.sent:
        return _Interval(0.0, gap.counts)
    spent = [gap.counts.sent * known.serving_s / known.sent]
    if known.batches:
        spent.append(gap.counts.batches * known.serving_s / known.batches)
    return _Interval(max(0.0, gap.seconds - min(spent)), gap.counts)
