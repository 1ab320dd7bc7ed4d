"""Detects hung processes: alive, but unresponsive.

It asks each serving process with a control socket for its status every half second. After a few seconds without an
answer the instance becomes an error; later the process is killed, and the reconciler starts another one.
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable

from nfagent.control import Control
from nfagent.errors import AgentError, ControlRefusedError, ControlUnreachableError
from nfagent.model import Running
from nfagent.pulse import Pulse
from nfagent.pulse_watch import TICK_S, PulseWatch
from nfagent.starter import Starter
from nfagent.store import Store, processes
from server.processes import PROC

_log = logging.getLogger(__name__)

_SHOWN_AFTER_S = 3.0
_LAST_CHANCE_S = 2.0


class Health(PulseWatch):
    """Checks all processes, from `start` to `stop`.

    Args:
        store: contains their rows.
        starter: kills processes.
        is_cut_off: whether a location is disconnected, so that its processes cannot be asked.
        hung_after_s: until an unresponsive process is killed.
    """

    def __init__(self, store: Store, starter: Starter, is_cut_off: Callable[[str], bool], hung_after_s: float) -> None:
        super().__init__("the health of processes", _LAST_CHANCE_S + TICK_S)  # pulses by incarnation
        self._store = store
        self._starter = starter
        self._is_cut_off = is_cut_off
        self._hung_after_s = hung_after_s
        self._shown_after_s = min(_SHOWN_AFTER_S, hung_after_s / 2)
        self._stopped: dict[str, float] = {}  # since when a process without a socket is stopped, by incarnation
        self._reasons: dict[str, str] = {}  # earlier reasons, to be restored, by incarnation

    def look(self) -> None:
        """Check each process once."""
        rows = [row for row in processes.everything(self._store.read) if row.role == "serving"]
        watched = {row.incarnation: row for row in rows if row.phase == "active"}
        for incarnation in set(self._pulses) - set(watched):
            self._pulses.pop(incarnation).close()
        self._reasons = {key: reason for key, reason in self._reasons.items() if key in watched}
        self._stopped = {key: since for key, since in self._stopped.items() if key in watched}
        for incarnation, row in watched.items():
            if self._is_cut_off(row.location):
                if incarnation in self._pulses:
                    self._pulses[incarnation].forgive()
                continue
            if self._starter.is_here(row.location):
                _continue_wrapper(row)
            self._judge(row, self._silent_s(row))

    def _silent_s(self, row: Running) -> float:
        """Return for how long a process has not answered."""
        if row.control is None:
            return self._stopped_s(row)
        pulse = self._pulses.setdefault(row.incarnation, Pulse(f"unix:{row.control}"))
        pulse.look()
        return pulse.silent_s()

    def _stopped_s(self, row: Running) -> float:
        """Return for how long a process without a socket has been stopped (SIGSTOP, a debugger)."""
        if row.own_pid is None or not _is_stopped(row.own_pid):
            self._stopped.pop(row.incarnation, None)
            return 0.0
        return time.monotonic() - self._stopped.setdefault(row.incarnation, time.monotonic())

    def _judge(self, row: Running, silent_s: float) -> None:
        if silent_s < self._shown_after_s:
            if row.silent is not None:
                self._starter.note_silence(row, None, self._reasons.pop(row.incarnation, None))
            return
        if row.silent is None:
            if not self._is_there(row):
                return
            what = "is stopped" if row.control is None else "does not answer"
            reason = f"its process {what}; after {self._hung_after_s:g} s nfagent kills and restarts it"
            if row.reason is not None:
                self._reasons[row.incarnation] = row.reason
            row = self._starter.note_silence(row, time.time() - silent_s, reason)
        if silent_s >= self._hung_after_s and not self._answers(row):
            self._starter.kill(row, f"its process did not answer for {self._hung_after_s:g} s and was killed")

    def _is_there(self, row: Running) -> bool:
        """Return whether the process runs; the reconciler handles ended ones."""
        try:
            return self._starter.find(row) is not None
        except AgentError:
            return False

    def _answers(self, row: Running) -> bool:
        """Ask a last time, on a new connection, in case only the old one was broken."""
        if row.control is None:
            return False
        try:
            Control(self._starter.control_path(row)).ask("status", timeout_s=_LAST_CHANCE_S)
        except ControlRefusedError:
            return True
        except (ControlUnreachableError, AgentError):
            return False
        return True


def _continue_wrapper(row: Running) -> None:
    """Continue the program that entered the slot for a process, unless that is stopped, too.

    It stops with its child (util-linux's nsenter and unshare do), but does not continue with it, and would not notice
    that the child ends.
    """
    if row.pid is None or row.own_pid in (None, row.pid):
        return
    if _is_stopped(row.pid) and not _is_stopped(row.own_pid or 0):
        with contextlib.suppress(ProcessLookupError):
            os.kill(row.pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] in "Tt"
