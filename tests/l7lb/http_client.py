"""A strict HTTP/1.1 client on a socket: it sends while it receives, so pipelined transfers cannot block each other."""

import fcntl
import select
import socket
import struct
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_PIECE = 1 << 16
_LOOK_S = 1.0
"""The time between two looks at what the other end has acknowledged, which no event tells."""
_BYTES_AT = 120
"""The offset of ``tcpi_bytes_acked`` and ``tcpi_bytes_received`` in the kernel's ``struct tcp_info``."""


class HungError(Exception):
    """Within the time limit, no byte came and none was acknowledged."""


class WrongError(Exception):
    """The answer is not the expected one."""


@dataclass(frozen=True)
class Settings:
    """How a client's sockets behave.

    Args:
        receive_buffer: bytes; 0 means the kernel's own choice.
        delayed_acks: whether the kernel is to delay acknowledgements from the first segment on.
        timeout_s: limit for waiting for progress.
    """

    receive_buffer: int = 0
    delayed_acks: bool = False
    timeout_s: float = 60.0


@dataclass
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)


class Connection:
    """A connection; requests queued with `send` leave while `answer` waits."""

    def __init__(self, target: tuple[str, int], settings: Settings) -> None:
        self._settings = settings
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        if settings.receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(settings.timeout_s)
        self._out: list[bytes] = []
        self._in = bytearray()
        self.longest_pause_s = 0.0
        try:
            self._socket.connect(target)
        except TimeoutError:
            self._socket.close()
            raise HungError("the connection was not accepted") from None
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._delay_acks()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def send(self, pieces: Sequence[bytes]) -> None:
        """Queue bytes, each piece a call of its own; send what the kernel takes now."""
        self._out += pieces
        while self._out and self._send():
            pass

    def await_acknowledged(self) -> None:
        """Wait until all queued bytes have been acknowledged.

        Raises:
            HungError: they have not within the time limit.
        """
        end = time.monotonic() + self._settings.timeout_s
        while self._out or _unacknowledged(self._socket):
            if time.monotonic() > end:
                raise HungError(f"{_unacknowledged(self._socket)} bytes are not acknowledged")
            if self._out:
                self._send()
            time.sleep(0.001)

    def answer(self, *, to_head: bool = False) -> Answer:
        """Return the next answer; `to_head`: to a HEAD request, so without a body.

        Raises:
            HungError, WrongError, OSError: it did not come, or is malformed.
        """
        while True:
            answer = self._head()
            if answer.status == 101 or answer.status >= 200:
                break
        if to_head or answer.status in (101, 204, 304):
            return answer
        if answer.headers.get("transfer-encoding") == "chunked":
            answer.body = self._chunks()
            answer.trailers = _fields(self._lines())
        else:
            answer.body = self.exactly(int(answer.headers["content-length"]))
        return answer

    def exactly(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        while len(self._in) < size:
            self._pump()
        found = bytes(self._in[:size])
        del self._in[:size]
        return found

    def finish(self) -> None:
        """Wait until the other end has closed the connection as well.

        Raises:
            WrongError: there are more bytes.
        """
        self._socket.shutdown(socket.SHUT_WR)
        try:
            while not self._in:
                self._pump()
        except ConnectionAbortedError:
            return
        raise WrongError(f"bytes after the last answer: {bytes(self._in[:60])!r}")

    def _head(self) -> Answer:
        first, *lines = self._lines()
        version, status, *_ = first.split(" ")
        if version != "HTTP/1.1":
            raise WrongError(f"an answer begins with {first[:60]!r}")
        return Answer(int(status), _fields(lines))

    def _lines(self) -> list[str]:
        """Return the lines up to an empty one."""
        lines = []
        while line := self._line():
            lines.append(line)
        return lines

    def _line(self) -> str:
        searched = 0
        while (end := self._in.find(b"\r\n", searched)) < 0:
            searched = max(len(self._in) - 1, 0)
            if searched > _PIECE:
                raise WrongError(f"a line begins with {bytes(self._in[:60])!r} and does not end")
            self._pump()
        line = self.exactly(end + 2)[:-2]
        return line.decode("latin-1")

    def _chunks(self) -> bytes:
        pieces = []
        while size := int(self._line().split(";")[0], 16):
            pieces.append(self.exactly(size))
            if (found := self.exactly(2)) != b"\r\n":
                raise WrongError(f"a chunk ends with {found!r}")
        return b"".join(pieces)

    def _pump(self) -> None:
        """Wait until bytes have arrived; send meanwhile."""
        since, progress = time.monotonic(), _progress(self._socket)
        while True:
            writers = [self._socket] if self._out else []
            readable, writable, _ = select.select([self._socket], writers, [], min(_LOOK_S, self._settings.timeout_s))
            now = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now - since)
            # Most of an upload leaves the kernel's queue long after the program has written it.
            if readable or writable or progress != _progress(self._socket):
                since, progress = now, _progress(self._socket)
            elif now - since > self._settings.timeout_s:
                left = sum(map(len, self._out)) + _unacknowledged(self._socket)
                raise HungError(f"no progress for {self._settings.timeout_s:g} s; {left} bytes of requests wait")
            if writable:
                self._send()
            if readable:
                break
        data = self._socket.recv(self._settings.receive_buffer or _PIECE)
        if not data:
            raise ConnectionAbortedError("the connection ended before the answer")
        self._in += data
        self._delay_acks()

    def _send(self) -> bool:
        """Send the first piece; tell whether the kernel took all of it."""
        try:
            sent = self._socket.send(self._out[0])
        except BlockingIOError:
            return False
        if sent < len(self._out[0]):
            self._out[0] = self._out[0][sent:]
            return False
        del self._out[0]
        return True

    def _delay_acks(self) -> None:
        if self._settings.delayed_acks:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)


def _unacknowledged(connection: socket.socket) -> int:
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]


def _progress(connection: socket.socket) -> tuple[int, int]:
    """Return the bytes that the other end has acknowledged, and those that it has sent."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_AT + 16)
    acknowledged, received = struct.unpack_from("QQ", info, _BYTES_AT)
    return acknowledged, received


def _fields(lines: Sequence[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise WrongError(f"a header line is {line[:60]!r}")
        found[name.lower()] = value.strip()
    return found
