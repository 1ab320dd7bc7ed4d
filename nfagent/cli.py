"""The command ``nfagent``."""

import gc
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from nfagent.config import AgentConfig, default_path
from nfagent.errors import AgentError
from server.errors import ServerError
from server.version import VersionOption

app = typer.Typer(
    name="nfagent",
    help="Deploy network functions on one server with smart NICs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SWITCH_S = 0.0005  # limits how long a computing thread delays one that packets wait for; Python's default is 5 ms

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", readable=False, help="The agent.toml to use.")
]


@app.callback()
def global_options(version: VersionOption = False) -> None:
    """Deploy network functions on one server with smart NICs."""


@app.command()
def serve(config: ConfigOption = None) -> None:
    """Run the agent until SIGTERM or SIGINT; deployed functions keep running. SIGHUP: read the certificate again."""
    from nfagent.agent import Agent
    from nfagent.api.connections import raise_file_limit

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request to oneswitchd
    sys.setswitchinterval(_SWITCH_S)
    raise_file_limit()
    # Block these signals before any thread starts, so that all threads inherit this; the main thread waits for them.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    path = config or default_path()
    try:
        settings = AgentConfig.load(path)
        agent = Agent(settings, settings.load_server(path))
    except (AgentError, ServerError) as error:
        _die(error)
    for address in agent.addresses:
        typer.echo(f"nfagent: listening at {address}", err=True)
    # Garbage collection stops all threads; without the objects that stay for good, it takes a fraction of the time.
    gc.freeze()
    while signal.sigwait(signals) == signal.SIGHUP:
        agent.reload()
    agent.stop()


@app.command()
def check(config: ConfigOption = None) -> None:
    """Validate agent.toml and the files that it names, and show what they offer; start nothing."""
    from nfagent.api.making import make_access, make_certificate
    from nfagent.catalog import Catalog

    path = config or default_path()
    try:
        settings = AgentConfig.load(path)
        catalog = Catalog.of(settings, settings.load_server(path))
        make_certificate(settings.api)
        make_access(settings.api)
    except (AgentError, ServerError) as error:
        _die(error)
    kinds = [f"{kind.name} ({'movable' if kind.movable else 'opaque'})" for kind in catalog.kinds.values()]
    typer.echo(f"{path}: ok")
    typer.echo(f"kinds: {', '.join(kinds) or 'none: the program nf is not installed, and agent.toml has no [[kind]]'}")
    for location in catalog.locations:
        found = settings.find_location(location)
        where = f"over ssh at {found.ssh.host}" if found.ssh else "on this machine"
        typer.echo(f"{location}: {where}, {len(found.slot)} slot(s)")
    typer.echo(f"port numbers: {len(catalog.port_numbers)}")


def _die(error: Exception) -> NoReturn:
    typer.echo(f"nfagent: {error}", err=True)
    raise typer.Exit(1) from error


def main() -> None:
    """Entry point of the ``nfagent`` script."""
    app()
