"""Identifies processes so that a reused process id is not mistaken for the old process."""

import os
import select
from pathlib import Path

PROC = Path("/proc")


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Return when ``pid`` started, in clock ticks since boot; None if it does not exist or is a zombie."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may contain spaces
    return None if fields[0] in "ZX" else int(fields[19])


def is_running(pid: int, started: int) -> bool:
    """Return whether the process that had ``pid`` and start time ``started`` still runs."""
    return start_time(pid) == started


def wait_gone(pid: int, timeout_s: float | None) -> bool:
    """Wait until process ``pid``, which may be anyone's child, has ended; return False on timeout."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
    finally:
        os.close(pidfd)
