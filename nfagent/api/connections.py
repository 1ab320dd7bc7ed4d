"""Limits of the connections of one listener, so that slow, idle or greedy clients never block others.

Uvicorn holds any number of connections in one thread. These limits bound their duration and memory: a request has
`REQUEST_S` from its first byte to its last, an idle connection is closed after `IDLE_S`, and a client that does not
read its answer after `STALLED_S`. At the limit of connections those that wait for a request for longest are closed, of
the peer with the most of them.
"""

import asyncio
import resource
from collections.abc import Callable
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 20.0
"""Seconds from a request's first byte to its last."""

IDLE_S = 120.0
"""Seconds that a connection may wait for a request."""

STALLED_S = 60.0
"""Seconds that a client may leave its answer unread."""

BODIES_MAX = 64 << 20
"""Bytes of incomplete bodies, of all connections of a listener."""

CONNECTION = "connection"
"""In the state of an ASGI scope: the `Connection` of the request."""

_BATCH = 64  # this fraction of all is closed at a time, so that a flood of new ones does not search for each
_OTHER_FILES = 768  # descriptors for everything but connections
# RFC 9110, section 15.5.9.
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\nServer: nfagent\r\n\r\n"


def raise_file_limit() -> None:
    """Raise this process's limit of open files as far as an ordinary user may: from the soft to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def room(listeners: int) -> int:
    """Return the number of connections that the limit of open files leaves for each listener."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, (soft - _OTHER_FILES) // max(1, listeners))


class Connections:
    """The connections of a listener.

    Thread safety: only in the thread of the event loop.

    Args:
        most: number of connections above which those that wait for a request are closed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()  # without those that are being closed here
        # Those waiting for a request or its rest, by peer; the longest waiting first.
        self._waiting: dict[str, dict[Connection, None]] = {}
        self._bodies: dict[Connection, int] = {}
        self._body_bytes = 0

    def opened(self, connection: "Connection") -> None:
        """Count a new connection; close others if there are too many."""
        self._open.add(connection)
        self.waits(connection)
        if len(self._open) > self._most:
            self._thin_out(len(self._open) - self._most)

    def waits(self, connection: "Connection") -> None:
        """Note that a connection now waits for a request."""
        self._waiting.setdefault(connection.peer, {})[connection] = None

    def works(self, connection: "Connection") -> None:
        """Note that a connection's request is complete."""
        of_peer = self._waiting.get(connection.peer, {})
        of_peer.pop(connection, None)
        if not of_peer:
            self._waiting.pop(connection.peer, None)

    def closed(self, connection: "Connection") -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self.works(connection)
        self.release_body(connection)

    def keep_body(self, connection: "Connection", size: int) -> None:
        """Count a part of an incomplete body; drop the oldest incomplete ones if they take too much memory."""
        self._bodies[connection] = self._bodies.get(connection, 0) + size
        self._body_bytes += size
        while self._body_bytes > BODIES_MAX:
            oldest = next(iter(self._bodies))
            self.release_body(oldest)
            oldest.drop()

    def release_body(self, connection: "Connection") -> None:
        """Stop counting a body: it is complete, or its connection closed."""
        self._body_bytes -= self._bodies.pop(connection, 0)

    def _thin_out(self, surplus: int) -> None:
        left = max(surplus, self._most // _BATCH)
        while left > 0 and self._waiting:
            of_peer = max(self._waiting.values(), key=len)
            for connection in list(of_peer)[: max(1, min(left, len(of_peer) // 4))]:
                self.closed(connection)  # counted at once: the event loop closes it later
                connection.drop()
                left -= 1


class ListenerConfig(uvicorn.Config):
    """Uvicorn's configuration of a listener, with the limits of its connections."""

    connections: Connections


class Connection(H11Protocol):
    """A connection with limits.

    Attributes:
        peer: the client's address; all connections of a unix socket share one.
    """

    def __init__(self, config: ListenerConfig, **rest: Any) -> None:
        super().__init__(config, **rest)
        self.peer = ""
        self.app_state = self.app_state | {CONNECTION: self}
        self._limits = config.connections
        self._is_reading = False  # of a request that has begun
        self._patience: asyncio.TimerHandle | None = None  # until a request begins, or is complete
        self._unread: asyncio.TimerHandle | None = None  # until the client reads

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for a request."""
        super().connection_made(cast("asyncio.Transport", transport))
        self.peer = self.client[0] if self.client else ""
        self._wait(IDLE_S, self.drop)
        self._limits.opened(self)

    def data_received(self, data: bytes) -> None:
        """Read, and limit the duration of a request from its first byte."""
        super().data_received(data)
        self._note_state()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was answered early."""
        super().on_response_complete()
        self._note_state()

    def pause_writing(self) -> None:
        """Limit the time that the client does not read."""
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(STALLED_S, self.drop)

    def resume_writing(self) -> None:
        """End that limit."""
        super().resume_writing()
        self._unread = _cancelled(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._patience, self._unread = _cancelled(self._patience), _cancelled(self._unread)
        self._unset_keepalive_if_required()
        self._limits.closed(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once, even with an answer in progress."""
        self.transport.abort()

    def _note_state(self) -> None:
        if self.transport.is_closing():
            return
        was_reading, self._is_reading = self._is_reading, self._has_incomplete_request()
        is_answering = not self._is_reading and self.cycle is not None and not self.cycle.response_complete
        if self._is_reading and not was_reading:
            self._wait(REQUEST_S, self._time_out)
        elif is_answering:
            self._patience = _cancelled(self._patience)
        elif not self._is_reading and (was_reading or self._patience is None):
            self._wait(IDLE_S, self.drop)
        if is_answering:
            self._limits.works(self)
        else:
            self._limits.waits(self)

    def _wait(self, limit_s: float, act: Callable[[], None]) -> None:
        _cancelled(self._patience)
        self._patience = self.loop.call_later(limit_s, act)

    def _has_incomplete_request(self) -> bool:
        state, (unparsed, _) = self.conn.their_state, self.conn.trailing_data
        return state is h11.SEND_BODY or (state is h11.IDLE and unparsed != b"")

    def _time_out(self) -> None:
        if self.conn.their_state is h11.IDLE or not self.cycle.response_started:
            self.transport.write(_TOO_SLOW)
        self.transport.close()


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
