"""For how long nobody was served during a migration, as packets say: the processes count what they send.

A thread looks at the counts of both processes every few milliseconds. A pause that is longer than those of the traffic
itself is an outage; so is the time in which a switch on the way does not answer. When somebody was served last is in a
file, so that an outage that the agent does not live to see the end of is measured by the next agent.
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
_LOOK_S = 0.3
_ASK_S = 0.002
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
        self._sick = self._was_sick = False  # since something was sent last
        self._looked_at_switches = 0.0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="measure outage", daemon=True)

    def start(self) -> None:
        """Begin."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._known = _Known(**json.loads(self._file.read_text()))
            self._catch_up()
        self._thread.start()

    def seconds(self) -> float:
        """How long it has been until now, all pauses together."""
        with self._lock:
            current = time.time() - self._known.served
            return self._known.pauses_s + (current if current > self._own_s() else 0.0)

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
            now = time.monotonic()
            if now - looked > _STARVED_S:
                self._catch_up()
            looked = time.monotonic()
            sent = self._look_at_processes()
            self._look_at_switches()
            if sent and not self._sick:
                self._note(time.time(), sent)
            if now - saved > _SAVE_S and not self._stopping.is_set():
                saved = now
                self._save()

    def _own_s(self) -> float:
        """The shortest pause that is not the traffic's own; without traffic there is none, unless a switch was away."""
        if len(self._usual) < _FEW:
            if self._was_sick:
                return _PAUSE_S
            return float("inf") if self._known.sent < _FEW else _PAUSE_S
        return max(_PAUSE_S, _TRAFFICS_OWN * statistics.median(self._usual))

    def _note(self, now: float, sent: int) -> None:
        """Something was sent since the last look."""
        with self._lock:
            known, pause, own_s = self._known, now - self._known.served, self._own_s()
            known.served, self._was_sick = now, False
            if pause > own_s:
                known.pauses_s += pause
                return
            self._usual.append(pause)
            known.sent += sent
            known.serving_s += pause

    def _catch_up(self) -> None:
        """Nobody has looked for a while: how much was sent meanwhile says for how long that was."""
        if self._sick:
            return  # whatever was sent did not arrive
        before = dict(self._known.counts)
        for probe in self._processes.values():
            probe.close()  # an answer that waits there is of before
        deadline, asked = time.monotonic() + _LOOK_S, False
        while time.monotonic() < deadline and not self._stopping.is_set():
            self._look_at_processes(once=asked)
            asked = True
            if not any(probe.is_asked for probe in self._processes.values()):
                break
            time.sleep(_ASK_S)
        for switch in self._switches:
            switch.look()  # what it has answered meanwhile counts for now
        with self._lock:
            known, now = self._known, time.time()
            sent = sum(max(0, count - before.get(path, 0)) for path, count in known.counts.items())
            spent_s = sent * known.serving_s / known.sent if known.sent else now - known.served
            known.served = now - max(0.0, now - known.served - spent_s)

    def _save(self) -> None:
        with contextlib.suppress(OSError), self._lock:
            self._file.write_text(json.dumps(vars(self._known)))

    def _look_at_processes(self, *, once: bool = False) -> int:
        """How much they have sent since the last look, as far as they answer; ``once``: they are not asked again."""
        sent, counts = 0, self._known.counts
        for path, probe in self._processes.items():
            answer = probe.look(ask_again=not once)
            if answer is None:
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError):
                count = int(json.loads(answer)["ok"]["packets_out"])
                sent += max(0, count - counts.get(str(path), count))
                counts[str(path)] = count
        return sent

    def _look_at_switches(self) -> None:
        now = time.monotonic()
        if now - self._looked_at_switches < _SWITCH_TICK_S:
            return
        self._looked_at_switches = now
        for probe in self._switches:
            probe.look()
        silent = any(probe.silent_s() > _HUNG_S for probe in self._switches)
        self._sick = silent or (self._sick and not self._is_in_step())
        self._was_sick |= self._sick


@dataclass
class _Known:
    """What is known so far, in seconds since 1970 and packets.

    Attributes:
        served: when something was sent last.
        pauses_s: of all pauses before that.
        sent: packets, in ``serving_s`` without pauses.
        counts: of what each process has sent in all, by its socket.
    """

    served: float
    pauses_s: float = 0.0
    sent: int = 0
    serving_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
