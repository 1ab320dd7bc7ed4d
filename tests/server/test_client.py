"""The REST client and its handling of errors."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.errors import (
    ApiAnswerError,
    ApiNoAnswerError,
    ApiRefusedError,
    ApiUnreachableError,
    ConfigError,
    UsageError,
)
from server.oneswitchd.client import Client
from server.oneswitchd.rest import NFAGENT, Rest
from tests.server.fake_rest import FakeOneswitchd, problem


@pytest.fixture
def fake(lab_dir: Path) -> Iterator[FakeOneswitchd]:
    path = lab_dir / "rest.sock"
    path.unlink(missing_ok=True)
    with FakeOneswitchd(path) as started:
        started.add(2, "vm2", "snic0", "pf0vf0")
        started.add(1, "vm1", "hypervisor", "vm1")
        yield started


@pytest.fixture
def client(fake: FakeOneswitchd) -> Iterator[Client]:
    with Client(fake.api) as connected:
        yield connected


def test_requests_follow_the_contract(fake: FakeOneswitchd, client: Client) -> None:
    client.status()
    client.add_port(None, None, "snic0", "pf0vf1")
    client.add_port(9, "nf", "snic0", "pf0vf2", "hypervisor")
    client.change_executor(1, "snic0", "done", 20)
    client.move_port(1, "snic0", "pf0vf3", "prepared", 20)
    client.continue_move(1, "done", force=True)
    client.abort_move(1)
    client.delete_port(9)
    client.set_log_levels({"openflow": "debug"})
    assert fake.asked == [
        ("GET", "/v1/status", None),
        ("POST", "/v1/ports", {"switch": "snic0", "interface": "pf0vf1"}),
        (
            "POST",
            "/v1/ports",
            {"switch": "snic0", "interface": "pf0vf2", "number": 9, "name": "nf", "executor": "hypervisor"},
        ),
        ("POST", "/v1/ports/1/executor", {"executor": "snic0", "until": "done", "grace_ms": 20}),
        (
            "POST",
            "/v1/ports/1/move",
            {"switch": "snic0", "interface": "pf0vf3", "until": "prepared", "grace_ms": 20},
        ),
        ("POST", "/v1/ports/1/move/continue", {"until": "done", "force": True}),
        ("DELETE", "/v1/ports/1/move", None),
        ("DELETE", "/v1/ports/9", None),
        ("PUT", "/v1/log", {"openflow": "debug"}),
    ]


def test_ports_come_in_order_and_by_name(client: Client) -> None:
    assert [port.number for port in client.ports()] == [1, 2]
    assert client.find_port("vm2").number == 2
    assert client.find_port("2").name == "vm2"
    with pytest.raises(UsageError, match=r"unknown virtual port 'vm9'; expected one of: 1 \(vm1\), 2 \(vm2\)"):
        client.find_port("vm9")


def test_a_refusal_keeps_status_code_and_detail(client: Client) -> None:
    with pytest.raises(ApiRefusedError) as caught:
        client.port(7)
    assert (caught.value.status, caught.value.code, caught.value.detail) == (404, "port-unknown", "there is no port 7")
    assert str(caught.value) == "refused by oneswitchd (port-unknown): there is no port 7"


def test_members_of_a_newer_oneswitchd_are_kept(fake: FakeOneswitchd, client: Client) -> None:
    fake.ports[1]["colour"] = "green"
    assert client.port(1).model_dump()["colour"] == "green"


def test_an_answer_outside_the_contract_is_reported(fake: FakeOneswitchd, client: Client) -> None:
    del fake.ports[1]["switch"]
    with pytest.raises(ApiAnswerError, match=r"/v1/ports/1 in violation of the contract: switch: Field required"):
        client.port(1)


def test_an_error_without_a_problem_document_is_reported(fake: FakeOneswitchd, client: Client) -> None:
    fake.overrides["GET /v1/status"] = lambda _: (500, b"<html>")
    with pytest.raises(ApiAnswerError, match="HTTP 500 and no problem"):
        client.status()
    fake.overrides["GET /v1/status"] = lambda _: problem(503, "switch-down", "snic0 is away")
    with pytest.raises(ApiRefusedError, match="snic0 is away"):
        client.status()


def test_a_missing_oneswitchd_is_reported(lab_dir: Path) -> None:
    with (
        Client(f"unix:{lab_dir}/nobody") as client,
        pytest.raises(ApiUnreachableError, match="start it with: oneswitchd"),
    ):
        client.status()


def test_a_request_without_an_answer_is_reported(lab_dir: Path) -> None:
    path = lab_dir / "mute.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        with Client(f"unix:{path}", timeout_s=0.1) as client, pytest.raises(ApiNoAnswerError, match=r"within 0\.1 s"):
            client.status()


def test_markers_use_a_kept_connection(tmp_path: Path) -> None:
    """A connection closed by oneswitchd is an error; the next request opens another one."""
    path, requests = tmp_path / "kept.sock", []

    def serve(answers: list[tuple[int, bytes]]) -> None:
        connection, _ = listener.accept()
        with connection:
            for status, content in answers:
                received = b""
                while not received.endswith(b"}"):
                    received += connection.recv(65536)
                requests.append(received)
                head = f"HTTP/1.1 {status} OK\r\ncontent-length: {len(content)}\r\n\r\n"
                connection.sendall(head.encode() + content)

    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as beside:
        listener.bind(str(path))
        listener.listen()
        with Client(f"unix:{path}", timeout_s=5.0) as client:
            status, refusal = problem(409, "no-move", "port 1 stays")
            refused = json.dumps(refusal).encode()
            served = beside.submit(serve, [(200, b'{"from": ["hypervisor", "snic0"]}'), (status, refused)])
            assert client.send_markers(1, "snic0", "vf0", [b"ab", b"c"], "nfagent/x") == ("hypervisor", "snic0")
            with pytest.raises(ApiRefusedError, match="port 1 stays"):
                client.send_markers(1, "snic0", "vf0", [])
            served.result()
            with pytest.raises(ApiNoAnswerError, match="did not answer POST /v1/ports/1/move/markers"):
                client.send_markers(1, "snic0", "vf0", [])
            served = beside.submit(serve, [(200, b'{"from": []}')])
            assert client.send_markers(1, "snic0", "vf0", []) == ()
            served.result()
        assert len(requests) == 3
        assert requests[0].startswith(b"POST /v1/ports/1/move/markers HTTP/1.1\r\n")
        body = requests[0].partition(b"\r\n\r\n")[2]
        assert json.loads(body) == {
            "switch": "snic0",
            "interface": "vf0",
            "frames": ["6162", "63"],
            "owner": "nfagent/x",
        }
    path.unlink()
    with Client(f"unix:{path}") as client, pytest.raises(ApiUnreachableError):
        client.send_markers(1, "snic0", "vf0", [])


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n",
        b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"from',
    ],
)
def test_a_kept_connection_refuses_malformed_answers(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as beside:
        listener.bind(str(tmp_path / "kept.sock"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        served = beside.submit(serve)
        with Client(f"unix:{tmp_path}/kept.sock", timeout_s=5.0) as client, pytest.raises(ApiNoAnswerError):
            client.send_markers(1, "snic0", "vf0", [])
        served.result()


def hang_up(listener: socket.socket) -> None:
    """Accept twice (the client's probe and its request) and close."""
    for _ in range(2):
        listener.accept()[0].close()


def test_a_broken_connection_is_reported(lab_dir: Path) -> None:
    path = lab_dir / "rude.sock"
    with socket.socket(socket.AF_UNIX) as rude:
        rude.bind(str(path))
        rude.listen()
        thread = threading.Thread(target=hang_up, args=(rude,))
        thread.start()
        with Client(f"unix:{path}") as client, pytest.raises(ApiNoAnswerError, match="did not answer GET /v1/status"):
            client.status()
        thread.join()


def test_a_malformed_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected unix:PATH, tcp:HOST:PORT or tls:HOST:PORT"):
        Client("http://localhost")


def test_a_peer_that_accepts_no_connection_times_out(lab_dir: Path) -> None:
    path = lab_dir / "full.sock"
    path.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(path))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                waiting.setblocking(False)
                waiting.connect(str(path))
        client = stack.enter_context(Client(f"unix:{path}", timeout_s=0.2))
        with pytest.raises(ApiUnreachableError, match="no oneswitchd answers"):
            client.status()


def test_a_silent_stream_times_out(lab_dir: Path) -> None:
    path = lab_dir / "mute.sock"
    path.unlink(missing_ok=True)

    def serve() -> None:
        for _ in range(2):  # the first connection is only a probe
            connection, _ = listener.accept()
            with connection:
                if connection.recv(4096):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: begun\n")
                    connection.recv(1)  # until the client disconnects

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        rest = Rest(NFAGENT, f"unix:{path}", None, 0.2)
        lines = rest.stream("/api/v1/events")
        assert next(lines) == ": begun"
        with pytest.raises(ApiNoAnswerError, match=r"did not answer .* within 0\.2 s"):
            next(lines)
        rest.close()
        thread.join()
