"""``python -m tests.l7lb.origin``: a web server that checks what it receives, for one port on all addresses.

| request | answer |
|---|---|
| GET /bytes?seed=S&size=N | `bodies.body(S, N)` |
| GET /chunks?seed=S&size=N | the same in chunks, with its SHA-256 in a trailer |
| POST /sha256 | length, SHA-256 and trailers of the request's body, as JSON |
| POST /echo | the request's body |
| POST /later?name=N | as /sha256, but it reads the body after a GET /go?name=N only |
| GET /socket with Upgrade: websocket | 101, and from then on all bytes back |
| GET /status?code=C&length=N | status C without a body, with Content-Length N (as 304 may have it) |
| GET /ends?seed=S&size=N | `bodies.body(S, N)`, ended by the end of the connection only |
| GET /hints?seed=S&size=N | 103 with a Link, then as /bytes |
| GET /old?seed=S&size=N | as /ends, in HTTP/1.0 |
| POST /refuse | 413 before the body, and the end of the connection |
| GET /heads | the request line and header lines of the last requests to this address, as JSON |

A path may begin with ``/at-NAME``, for the balancer. Each answer names the address in ``X-Origin``.
"""

import base64
import collections
import hashlib
import http.server
import json
import re
import socket
import sys
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.l7lb.bodies import body, chunked

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PIECE = 1 << 16
_STUCK_S = 900


class State:
    """The memory of all connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._go: dict[str, threading.Event] = {}
        self.heads: dict[str, collections.deque[list[str]]] = {}

    def go(self, name: str) -> threading.Event:
        """Return the event of a /later; the first caller creates it."""
        with self._lock:
            return self._go.setdefault(name, threading.Event())

    def heard(self, address: str, lines: list[str]) -> None:
        """Remember a request's head."""
        with self._lock:
            self.heads.setdefault(address, collections.deque(maxlen=200)).append(lines)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _STUCK_S
    wbufsize = -1  # one segment for head and body
    state = State()

    def _begin(self) -> tuple[str, dict[str, str]]:
        self.origin = self.connection.getsockname()[0].removeprefix("::ffff:")
        url = urlsplit(self.path)
        lines = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items())]
        self.state.heard(self.origin, lines)
        return re.sub(r"^/at-[^/]*", "", url.path), {name: values[0] for name, values in parse_qs(url.query).items()}

    def do_GET(self) -> None:
        path, query = self._begin()
        if path == "/bytes":
            self._answer(body(int(query["seed"]), int(query["size"])))
        elif path == "/chunks":
            data = body(int(query["seed"]), int(query["size"]))
            trailers = {"X-Sha256": hashlib.sha256(data).hexdigest()}
            self._answer(chunked(data, int(query["seed"]), trailers), framing=("Transfer-Encoding", "chunked"))
        elif path == "/go":
            self.state.go(query["name"]).set()
            self._answer(b"gone\n")
        elif path == "/status":
            self.send_response(int(query["code"]))
            self.send_header("X-Origin", self.origin)
            if "length" in query:
                self.send_header("Content-Length", query["length"])
            self.end_headers()
        elif path in ("/ends", "/old"):
            self.protocol_version = "HTTP/1.0" if path == "/old" else "HTTP/1.1"
            self._answer(body(int(query["seed"]), int(query["size"])), framing=("Connection", "close"))
        elif path == "/hints":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
            self.wfile.flush()
            self._answer(body(int(query["seed"]), int(query["size"])))
        elif path == "/heads":
            self._answer(json.dumps(list(self.state.heads[self.origin])).encode())
        elif path == "/socket":
            self._echo_for_ever()
        else:
            self._answer(b"no such path\n", status=404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        path, query = self._begin()
        if path == "/later" and not self.state.go(query["name"]).wait(_STUCK_S):
            self._answer(b"no /go came\n", status=500)
            self.close_connection = True
            return
        pieces: list[bytes] | None = [] if path == "/echo" else None
        if path == "/refuse":
            self._refuse()
            return
        digest, length = hashlib.sha256(), 0
        trailers: dict[str, str] = {}
        for piece in self._body(trailers):
            digest.update(piece)
            length += len(piece)
            if pieces is not None:
                pieces.append(piece)
        if pieces is not None:
            self._answer(b"".join(pieces))
        else:
            told = {"length": length, "sha256": digest.hexdigest(), "trailers": trailers}
            self._answer(json.dumps(told).encode())

    def do_PUT(self) -> None:
        self.do_POST()

    def _refuse(self) -> None:
        """Answer at once; then read what the client has sent, so that no reset overtakes the answer."""
        self._answer(b"too long\n", status=413, framing=("Connection", "close"))
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        while self.rfile.read1(_PIECE):
            pass

    def handle_expect_100(self) -> bool:
        """Let the client send the body now, unless the request is refused."""
        if "/refuse" in self.path:
            return True
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def _body(self, trailers: dict[str, str]) -> Any:
        """Yield the pieces of the request's body; add what follows it to the trailers."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            yield from self._exactly(int(self.headers["Content-Length"]))
            return
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield from self._exactly(size)
            self._end_of_chunk()
        while line := self.rfile.readline().strip():
            name, _, value = line.decode().partition(": ")
            trailers[name.lower()] = value

    def _end_of_chunk(self) -> None:
        if (found := self.rfile.read(2)) != b"\r\n":
            raise ConnectionError(f"a chunk was to end with a line break: {found!r}")

    def _exactly(self, size: int) -> Any:
        while size:
            piece = self.rfile.read(min(size, _PIECE))
            if not piece:
                raise ConnectionError(f"{size} bytes of the body are missing")
            size -= len(piece)
            yield piece

    def _answer(self, data: bytes, *, status: int = 200, framing: tuple[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header(*(framing or ("Content-Length", str(len(data)))))
        self.send_header("X-Origin", self.origin)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _echo_for_ever(self) -> None:
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + _GUID).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        self.wfile.flush()
        while piece := self.rfile.read1(_PIECE):
            self.wfile.write(piece)
            self.wfile.flush()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


class Server(http.server.ThreadingHTTPServer):
    """A thread for each connection, on IPv4 and IPv6."""

    address_family = socket.AF_INET6
    request_queue_size = 1024

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """Report an error in one line; a reset connection is none."""
        error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
        if not isinstance(error, ConnectionResetError | BrokenPipeError | TimeoutError):
            print(f"{client_address}: {error!r}", file=sys.stderr, flush=True)


def main() -> None:
    """Serve until the process ends."""
    port, receive_buffer = int(sys.argv[1]), int(sys.argv[2])
    server = Server(("::", port), Handler, bind_and_activate=False)
    if receive_buffer:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    server.server_bind()
    server.server_activate()
    server.serve_forever()


if __name__ == "__main__":
    main()
