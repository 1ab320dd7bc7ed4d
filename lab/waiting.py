"""Waiting for a socket to appear, with inotify rather than a timer."""

import ctypes
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_CREATE = 0x100
_IN_MOVED_TO = 0x80
_RETRY_S = 0.05  # a socket's file appears at bind(), a moment before listen()


def wait_for_sockets(paths: list[Path], alive: Callable[[], bool], timeout_s: float) -> list[Path]:
    """Wait until a process listens at all of the unix sockets ``paths``, which are in one directory.

    Args:
        paths: paths of sockets; none exists from an earlier process.
        alive: tells whether the process that creates them is running; called now and then.
        timeout_s: time limit.

    Returns:
        The sockets without a listener when the time limit expired or the process ended; [] means success.
    """
    missing = list(paths)
    deadline = time.monotonic() + timeout_s
    watch = _watch(paths[0].parent)
    try:
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        while True:
            missing = [path for path in missing if not _listens(path)]
            left = deadline - time.monotonic()
            if not missing or left <= 0 or not alive():
                return missing
            if poll.poll(min(left, _RETRY_S) * 1000):
                os.read(watch, 65536)
    finally:
        os.close(watch)


def _watch(directory: Path) -> int:
    fd = _LIBC.inotify_init1(os.O_CLOEXEC)
    if fd < 0 or _LIBC.inotify_add_watch(fd, os.fsencode(directory), _IN_CREATE | _IN_MOVED_TO) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(directory))
    return fd


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
