"""``python -m lab.web --name NAME``: a minimal web server in a host.

It answers any request with its name, padded with spaces. `/bytes/N` pads to N bytes instead of ``--size``; a request
with a body, framed by Content-Length, is answered with the name and the body's SHA-256.

Prints ``{"event": "ready"}`` when it listens.
"""

import argparse
import asyncio
import hashlib

from lab.commands import say

_END_OF_REQUEST = b"\r\n\r\n"
_REQUEST_MAX = 8192
_SIZED = b"/bytes/"
_ANSWER_MAX = 1 << 26


class Answers(asyncio.Protocol):
    """One connection: an answer to each request, until the client closes it.

    Args:
        name: the server's.
        size: bytes of most answers' bodies.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size = name, size
        self._plain = answer(name, size)
        self._received = b""
        self._missing = 0
        self._digest = hashlib.sha256()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        while self._received:
            if self._missing:
                self._take_body(self._transport)
                continue
            head, end, rest = self._received.partition(_END_OF_REQUEST)
            if not end:
                if len(head) > _REQUEST_MAX:
                    self._transport.abort()
                return
            self._received = rest
            try:
                self._begin(head, self._transport)
            except ValueError:
                self._transport.abort()
                return

    def _begin(self, head: bytes, transport: asyncio.Transport) -> None:
        """Answer a request, or begin to read its body; raises ValueError if a number is malformed."""
        first, *fields = head.lower().split(b"\r\n")
        self._missing = next((int(line[15:]) for line in fields if line.startswith(b"content-length:")), 0)
        if self._missing:
            self._digest = hashlib.sha256()
            return
        _, sized, rest = first.partition(_SIZED)
        if sized:
            transport.write(answer(self._name, min(int(rest.split()[0]), _ANSWER_MAX)))
        else:
            transport.write(self._plain)

    def _take_body(self, transport: asyncio.Transport) -> None:
        piece, self._received = self._received[: self._missing], self._received[self._missing :]
        self._digest.update(piece)
        self._missing -= len(piece)
        if not self._missing:
            transport.write(answer(f"{self._name} {self._digest.hexdigest()}", self._size))


def answer(text: str, size: int) -> bytes:
    """Return a complete response; its body is the text, padded to ``size`` bytes."""
    body = text.encode().ljust(size)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve(name: str, port: int, size: int) -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(lambda: Answers(name, size), None, port, backlog=1024)
    say("ready")
    await server.serve_forever()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m lab.web", description="A web server that answers with its name.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, default=80)
    parser.add_argument("--size", type=int, default=0, help="bytes of an answer's body, at least the name's")
    options = parser.parse_args()
    asyncio.run(serve(options.name, options.port, options.size))


if __name__ == "__main__":
    main()
