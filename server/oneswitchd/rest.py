"""A REST interface on a unix socket or TCP: requests, answers as typed data, errors as in :mod:`server.errors`."""

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from server import tracing
from server.errors import ApiAnswerError, ApiNoAnswerError, ApiRefusedError, ApiUnreachableError, ConfigError
from server.oneswitchd.answers import Refusal
from server.oneswitchd.kept import KeptConnection

T = TypeVar("T")

# One connection per request: a kept one would be broken after the peer's restart.
_ONE_EACH = httpx.Limits(max_keepalive_connections=0)
# For addresses without TLS. Without this httpx reads all certificates of the machine for each client: 15 ms of CPU.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

_NUMBER = re.compile(r"/\d+\b")
_TIMING = re.compile(r"^(?P<service>\w+);dur=(?P<dur>[\d.]+);start=(?P<start>\d+)$")  # what oneswitchd answers


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


@dataclass(frozen=True)
class Peer:
    """The peer of an interface, in words for errors.

    Attributes:
        name: name of the program.
        start: command that starts it.
        look: command that shows the outcome of a request.
        origin: the configuration of its address.
    """

    name: str
    start: str
    look: str
    origin: str


ONESWITCHD = Peer("oneswitchd", "oneswitchd --config FILE", "unoctl show", "[oneswitchd] api")
NFAGENT = Peer("nfagent", "nfagent serve", "unoctl nf list", "nfagent's address")


def _verifying(cacert: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cacert)
    except ssl.SSLError as error:
        raise ConfigError(f"{cacert}: has no certificate in PEM ({error.reason or error})") from error
    except OSError as error:
        raise ConfigError(f"{cacert}: the certificates cannot be read: {error.strerror}") from error


