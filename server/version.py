"""The version of the installed package, for ``--version`` of the commands."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

_PACKAGE = "uno-server"


def _callback(ctx: typer.Context, wanted: bool) -> None:
    if not wanted:
        return
    try:
        found = version(_PACKAGE)
    except PackageNotFoundError:
        found = "(not installed)"
    print(ctx.find_root().info_name, found)
    raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", "-V", callback=_callback, is_eager=True, help="Show the version and exit.")
]
