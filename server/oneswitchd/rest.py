"""A REST interface on a unix socket or TCP: requests, answers as typed data, errors as in :mod:`server.errors`."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from server.errors import ApiAnswerError, ApiNoAnswerError, ApiRefusedError, ApiUnreachableError, ConfigError
from server.oneswitchd.answers import Problem

T = TypeVar("T")

# A connection each: one kept open would be a broken one after the peer has restarted.
_ONE_EACH = httpx.Limits(max_keepalive_connections=0)
# Both peers speak plain HTTP. Without this httpx reads all certificates of the machine for each client: 15 ms of CPU.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True)
class Peer:
    """Whose interface it is, in words for errors.

    Attributes:
        name: of the program.
        start: the command that starts it.
        look: the command that tells what became of a request.
        origin: what names its address.
    """

    name: str
    start: str
    look: str
    origin: str


ONESWITCHD = Peer("oneswitchd", "oneswitchd --config FILE", "unoctl show", "[oneswitchd] api")
NFAGENT = Peer("nfagent", "nfagent serve", "unoctl nf list", "nfagent's address")


class Rest:
    """Asks one peer.

    Args:
        peer: who answers.
        api: ``unix:PATH`` or ``tcp:HOST:PORT``.
        token: bearer token, or none.
        timeout_s: how long a request may take.

    Raises:
        ConfigError: ``api`` is neither.
    """

    def __init__(self, peer: Peer, api: str, token: str | None, timeout_s: float) -> None:
        self._peer = peer
        self.api = api
        self.timeout_s = timeout_s
        self._path: str | None = None
        kind, _, rest = api.partition(":")
        if kind == "unix" and rest:
            transport, base = httpx.HTTPTransport(verify=_NO_TLS, uds=rest, limits=_ONE_EACH), f"http://{peer.name}"
            self._path = rest
        elif kind == "tcp" and rest:
            transport, base = httpx.HTTPTransport(verify=_NO_TLS, limits=_ONE_EACH), f"http://{rest}"
        else:
            raise ConfigError(f"{peer.origin} is '{api}'; expected unix:PATH or tcp:HOST:PORT")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            transport=transport, base_url=base, timeout=timeout_s, trust_env=False, headers=headers
        )

    def close(self) -> None:
        """Give the connection back; no other method may follow."""
        self._http.close()

    def ask(self, kind: type[T], method: str, path: str, body: Any = None, timeout_s: float | None = None) -> T:
        """Send a request and return its answer as ``kind``.

        Raises:
            ApiError: any of the tree.
        """
        return self.read(kind, self.send(method, path, body, timeout_s))

    def send(self, method: str, path: str, body: Any = None, timeout_s: float | None = None) -> httpx.Response:
        """Send a request; the answer is a success.

        Raises:
            ApiError: any of the tree, but that the answer is not of the form that was promised.
        """
        self._knock()
        timeout_s = timeout_s or self.timeout_s
        with self._reached(method, path, timeout_s):
            response = self._http.request(method, path, json=body, timeout=timeout_s)
        if response.is_success:
            return response
        raise self._refusal(response)

    def stream(self, path: str) -> Iterator[str]:
        """Lines of an answer that does not end, and in which something is said more often than every ``timeout_s``.

        Raises:
            ApiError: it was refused, or nothing comes any more.
        """
        self._knock()
        with (
            self._reached("GET", path, self.timeout_s),
            self._http.stream("GET", path, timeout=self.timeout_s) as response,
        ):
            if not response.is_success:
                response.read()
                raise self._refusal(response)
            yield from response.iter_lines()

    def read(self, kind: type[T], response: httpx.Response) -> T:
        """An answer as ``kind``.

        Raises:
            ApiAnswerError: it is something else.
        """
        try:
            return TypeAdapter(kind).validate_json(response.content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            raise ApiAnswerError(
                f"{self.api} answered {response.request.url.path} with something else than the contract promises: "
                f"{where}: {first['msg']}; do unoctl and {self._peer.name} come from the same release?"
            ) from error

    @contextmanager
    def _reached(self, method: str, path: str, timeout_s: float) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._unreachable(error) from error
        except httpx.TransportError as error:
            why = f"within {timeout_s:g} s" if isinstance(error, httpx.TimeoutException) else f"({error})"
            raise ApiNoAnswerError(
                f"{self._peer.name} at {self.api} did not answer {method} {path} {why}; "
                f"see what became of it: {self._peer.look}",
                self._peer.name,
            ) from error

    def _knock(self) -> None:
        """Try the socket: httpx leaves one that refuses for the garbage collector to close, with a warning."""
        if self._path is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(self.timeout_s)  # a peer that stands still takes no more connections at some time
            try:
                probe.connect(self._path)
            except OSError as error:
                raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> ApiUnreachableError:
        peer = self._peer
        return ApiUnreachableError(
            f"no {peer.name} answers at {self.api} ({error}); start it with: {peer.start}", peer.name
        )

    def _refusal(self, response: httpx.Response) -> ApiRefusedError | ApiAnswerError:
        try:
            problem = Problem.model_validate_json(response.content)
        except ValidationError:
            request = response.request
            return ApiAnswerError(
                f"{request.method} {request.url.path} was answered with HTTP {response.status_code} and no "
                f"problem+json: {response.text[:200]!r}; is it {self._peer.name} that listens there?"
            )
        return ApiRefusedError(problem.status, problem.code, problem.detail or problem.title, self._peer.name)
