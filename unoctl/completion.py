"""Shell completion of ports, switches and log levels; empty if oneswitchd does not answer."""

import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from server.errors import ServerError
from server.oneswitchd.client import Client
from unoctl.logs import LEVELS
from unoctl.render import Format, Output
from unoctl.session import Choice, Session

ASK_TIMEOUT_S = 1.0


def virtual_ports(ctx: typer.Context, incomplete: str) -> list[str]:
    """List the names of the virtual ports."""
    return _offer(ctx, incomplete, lambda session: (port.name for port in _client(session).ports()))


def switches(ctx: typer.Context, incomplete: str) -> list[str]:
    """List the names of the switches."""
    return _offer(ctx, incomplete, lambda session: (switch.name for switch in session.server.switch))


def log_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """List ``LEVEL`` and ``MODULE=LEVEL``."""

    def settings(session: Session) -> Iterable[str]:
        modules = ["", *(f"{module}=" for module in _client(session).log_levels())]
        return (module + level for module in modules for level in LEVELS)

    return _offer(ctx, incomplete, settings)


def _client(session: Session) -> Client:
    return Client.of(session.server.oneswitchd, ASK_TIMEOUT_S)


def _offer(ctx: typer.Context, incomplete: str, find: Callable[[Session], Iterable[str]]) -> list[str]:
    given = ctx.find_root().params
    config = given.get("config")
    choice = Choice(Path(config) if config else None, given.get("lab"), os.environ)
    silent = Output(Format.TABLE, pretty=False, stdout=io.StringIO(), stderr=io.StringIO())
    try:
        return [word for word in find(Session(choice, silent)) if word.startswith(incomplete)]
    except ServerError:
        return []
