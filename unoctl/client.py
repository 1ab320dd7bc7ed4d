"""The REST client of oneswitchd: one method per request of docs/architecture.md, errors as in :mod:`unoctl.errors`."""

import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from unoctl.errors import (
    ApiAnswerError,
    ApiNoAnswerError,
    ApiRefusedError,
    ApiUnreachableError,
    ConfigError,
    UsageError,
)
from unoctl.model import Port, Problem, Stage, Status

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
MOVE_TIMEOUT_S = 120.0
# A connection each: one kept open would be a broken one after oneswitchd has restarted.
_ONE_EACH = httpx.Limits(max_keepalive_connections=0)


def _bearer(token_file: str | None) -> dict[str, str]:
    if token_file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {Path(token_file).read_text().strip()}"}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"[oneswitchd] api_token_file {token_file}: cannot be read: {error}") from error


class Client:
    """A connection to one oneswitchd.

    Args:
        api: ``unix:PATH`` or ``tcp:HOST:PORT``, as in ``[oneswitchd] api``.
        timeout_s: how long one request may take; a move may take longer.
        token_file: has the token for ``tcp:``.

    Raises:
        ConfigError: ``api`` is neither, or the file cannot be read.
    """

    def __init__(self, api: str, timeout_s: float = REQUEST_TIMEOUT_S, token_file: str | None = None) -> None:
        self.api = api
        self._token_file = token_file
        self._timeout_s = timeout_s
        self._path: str | None = None
        kind, _, rest = api.partition(":")
        if kind == "unix" and rest:
            transport, base = httpx.HTTPTransport(uds=rest, limits=_ONE_EACH), "http://oneswitchd"
            self._path = rest
        elif kind == "tcp" and rest:
            transport, base = httpx.HTTPTransport(limits=_ONE_EACH), f"http://{rest}"
        else:
            raise ConfigError(f"[oneswitchd] api is '{api}'; expected unix:PATH or tcp:HOST:PORT")
        self._http = httpx.Client(
            transport=transport, base_url=base, timeout=timeout_s, trust_env=False, headers=_bearer(token_file)
        )

    def another(self) -> "Client":
        """One more connection to the same oneswitchd."""
        return Client(self.api, self._timeout_s, self._token_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; no other method may follow."""
        self._http.close()

    def status(self) -> Status:
        """The one switch, its controllers and the switches under it."""
        return self._ask(Status, "GET", "/v1/status")

    def await_up(self, controllers: int, timeout_s: float) -> Status:
        """The status when all switches and so many controllers are connected, or when the time is over."""
        query = f"wait=up&controllers={controllers}&timeout_s={max(timeout_s, 0.0):.3f}"
        return self._ask(Status, "GET", f"/v1/status?{query}", timeout_s=timeout_s + self._timeout_s)

    def ports(self) -> list[Port]:
        """Every virtual port, by number."""
        ports = self._ask(list[Port], "GET", "/v1/ports")
        return sorted(ports, key=lambda port: port.number)

    def port(self, number: int) -> Port:
        """One virtual port."""
        return self._ask(Port, "GET", f"/v1/ports/{number}")

    def find_port(self, virtual_port: str) -> Port:
        """A virtual port by number or by name; a decimal is a number.

        Raises:
            ApiRefusedError: ``port-unknown``.
            UsageError: the name belongs to no port.
        """
        if virtual_port.isdecimal():
            return self.port(int(virtual_port))
        ports = self.ports()
        for port in ports:
            if port.name == virtual_port:
                return port
        known = ", ".join(f"{port.number} ({port.name})" for port in ports) or "none at all"
        raise UsageError(f"no virtual port is named '{virtual_port}'; there are: {known}")

    def add_port(
        self, number: int | None, name: str | None, switch: str, interface: str, executor: str | None = None
    ) -> Port:
        """Map a virtual port to an interface; ``number`` None: the lowest free; ``executor`` None: the default."""
        body: dict[str, Any] = {"switch": switch, "interface": interface}
        if number is not None:
            body["number"] = number
        if name is not None:
            body["name"] = name
        if executor is not None:
            body["executor"] = executor
        return self._ask(Port, "POST", "/v1/ports", body)

    def delete_port(self, number: int) -> None:
        """Unmap a virtual port; the controllers see it go."""
        self._send("DELETE", f"/v1/ports/{number}", None, self._timeout_s)

    def move_port(self, number: int, switch: str, interface: str, until: Stage, grace_ms: int | None) -> Port:
        """Start a move; answers when the stage ``until`` is reached."""
        body: dict[str, Any] = {"switch": switch, "interface": interface, "until": until}
        if grace_ms is not None:
            body["grace_ms"] = grace_ms
        timeout_s = MOVE_TIMEOUT_S + (grace_ms or 0) / 1000
        return self._ask(Port, "POST", f"/v1/ports/{number}/move", body, timeout_s)

    def change_executor(self, number: int, executor: str, until: Stage, grace_ms: int | None) -> Port:
        """Start to run a port's pipeline at another switch, or at ``home``; answers as `move_port` does."""
        body: dict[str, Any] = {"executor": executor, "until": until}
        if grace_ms is not None:
            body["grace_ms"] = grace_ms
        timeout_s = MOVE_TIMEOUT_S + (grace_ms or 0) / 1000
        return self._ask(Port, "POST", f"/v1/ports/{number}/executor", body, timeout_s)

    def continue_move(self, number: int, until: Stage) -> Port:
        """Let a stopped move go on to ``until``."""
        return self._ask(Port, "POST", f"/v1/ports/{number}/move/continue", {"until": until}, MOVE_TIMEOUT_S)

    def abort_move(self, number: int) -> Port:
        """Undo a move that is only prepared."""
        return self._ask(Port, "DELETE", f"/v1/ports/{number}/move", None, MOVE_TIMEOUT_S)

    def log_levels(self) -> dict[str, str]:
        """Level of each module; ``default`` for the others."""
        return self._ask(dict[str, str], "GET", "/v1/log")

    def set_log_levels(self, levels: Mapping[str, str]) -> dict[str, str]:
        """Change levels; answers with what is in force now."""
        response = self._send("PUT", "/v1/log", dict(levels), self._timeout_s)
        return self._read(dict[str, str], response) if response.content else self.log_levels()

    def _ask(
        self, kind: type[T], method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> T:
        return self._read(kind, self._send(method, path, body, timeout_s or self._timeout_s))

    def _send(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> httpx.Response:
        self._knock()
        try:
            response = self._http.request(method, path, json=body, timeout=timeout_s)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._unreachable(error) from error
        except httpx.TransportError as error:
            why = f"within {timeout_s:g} s" if isinstance(error, httpx.TimeoutException) else f"({error})"
            raise ApiNoAnswerError(
                f"oneswitchd at {self.api} did not answer {method} {path} {why}; see what became of it: unoctl show"
            ) from error
        if response.is_success:
            return response
        raise _refusal(response)

    def _knock(self) -> None:
        """Try the socket: httpx leaves one that refuses for the garbage collector to close, with a warning."""
        if self._path is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self._path)
            except OSError as error:
                raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> ApiUnreachableError:
        return ApiUnreachableError(
            f"no oneswitchd answers at {self.api} ({error}); start it with: oneswitchd --config FILE"
        )

    def _read(self, kind: type[T], response: httpx.Response) -> T:
        try:
            return TypeAdapter(kind).validate_json(response.content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            raise ApiAnswerError(
                f"{self.api} answered {response.request.url.path} with something else than the contract promises: "
                f"{where}: {first['msg']}; do unoctl and oneswitchd come from the same release?"
            ) from error


def as_json(value: BaseModel) -> dict[str, Any]:
    """A model as plain data, with the members that this unoctl does not know."""
    return value.model_dump(mode="json")


def _refusal(response: httpx.Response) -> ApiRefusedError | ApiAnswerError:
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        request = response.request
        return ApiAnswerError(
            f"{request.method} {request.url.path} was answered with HTTP {response.status_code} and no problem+json: "
            f"{response.text[:200]!r}; is it oneswitchd that listens there?"
        )
    return ApiRefusedError(problem.status, problem.code, problem.detail or problem.title)
