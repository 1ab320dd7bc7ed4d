"""Client of an instance's control socket: JSON lines with file descriptors. nfs/README.md is the contract."""

import contextlib
import json
import os
import socket
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nfagent.errors import ControlRefusedError, ControlUnreachableError
from server import tracing

LINE_MAX = 4 << 20
"""Maximum length of a line, as in the instance."""

TIMEOUT_S = 10.0
_FDS_MAX = 64
_CHUNK = 1 << 16
_PULSE_S = 1.0
_LAST_NS = 2**63 - 1
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Answer:
    """An instance's answer. The caller closes ``descriptors``."""

    value: dict[str, Any]
    descriptors: list[int]


class Connection:
    """An open connection to an instance's control socket, for several requests; unusable after an error.

    Thread safety: use from one thread at a time.

    Args:
        path: of the socket.
        timeout_s: for connecting, and for each answer unless a request sets its own.

    Raises:
        ControlUnreachableError: the connection fails.
    """

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise ControlUnreachableError(f"{path}: no process answers: {error.strerror or error}") from error

    def ask(
        self, verb: str, *, timeout_s: float | None = None, descriptors: Sequence[int] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Send a request and return its answer; close file descriptors that come with it.

        Raises:
            ControlUnreachableError: no answer, a late one, or one that breaks the contract.
            ControlRefusedError: the instance refused.
        """
        answer = self.exchange(verb, timeout_s=timeout_s, descriptors=descriptors, **arguments)
        for descriptor in answer.descriptors:
            os.close(descriptor)
        return answer.value

    def exchange(
        self,
        verb: str,
        *,
        timeout_s: float | None = None,
        descriptors: Sequence[int] = (),
        meanwhile: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> Answer:
        """Like `ask`, but return the file descriptors that come with the answer.

        Args:
            verb: the request.
            timeout_s: for the complete answer.
            descriptors: to send with the request.
            meanwhile: called after every second without an answer; its exceptions end the wait.
            arguments: of the verb.
        """
        with self.begun(verb, timeout_s=timeout_s, descriptors=descriptors, meanwhile=meanwhile, **arguments) as answer:
            return answer()

    @contextlib.contextmanager
    def begun(
        self,
        verb: str,
        *,
        timeout_s: float | None = None,
        descriptors: Sequence[int] = (),
        meanwhile: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> Iterator[Callable[[], Answer]]:
        """Like `exchange`, but yield a function that waits for the answer: the instance works meanwhile.

        Without a call of that function, the connection is closed.
        """
        with tracing.step(verb, "client") as span:
            if span is not None:
                arguments["traceparent"] = span.traceparent
            line = json.dumps({"do": verb, **arguments}).encode() + b"\n"
            wait = _Wait(timeout_s or self._timeout_s, meanwhile)
            is_answered = False

            def answer() -> Answer:
                nonlocal is_answered
                received: list[int] = []
                try:
                    with self._reached(verb):
                        value = _value(verb, _line(self._socket, received, wait))
                except BaseException as error:
                    for descriptor in received:
                        os.close(descriptor)
                    is_answered = isinstance(error, ControlRefusedError)
                    raise
                is_answered = True
                return Answer(value, received)

            try:
                with self._reached(verb):
                    self._socket.settimeout(wait.left())
                    _send(self._socket, line, descriptors)
                yield answer
            finally:
                if not is_answered:
                    self.close()  # a late answer must not be taken for the answer to the next request

    @contextlib.contextmanager
    def _reached(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise ControlUnreachableError(f"{self.path}: no answer to {verb}: {error}") from error

    def is_open(self) -> bool:
        """Return whether the peer is still connected, without a request."""
        try:
            self._socket.settimeout(0)  # MSG_DONTWAIT alone does not stop Python from waiting
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def server(self) -> int:
        """Return the pid of the process that serves the socket, or of the forwarder of a remote one."""
        found = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(found)[0])

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Control:
    """An instance's control socket. Opens a connection per request, so that no stale one is used.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(
        self, verb: str, *, timeout_s: float = TIMEOUT_S, descriptors: Sequence[int] = (), **arguments: Any
    ) -> dict[str, Any]:
        """See `Connection.ask`."""
        with Connection(self.path, timeout_s) as connection:
            return connection.ask(verb, descriptors=descriptors, **arguments)

    def exchange(
        self, verb: str, *, timeout_s: float = TIMEOUT_S, descriptors: Sequence[int] = (), **arguments: Any
    ) -> Answer:
        """See `Connection.exchange`."""
        with Connection(self.path, timeout_s) as connection:
            return connection.exchange(verb, descriptors=descriptors, **arguments)


class _Wait:
    """A deadline for an answer that may arrive in many pieces."""

    def __init__(self, timeout_s: float, meanwhile: Callable[[], None] | None) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._meanwhile = meanwhile

    def left(self) -> float:
        """Return the remaining seconds.

        Raises:
            TimeoutError: the deadline has passed.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"timed out after {self._timeout_s:g} s")
        return left

    def receive(self, connection: socket.socket, space: int) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        """Receive the next piece and its file descriptors."""
        while True:
            left = self.left()
            connection.settimeout(left if self._meanwhile is None else min(left, _PULSE_S))
            try:
                # socket.recv_fds ignores its flags, and every child process would inherit the state.
                chunk, beside, _, _ = connection.recvmsg(_CHUNK, space, socket.MSG_CMSG_CLOEXEC)
            except TimeoutError:
                if self._meanwhile is not None:
                    self._meanwhile()
                continue
            return chunk, beside


def _send(connection: socket.socket, line: bytes, descriptors: Sequence[int]) -> None:
    """Send a whole line, with the descriptors on its first bytes."""
    sent = socket.send_fds(connection, [line], descriptors) if descriptors else 0
    with contextlib.suppress(BrokenPipeError):  # the peer may have answered that the line is too long
        connection.sendall(line[sent:])


def _line(connection: socket.socket, received: list[int], wait: _Wait) -> bytes:
    pieces: list[bytes] = []
    length, space = 0, socket.CMSG_LEN(_FDS_MAX * array("i").itemsize)
    while not (pieces and pieces[-1].endswith(b"\n")):
        chunk, beside = wait.receive(connection, space)
        for level, kind, data in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received += array("i", data[: len(data) - len(data) % array("i").itemsize])
        if not chunk:
            raise ValueError("the connection was closed" + (" within the answer" if pieces else ""))
        pieces.append(chunk)
        length += len(chunk)
        if length > LINE_MAX:
            raise ValueError(f"an answer of more than {LINE_MAX} bytes")
    return b"".join(pieces)


def _value(verb: str, line: bytes) -> dict[str, Any]:
    answer = json.loads(line)
    if (span := tracing.current()) is not None and isinstance(answer, dict):
        match answer.get("span"):
            case {"start_ns": int(start), "end_ns": int(end)} if 0 <= start <= end <= _LAST_NS:
                span.tell("nf", verb, start, end)
    if isinstance(answer, dict) and isinstance(answer.get("ok"), dict):
        return answer["ok"]
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        error = answer["error"]
        raise ControlRefusedError(verb, str(error.get("code", "unknown")), str(error.get("detail", "")))
    raise ValueError(f"the answer is neither ok nor error: {line[:100]!r}")


def flow_count(counters: Mapping[str, float]) -> int | None:
    """Return the number of entries in the flow tables, by `nf`'s counters; None if these are missing."""
    used = [value for name, value in counters.items() if name == "flows" or name.startswith("table_used")]
    return int(sum(used)) if used else None
