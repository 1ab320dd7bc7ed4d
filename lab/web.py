"""``python -m lab.web --name NAME``: a minimal web server in a host. It answers any request with its name.

Prints ``{"event": "ready"}`` when it listens.
"""

import argparse
import asyncio

from lab.commands import say

_END_OF_REQUEST = b"\r\n\r\n"
_REQUEST_MAX = 8192


class Answers(asyncio.Protocol):
    """One connection: an answer to each request, until the client closes it.

    Args:
        answer: bytes of every answer.
    """

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        *requests, self._received = (self._received + data).split(_END_OF_REQUEST)
        self._transport.write(self._answer * len(requests))
        if len(self._received) > _REQUEST_MAX:
            self._transport.abort()


def answer(name: str, size: int) -> bytes:
    """Return a complete response; its body is the name, padded to ``size`` bytes."""
    body = name.encode().ljust(size)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve(name: str, port: int, size: int) -> None:
    """Serve until the process ends."""
    response = answer(name, size)
    server = await asyncio.get_running_loop().create_server(lambda: Answers(response), None, port, backlog=1024)
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
