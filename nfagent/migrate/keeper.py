"""A process that keeps open files for others: a migration's state and rings survive the death of all other processes.

    python -I -S keeper.py SOCKET

Requests and answers are lines as on an instance's control socket: ``put`` replaces the kept descriptors by those sent
with it, and the note by ``note``; ``get`` returns both. SIGTERM ends it. It imports only the standard library, and
nothing of this package, to start fast and to use little memory.
"""

import json
import os
import socket
import sys
from array import array
from pathlib import Path
from typing import Any

_FDS_MAX = 8
_LINE_MAX = 4 << 20  # as on an instance's control socket: a note contains its configuration
_CLIENT_S = 10.0


class Keeper:
    """The kept descriptors and note."""

    def __init__(self) -> None:
        self.note: Any = None
        self.descriptors: list[int] = []

    def serve(self, client: socket.socket) -> None:
        """Serve one client until it disconnects."""
        client.settimeout(_CLIENT_S)
        received: list[int] = []
        line = b""
        try:
            while True:
                chunk, beside, _, _ = client.recvmsg(1 << 16, socket.CMSG_LEN(_FDS_MAX * 4), socket.MSG_CMSG_CLOEXEC)
                for _level, _kind, data in beside:
                    received += array("i", data[: len(data) - len(data) % 4])
                line += chunk
                if not chunk or len(line) > _LINE_MAX:
                    return
                if line.endswith(b"\n"):
                    answer, descriptors = self._answer(json.loads(line), received)
                    line = b""
                    _send(client, json.dumps(answer).encode() + b"\n", descriptors)
        finally:
            _close(received)  # of an incomplete request

    def _answer(self, request: Any, received: list[int]) -> tuple[dict[str, Any], list[int]]:
        """Return the answer and its descriptors; ``received`` is empty then."""
        verb = request.get("do") if isinstance(request, dict) else None
        if verb == "put":
            before, self.descriptors, self.note = self.descriptors, received[:], request.get("note")
            received.clear()
            _close(before)
            return {"ok": {}}, []
        _close(received)
        if verb == "get":
            return {"ok": {"note": self.note}}, self.descriptors
        return {"error": {"code": "verb-unknown", "detail": f"unknown verb {verb!r}; expected put or get"}}, []


def _send(client: socket.socket, line: bytes, descriptors: list[int]) -> None:
    """Send a whole line in pieces (a socket's buffer takes some 200 kB at once), with the descriptors on the first."""
    sent = socket.send_fds(client, [line], descriptors)
    client.sendall(line[sent:])


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def main() -> None:
    """Serve until SIGTERM."""
    path, keeper = Path(sys.argv[1]), Keeper()
    path.unlink(missing_ok=True)
    os.umask(0o077)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        while True:
            client, _ = listener.accept()
            with client:
                try:
                    keeper.serve(client)
                except (OSError, ValueError) as error:
                    print(f"keeper: a client: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
