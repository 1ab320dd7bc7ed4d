"""Programs at the ends of traffic, controlled from outside."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

from lab.errors import ControlError

if TYPE_CHECKING:
    from lab.server import HostProcess

_ANSWER_S = 30.0


class Hosts(Protocol):
    """Hosts that run programs: those of a lab, or bare ones."""

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> "HostProcess":
        """Start a program inside a host; the options are those of `subprocess.Popen`."""
        ...


class End:
    """One end of traffic: a process inside a host that takes commands and prints JSON lines."""

    def __init__(self, lab: Hosts, host: str, module: str, arguments: Sequence[str]) -> None:
        self._what = f"{module} in host {host}"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._received = b""
        self._process: HostProcess = lab.popen(host, [sys.executable, "-m", module, *arguments], **pipes)
        try:
            self.await_event("ready")
        except BaseException:
            self.close()
            raise

    def tell(self, command: str) -> None:
        """Send a command; an end that has already ended needs none."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe("stdin").fileno(), f"{command}\n".encode())

    def ask(self, command: str, event: str) -> dict[str, Any]:
        """Send a command and return the event that answers it; raises as `await_event`."""
        self.tell(command)
        return self.await_event(event)

    def await_event(self, event: str, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
        """Read until that event and return it.

        Raises:
            TimeoutError: it did not arrive in time.
            ControlError: the end reported an error, or ended; with its message.
        """
        deadline = time.monotonic() + timeout_s
        said = ""
        while True:
            line = self._read_line(deadline, event)
            if not line:
                raise ControlError(f"{self._what} ended before it was {event!r}: {said or 'silent'}")
            try:
                message = json.loads(line)
            except ValueError:
                said += line  # Python's traceback
                continue
            if message["event"] == "error":
                raise ControlError(f"{self._what}: {message['problem']}")
            if message["event"] == event:
                return message

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def close(self) -> None:
        """End the process if it is running."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def _read_line(self, deadline: float, event: str) -> str:
        """Return the next line, "" at the end of file."""
        output = self._pipe("stdout").fileno()
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                raise TimeoutError(f"{self._what} did not say {event!r} in time")
            chunk = os.read(output, 65536)
            if not chunk:
                return ""
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line.decode(errors="replace")

    def _pipe(self, name: str) -> IO[bytes]:
        return getattr(self._process, name)
