"""The part common to all commands: printing the result, and the exit status."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from server.errors import ServerError
from unoctl.render import Format, Output, View
from unoctl.session import Choice

FormatOption = Annotated[Format | None, typer.Option("--format", help="Format of the result.")]
PrettyOption = Annotated[bool, typer.Option("--pretty", help="Indent JSON.")]


@dataclass(frozen=True)
class Globals:
    """Options given before the command; ``ctx.obj``. ``cacert``: a file of certificate authorities."""

    choice: Choice
    format: Format
    pretty: bool
    cacert: str | None = None


def carry_out(ctx: typer.Context, chosen: Format | None, pretty: bool, work: Callable[[Output], View | None]) -> None:
    """Run a command, print its view, if any, and exit with its status."""
    given: Globals = ctx.obj
    output = Output(chosen or given.format, pretty or given.pretty)
    try:
        view = work(output)
        if view is not None:
            output.show(view)
    except ServerError as error:
        output.error(error)
        raise typer.Exit(error.exit_status) from error
    if view is not None and view.exit_status:
        raise typer.Exit(view.exit_status)
