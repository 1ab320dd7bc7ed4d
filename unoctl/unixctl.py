"""``ovs-appctl`` without a process: one JSON-RPC request over a daemon's control socket."""

import json
import socket
from pathlib import Path

from unoctl.errors import ToolError

ANSWER_S = 30.0


class Unixctl:
    """A connection to a daemon's control socket, for many requests.

    Thread safety: one thread at a time.

    Args:
        path: of the socket.
        answer_s: how long an answer may take.

    Raises:
        ToolError: the daemon does not answer.
    """

    def __init__(self, path: Path, answer_s: float = ANSWER_S) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(answer_s)
        self._id = 0
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ToolError(f"no daemon answers at {path}: {error.strerror}") from error

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    def call(self, command: str, *arguments: str) -> str:
        """Send a command and return the answer's text.

        Raises:
            ToolError: the daemon refused it, or is gone.
        """
        self._id += 1
        request = {"id": self._id, "method": command, "params": list(arguments)}
        try:
            self._socket.sendall(json.dumps(request).encode())
            answer = self._answer()
        except OSError as error:
            raise ToolError(f"{self._path} ended the connection during {command}: {error}") from error
        if answer.get("error") is not None:
            raise ToolError(f"{self._path} refused {command}: {str(answer['error']).strip()}")
        return str(answer.get("result") or "")

    def _answer(self) -> dict[str, object]:
        """JSON-RPC has no framing here: an answer ends where it parses."""
        received = b""
        while True:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError("end of file")
            received += chunk
            if received.rstrip().endswith(b"}"):
                try:
                    return json.loads(received)
                except ValueError:
                    continue
