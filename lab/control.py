"""Requests to a running lab's supervisor, one JSON line each way over its unix socket."""

import json
import socket
from pathlib import Path

from lab.directory import CONTROL_SOCKET
from lab.errors import ControlError, LabNotRunningError

_ANSWER_S = 60.0


def request(directory: Path, name: str, **arguments: object) -> object:
    """Send a request and return its result.

    Args:
        directory: of the lab.
        name: of the request; see `lab.supervisor.Supervisor`.
        arguments: of the request.

    Raises:
        LabNotRunningError: the lab does not answer.
        ControlError: the lab refused; with its message.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_S)
        try:
            connection.connect(str(directory / CONTROL_SOCKET))
            connection.sendall(json.dumps({"request": name, **arguments}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        except (OSError, ValueError) as error:
            raise LabNotRunningError(f"the lab in {directory} does not answer: {error}") from error
    if "error" in answer:
        raise ControlError(answer["error"])
    return answer["result"]
