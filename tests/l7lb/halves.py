"""``python -m tests.l7lb.halves ADDRESS PORT``: requests that are half sent, until a line of input asks for the rest.

For each line it sends the first halves and prints ``ready`` when they are acknowledged; for the next line it sends the
rest and prints the failures, as JSON. Connections stay open for the next rounds, but one is new in each.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from lab.web_path.balancers import prefix
from lab.web_path.path import ORIGINS
from tests.l7lb.bodies import body, chunked
from tests.l7lb.http_client import Connection, HungError, Settings, WrongError

_SMALL = 700
_UPLOAD = 100_000
_UNREAD = 300_000
_PADDING = 20_000
_NEW = "a new connection"


@dataclass
class Half:
    """Requests in two pieces.

    Args:
        name: of the state that the first piece leaves in the balancer.
        first: the bytes to send before a move.
        rest: the bytes to send after it.
        answers: the bodies to expect.
        go: the name that the server is to get after the move.
    """

    name: str
    first: bytes
    rest: bytes
    answers: list[bytes]
    go: str = ""


def _download(seed: int, size: int, line: str = "") -> bytes:
    server = prefix(ORIGINS[seed % len(ORIGINS)])
    return f"GET {server}/bytes?seed={seed}&size={size} HTTP/1.1\r\nHost: web\r\n{line}\r\n".encode()


def _upload(target: str, framing: str) -> bytes:
    return f"POST {target} HTTP/1.1\r\nHost: web\r\n{framing}\r\n\r\n".encode()


def _cut(name: str, request: bytes, at: int, answer: bytes) -> Half:
    return Half(name, request[:at], request[at:], [answer])


def _halves(seed: int) -> Iterator[Half]:
    """Build the requests of a round."""
    somewhere, small, data = seed * 7919, body(seed, _SMALL), body(seed, _UPLOAD)
    short, long = _download(seed, _SMALL), _download(seed, _SMALL, f"X-Padding: {'p' * _PADDING}\r\n")
    yield _cut(_NEW, short, 0, small)
    yield _cut("an idle connection", short, 0, small)
    yield _cut("half a head", short, 1 + somewhere % (len(short) - 1), small)
    yield _cut("some segments of a head", long, 1 + somewhere % (len(long) - 1), small)
    head = _upload("/echo", f"Content-Length: {_UPLOAD}")
    yield _cut("a head without its body", head + data, len(head), data)
    yield _cut("half a body", head + data, len(head) + somewhere % _UPLOAD, data)
    head, chunks = _upload("/echo", "Transfer-Encoding: chunked"), chunked(data, seed, {})
    yield _cut("some chunks", head + chunks, len(head) + somewhere % len(chunks), data)
    name, waiting = f"half-{seed}", [seed + number for number in range(5)]
    first = _upload(f"/later?name={name}", f"Content-Length: {_SMALL}") + small
    told = {"length": _SMALL, "sha256": hashlib.sha256(small).hexdigest(), "trailers": {}}
    answers = [json.dumps(told).encode(), *(body(each, _SMALL) for each in waiting)]
    yield Half("waiting requests", first + b"".join(_download(each, _SMALL) for each in waiting), b"", answers, name)
    yield Half("an answer that is not read", _download(seed, _UNREAD), b"", [body(seed, _UNREAD)])


class Halves:
    """The connections, one for each state."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._open: dict[str, Connection] = {}

    def begin(self, seed: int) -> list[Half]:
        """Send the first pieces."""
        halves = list(_halves(seed))
        for half in halves:
            if half.name not in self._open:
                self._open[half.name] = Connection(self._target, Settings(receive_buffer=30_000))
            self._open[half.name].send([half.first])
        for half in halves:
            self._open[half.name].await_acknowledged()
        return halves

    def end(self, halves: list[Half]) -> list[str]:
        """Send the rest; return the failures."""
        return [failure for half in halves if (failure := self._end(half))]

    def _end(self, half: Half) -> str:
        try:
            if half.go:
                with Connection(self._target, Settings()) as other:
                    other.send([f"GET /go?name={half.go} HTTP/1.1\r\nHost: web\r\n\r\n".encode()])
                    other.answer()
            connection = self._open[half.name]
            connection.send([half.rest])
            for number, expected in enumerate(half.answers):
                answer = connection.answer()
                if (answer.status, answer.body) != (200, expected):
                    return f"{half.name}: answer {number} has status {answer.status} and {answer.body[:60]!r}"
            if half.name == _NEW:
                self._open.pop(half.name).finish()
        except (HungError, WrongError, OSError) as error:
            self._open.pop(half.name).close()
            return f"{half.name}: {error!r}"
        return ""


def main() -> None:
    """The command."""
    halves = Halves((sys.argv[1], int(sys.argv[2])))
    for seed, _ in enumerate(sys.stdin, 1):
        sent = halves.begin(seed)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(halves.end(sent)), flush=True)


if __name__ == "__main__":
    main()
