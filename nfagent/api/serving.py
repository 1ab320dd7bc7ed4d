"""Serves the application on its addresses, all in one event loop: an open connection costs memory, but no thread.

Uvicorn does: it is widely used, runs inside this process, and takes its sockets, its TLS context and a protocol class,
which has the limits of `nfagent.api.connections`. Granian and Gunicorn start processes, and Hypercorn several tasks for
each connection; nginx would be one more service to configure, and the threads behind it would still need a bound.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from asyncio import sslproto
from pathlib import Path
from typing import Any

import uvicorn

from nfagent.api.bridge import Application, Bridge
from nfagent.api.connections import IDLE_S, Connection, Connections, ListenerConfig, room
from nfagent.errors import AgentError

_log = logging.getLogger(__name__)

_THREADS = 8
_GRACE_S = 5.0  # for answers in progress, when it stops
_ENDING_S = 10.0  # for the threads of aborted answers
_COUNT_S = 0.1  # between counts of the open connections at the limit: 10,000 take 1 ms
_BACKLOG = 128  # also the number of connections that asyncio accepts at a time
_HEAD_MAX = 64 << 10
# Asyncio gives each TLS connection a buffer of 256 KiB, 2.5 GB for 10,000 of them; a record of TLS has at most 16 KiB.
sslproto.SSLProtocol.max_size = 16 << 10
_STALLED_MS = 60_000  # for clients that vanish; `connections.STALLED_S` is for those that do not read


class _Listening(socket.socket):
    """A listening socket that closes new connections above a number, so that other files can still be opened.

    `Connections` makes room before, but does not know of connections whose TLS handshake is incomplete.
    """

    def __init__(self, *args: int) -> None:
        super().__init__(*args)
        self.most = 0
        self._accepted: set[socket.socket] = set()  # some of them are closed
        self._counted = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            BlockingIOError: none is left, or it was closed.
        """
        made, address = super().accept()
        if len(self._accepted) >= self.most and time.monotonic() - self._counted > _COUNT_S:
            self._accepted = {each for each in self._accepted if each.fileno() >= 0}
            self._counted = time.monotonic()
        if len(self._accepted) >= self.most:
            made.close()
            raise BlockingIOError
        self._accepted.add(made)
        return made, address


class ServingError(AgentError):
    """The agent cannot listen on an address."""


class Serving:
    """Serves from its creation until `stop`.

    Args:
        application: the application.
        listen: addresses as in agent.toml.
        streams: additional threads of each listener for answers that do not end.
        tls: for addresses ``tls:HOST:PORT``.

    Attributes:
        addresses: as ``listen``, with the chosen ports.

    Raises:
        ServingError: an address is in use, or cannot be created.
    """

    def __init__(
        self, application: Application, listen: list[str], streams: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self.addresses: list[str] = []
        self._listeners: list[_Listener] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_sockets)
            for address in listen:
                listener, actual = _listener(address)
                undo.enter_context(listener)
                self.addresses.append(actual)
                threads, context = _THREADS + streams, tls if address.startswith("tls:") else None
                self._listeners.append(_Listener(application, listener, room(len(listen)), threads, context))
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, name="serve", daemon=True)
            self._thread.start()
            for each in self._listeners:
                each.is_open.wait()
            undo.pop_all()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve_all())

    async def _serve_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self._listeners:
                group.create_task(each.serve_until_end())

    def stop(self) -> None:
        """Close all connections; answers in progress have five seconds."""
        with contextlib.suppress(RuntimeError):  # it has stopped before
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(_GRACE_S + _ENDING_S)
        if self._thread.is_alive():
            _log.warning("an answer in progress did not end within %g s; stopping without it", _GRACE_S + _ENDING_S)
        self._remove_sockets()

    def _end(self) -> None:
        for each in self._listeners:
            each.should_exit = True
            self._loop.call_later(_GRACE_S, each.abort)

    def _remove_sockets(self) -> None:
        for address in self.addresses:
            if address.startswith("unix:"):
                Path(address.removeprefix("unix:")).unlink(missing_ok=True)


class _Listener(uvicorn.Server):
    """One address.

    Attributes:
        is_open: set when clients can connect.
    """

    def __init__(
        self, application: Application, listener: _Listening, most: int, threads: int, tls: ssl.SSLContext | None
    ) -> None:
        connections = Connections(most)
        listener.most = most + _BACKLOG
        self._bridge = Bridge(application, connections, threads, is_local=listener.family == socket.AF_UNIX)
        config = ListenerConfig(
            self._bridge,
            http=Connection,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[("Server", "nfagent")],
            backlog=_BACKLOG,
            ssl_context_factory=None if tls is None else lambda _, __: tls,
            timeout_keep_alive=int(IDLE_S),
            h11_max_incomplete_event_size=_HEAD_MAX,
        )
        config.connections = connections
        super().__init__(config)
        self._socket = listener
        self.is_open = threading.Event()

    async def serve_until_end(self) -> None:
        """Serve until `should_exit`."""
        try:
            await self.serve(sockets=[self._socket])
        finally:
            self.is_open.set()
            self._bridge.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.is_open.set()

    def abort(self) -> None:
        """Close all connections at once."""
        for each in list(self.server_state.connections):
            each.transport.abort()


def _listener(address: str) -> tuple[_Listening, str]:
    kind, _, rest = address.partition(":")
    try:
        return _unix(Path(rest)) if kind == "unix" else _tcp(kind, rest)
    except OSError as error:
        raise ServingError(f"cannot listen at {address}: {error.strerror or error}") from error


def _unix(path: Path) -> tuple[_Listening, str]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()  # its creator has ended
        except OSError:
            pass  # usually it does not exist; bind reports other errors
        else:
            raise ServingError(f"cannot listen at unix:{path}: another process serves it")
    listener = _Listening(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        os.fchmod(listener.fileno(), 0o600)  # before bind, which gives the file this mode
        listener.bind(str(path))
        undo.pop_all()
    return listener, f"unix:{path}"


def _tcp(kind: str, rest: str) -> tuple[_Listening, str]:
    host, _, port = rest.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = _Listening(*found[:3])  # with the protocol: asyncio sets TCP_NODELAY only where it is named
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MS)  # accepted connections inherit it
        listener.bind(found[4])
        undo.pop_all()
    return listener, f"{kind}:{host}:{listener.getsockname()[1]}"
