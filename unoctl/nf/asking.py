"""How the commands of ``unoctl nf`` ask nfagent. Those that wait check again after each event."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from server.errors import ApiNoAnswerError, ApiUnreachableError, UsageError
from unoctl.command import Globals, carry_out
from unoctl.nf import finding
from unoctl.nf.client import Json, NfClient
from unoctl.render import Format, Output, View

_WAIT_S = 1.0  # in a request for the end of a migration

AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="ADDRESS", help="Address of nfagent: unix:PATH, tcp:HOST:PORT or tls:HOST:PORT."),
]
NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Return once nfagent has accepted the request.")]


def run(
    ctx: typer.Context,
    agent: str | None,
    chosen: Format | None,
    pretty: bool,
    work: Callable[[NfClient, Output], View | None],
) -> None:
    """Carry out a command with a client of the agent that the options name."""
    given: Globals = ctx.obj

    def ask(output: Output) -> View | None:
        api = finding.address(agent, given.choice.lab, os.environ)
        with NfClient(api, os.environ.get("NFAGENT_TOKEN"), cacert=given.cacert) as client:
            return work(client, output)

    carry_out(ctx, chosen, pretty, ask)


def until(client: NfClient, look: Callable[[], Any]) -> Any:
    """Check now and after each event, until there is a result."""
    for _ in client.events():
        found = look()
        if found is not None:
            return found
    raise _left()


def until_moved(client: NfClient, epoch: int, tell: Callable[[str], None]) -> Json:
    """Wait for the end of a migration, and tell of its steps meanwhile if it takes long.

    Each step is an event, so following these would take CPU time from nfagent while packets wait.
    """
    try:
        while (found := client.migration(epoch, _WAIT_S))["outcome"] is None:
            tell(f"migration {epoch}: {found['step']}")
    except (ApiUnreachableError, ApiNoAnswerError) as error:
        raise _left() from error
    return found


def _left() -> ApiNoAnswerError:
    return ApiNoAnswerError("nfagent ended while unoctl waited; accepted requests continue when it is back", "nfagent")


def configuration(path: Path) -> Json:
    """Parse JSON if the text starts with a brace, else TOML."""
    try:
        text = path.read_text()
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: neither JSON nor TOML: {error}") from error
    return found
