"""The REST client of oneswitchd: one method per request of docs/architecture.md, errors as in :mod:`server.errors`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from server.config import OneswitchdConfig
from server.errors import ConfigError, UsageError
from server.oneswitchd.answers import Audit, Markers, Stage, Status, VirtualPort
from server.oneswitchd.rest import ONESWITCHD, Rest

REQUEST_TIMEOUT_S = 10.0
MOVE_TIMEOUT_S = 120.0


def _token(token_file: str | None) -> str | None:
    if token_file is None:
        return None
    try:
        return Path(token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"[oneswitchd] api_token_file {token_file}: cannot be read: {error}") from error


class Client:
    """A connection to one oneswitchd.

    Args:
        api: ``unix:PATH`` or ``tcp:HOST:PORT``, as in ``[oneswitchd] api``.
        timeout_s: time limit of one request.
        token_file: file with the token for ``tcp:``.
        move_timeout_s: time limit of one request of a move.

    Raises:
        ConfigError: ``api`` is neither, or the file cannot be read.
    """

    def __init__(
        self,
        api: str,
        timeout_s: float = REQUEST_TIMEOUT_S,
        token_file: str | None = None,
        move_timeout_s: float = MOVE_TIMEOUT_S,
    ) -> None:
        self._token_file = token_file
        self._move_timeout_s = move_timeout_s
        self._rest = Rest(ONESWITCHD, api, _token(token_file), timeout_s)

    @classmethod
    def of(
        cls, daemon: OneswitchdConfig, timeout_s: float = REQUEST_TIMEOUT_S, move_timeout_s: float = MOVE_TIMEOUT_S
    ) -> Self:
        """Return a client of the oneswitchd that a server.toml describes."""
        return cls(daemon.api, timeout_s, daemon.api_token_file, move_timeout_s)

    def another(self) -> "Client":
        """Open another connection to the same oneswitchd."""
        return Client(self._rest.api, self._rest.timeout_s, self._token_file, self._move_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; no other method may follow."""
        self._rest.close()

    def status(self) -> Status:
        """Return the one switch, its controllers and the switches under it."""
        return self._rest.ask(Status, "GET", "/v1/status")

    def await_up(self, controllers: int, timeout_s: float) -> Status:
        """Return the status when all switches and this many controllers are connected, or after the time limit."""
        query = f"wait=up&controllers={controllers}&timeout_s={max(timeout_s, 0.0):.3f}"
        return self._rest.ask(Status, "GET", f"/v1/status?{query}", timeout_s=timeout_s + self._rest.timeout_s)

    def ports(self) -> list[VirtualPort]:
        """Return every virtual port, by number."""
        ports = self._rest.ask(list[VirtualPort], "GET", "/v1/ports")
        return sorted(ports, key=lambda port: port.number)

    def port(self, number: int) -> VirtualPort:
        """Return one virtual port."""
        return self._rest.ask(VirtualPort, "GET", f"/v1/ports/{number}")

    def find_port(self, virtual_port: str) -> VirtualPort:
        """Return a virtual port by number or by name; a decimal is a number.

        Raises:
            ApiRefusedError: ``port-unknown``.
            UsageError: unknown name.
        """
        if virtual_port.isdecimal():
            return self.port(int(virtual_port))
        ports = self.ports()
        for port in ports:
            if port.name == virtual_port:
                return port
        known = ", ".join(f"{port.number} ({port.name})" for port in ports) or "none exists"
        raise UsageError(f"unknown virtual port '{virtual_port}'; expected one of: {known}")

    def add_port(
        self,
        number: int | None,
        name: str | None,
        switch: str,
        interface: str,
        executor: str | None = None,
        owner: str | None = None,
    ) -> VirtualPort:
        """Map a virtual port to an interface; ``number`` None: the lowest free; ``executor`` None: the default."""
        body: dict[str, Any] = {"switch": switch, "interface": interface}
        if number is not None:
            body["number"] = number
        if name is not None:
            body["name"] = name
        if executor is not None:
            body["executor"] = executor
        if owner is not None:
            body["owner"] = owner
        return self._rest.ask(VirtualPort, "POST", "/v1/ports", body)

    def delete_port(self, number: int, owner: str | None = None, force: bool = False) -> None:
        """Unmap a virtual port; controllers see its deletion.

        Raises:
            ApiRefusedError: ``port-owned``: it has an owner other than ``owner``, and ``force`` is not set.
        """
        self._rest.send("DELETE", f"/v1/ports/{number}", _claim(owner, force) or None)

    def give_port(self, number: int, owner: str | None, force: bool = False) -> VirtualPort:
        """Make ``owner`` the port's owner, or remove the owner with None; errors as for `delete_port`."""
        return self._rest.ask(VirtualPort, "PUT", f"/v1/ports/{number}/owner", _claim(owner, force))

    def move_port(
        self,
        number: int,
        switch: str,
        interface: str,
        until: Stage,
        grace_ms: int | None,
        force: bool = False,
        owner: str | None = None,
    ) -> VirtualPort:
        """Start a move; return when the stage ``until`` is reached.

        With ``force`` it does not wait for switches that do not answer, because they are known to be dead.

        Raises:
            ApiRefusedError: ``move-waits``: some bridge has not confirmed its rules for long; the move itself
                continues. ``port-owned``: the port has an owner other than ``owner``.
        """
        body: dict[str, Any] = {"switch": switch, "interface": interface, "until": until}
        if grace_ms is not None:
            body["grace_ms"] = grace_ms
        body |= _claim(owner, force)
        timeout_s = self._move_timeout_s + (grace_ms or 0) / 1000
        return self._rest.ask(VirtualPort, "POST", f"/v1/ports/{number}/move", body, timeout_s)

    def change_executor(
        self, number: int, executor: str, until: Stage, grace_ms: int | None, force: bool = False
    ) -> VirtualPort:
        """Start to run a port's pipeline at another switch, or at ``home``; returns as `move_port` does."""
        body: dict[str, Any] = {"executor": executor, "until": until}
        if grace_ms is not None:
            body["grace_ms"] = grace_ms
        if force:
            body["force"] = True
        timeout_s = self._move_timeout_s + (grace_ms or 0) / 1000
        return self._rest.ask(VirtualPort, "POST", f"/v1/ports/{number}/executor", body, timeout_s)

    def continue_move(self, number: int, until: Stage, force: bool = False) -> VirtualPort:
        """Continue a stopped move to ``until``; ``force`` and errors as for `move_port`."""
        body: dict[str, Any] = {"until": until}
        if force:
            body["force"] = True
        path = f"/v1/ports/{number}/move/continue"
        return self._rest.ask_at_once(VirtualPort, "POST", path, body, self._move_timeout_s, keeps=False)

    def abort_move(self, number: int) -> VirtualPort:
        """Undo a move that is only prepared."""
        return self._rest.ask(VirtualPort, "DELETE", f"/v1/ports/{number}/move", None, self._move_timeout_s)

    def send_markers(
        self, number: int, switch: str, interface: str, frames: Sequence[bytes], owner: str | None = None
    ) -> tuple[str, ...]:
        """Send a frame down each path to the interface that a port leaves for this one, on a kept connection.

        Returns when the switches have sent them: the switch of each path, at most three, in the order of ``frames``.

        Raises:
            ApiRefusedError: ``no-move``, ``port-owned``, ``switch-down``, ``switch-silent``, ``interface-missing``.
        """
        body = {"switch": switch, "interface": interface, "frames": [frame.hex() for frame in frames]}
        path = f"/v1/ports/{number}/move/markers"
        return self._rest.ask_at_once(Markers, "POST", path, body | _claim(owner, force=False)).sent_from

    def audit(self) -> list[Audit]:
        """Have oneswitchd compare every bridge with its wanted state, and repair it; takes at most 5 seconds."""
        return self._rest.ask(list[Audit], "POST", "/v1/audit", timeout_s=REQUEST_TIMEOUT_S)

    def log_levels(self) -> dict[str, str]:
        """Return the level of each module; ``default`` for the others."""
        return self._rest.ask(dict[str, str], "GET", "/v1/log")

    def set_log_levels(self, levels: Mapping[str, str]) -> dict[str, str]:
        """Change levels; return the resulting ones."""
        response = self._rest.send("PUT", "/v1/log", dict(levels))
        return self._rest.read(dict[str, str], response) if response.content else self.log_levels()


def _claim(owner: str | None, force: bool) -> dict[str, Any]:
    return ({} if owner is None else {"owner": owner}) | ({"force": True} if force else {})


def as_json(value: BaseModel) -> dict[str, Any]:
    """Convert a model to plain data, including unknown members."""
    return value.model_dump(mode="json")
