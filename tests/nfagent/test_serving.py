"""Slow or many connections never lock out other clients."""

import select
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest

from nfagent.api import connections
from nfagent.api.serving import Serving

_POST = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1234567890"


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Answer at once, or endlessly."""
    start("200 OK", [])
    if environ["PATH_INFO"] == "/endless":
        return iter(lambda: b"x" * (1 << 20), b"")
    return [b"fine"]


@contextmanager
def serving(streams: int = 2) -> Iterator[tuple[str, int]]:
    served = Serving(application, ["tcp:127.0.0.1:0"], streams)
    host, _, port = served.addresses[0].removeprefix("tcp:").rpartition(":")
    try:
        yield host, int(port)
    finally:
        served.stop()


def connect(stack: ExitStack, address: tuple[str, int], sent: bytes) -> socket.socket:
    made = stack.enter_context(socket.create_connection(address, timeout=30))
    made.sendall(sent)
    return made


def ask(address: tuple[str, int]) -> str:
    return httpx.get(f"http://{address[0]}:{address[1]}/", timeout=30, trust_env=False).text


@pytest.mark.parametrize("sent", [0, 8, len(_POST) - 7], ids=["nothing", "headers", "body"])
def test_partial_requests_do_not_lock_out_others(sent: int) -> None:
    with serving() as address, ExitStack() as stack:
        slow = [connect(stack, address, _POST[:sent]) for _ in range(3 * connections.PEER_MAX)]
        assert ask(address) == "fine"
        # The oldest connections were closed; the newest keep their time.
        assert slow[0].recv(1) == b""
        slow[-1].sendall(_POST[sent:])
        assert slow[-1].recv(15) == b"HTTP/1.1 200 OK"


def test_an_incomplete_request_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    with serving() as address, ExitStack() as stack:
        idle, slow = connect(stack, address, b""), connect(stack, address, _POST[:-9])
        for each in _POST[-9:-1]:  # single bytes do not extend the limit
            with suppress(OSError):
                slow.sendall(bytes([each]))
            select.select([slow], [], [], 0.05)
        assert slow.recv(12) == b"HTTP/1.1 408"
        idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(15) == b"HTTP/1.1 200 OK"


def test_clients_that_do_not_read_do_not_lock_out_others() -> None:
    with serving(streams=1) as address, ExitStack() as stack:
        request = b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n"
        blocked = [connect(stack, address, request) for _ in range(20)]
        for each in blocked[:9]:
            assert each.recv(15) == b"HTTP/1.1 200 OK"
        assert ask(address) == "fine"
