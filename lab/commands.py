"""Commands to a program inside a host: lines on its standard input, JSON lines on its standard output."""

import json
import os
import signal
import sys


class Commands:
    """Lines on standard input, and signals, without blocking."""

    def __init__(self) -> None:
        self._text = b""
        self._open = True
        self.stopped = False
        wake, self._wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wakeup)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._wake = wake

    @property
    def readers(self) -> list[int]:
        """Return the descriptors to wait for."""
        return [self._wake, sys.stdin.fileno()] if self._open else [self._wake]

    def take(self, ready: list[int]) -> list[list[str]]:
        """Return the commands that arrived, each split into words; ``stop`` only sets ``stopped``."""
        if self._wake in ready:
            os.read(self._wake, 4096)
        if sys.stdin.fileno() not in ready or not self._open:
            return []
        chunk = os.read(sys.stdin.fileno(), 4096)
        self._open = bool(chunk)
        *lines, self._text = (self._text + chunk).split(b"\n")
        commands = [words for line in lines if (words := line.decode(errors="replace").split())]
        self.stopped = self.stopped or ["stop"] in commands
        return [words for words in commands if words != ["stop"]]

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.stopped = True


def say(event: str, **more: object) -> None:
    """Print a JSON line that names an event."""
    print(json.dumps({"event": event, **more}), flush=True)
