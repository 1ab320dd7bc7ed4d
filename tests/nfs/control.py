"""A client of an instance's control socket: one JSON object per line each way."""

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Control:
    """A connection to a control socket."""

    def __init__(self, path: Path, timeout_s: float = 30.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def ask(self, verb: str, **arguments: Any) -> Any:
        """What ``ok`` holds; a refusal is an assertion's failure that shows it."""
        self._socket.sendall(json.dumps({"do": verb, **arguments}).encode() + b"\n")
        answer = json.loads(self._lines.readline())
        assert "ok" in answer, answer
        return answer["ok"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
