"""The client of control sockets: requests, answers and errors."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nfagent.control import LINE_MAX, Connection, Control
from nfagent.errors import ControlRefusedError, ControlUnreachableError, LaunchError
from nfagent.migrate import keeper as keeper_program
from nfagent.migrate.keeper import Keeper
from tests.nfagent.world import wait_until

PROGRAM = Path(keeper_program.__file__)

Answer = Callable[[socket.socket], None]


@contextmanager
def instance(path: Path, answer: Answer) -> Iterator[Control]:
    """Answer one request as an instance does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Control(path)
        finally:
            thread.join()


def says(line: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.recv(LINE_MAX)
        connection.sendall(line)

    return answer


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_pass_both_ways(directory: Path) -> None:
    def answer(connection: socket.socket) -> None:
        line, descriptors, _, _ = socket.recv_fds(connection, 4096, 4)
        assert json.loads(line) == {"do": "hold", "epoch": 3}
        with os.fdopen(descriptors[0], "rb") as received:
            text = received.read().decode()
        back = os.memfd_create("back")
        os.write(back, text.upper().encode())
        # The answer arrives in pieces, the descriptor with the first.
        socket.send_fds(connection, [b'{"ok": {"a"'], [back])
        connection.sendall(b": 1}}\n")
        os.close(back)

    given = os.memfd_create("given")
    os.write(given, b"state")
    os.lseek(given, 0, os.SEEK_SET)
    with instance(directory / "s", answer) as control:
        got = control.exchange("hold", epoch=3, descriptors=[given])
    os.close(given)
    assert (got.value, len(got.descriptors)) == ({"a": 1}, 1)
    assert not os.get_inheritable(got.descriptors[0])
    os.lseek(got.descriptors[0], 0, os.SEEK_SET)
    assert os.read(got.descriptors[0], 100) == b"STATE"
    os.close(got.descriptors[0])


def test_a_refusal_has_its_code(directory: Path) -> None:
    refusal = b'{"error": {"code": "configuration", "detail": "vip: missing"}}\n'
    with instance(directory / "s", says(refusal)) as control, pytest.raises(ControlRefusedError) as error:
        control.ask("configure", config={})
    assert (error.value.code, error.value.detail) == ("configuration", "vip: missing")
    assert "configure was refused: vip: missing" in str(error.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "closed"),
        (b'{"ok": {', "closed within the answer"),
        (b"no json\n", "no answer to status"),
        (b"[1]\n", "neither ok nor error"),
        (b'{"ok": 1}\n', "neither ok nor error"),
        (b"x" * (LINE_MAX + 2), "more than"),
    ],
)
def test_malformed_answers_are_reported(directory: Path, line: bytes, words: str) -> None:
    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the peer disconnects early
            says(line)(connection)

    before = open_descriptors()
    with instance(directory / "s", answer) as control, pytest.raises(ControlUnreachableError, match=words):
        control.ask("status")
    assert open_descriptors() == before


def test_an_absent_instance_is_reported(directory: Path) -> None:
    with pytest.raises(ControlUnreachableError, match="no process answers"):
        Control(directory / "none").ask("status")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(directory / "mute"))
        listener.listen()
        with pytest.raises(ControlUnreachableError, match="timed out"):
            Control(directory / "mute").ask("status", timeout_s=0.05)


@pytest.mark.parametrize("line", [b'{"do": "put"', b"{}}\n", b"[]\n"], ids=["cut off", "no JSON", "no object"])
def test_a_keeper_closes_descriptors_of_malformed_requests(line: bytes) -> None:
    before, keeper = open_descriptors(), Keeper()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        state = os.memfd_create("state")
        socket.send_fds(ours, [line], [state])
        os.close(state)
        ours.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ValueError):
            keeper.serve(theirs)
    assert (keeper.descriptors, open_descriptors()) == ([], before)


def test_a_keeper_returns_a_note_larger_than_a_socket_buffer(directory: Path) -> None:
    note, path = {"config": "x" * (1 << 20)}, directory / "keeper.sock"
    kept = os.memfd_create("state")
    with subprocess.Popen([sys.executable, "-I", "-S", str(PROGRAM), str(path)]) as process:
        try:
            wait_until(path.is_socket)
            Control(path).ask("put", descriptors=[kept], note=note)
            answer = Control(path).exchange("get", timeout_s=5)
            assert answer.value == {"note": note}
            assert len(answer.descriptors) == 1
        finally:
            process.kill()
    for descriptor in (kept, *answer.descriptors):
        os.close(descriptor)


def test_a_slow_answer_is_awaited_while_the_pulse_continues(directory: Path) -> None:
    felt, told = [], threading.Event()

    def pulse() -> None:
        felt.append(1)
        if len(felt) == 2:
            told.set()

    def answer(connection: socket.socket) -> None:
        connection.recv(LINE_MAX)
        assert told.wait(10)
        connection.sendall(b'{"ok": {}}\n')

    with instance(directory / "c", answer) as control, Connection(control.path) as connection:
        assert connection.exchange("precopy", timeout_s=20, meanwhile=pulse).value == {}
    assert len(felt) == 2


def test_a_failed_pulse_ends_the_wait(directory: Path) -> None:
    def pulse() -> None:
        raise LaunchError("it hangs")

    def answer(connection: socket.socket) -> None:
        connection.recv(LINE_MAX)
        connection.recv(1)  # until the peer closes

    with instance(directory / "c", answer) as control, Connection(control.path) as connection:
        with pytest.raises(LaunchError, match="it hangs"):
            connection.exchange("freeze", timeout_s=20, meanwhile=pulse)
        assert not connection.is_open()


def test_an_endless_answer_times_out(directory: Path) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(LINE_MAX)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(b" ")
                threading.Event().wait(0.05)

    with (
        instance(directory / "c", answer) as control,
        pytest.raises(ControlUnreachableError, match="timed out"),
    ):
        control.ask("status", timeout_s=0.3)
