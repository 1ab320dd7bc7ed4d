"""Limits of the connections of one waitress server, so that a slow or greedy client never blocks others.

Waitress itself stops accepting at a number of connections, however long they are idle. Here a new connection is always
accepted, and the oldest one without a request in progress is closed, of the peer with the most of them.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from waitress.channel import HTTPChannel

REQUEST_S = 20.0
"""Seconds from a request's first byte to its last."""

PEER_MAX = 64
"""Connections of one peer without a request in progress; a peer is an address, or all clients of a unix socket."""

TOTAL_MAX = 256
"""Connections of all peers, plus those that follow a stream."""

# RFC 9110, section 15.5.9.
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\nServer: nfagent\r\n\r\n"


class Channel(HTTPChannel):
    """A connection that remembers the start of an incomplete request.

    Attributes:
        began: steady clock at the first byte of the incomplete request; None: no incomplete request.
    """

    began: float | None = None

    def received(self, data: bytes) -> bool:
        """Note the start of a request."""
        before = self.request
        taken = super().received(data)
        if self.request is None:
            self.began = None
        elif self.request is not before:
            self.began = time.monotonic()
        return taken

    @property
    def peer(self) -> str:
        """Return the client's address; all connections of a unix socket share one."""
        return str(self.addr[0])

    @property
    def rank(self) -> tuple[int, float]:
        """Return the closing order: incomplete requests first, then idle connections, then those being answered."""
        if self.total_outbufs_len:
            return 2, self.last_activity
        return (1, self.last_activity) if self.began is None else (0, self.began)


class Connections:
    """Closes connections of a server that are too slow or too many.

    Thread safety: `sweep` only in the thread that runs the server's loop.

    Args:
        server: a waitress server; its channels are of the class `Channel`.
        streams: connections on top of `TOTAL_MAX`.
        clock: seconds of a steady clock.
    """

    def __init__(self, server: Any, streams: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._most = TOTAL_MAX + streams
        self._clock = clock

    def sweep(self) -> None:
        """Close slow and surplus connections."""
        channels: list[Channel] = list(self._server.active_channels.values())
        now = self._clock()
        for channel in channels:
            if not channel.requests and channel.began is not None and now - channel.began > REQUEST_S:
                with contextlib.suppress(OSError):
                    channel.send(_TOO_SLOW)
                channel.handle_close()
        self._thin_out([each for each in channels if each.connected])
        self._free_threads([each for each in channels if each.connected])

    def _thin_out(self, channels: list[Channel]) -> None:
        waiting: dict[str, list[Channel]] = defaultdict(list)
        for channel in sorted((each for each in channels if not each.requests), key=lambda each: each.rank):
            waiting[channel.peer].append(channel)
        surplus = len(channels) - self._most
        for each in waiting.values():
            while len(each) > PEER_MAX:
                each.pop(0).handle_close()
                surplus -= 1
        while surplus > 0 and any(waiting.values()):
            max(waiting.values(), key=len).pop(0).handle_close()
            surplus -= 1

    def _free_threads(self, channels: Iterable[Channel]) -> None:
        """If requests wait for a thread, close the connection whose client has read nothing for longest."""
        if not self._server.task_dispatcher.queue:
            return
        watermark = self._server.adj.outbuf_high_watermark
        blocked = [each for each in channels if each.requests and each.total_outbufs_len > watermark]
        if blocked:
            min(blocked, key=lambda each: each.last_activity).handle_close()
