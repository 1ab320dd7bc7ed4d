"""A raw connection to a switch, of any version of OpenFlow."""

import socket
import struct

_ANSWER_S = 10.0
_MARK = 0xABCD
_ECHO_REQUEST = 2
_BARRIER_REQUEST = {1: 18, 4: 20, 5: 20, 6: 20}


def frame(kind: int, body: bytes = b"", version: int = 4, xid: int = 7) -> bytes:
    """Return a message of any version."""
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def in_version(messages: bytes, version: int) -> bytes:
    """Return messages in another version, which has them in the same form."""
    out = b""
    while messages:
        length = int.from_bytes(messages[2:4])
        out += bytes([version]) + messages[1:length]
        messages = messages[length:]
    return out


class Peer:
    """A raw connection.

    Args:
        target: ``unix:PATH`` of the switch.
        hello: what to greet it with.
        version: the version that it agrees on, of our own requests.
        answer_s: how long to wait for a message.
    """

    def __init__(self, target: str, hello: bytes, version: int = 4, answer_s: float = _ANSWER_S) -> None:
        self._version = version
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(answer_s)
        self._socket.connect(target.removeprefix("unix:"))
        self._received = bytearray()
        self.send(hello)
        self.next()

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def end(self) -> None:
        """Disconnect for the switch, after what was sent."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> None:
        """Send messages; the switch may have disconnected."""
        try:
            self._socket.sendall(data)
        except BrokenPipeError:
            return

    def answers(self) -> list[str]:
        """Return the messages until the answer to an echo request of ours, or until the switch disconnects."""
        self.send(frame(_ECHO_REQUEST, version=self._version, xid=_MARK))
        # A switch that answers echoes at once may do so before other requests.
        self.send(frame(_BARRIER_REQUEST[self._version], version=self._version, xid=_MARK))
        answers: list[str] = []
        waiting = 2
        while waiting:
            message = self.next()
            if not message:
                return [*answers, "disconnected"]
            if message[4:8] == struct.pack("!I", _MARK):
                waiting -= 1
            else:
                answers.append(message.hex())
        return answers

    def next(self) -> bytes:
        """Return the next message; nothing if the switch has disconnected."""
        while len(self._received) < 4 or len(self._received) < self._length():
            try:
                some = self._socket.recv(65536)
            except ConnectionResetError:
                some = b""
            if not some:
                return b""
            self._received += some
        message = bytes(self._received[: self._length()])
        del self._received[: len(message)]
        return message

    def _length(self) -> int:
        return int.from_bytes(self._received[2:4])


def ask(target: str, data: bytes, version: int = 4, hello: bytes | None = None) -> list[str]:
    """Return the answers to messages on a connection of their own."""
    peer = Peer(target, frame(0, version=version) if hello is None else hello, version)
    try:
        peer.send(data)
        return peer.answers()
    finally:
        peer.close()
