"""Runs the WSGI application in threads, behind an ASGI server.

A request gets a thread when it is complete, and its answer leaves the thread at once unless it is a stream; so clients
that are slow either way take none. a2wsgi does neither, and its hops between threads take 0.5 ms of CPU per request.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from nfagent.api.access import LOCAL
from nfagent.api.connections import CONNECTION, Connection, Connections

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

IS_GONE = "nfagent.is_gone"
"""In a WSGI environment: tells whether the client has disconnected; any thread may call it."""

KEPT_BODY_MAX = (1 << 20) + 1
"""Bytes kept of a body: one more than the application allows, so that it can refuse a larger one."""

_READ_BODY_MAX = 64 << 20  # a larger body closes the connection


class Bridge:
    """An ASGI application that runs a WSGI application.

    Args:
        application: the WSGI application.
        connections: of the listener.
        threads: how many requests are answered at the same time.
        is_local: whether the listener is a unix socket.
    """

    def __init__(self, application: Application, connections: Connections, threads: int, *, is_local: bool) -> None:
        self._application = application
        self._connections = connections
        self._is_local = is_local
        self._threads = ThreadPoolExecutor(threads, "answer")

    async def __call__(self, scope: Scope, receive: Callable[..., Any], send: Send) -> None:
        """Answer a request."""
        connection: Connection = scope["state"][CONNECTION]
        cycle = connection.cycle
        body = await self._body(connection, receive)
        if body is None:
            return
        environ = _environ(scope, body) | {LOCAL: self._is_local, IS_GONE: lambda: cycle.disconnected}
        loop = asyncio.get_running_loop()

        def delivered(message: dict[str, Any]) -> bool:
            asyncio.run_coroutine_threadsafe(_as_coroutine(send(message)), loop).result()
            return not cycle.disconnected

        for message in await loop.run_in_executor(self._threads, self._answer, environ, delivered):
            await send(message)

    def close(self) -> None:
        """Start no more requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _body(self, connection: Connection, receive: Callable[..., Any]) -> bytes | None:
        """Read a request's body; None: the client disconnected, or its body is far too large."""
        body, size = bytearray(), 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message["body"]
            size += len(part)
            kept = part[: KEPT_BODY_MAX - len(body)]
            body += kept
            if not message["more_body"]:
                self._connections.release_body(connection)
                return bytes(body)
            if size > _READ_BODY_MAX:
                connection.drop()
                return None
            self._connections.keep_body(connection, len(kept))

    def _answer(self, environ: dict[str, Any], delivered: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Run the application in a thread; return what is left to send.

        Args:
            environ: the request.
            delivered: sends a part of an answer without length; False: the client has disconnected.
        """
        start: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            start.update(type="http.response.start", status=int(status.split(" ", 1)[0]), headers=encoded)

        parts = self._application(environ, start_response)
        try:
            if any(name == b"content-length" for name, _ in start.get("headers", ())):
                return [start, _part(b"".join(parts), more=False)]
            begin = [start]
            for part in parts:
                if not all(delivered(each) for each in (*begin, _part(part, more=True))):
                    return []
                begin = []
            return [*begin, _part(b"", more=False)]
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()


async def _as_coroutine(awaitable: Awaitable[None]) -> None:
    await awaitable


def _part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def _environ(scope: Scope, body: bytes) -> dict[str, Any]:
    """Convert as in PEP 3333. The body is complete, so that also a chunked one has a length."""
    host, port = scope["server"] or ("localhost", None)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 0),
        "REMOTE_ADDR": scope["client"][0] if scope["client"] else "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").upper().replace("-", "_")
        key = name if name in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{name}"
        value = raw_value.decode("latin-1")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    if environ.pop("HTTP_TRANSFER_ENCODING", None) is not None:
        environ["CONTENT_LENGTH"] = str(len(body))
    return environ
