"""A controller's connection to a switch: sends bytes and sorts the answers."""

import selectors
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from tests.oracle import monitors
from tests.oracle import openflow as of
from tests.oracle.dialects import DIALECTS

_HEADER = struct.Struct("!BBHI")
_CHUNK = 1 << 18
_ANSWER_S = 60.0
_OWN_XIDS = 0xF0000000


class ChannelError(Exception):
    """The switch disconnected or does not answer."""


class Channel:
    """A connection that has exchanged hellos.

    `replies` are the answers to requests, in order; `asynchronous` are unsolicited messages.
    Readers clear both.

    Args:
        path: unix socket of the switch.
        version: of OpenFlow.
    """

    def __init__(self, path: Path, version: int = of.VERSION) -> None:
        self.dialect = DIALECTS[version]
        self.replies: list[bytes] = []
        self.asynchronous: list[bytes] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_S)
        self._socket.connect(str(path))
        self._received = bytearray()
        self._own: dict[int, bytes] = {}
        self._xid = _OWN_XIDS
        self._greeted = False
        self.send(self.dialect.message(of.HELLO, 0))
        self._receive_until(lambda: self._greeted)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send whole messages without waiting.

        Raises:
            ChannelError: the switch disconnected.
        """
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ChannelError(f"the switch disconnected: {error}") from error

    def ask(self, kind: int, body: bytes = b"") -> bytes:
        """Send a request of our own and return the (last) message of its answer, an error included."""
        self._xid += 1
        xid = self._xid
        self.send(self.dialect.message(kind, xid, body))
        self._receive_until(lambda: xid in self._own)
        return self._own.pop(xid)

    def ask_all(self, kind: int, body: bytes = b"") -> list[bytes]:
        """Send a multipart request; return the bodies of all parts of the answer."""
        self._xid += 1
        xid = self._xid
        parts: list[bytes] = []
        self.send(self.dialect.multipart(xid, kind, body))
        more = True
        while more:
            self._receive_until(lambda: xid in self._own)
            answer = self._own.pop(xid)
            parts.append(answer)
            more = self.dialect.has_more(answer)
        return parts

    def barrier(self) -> None:
        """Wait until all messages are processed and earlier ones of all switches have arrived.

        A barrier alone does not flush messages of other switches; statistics of all tables ask each of them.
        """
        self.ask(self.dialect.barrier_request)
        self.ask_all(of.AGGREGATE, self.dialect.every_flow())

    def await_asynchronous(self, count: int, timeout_s: float) -> None:
        """Wait for this number of asynchronous messages, or a timeout."""
        self._await(lambda: len(self.asynchronous) >= count, timeout_s)

    def await_removed(self, cookie: int, timeout_s: float) -> bool:
        """Wait for the flow_removed of a rule with this cookie; return False on a timeout."""
        reported = lambda: any(self.is_removal_of(message, cookie) for message in self.asynchronous)  # noqa: E731
        return self._await(reported, timeout_s)

    def is_removal_of(self, message: bytes, cookie: int) -> bool:
        """Tell whether a message reports that a rule with this cookie is gone."""
        return self.dialect.sort(message) == "removed" and self.dialect.removed_cookie(message) == cookie

    def _await(self, done: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not done():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if selector.select(left):
                    self._receive()
        return True

    def _receive_until(self, done: Callable[[], bool]) -> None:
        self._split()
        while not done():
            self._receive()

    def _receive(self) -> None:
        try:
            some = self._socket.recv(_CHUNK)
        except OSError as error:
            raise ChannelError(f"no answer within {_ANSWER_S:g} s: {error}") from error
        if not some:
            raise ChannelError("the switch disconnected")
        self._received += some
        self._split()

    def _split(self) -> None:
        """Sort the complete messages; our own answers one at a time, so that none is overwritten."""
        while len(self._received) >= _HEADER.size:
            _, kind, length, xid = _HEADER.unpack_from(self._received)
            if len(self._received) < length or xid in self._own:
                return
            frame = bytes(self._received[:length])
            del self._received[:length]
            self._sort(kind, xid, frame)

    def _sort(self, kind: int, xid: int, frame: bytes) -> None:
        if kind == of.HELLO:
            self._greeted = True
        elif kind == of.ECHO_REQUEST:
            self.send(self.dialect.message(of.ECHO_REPLY, xid, frame[8:]))
        elif self.dialect.sort(frame) != "reply" or monitors.entries(frame) is not None:
            self.asynchronous.append(frame)
        elif xid > _OWN_XIDS:
            self._own[xid] = frame
        else:
            self.replies.append(frame)
