"""``python -m tests.l7lb.raw_clients NAME ADDRESS PORT``: clients that no stock program is; each prints what it saw."""

import hashlib
import json
import random
import socket
import sys
from typing import Any

import requests

from lab.web_path.balancers import prefix
from lab.web_path.path import ORIGINS
from tests.l7lb.bodies import LARGEST, body, chunked
from tests.l7lb.http_client import Connection, Settings

Target = tuple[str, int]


def slow(target: Target) -> object:
    """Send a head and a body byte by byte, then take the answer in small pieces."""
    data = body(1, 300)
    head = f"POST /echo HTTP/1.1\r\nHost: web\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    with Connection(target, Settings(receive_buffer=2304)) as connection:
        connection.send([bytes([byte]) for byte in head + data])
        echoed = connection.answer().body == data
        connection.send([b"GET /bytes?seed=2&size=200000 HTTP/1.1\r\nHost: web\r\n\r\n"])
        return [echoed, connection.answer().body == body(2, 200_000)]


def trailers(target: Target) -> object:
    """Send a chunked body with a trailer, and receive one."""
    data = body(3, 70_000)
    head = b"POST /sha256 HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    with Connection(target, Settings()) as connection:
        connection.send([head, chunked(data, 3, {"X-Sum": "a sum"})])
        told: dict[str, Any] = json.loads(connection.answer().body)
        connection.send([b"GET /chunks?seed=4&size=70000 HTTP/1.1\r\nHost: web\r\n\r\n"])
        answer = connection.answer()
    expected = hashlib.sha256(body(4, 70_000)).hexdigest()
    return {
        "sent": told["sha256"] == hashlib.sha256(data).hexdigest(),
        "sent_trailers": told["trailers"],
        "received": answer.body == body(4, 70_000),
        "received_trailer": answer.trailers.get("x-sha256") == expected,
    }


def websocket(target: Target) -> object:
    """Upgrade a connection, then send bytes of all lengths each way."""
    request = (
        "GET /socket HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    choose, echoed = random.Random(5), 0
    with Connection(target, Settings()) as connection:
        connection.send([request.encode()])
        answer = connection.answer()
        for number in range(100):
            # Bytes after the upgrade are data, even if they look like a request.
            data = request.encode() if number % 10 == 0 else body(number, choose.randrange(1, 100_000))
            connection.send([data])
            echoed += connection.exactly(len(data)) == data
        connection.finish()
    return [answer.status, answer.headers["sec-websocket-accept"], echoed]


def old(target: Target) -> object:
    """Send requests of HTTP/1.0 without a Host; return the bytes of both answers, and whether the first one kept it."""
    kept = b"GET /bytes?seed=1&size=1000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    with socket.create_connection(target, 30) as connection:
        connection.sendall(b"GET /bytes?seed=1&size=70000 HTTP/1.0\r\n\r\n")
        alone = _to_the_end(connection)
    with socket.create_connection(target, 30) as connection:
        connection.sendall(kept)
        connection.recv(1 << 16)
        connection.sendall(kept.replace(b"keep-alive", b"close"))
        second = _to_the_end(connection)
    return [alone.endswith(body(1, 70_000)), second.endswith(body(1, 1000))]


def half_closed(target: Target) -> object:
    """Close the sending side after a request, before its answer has arrived."""
    with socket.create_connection(target, 30) as connection:
        connection.sendall(b"GET /bytes?seed=1&size=900000 HTTP/1.1\r\nHost: web\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        return _to_the_end(connection).endswith(body(1, 900_000))


def refused_upgrade(target: Target) -> object:
    """Ask for a websocket where there is none; the connection remains one of HTTP."""
    request = b"GET /bytes?seed=1&size=9 HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    request += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    statuses = []
    with Connection(target, Settings()) as connection:
        for server in ORIGINS:
            connection.send([request.replace(b"/bytes", f"{prefix(server)}/bytes".encode())])
            answer = connection.answer()
            statuses.append((answer.status, answer.headers["x-origin"] == server.address))
        connection.finish()
    return statuses


def _to_the_end(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def pipelined(target: Target) -> object:
    """Send 50 requests at once, for each server in turn; return how many answers are right and from that server."""
    asked = [(seed, seed * 977 % 5000, ORIGINS[seed % len(ORIGINS)]) for seed in range(50)]
    with Connection(target, Settings()) as connection:
        paths = [f"{prefix(server)}/bytes?seed={seed}&size={size}" for seed, size, server in asked]
        connection.send([b"".join(f"GET {path} HTTP/1.1\r\nHost: web\r\n\r\n".encode() for path in paths)])
        answers = [connection.answer() for _ in asked]
        connection.finish()
    right = [
        answer.body == body(seed, size) and answer.headers["x-origin"] in (server.address, server.address6)
        for (seed, size, server), answer in zip(asked, answers, strict=True)
    ]
    return sum(right)


def session(target: Target) -> object:
    """Use the library requests: one session, bodies as bytes and as a generator."""
    host = f"[{target[0]}]" if ":" in target[0] else target[0]
    base, right = f"http://{host}:{target[1]}", 0
    with requests.Session() as opened:
        opened.trust_env = False
        for seed in range(20):
            server = ORIGINS[seed % len(ORIGINS)]
            answer = opened.get(f"{base}{prefix(server)}/bytes", params={"seed": seed, "size": seed * 5000}, timeout=60)
            right += answer.content == body(seed, seed * 5000)
            right += answer.headers["X-Origin"] in (server.address, server.address6)
        data = body(9, LARGEST)
        right += opened.post(f"{base}/echo", data=data, timeout=60).content == data
        pieces = (data[at : at + 10_000] for at in range(0, len(data), 10_000))
        right += opened.post(f"{base}/echo", data=pieces, timeout=60).content == data
        right += (
            opened.head(f"{base}/bytes", params={"seed": 1, "size": 1234}, timeout=60).headers["Content-Length"]
            == "1234"
        )
    return right


def main() -> None:
    """The command."""
    clients = (slow, trailers, websocket, pipelined, session, old, half_closed, refused_upgrade)
    named = {each.__name__: each for each in clients}
    print(json.dumps(named[sys.argv[1]]((sys.argv[2], int(sys.argv[3])))))


if __name__ == "__main__":
    main()
