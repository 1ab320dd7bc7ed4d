"""The commands of ``unoctl nf chain``."""

from pathlib import Path
from typing import Annotated

import typer

from server.errors import ApiRefusedError, UsageError
from unoctl.command import FormatOption, PrettyOption
from unoctl.nf import views
from unoctl.nf.asking import AgentOption, NoWaitOption, configuration, run, until
from unoctl.nf.client import Json, NfClient
from unoctl.render import Output, View

app = typer.Typer(help="Deploy chains of network functions, and show what each hop costs.", no_args_is_help=True)

Reference = Annotated[str, typer.Argument(metavar="CHAIN", help="Name or id.")]
_NOT_FOUND = 404


@app.command("list")
def list_command(
    ctx: typer.Context, agent: AgentOption = None, chosen: FormatOption = None, pretty: PrettyOption = False
) -> None:
    """List all chains."""
    run(ctx, agent, chosen, pretty, lambda client, _: views.chains(client.chains()))


@app.command("show")
def show(
    ctx: typer.Context,
    reference: Reference,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Show one chain: its hops in order, with their ports, and what each costs."""
    run(ctx, agent, chosen, pretty, lambda client, _: views.chain(client.chain(reference)))


@app.command("deploy")
def deploy(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new chain.")],
    hops: Annotated[Path, typer.Argument(metavar="FILE", help="Its hops, JSON or TOML: docs/chains.md.")],
    latency_us: Annotated[
        int | None, typer.Option("--latency-us", min=1, metavar="US", help="Its bound; default: the file's.")
    ] = None,
    no_wait: NoWaitOption = False,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Deploy a chain with its network functions in one request, and wait until all of them run."""

    def work(client: NfClient, output: Output) -> View:
        order = _order(hops) | {"name": name} | ({"latency_us": latency_us} if latency_us else {})
        made = client.create_chain(order)
        return views.chain(made) if no_wait else _await_settled(client, output, made["id"])

    run(ctx, agent, chosen, pretty, work)


@app.command("delete")
def delete(
    ctx: typer.Context,
    reference: Reference,
    no_wait: NoWaitOption = False,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Delete a chain with the network functions that were deployed with it, and wait until they are gone."""

    def work(client: NfClient, output: Output) -> View | None:
        ended = client.delete_chain(reference)
        if no_wait:
            return views.chain(ended)
        with output.progress(f"deleting {ended['name']}"):
            until(client, lambda: _is_gone(client, ended["id"]))
        return None

    run(ctx, agent, chosen, pretty, work)


def _order(path: Path) -> Json:
    """Read an order; ``with = FILE`` of a function, beside the file itself, is its configuration."""
    order = configuration(path)
    for hop in order.get("hops", []):
        function = hop.get("function") if isinstance(hop, dict) else None
        if isinstance(function, dict) and "with" in function:
            if "config" in function:
                raise UsageError(f"{path}: a function has both `with` and `config`; give one of them")
            function["config"] = configuration(path.parent / function.pop("with"))
    return order


def _await_settled(client: NfClient, output: Output, chain: str) -> View:
    def look() -> Json | None:
        found = client.chain(chain)
        there = sum(hop["status"] == "active" for hop in found["hops"])
        progress.update(f"{found['name']}: {found['status']}, {there} active")
        return None if found["status"] in ("building", "migrating") else found

    with output.progress("deploying") as progress:
        found = until(client, look)
    return views.chain(found, 0 if found["status"] == "active" else 1)


def _is_gone(client: NfClient, chain: str) -> bool | None:
    try:
        client.chain(chain)
    except ApiRefusedError as error:
        if error.status == _NOT_FOUND:
            return True
        raise
    return None
