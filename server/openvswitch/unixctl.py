"""``ovs-appctl`` without a process: one JSON-RPC request over a daemon's control socket."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from server.errors import ToolError

ANSWER_S = 30.0
_SPACES = 16
_CREDENTIALS = struct.Struct("3i")
"""The kernel's ``struct ucred``: pid, uid, gid."""


class Unixctl:
    """A connection to a daemon's control socket, for many requests.

    Thread safety: one thread at a time.

    Args:
        path: path of the socket.
        answer_s: time limit of an answer.

    Raises:
        ToolError: the daemon does not answer.
    """

    def __init__(self, path: Path, answer_s: float = ANSWER_S) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(answer_s)
        self._id = 0
        self._unanswered = 0
        self._received = b""
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ToolError(f"no daemon answers at {path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def close_when_answered(self) -> None:
        """Close the connection once the daemon has answered all commands, or has ended; do not wait for that.

        A daemon that cannot send an answer discards the commands behind it (``run_connection``, lib/unixctl.c).
        """
        if self._unanswered:
            threading.Thread(target=self._close_late, name=f"wait for {self._path}", daemon=True).start()
        else:
            self.close()

    def _close_late(self) -> None:
        self._socket.settimeout(None)
        with contextlib.suppress(OSError):
            while self._unanswered:
                self._answer()
        self.close()

    def peer_pid(self) -> int:
        """Return the process id of the daemon that listens; 0: it is not visible from this process."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid: int = _CREDENTIALS.unpack(credentials)[0]
        return pid

    def call(self, command: str, *arguments: str) -> str:
        """Send a command and return the text of its answer.

        Raises:
            ToolError: the daemon refused it, or has ended.
        """
        return self.call_at_once((command, *arguments))[0]

    def call_at_once(self, *commands: tuple[str, ...]) -> list[str]:
        """Send several commands, each with its arguments, between which the daemon does nothing else.

        Raises:
            ToolError: as for `call`, for the first refused command.
        """
        return self.begin(*commands)()

    def begin(self, *commands: tuple[str, ...]) -> Callable[[], list[str]]:
        """Like `call_at_once`, but return a function that returns the answers; call it before the next request.

        So several daemons work at a time.
        """
        requests = []
        for command in commands:
            self._id += 1
            requests.append(json.dumps({"id": self._id, "method": command[0], "params": command[1:]}))
        with self._told(commands):
            self._unanswered += len(requests)
            self._socket.sendall("".join(requests).encode())
        return lambda: self._answers(commands)

    @contextlib.contextmanager
    def _told(self, commands: tuple[tuple[str, ...], ...]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ToolError(f"{self._path} did not answer {commands[0][0]}: {error}") from error

    def _answers(self, commands: tuple[tuple[str, ...], ...]) -> list[str]:
        with self._told(commands):
            answers = [self._answer() for _ in commands]
        for command, answer in zip(commands, answers, strict=True):
            if answer.get("error") is not None:
                raise ToolError(f"{self._path} refused {command[0]}: {str(answer['error']).strip()}")
        return [answer.get("result") or "" for answer in answers]

    def _answer(self) -> dict[str, str | None]:
        """Read an answer, which ends where it parses, because JSON-RPC has no framing here."""
        while True:
            # Megabytes arrive in many pieces: try to parse only one that may be the last.
            if self._received[-_SPACES:].rstrip().endswith(b"}"):
                with contextlib.suppress(ValueError):
                    text = self._received.decode(errors="replace")
                    answer, end = json.JSONDecoder().raw_decode(text)
                    self._received = text[end:].lstrip().encode()
                    self._unanswered -= 1
                    return answer
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("end of file")
            self._received += chunk
