"""The outage of a migration: times in which none of its processes served, or a switch on the path was away.

Processes remember their pauses and report them, so the time of the query does not matter, nor whether this agent was
running. Switches do not: a thread sends them echo requests.
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

_TICK_S = 0.01  # a killed process takes its record since its last answer with it
_SWITCH_TICK_S = 0.025
_SAVE_S = 0.05
_HUNG_S = 0.08  # a bridge that forwards answers within a few milliseconds
_LATE_S = 0.3  # a switch that forwards packets may answer this late
_SILENT_S = 1.5  # a process that does not answer for this long does not serve
_PAUSE_S = 0.02
_FRESH_S = 0.1
_ASK_S = 0.001
_STOP_S = 1.0


class PausesPulse(Pulse):
    """A process that is polled for its pauses."""

    request = b'{"do": "pauses"}\n'


class Outage:
    """Measures from `start` to `stop`.

    Args:
        sockets: the control sockets of the processes that may serve.
        switches: management addresses of bridges on the path, ``unix:PATH`` or ``tcp:HOST:PORT``.
        single_threaded: returns those of ``switches`` where one thread answers and forwards all packets; called once.
        is_in_step: tells whether the switches have their rules; called only after one of them did not answer.
        file: file of the measurements so far; it exists if an earlier agent has measured.
        requested: when the migration was requested, by the machine's steady clock; it may have waited since.
    """

    def __init__(
        self,
        sockets: Sequence[Path],
        switches: Sequence[str],
        single_threaded: Callable[[], set[str]],
        is_in_step: Callable[[], bool],
        file: Path,
        requested: float,
    ) -> None:
        self._processes = {str(path): PausesPulse(f"unix:{path}") for path in sockets}
        self._switches = {target: SwitchPulse(target) for target in switches}
        self._ask_single_threaded = single_threaded
        self._is_in_step = is_in_step
        self._file = file
        now = time.monotonic()
        self._known = _Known(began=now, requested=min(requested, now))
        self._looked = self._looked_at_switches = 0.0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="measure outage", daemon=True)

    def start(self) -> None:
        """Begin."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            self._known = _Known.loaded(json.loads(self._file.read_text()))
        self._thread.start()
        if self._known.single_threaded is None:
            # A switch may take its time to answer, and packets are measured meanwhile.
            threading.Thread(target=self._learn_single_threaded, name="ask switches", daemon=True).start()

    def seconds(self, freeze_s: float = 0.0) -> float:
        """Return the outage so far, the sum of all pauses.

        Args:
            freeze_s: how long the agent saw no process serve. If that is long enough to be visible in the traffic, the
                traffic tells the real duration.
        """
        with self._lock:
            self._ask_now()
            self._look_at_switches()
            known, own_s = self._known, self._own_s()
            counted = [] if own_s is None else [(start, end) for start, end in self._quiet() if end - start > own_s]
            away = [] if known.away_since is None else [(known.away_since, time.monotonic())]
            seen_s = sum(end - start for start, end in union([*counted, *known.away, *away]))
            return seen_s if own_s is not None and freeze_s > own_s else max(seen_s, freeze_s)

    def stop(self, *, ended: bool) -> None:
        """Stop; ``ended``: the migration has ended, too, so that no other agent continues this."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        for probe in (*self._switches.values(), *self._processes.values()):
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

    def _learn_single_threaded(self) -> None:
        self._known.single_threaded = sorted(self._ask_single_threaded())

    def _own_s(self) -> float | None:
        """Return the shortest pause that counts; without data from before the migration, use that from after it."""
        known = self._known
        if known.own_s is not None:
            return known.own_s
        later = [each.own_pause_s(each.until) for each in known.processes.values()]
        return max((max(_PAUSE_S, each) for each in later if each is not None), default=None)

    def _newest(self) -> float:
        """Return the time until which service is known."""
        if all(probe.is_lost for probe in self._processes.values()):
            return time.monotonic()
        return max((each.until for each in self._known.processes.values()), default=self._known.began)

    def _quiet(self) -> list[Interval]:
        """Return when none of the processes served, as far as known."""
        known, newest = self._known, self._newest()
        idle = (known.processes[path].idle_until(newest) for path in self._processes if path in known.processes)
        return reduce(common, idle, [(known.requested, newest)])

    def _ask_now(self) -> None:
        """Query the running processes up to now."""
        start = time.monotonic()
        while not self._stopping.is_set() and time.monotonic() - start < _FRESH_S:
            self._look_at_processes()
            if all(probe.answered > start or probe.is_lost for probe in self._processes.values()):
                break
            time.sleep(_ASK_S)

    def _look_at_processes(self) -> None:
        # Judge silence as of now: if this process is delayed after this, answers wait to be read.
        known, self._looked = self._known, time.monotonic()
        for path, probe in self._processes.items():
            answer = probe.look()
            if answer is None:
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError):
                before = known.processes.get(path)
                now = known.processes[path] = Served.told(before, answer, probe.asked, probe.heard, known.requested)
                if known.own_s is None and (own_s := now.own_pause_s(known.began)) is not None:
                    known.own_s = max(_PAUSE_S, own_s)

    def _look_at_switches(self) -> None:
        for probe in self._switches.values():
            probe.look()
        known, now = self._known, self._looked
        hung = [since for target in self._switches if (since := self._away_since(target)) is not None]
        silent = [probe.unanswered_since() or now for probe in self._processes.values()]
        are_lost = now - max(silent) > _SILENT_S or all(probe.is_lost for probe in self._processes.values())
        if are_lost:
            hung.append(max(silent))
        if known.away_since is None and hung:
            known.away_since, known.has_lost = max(known.began, min(hung)), False
        known.has_lost |= are_lost or any(probe.is_lost for probe in self._switches.values())
        if known.away_since is not None and not hung and self._are_back(known.away_since):
            known.away.append((known.away_since, time.monotonic()))
            known.away_since = None

    def _away_since(self, target: str) -> float | None:
        """Return since when a switch does not forward; a busy one with several threads answers late but forwards."""
        switch = self._switches[target]
        since = switch.unanswered_since()
        if since is None or switch.is_lost:
            return since
        silent_s = self._looked - since
        is_single_threaded = target in (self._known.single_threaded or ())  # it forwards nothing until it answers
        is_away = silent_s > _LATE_S or (silent_s > _HUNG_S and (is_single_threaded or not self._serve()))
        return since if is_away else None

    def _are_back(self, since: float) -> bool:
        """Tell whether the switches have answered, and lead packets right.

        One that kept its connection has kept its rules, too, which work if packets arrive.
        """
        return self._have_answered(since) and ((not self._known.has_lost and self._serve()) or self._is_in_step())

    def _have_answered(self, since: float) -> bool:
        """Tell whether all switches and a process have answered: a pause of this thread does not end a silence."""
        processes = [probe.answered for probe in self._processes.values()]
        return min([max(processes), *(probe.answered for probe in self._switches.values())]) > since

    def _serve(self) -> bool:
        """Tell whether packets arrived until a moment ago."""
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
    """The measurements so far, in seconds of the machine's steady clock.

    Attributes:
        began: start of measuring.
        requested: see `Outage`; what processes remember counts from then on.
        own_s: the shortest pause that the traffic itself does not make; None: unknown, as without traffic; none counts.
        processes: by their sockets.
        away: when a switch on the path, or all processes, were away; this counts even without traffic.
        away_since: the start of a current such time.
        has_lost: whether a switch or all processes have closed their connections since then; a new agent cannot know.
        single_threaded: see `Outage`; None: unknown.
    """

    began: float
    requested: float
    own_s: float | None = None
    processes: dict[str, Served] = field(default_factory=dict)
    away: list[Interval] = field(default_factory=list)
    away_since: float | None = None
    has_lost: bool = True
    single_threaded: list[str] | None = None

    def kept(self) -> dict[str, Any]:
        """Convert to JSON."""
        return vars(self) | {"processes": {path: vars(each) for path, each in self.processes.items()}}

    @classmethod
    def loaded(cls, kept: dict[str, Any]) -> Self:
        """Restore what `kept` returned."""
        processes = {path: Served.loaded(each) for path, each in kept["processes"].items()}
        away = [(start, end) for start, end in kept["away"]]
        earlier = {"requested": kept["began"]}  # agents up to version 0.1.0 did not keep it
        return cls(**earlier | kept | {"processes": processes, "away": away, "has_lost": True})
