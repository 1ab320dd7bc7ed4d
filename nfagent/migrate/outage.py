"""The outage of a migration: times in which none of its processes served, or a switch on the way was away.

Processes remember their pauses and are asked for them, so that it does not matter when they are asked, nor whether this
agent lived meanwhile. Switches do not: a thread sends them echo requests.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Self

from nfagent.migrate.served import Interval, Served, common, union
from nfagent.pulse import Pulse, SwitchPulse

_TICK_S = 0.01  # a process that is killed takes with it what it did since its last answer
_SWITCH_TICK_S = 0.025
_SAVE_S = 0.05
_HUNG_S = 0.08  # a bridge answers within a few milliseconds, or it forwards nothing
_LATE_S = 0.3  # a switch may answer so late while packets come through it
_SILENT_S = 1.5  # of all processes: whoever does not answer for so long serves nobody
_PAUSE_S = 0.02
_FRESH_S = 0.1
_ASK_S = 0.001
_STOP_S = 1.0


class PausesPulse(Pulse):
    """A process that is asked for its pauses."""

    request = b'{"do": "pauses"}\n'


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
        self._processes = {str(path): PausesPulse(f"unix:{path}") for path in sockets}
        self._switches = [SwitchPulse(target) for target in switches]
        self._is_in_step = is_in_step
        self._file = file
        self._known = _Known(began=time.monotonic())
        self._looked = self._looked_at_switches = 0.0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="measure outage", daemon=True)

    def start(self) -> None:
        """Begin."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            self._known = _Known.loaded(json.loads(self._file.read_text()))
        self._thread.start()

    def seconds(self, freeze_s: float = 0.0) -> float:
        """How long it has been until now, all pauses together.

        Args:
            freeze_s: for how long the agent saw none served. Where that is long enough to be seen in the traffic, the
                traffic says how long it really was.
        """
        with self._lock:
            self._ask_now()
            known, own_s = self._known, self._own_s()
            counted = [] if own_s is None else [(start, end) for start, end in self._quiet() if end - start > own_s]
            away = [] if known.away_since is None else [(known.away_since, time.monotonic())]
            seen_s = sum(end - start for start, end in union([*counted, *known.away, *away]))
            return seen_s if own_s is not None and freeze_s > own_s else max(seen_s, freeze_s)

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
        saved = self._looked = time.monotonic()
        while not self._stopping.wait(_TICK_S):
            with self._lock:
                self._look_at_processes()
                now = self._looked
                if now - self._looked_at_switches >= _SWITCH_TICK_S:
                    self._looked_at_switches = now
                    self._look_at_switches()
                if now - saved > _SAVE_S and not self._stopping.is_set():
                    saved = now
                    self._save()

    def _own_s(self) -> float | None:
        """The shortest pause that counts; where no process knows of before, that of after will do."""
        known = self._known
        if known.own_s is not None:
            return known.own_s
        later = [each.own_pause_s(each.until) for each in known.processes.values()]
        return max((max(_PAUSE_S, each) for each in later if each is not None), default=None)

    def _newest(self) -> float:
        """Until when it is known whether somebody served."""
        if all(probe.is_lost for probe in self._processes.values()):
            return time.monotonic()
        return max((each.until for each in self._known.processes.values()), default=self._known.began)

    def _quiet(self) -> list[Interval]:
        """When none of the processes served, as far as that is known."""
        known, newest = self._known, self._newest()
        idle = (known.processes[path].idle_until(newest) for path in self._processes if path in known.processes)
        return reduce(common, idle, [(known.began, newest)])

    def _ask_now(self) -> None:
        """Know what the processes that live have done until now."""
        start = time.monotonic()
        while not self._stopping.is_set() and time.monotonic() - start < _FRESH_S:
            self._look_at_processes()
            if all(probe.answered > start or probe.is_lost for probe in self._processes.values()):
                break
            time.sleep(_ASK_S)

    def _look_at_processes(self) -> None:
        # Silence is judged as of now: if this process is held up after this, answers wait to be read.
        known, self._looked = self._known, time.monotonic()
        for path, probe in self._processes.items():
            answer = probe.look()
            if answer is None:
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError):
                before = known.processes.get(path)
                now = known.processes[path] = Served.told(before, answer, probe.asked, probe.heard, known.began)
                if known.own_s is None and (own_s := now.own_pause_s(known.began)) is not None:
                    known.own_s = max(_PAUSE_S, own_s)

    def _look_at_switches(self) -> None:
        for probe in self._switches:
            probe.look()
        known, now = self._known, self._looked
        hung = [since for probe in self._switches if (since := self._away_since(probe)) is not None]
        silent = [probe.unanswered_since() or now for probe in self._processes.values()]
        if now - max(silent) > _SILENT_S or all(probe.is_lost for probe in self._processes.values()):
            hung.append(max(silent))
        if known.away_since is None and hung:
            known.away_since = max(known.began, min(hung))
        elif known.away_since is not None and not hung and self._have_answered(known.away_since) and self._is_in_step():
            known.away.append((known.away_since, time.monotonic()))
            known.away_since = None

    def _away_since(self, switch: SwitchPulse) -> float | None:
        """Since when a switch does not forward; one that has much to do answers late, and forwards."""
        since = switch.unanswered_since()
        if since is None or switch.is_lost:
            return since
        silent_s = self._looked - since
        return since if silent_s > _LATE_S or (silent_s > _HUNG_S and not self._serve()) else None

    def _have_answered(self, since: float) -> bool:
        """Whether all switches have, and a process: that this thread did not look for a while ends no silence."""
        processes = [probe.answered for probe in self._processes.values()]
        return min([max(processes), *(probe.answered for probe in self._switches)]) > since

    def _serve(self) -> bool:
        """Whether packets came until a moment ago."""
        newest = self._newest()
        start, end = (self._quiet() or [(0.0, 0.0)])[-1]
        return end < newest or end - start < _HUNG_S

    def _save(self) -> None:
        new = self._file.with_name(f"{self._file.name}.new")
        with contextlib.suppress(OSError):
            new.write_text(json.dumps(self._known.kept()))
            new.replace(self._file)


@dataclass
class _Known:
    """What is known so far, in seconds of the machine's steady clock.

    Attributes:
        began: when measuring did.
        own_s: the shortest pause that is not the traffic's own; None: not known, as without traffic, and none counts.
        processes: by their sockets.
        away: when a switch on the way was, or all processes; that counts also without traffic.
        away_since: the same, of now.
    """

    began: float
    own_s: float | None = None
    processes: dict[str, Served] = field(default_factory=dict)
    away: list[Interval] = field(default_factory=list)
    away_since: float | None = None

    def kept(self) -> dict[str, Any]:
        """As JSON has it."""
        return vars(self) | {"processes": {path: vars(each) for path, each in self.processes.items()}}

    @classmethod
    def loaded(cls, kept: dict[str, Any]) -> Self:
        """From what `kept` gave."""
        processes = {path: Served.loaded(each) for path, each in kept["processes"].items()}
        away = [(start, end) for start, end in kept["away"]]
        return cls(kept["began"], kept["own_s"], processes, away, kept["away_since"])
