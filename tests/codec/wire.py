"""OpenFlow 1.3 over a unix socket, without a codec."""

import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
BARRIER_REQUEST, BARRIER_REPLY = 20, 21
PATIENCE_S = 10.0


def frame(kind: int, xid: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body


def xid_of(message: bytes) -> int:
    return struct.unpack_from("!I", message, 4)[0]


@dataclass
class Connection:
    """A controller's connection to a bridge.

    Attributes:
        seen: every received message, oldest first.
    """

    path: Path
    seen: list[bytes] = field(default_factory=list)
    _buffer: bytes = b""
    _xid: int = 0x10000

    def __enter__(self) -> "Connection":
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(self.path))
        self._socket.sendall(frame(HELLO, 0, bytes.fromhex("0001000800000010")))
        assert self.next()[1] == HELLO
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *messages: bytes) -> None:
        self._socket.sendall(b"".join(messages))

    def next(self, patience: float = PATIENCE_S) -> bytes:
        """Return the next message; answer and skip echo requests.

        Raises:
            TimeoutError: no message arrived.
        """
        deadline = time.monotonic() + patience
        while True:
            if len(self._buffer) >= 4:
                length = struct.unpack_from("!H", self._buffer, 2)[0]
                if len(self._buffer) >= length:
                    message, self._buffer = self._buffer[:length], self._buffer[length:]
                    if message[1] == ECHO_REQUEST:
                        self.send(frame(ECHO_REPLY, xid_of(message), message[8:]))
                        continue
                    self.seen.append(message)
                    return message
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            received = self._socket.recv(1 << 16)
            assert received, "the bridge closed the connection"
            self._buffer += received

    def ask(self, *messages: bytes) -> list[bytes]:
        """Send messages and a barrier; return the messages before its reply."""
        self._xid += 1
        self.send(*messages, frame(BARRIER_REQUEST, self._xid))
        answers = []
        while True:
            message = self.next()
            if message[1] == BARRIER_REPLY and xid_of(message) == self._xid:
                return answers
            answers.append(message)

    def await_kind(self, kind: int) -> bytes:
        """Return the next message of a kind."""
        while True:
            message = self.next()
            if message[1] == kind:
                return message


def error_of(message: bytes) -> tuple[int, ...] | None:
    """Return type and code of an error message; for extensions 0xffff, the experimenter, and its type."""
    if message[1] != ERROR:
        return None
    kind, code = struct.unpack_from("!HH", message, 8)
    if kind == 0xFFFF:
        return kind, struct.unpack_from("!I", message, 12)[0], code
    return kind, code
