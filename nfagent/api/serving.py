"""Serves the application on its addresses: one waitress for each, in its own thread."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from waitress.server import create_server

from nfagent.api.access import LOCAL
from nfagent.api.connections import TOTAL_MAX, Channel, Connections
from nfagent.errors import AgentError

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_THREADS = 8
_BODY_MAX = 64 << 20  # a larger body closes the connection; below this the application reports the error
_POLL_S = 1.0
_STALLED_MS = 60_000  # a client that reads nothing for this long is disconnected, because it occupies a thread


class ServingError(AgentError):
    """The agent cannot listen on an address."""


class Serving:
    """Serves from its creation until `stop`.

    Args:
        application: the application.
        listen: addresses as in agent.toml.
        streams: additional threads for answers that do not end.

    Attributes:
        addresses: as ``listen``, with the chosen ports.

    Raises:
        ServingError: an address is in use, or cannot be created.
    """

    def __init__(self, application: Application, listen: list[str], streams: int) -> None:
        self.addresses: list[str] = []
        self._stopping = threading.Event()
        self._servers: list[tuple[Any, dict[int, Any], threading.Thread]] = []
        try:
            for address in listen:
                self._add(application, address, streams)
        except BaseException:
            self.stop()
            raise

    def _add(self, application: Application, address: str, streams: int) -> None:
        listener, actual = _listener(address)
        is_local = listener.family == socket.AF_UNIX

        def marked(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            environ[LOCAL] = is_local
            return application(environ, start)

        channels: dict[int, Any] = {}
        server: Any = create_server(
            marked,
            map=channels,
            sockets=[listener],
            threads=_THREADS + streams,
            ident="nfagent",
            send_bytes=1,  # send each event at once, without collecting more
            channel_request_lookahead=1,  # detects that a client of a stream has disconnected
            max_request_body_size=_BODY_MAX,
            connection_limit=2 * (TOTAL_MAX + streams),  # beyond this, further clients wait
            asyncore_use_poll=True,
            clear_untrusted_proxy_headers=True,
        )
        server.channel_class = Channel
        limits = Connections(server, streams)
        thread = threading.Thread(
            target=self._serve, args=(server, limits, channels), name=f"serve {actual}", daemon=True
        )
        self._servers.append((server, channels, thread))
        self.addresses.append(actual)
        thread.start()

    def _serve(self, server: Any, limits: Connections, channels: dict[int, Any]) -> None:
        while not self._stopping.is_set():
            server.asyncore.loop(timeout=_POLL_S, use_poll=True, map=channels, count=1)
            limits.sweep()

    def stop(self) -> None:
        """Close all connections; answers in progress have five seconds."""
        self._stopping.set()
        for server, _, thread in self._servers:
            server.pull_trigger()
            thread.join()
        for server, channels, _ in self._servers:
            server.task_dispatcher.shutdown()
            server.asyncore.close_all(channels, ignore_all=True)
        for address in self.addresses:
            if address.startswith("unix:"):
                Path(address.removeprefix("unix:")).unlink(missing_ok=True)


def _listener(address: str) -> tuple[socket.socket, str]:
    kind, _, rest = address.partition(":")
    try:
        return _unix(Path(rest)) if kind == "unix" else _tcp(rest)
    except OSError as error:
        raise ServingError(f"cannot listen at {address}: {error.strerror or error}") from error


def _unix(path: Path) -> tuple[socket.socket, str]:
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
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        os.fchmod(listener.fileno(), 0o600)  # before bind, which gives the file this mode
        listener.bind(str(path))
        undo.pop_all()
    return listener, f"unix:{path}"


def _tcp(rest: str) -> tuple[socket.socket, str]:
    host, _, port = rest.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(found[0], socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MS)  # accepted connections inherit it
        listener.bind(found[4])
        undo.pop_all()
    return listener, f"tcp:{host}:{listener.getsockname()[1]}"
