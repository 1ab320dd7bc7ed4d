"""HAProxy as a judge of requests: it answers each that it accepts with what it has read."""

import contextlib
import io
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.web_path.balancers import find

_LIMIT_S = 20.0
_CONFIG = """\
defaults
    mode http
    option disable-h2-upgrade
    timeout client 10s
    timeout http-request 10s
frontend judge
    bind fd@{listener}
    http-request wait-for-body time 10s
    http-request return status 200 hdr X-Read %[method,hex],%[url,hex],%[req.hdr(host),hex],%[req.body_len]
"""


@dataclass(frozen=True)
class Accepted:
    """An accepted request, as a server has read it."""

    method: bytes
    target: bytes
    host: bytes
    body: int

    @classmethod
    def parse(cls, words: str) -> "Accepted":
        """Read method, target and Host in hexadecimal digits and the length of the body, between commas."""
        method, target, host, body = words.split(",")
        return cls(bytes.fromhex(method), bytes.fromhex(target), bytes.fromhex(host), int(body))


@dataclass(frozen=True)
class Verdict:
    """The accepted requests of a stream, and the status of the refusal of the next; None without one."""

    accepted: tuple[Accepted, ...]
    refused: int | None


class HAProxy:
    """A running HAProxy."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def judge(self, stream: bytes) -> Verdict:
        """Send a stream of requests and its end on a connection of its own."""
        with socket.create_connection(self._address, timeout=_LIMIT_S) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may refuse the first bytes at once
                connection.sendall(stream)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answers:
                return _read(answers)


def _read(answers: io.BufferedReader) -> Verdict:
    accepted: list[Accepted] = []
    while line := answers.readline():
        status = int(line.split()[1])
        fields = dict(_fields(answers))
        answers.read(int(fields.get("content-length", "0")))
        if status >= 300:
            return Verdict(tuple(accepted), status)
        if status >= 200:
            accepted.append(Accepted.parse(fields["x-read"]))
    return Verdict(tuple(accepted), None)


def _fields(answers: io.BufferedReader) -> Iterator[tuple[str, str]]:
    while line := answers.readline().decode().strip():
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()


@contextlib.contextmanager
def running(directory: Path) -> Iterator[HAProxy]:
    """Run HAProxy on a socket that listens already: no client can come too early."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = directory / "haproxy.cfg"
        config.write_text(_CONFIG.format(listener=listener.fileno()))
        process = subprocess.Popen([find("haproxy"), "-db", "-f", config], pass_fds=[listener.fileno()])
        try:
            yield HAProxy(listener.getsockname())
        finally:
            process.kill()
            process.wait()
