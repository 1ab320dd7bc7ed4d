"""Commands to a daemon's control socket: answers are unframed and arrive in pieces of any size."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from server.errors import ToolError
from server.openvswitch.unixctl import Unixctl

RESULTS = ["", "}", "{}", 'a "quoted"} {line}\n', "é" * 100, "{" * 50 + "}" * 50]


@contextmanager
def daemon(folder: Path, answers: list[bytes], *, hangs: bool = False) -> Iterator[Path]:
    """Answer every request with these pieces; then disconnect or stay silent."""
    path = folder / "ctl"
    path.unlink(missing_ok=True)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            for piece in answers:
                connection.sendall(piece)
            if hangs:
                connection.recv(1)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            thread.join()


def answer(number: int, result: str | None, error: str | None = None) -> bytes:
    """Return an answer as Open vSwitch writes it."""
    return json.dumps({"id": number, "result": result, "error": error}, ensure_ascii=False).encode()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_answers_are_assembled_from_pieces(lab_dir: Path, size: int) -> None:
    whole = b"".join(answer(number, text) for number, text in enumerate(RESULTS))
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    with daemon(lab_dir, pieces) as path, closing(Unixctl(path)) as control:
        assert control.call_at_once(*[("say", text) for text in RESULTS]) == RESULTS


def test_errors_are_reported(lab_dir: Path) -> None:
    with (
        daemon(lab_dir, [answer(1, None, "no such command\n")]) as path,
        closing(Unixctl(path)) as control,
        pytest.raises(ToolError, match=r"ctl refused dance: no such command$"),
    ):
        control.call("dance")
    with (
        daemon(lab_dir, [answer(1, "half")[:-1]]) as path,
        closing(Unixctl(path)) as control,
        pytest.raises(ToolError, match=r"ctl did not answer dance: end of file$"),
    ):
        control.call("dance")
    with (
        daemon(lab_dir, [], hangs=True) as path,
        closing(Unixctl(path, 0.2)) as control,
        pytest.raises(ToolError, match=r"ctl did not answer dance: timed out$"),
    ):
        control.call("dance")
    with pytest.raises(ToolError, match="no daemon answers at"):
        Unixctl(lab_dir / "nobody")
