"""``python -m lab.l7.unfinished``: requests that begin, and end on command. Runs inside a host.

Each kind has ``--each`` connections:

| kind | what the server and the client have when ``ready`` is printed |
|---|---|
| heads | half of the head of a request has been sent and acknowledged |
| uploads | the head and half of the body have been sent and acknowledged |
| downloads | the client has the head of the answer, and does not read the body |

``finish`` on standard input ends all of them. Then it prints ``{"event": "report", "right": {KIND: NUMBER}, "wrong":
[...]}``: right answers by kind, and what was wrong with the others.
"""

import argparse
import asyncio
import fcntl
import hashlib
import os
import random
import socket
import struct
import sys
import termios
from collections.abc import Awaitable, Callable

from lab.commands import say

KINDS: tuple[str, ...] = ("heads", "uploads", "downloads")

_DOWNLOAD_BYTES, _UPLOAD_BYTES = 2_000_000, 300_000
_RECEIVE_BUFFER = 1 << 16
_HALF_OF_UPLOAD = 100_000
_POLL_S, _TIMEOUT_S = 0.005, 20.0

Finish = Callable[[], Awaitable[bool]]


class Client:
    """One connection.

    Args:
        streams: open, without a byte sent.
        host: for the requests' head.
        number: of the connection; differs for each.
    """

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], host: str, number: int) -> None:
        self._reader, self._writer = streams
        self._host, self._number = host, number

    async def heads(self) -> Finish:
        """Send half of a head."""
        await self._send(f"GET /unfinished HTTP/1.1\r\nHost: {self._host}\r\nX-Numb".encode())
        return self._end_head

    async def _end_head(self) -> bool:
        await self._send(f"er: {self._number}\r\n\r\n".encode())
        return (await self._answer()).strip() != b""

    async def uploads(self) -> Finish:
        """Send a head and a part of its body."""
        self._body = random.Random(self._number).randbytes(_UPLOAD_BYTES)
        head = f"POST /unfinished HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(self._body)}\r\n\r\n"
        await self._send(head.encode() + self._body[:_HALF_OF_UPLOAD])
        return self._end_upload

    async def _end_upload(self) -> bool:
        self._writer.write(self._body[_HALF_OF_UPLOAD:])
        return hashlib.sha256(self._body).hexdigest().encode() in await self._answer()

    async def downloads(self) -> Finish:
        """Ask for a long answer; the connection's small buffer lets the server send a part of it."""
        await self._send(f"GET /bytes/{_DOWNLOAD_BYTES} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        self._length = await self._head()
        return self._end_download

    async def _end_download(self) -> bool:
        body = await self._reader.readexactly(self._length)
        return len(body) == _DOWNLOAD_BYTES and not body[64:].strip()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _send(self, data: bytes) -> None:
        """Send, and wait until the other end has acknowledged everything."""
        self._writer.write(data)
        await self._writer.drain()
        own = self._writer.get_extra_info("socket")
        while struct.unpack("i", fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)))[0]:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def _answer(self) -> bytes:
        return await self._reader.readexactly(await self._head())

    async def _head(self) -> int:
        """Read the head of an answer, and return the length of its body."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise ValueError(f"the answer begins with {head[:40]!r}")
        return int(head.partition(b"content-length:")[2].split()[0])


async def _connect(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, (address, port))
    return await asyncio.open_connection(sock=own)


async def _run(options: argparse.Namespace) -> None:
    begun: list[tuple[str, Client, Finish]] = []
    async with asyncio.timeout(_TIMEOUT_S):
        for number in range(options.each * len(KINDS)):
            kind = KINDS[number % len(KINDS)]
            client = Client(await _connect(options.address, options.port), options.host or options.address, number)
            begun.append((kind, client, await getattr(client, kind)()))
    say("ready")
    await asyncio.get_running_loop().run_in_executor(None, _await_finish)
    faults = await asyncio.gather(*(_fault(finish) for _, _, finish in begun))
    right: dict[str, int] = dict.fromkeys(KINDS, 0)
    for (kind, client, _), fault in zip(begun, faults, strict=True):
        right[kind] += not fault
        client.close()
    wrong = [f"{kind}: {fault}" for (kind, _, _), fault in zip(begun, faults, strict=True) if fault]
    say("report", right=right, wrong=wrong)


async def _fault(finish: Finish) -> str:
    """End a request; return what is wrong with its answer, or an empty string."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return "" if await finish() else "the answer's body is not the expected one"
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return f"{type(error).__name__}: {error}"


def _await_finish() -> None:
    """Read standard input up to the command, or to its end."""
    while (chunk := os.read(sys.stdin.fileno(), 4096)) and b"finish" not in chunk:
        pass


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m lab.l7.unfinished", description="Requests that end on command.")
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, default=80)
    parser.add_argument("--host", default="", help="for the Host header (the address)")
    parser.add_argument("--each", type=int, default=10, help="connections of each kind (10)")
    try:
        asyncio.run(_run(parser.parse_args()))
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
        say("error", problem=f"no request could begin: {type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
