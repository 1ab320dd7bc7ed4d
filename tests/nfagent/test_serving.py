"""Slow, idle or many connections never lock out other clients."""

import json
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from nfagent.api import bridge, connections, serving
from nfagent.api.bridge import IS_GONE
from nfagent.api.serving import Serving
from tests.nfagent.world import wait_until

_POST = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1234567890"
_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_OK = b"HTTP/1.1 200 OK"
_THREADS = 8


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the length of the body, endlessly, or until the client is gone."""
    path, body = environ["PATH_INFO"], environ["wsgi.input"].read()
    if path == "/endless":
        start("200 OK", [])
        return iter(lambda: b"x" * (1 << 20), b"")
    if path == "/quiet":
        start("200 OK", [])
        return _until_gone(environ[IS_GONE])
    if path == "/failing":
        start("200 OK", [])
        return (str(1 // left).encode() for left in (1, 0))
    said = f"{environ.get('CONTENT_LENGTH', 'no')} {len(body)}".encode()
    start("200 OK", [("Content-Length", str(len(said)))])
    return [said]


def _until_gone(is_gone: Callable[[], bool]) -> Iterator[bytes]:
    yield b"begins"
    wait_until(is_gone)


@contextmanager
def serving_at(streams: int = 2) -> Iterator[tuple[str, int]]:
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


def is_closed(client: socket.socket) -> bool:
    """Wait for the end of a connection."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:  # closed with unread bytes
        return True


def ask(address: tuple[str, int], **options: Any) -> str:
    url = f"http://{address[0]}:{address[1]}/"
    return httpx.request("POST" if options else "GET", url, timeout=30, trust_env=False, **options).text


@pytest.mark.parametrize("sent", [0, 8, len(_POST) - 7], ids=["nothing", "headers", "body"])
def test_partial_requests_take_no_thread(sent: int) -> None:
    with serving_at() as address, ExitStack() as stack:
        slow = [connect(stack, address, _POST[:sent]) for _ in range(200)]
        assert ask(address) == "no 0"
        for each in (slow[0], slow[-1]):
            each.sendall(_POST[sent:])
            assert each.recv(15) == _OK


def test_surplus_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "room", lambda _: 50)
    with serving_at() as address, ExitStack() as stack:
        held = [connect(stack, address, b"GET") for _ in range(100)]
        assert ask(address) == "no 0"
        assert is_closed(held[0])
        held[-1].sendall(_GET[3:])
        assert held[-1].recv(15) == _OK


def test_an_incomplete_request_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    with serving_at() as address, ExitStack() as stack:
        idle, slow, body = (connect(stack, address, sent) for sent in (b"", _POST[:20], _POST[:-9]))
        for each in _POST[-9:-1]:  # single bytes do not extend the limit
            with suppress(OSError):
                slow.sendall(bytes([each]))
            select.select([slow], [], [], 0.05)
        for each in (slow, body):
            assert each.recv(12) == b"HTTP/1.1 408"
        for _ in range(2):
            idle.sendall(_GET)
            received = b""
            while not received.endswith(b"no 0"):
                received += idle.recv(4096)
            assert received.startswith(_OK)


@pytest.mark.parametrize("sent", [b"", b"\r\n", _GET], ids=["nothing", "empty line", "request"])
def test_an_idle_connection_times_out(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    monkeypatch.setattr(serving, "IDLE_S", 1.0)
    with serving_at() as address, ExitStack() as stack:
        held = connect(stack, address, sent)
        received = b"".join(iter(lambda: held.recv(4096), b""))
        assert received.startswith(_OK if sent == _GET else b"")


def test_a_pipelined_request_is_answered() -> None:
    with serving_at() as address, ExitStack() as stack:
        client = connect(stack, address, _GET + _POST + _GET[:5])
        client.sendall(_GET[5:-2] + b"Connection: close\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(4096), b""))
        assert received.count(_OK) == 3
        assert b"10 10" in received


def test_a_chunked_body_arrives_with_its_length() -> None:
    with serving_at() as address:
        assert ask(address, content=iter([b"123", b"4567"])) == "7 7"
        kept = bridge.KEPT_BODY_MAX
        assert ask(address, content=iter([b"1" * kept, b"234"])) == f"{kept} {kept}"


def test_a_far_too_large_body_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_READ_BODY_MAX", 1 << 20)
    with serving_at() as address, ExitStack() as stack:
        client = connect(stack, address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            client.sendall(b"x" * 9_000_000)
        assert ask(address) == "no 0"


def test_clients_that_do_not_read_take_only_the_threads_of_streams() -> None:
    with serving_at(streams=2) as address, ExitStack() as stack:
        request = b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(2):
            assert connect(stack, address, request).recv(15) == _OK
        assert ask(address) == "no 0"


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.2)
    with serving_at(streams=0) as address, ExitStack() as stack:
        request = b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(_THREADS):
            assert connect(stack, address, request).recv(15) == _OK
        assert ask(address) == "no 0"  # when a thread is free again


def test_a_stream_is_told_that_its_client_is_gone() -> None:
    with serving_at(streams=0) as address:
        for _ in range(_THREADS):
            with ExitStack() as stack:
                client = connect(stack, address, b"GET /quiet HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert client.recv(15) == _OK
        assert ask(address) == "no 0"


def test_a_failing_stream_ends_without_its_last_chunk() -> None:
    with serving_at() as address, ExitStack() as stack:
        client = connect(stack, address, b"GET /failing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(4096), b""))
        assert received.endswith(b"1\r\n1\r\n")


def test_stopping_answers_what_is_in_progress_and_closes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_GRACE_S", 0.3)
    served = Serving(application, ["tcp:127.0.0.1:0"], 1)
    host, _, port = served.addresses[0].removeprefix("tcp:").rpartition(":")
    with ExitStack() as stack:
        held = [
            connect(stack, (host, int(port)), sent)
            for sent in (b"", _POST[:9], b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ]
        assert held[2].recv(15) == _OK
        served.stop()
        assert not served._thread.is_alive()
        assert all(is_closed(each) for each in held[:2])


@pytest.mark.soak
def test_ten_thousand_held_connections_leave_the_latency(directory: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = min(10_000, (hard - 1024) // 2)
    root = Path(__file__).resolve().parents[2]
    said = subprocess.run(
        [sys.executable, root / "bench/held", "--held", str(held)], cwd=root, capture_output=True, text=True, check=True
    )
    figures = json.loads(said.stdout.splitlines()[-1])
    assert figures["still_open"] >= held // 3  # those that began a request were told 408
    assert figures["ratio"] <= 2.0, figures