def _unverified(error: BaseException | None) -> str | None:
    """Return why a peer's certificate was refused; None: another error."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return None


class Rest:
    """Sends requests to one peer.

    Args:
        peer: the peer.
        api: ``unix:PATH``, ``tcp:HOST:PORT`` or ``tls:HOST:PORT``.
        token: bearer token, or None.
        timeout_s: time limit of a request.
        cacert: PEM file of the authorities that may have signed the peer's certificate; None: those of the machine.

    Raises:
        ConfigError: ``api`` is neither, or ``cacert`` cannot be used.
    """

    def __init__(self, peer: Peer, api: str, token: str | None, timeout_s: float, cacert: str | None = None) -> None:
        self._peer = peer
        self.api = api
        self.timeout_s = timeout_s
        self._path: str | None = None
        self._kept: KeptConnection | None = None
        kind, _, rest = api.partition(":")
        if kind == "unix" and rest:
            transport, base = httpx.HTTPTransport(verify=_NO_TLS, uds=rest, limits=_ONE_EACH), f"http://{peer.name}"
            self._path = rest
        elif kind == "tcp" and rest:
            transport, base = httpx.HTTPTransport(verify=_NO_TLS, limits=_ONE_EACH), f"http://{rest}"
        elif kind == "tls" and rest:
            transport, base = httpx.HTTPTransport(verify=_verifying(cacert), limits=_ONE_EACH), f"https://{rest}"
        else:
            raise ConfigError(f"{peer.origin} is '{api}'; expected unix:PATH, tcp:HOST:PORT or tls:HOST:PORT")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            transport=transport, base_url=base, timeout=timeout_s, trust_env=False, headers=self._headers
        )

    def close(self) -> None:
        """Close the connection; no other method may follow."""
        self._http.close()
        if self._kept is not None:
            self._kept.close()

    def ask(self, kind: type[T], method: str, path: str, body: Any = None, timeout_s: float | None = None) -> T:
        """Send a request and return its answer as ``kind``.

        Raises:
            ApiError: any subclass.
        """
        return self.read(kind, self.send(method, path, body, timeout_s))

    def ask_at_once(
        self, kind: type[T], method: str, path: str, body: Any, timeout_s: float | None = None, *, keeps: bool = True
    ) -> T:
        """As `ask`, in 0.1 ms where that takes 2 ms: without httpx, and on a connection that is kept if ``keeps``.

        Raises:
            ApiError: any subclass. After `ApiNoAnswerError` the next request opens another connection.
        """
        timeout_s = timeout_s or self.timeout_s
        with self._reached(method, path, timeout_s):
            if self._kept is None:
                self._kept = self._connected()
            try:
                status, content = self._kept.ask(method, path, json.dumps(body).encode(), timeout_s)
            except OSError as error:
                self._kept.close()
                self._kept = None
                raise httpx.ReadError(str(error)) from error
            if not keeps:
                self._kept.close()
                self._kept = None
        if status == HTTPStatus.OK:
            return self._typed(kind, path, content)
        request = httpx.Request(method, f"http://{self._peer.name}{path}")
        raise self._refusal(httpx.Response(status, content=content, request=request))

    def _connected(self) -> KeptConnection:
        try:
            return KeptConnection(self.api, self._peer.name, self._headers, self.timeout_s)
        except OSError as error:
            raise self._unreachable(error) from error

    def send(self, method: str, path: str, body: Any = None, timeout_s: float | None = None) -> httpx.Response:
        """Send a request; return a successful answer.

        Raises:
            ApiError: any subclass except `ApiAnswerError`.
        """
        self._knock()
        timeout_s = timeout_s or self.timeout_s
        route = f"{method} {_NUMBER.sub('/{number}', path.partition('?')[0])}"
        with tracing.step(route, "client", **{"url.path": path}) as span, self._reached(method, path, timeout_s):
            headers = {} if span is None else {"traceparent": span.traceparent}
            response = self._http.request(method, path, json=body, timeout=timeout_s, headers=headers)
            told = _TIMING.search(response.headers.get("Server-Timing", ""))
            if span is not None and told is not None:
                start = int(told["start"]) * 1000
                span.tell(told["service"], route, start, start + round(float(told["dur"]) * 1e6))
        if response.is_success:
            return response
        raise self._refusal(response)

    def stream(self, path: str) -> Iterator[str]:
        """Yield the lines of an endless answer with pauses shorter than ``timeout_s``.

        Raises:
            ApiError: it was refused, or the lines have stopped.
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
        """Parse an answer as ``kind``.

        Raises:
            ApiAnswerError: it is something else.
        """
        return self._typed(kind, response.request.url.path, response.content)

    def _typed(self, kind: type[T], path: str, content: bytes) -> T:
        try:
            return _adapter(kind).validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            raise ApiAnswerError(
                f"{self.api} answered {path} in violation of the contract: "
                f"{where}: {first['msg']}; are unoctl and {self._peer.name} from the same release?"
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
                f"check the outcome: {self._peer.look}",
                self._peer.name,
            ) from error

    def _knock(self) -> None:
        """Try the socket first: httpx leaves a refused one to the garbage collector, with a warning."""
        if self._path is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(self.timeout_s)  # a hung peer eventually accepts no more connections
            try:
                probe.connect(self._path)
            except OSError as error:
                raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> ApiUnreachableError:
        peer = self._peer
        if (unverified := _unverified(error)) is not None:
            mend = "name the authority that signed it with --cacert FILE or $NFAGENT_CACERT"
            return ApiUnreachableError(
                f"the certificate of {self.api} is not trusted ({unverified}); {mend}", peer.name
            )
        return ApiUnreachableError(
            f"no {peer.name} answers at {self.api} ({error}); start it with: {peer.start}", peer.name
        )

    def _refusal(self, response: httpx.Response) -> ApiRefusedError | ApiAnswerError:
        try:
            problem = Refusal.model_validate_json(response.content)
        except ValidationError:
            request = response.request
            return ApiAnswerError(
                f"{request.method} {request.url.path} was answered with HTTP {response.status_code} and no "
                f"problem+json: {response.text[:200]!r}; is {self._peer.name} listening there?"
            )
        return ApiRefusedError(problem.status, problem.code, problem.detail or problem.title, self._peer.name)
