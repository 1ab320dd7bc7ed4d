"""Polls processes and switches for signs of life, without ever blocking."""

import contextlib
import socket
import struct
import time

_OPENFLOW = struct.Struct("!BBHI")
_ECHO_REQUEST, _ECHO_REPLY = 2, 3


class Pulse:
    """A process or switch that is polled without blocking.

    Args:
        target: ``unix:PATH`` or ``tcp:HOST:PORT``.

    Attributes:
        asked: when the last answered request was sent, by the machine's steady clock.
        answered: when that answer was read; 0 before the first.
        heard: the same, or since when its silence counts.
        is_lost: whether it closed or refused the connection and has not answered since.
    """

    greeting = b""
    request = b'{"do": "status"}\n'

    def __init__(self, target: str) -> None:
        self._target = target
        self._socket: socket.socket | None = None
        self._waits = False
        self._received = b""
        self._next_asked = 0.0
        self.asked = self.answered = 0.0
        self.heard = time.monotonic()
        self.is_lost = False

    def look(self) -> bytes | None:
        """Return the newest answer, if one has arrived since the last call; send the next request."""
        answer = None
        try:
            answer = self._receive()
            if not self._waits:
                self._ask()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            self.is_lost = True
        return answer

    def unanswered_since(self) -> float | None:
        """Return since when it has not answered, or cannot be asked; None: it has not been asked again."""
        if self.is_lost:
            return self.heard
        return max(self.heard, self._next_asked) if self._waits else None

    def silent_s(self) -> float:
        """Return for how long it has not answered."""
        return time.monotonic() - self.heard

    def forgive(self) -> None:
        """Count its silence from now on, because this process was not listening."""
        self.heard = time.monotonic()

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._waits, self._received = None, False, b""

    def _answer(self, received: bytes) -> tuple[bytes | None, bytes]:
        """Return the newest complete answer in the received bytes, and the rest."""
        line, end, left = received.rpartition(b"\n")
        return (line, left) if end else (None, received)

    def _ask(self) -> None:
        if self._socket is None:
            kind, _, place = self._target.partition(":")
            self._socket = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
            self._socket.setblocking(False)
            host, _, port = place.rpartition(":")
            with contextlib.suppress(InterruptedError):
                self._socket.connect(place if kind == "unix" else (host, int(port)))
            self._socket.send(self.greeting + self.request)
        else:
            self._socket.send(self.request)
        self._waits, self._next_asked = True, time.monotonic()

    def _receive(self) -> bytes | None:
        if self._socket is None or not self._waits:
            return None
        answer = None
        while answer is None:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionResetError
            answer, self._received = self._answer(self._received + chunk)
        self.asked = self._next_asked
        self.answered = self.heard = time.monotonic()
        self._waits = self.is_lost = False
        return answer


class SwitchPulse(Pulse):
    """A bridge polled by OpenFlow echo requests, which it answers only while it forwards.

    The control socket would not do: ovs-vswitchd keeps answering there while its database is away, but forwards
    nothing.
    """

    greeting = _OPENFLOW.pack(4, 0, 8, 1)
    request = _OPENFLOW.pack(4, _ECHO_REQUEST, 8, 2)

    def _answer(self, received: bytes) -> tuple[bytes | None, bytes]:
        answer = None
        while len(received) >= _OPENFLOW.size:
            _, kind, length, _ = _OPENFLOW.unpack_from(received)
            if len(received) < length:
                break
            if kind == _ECHO_REPLY:
                answer = received[:length]
            received = received[max(length, _OPENFLOW.size) :]
        return answer, received
