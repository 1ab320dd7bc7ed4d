"""The commands of ``unoctl nf``."""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from server.errors import ApiRefusedError
from unoctl.command import FormatOption, Globals, PrettyOption
from unoctl.nf import chains, finding, views
from unoctl.nf.asking import AgentOption, NoWaitOption, configuration, run, until, until_moved
from unoctl.nf.client import Json, NfClient
from unoctl.render import Output, Progress, View

app = typer.Typer(help="Deploy and migrate network functions, and show where they run and why.", no_args_is_help=True)
app.add_typer(chains.app, name="chain")

Reference = Annotated[str, typer.Argument(metavar="NF", help="Name or id.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="Its configuration, JSON or TOML.")]

_NOT_FOUND = 404
_LOG_MAX = 262_144
_LOG_PERIOD_S = 0.5


@app.callback()
def trusted(
    ctx: typer.Context,
    cacert: Annotated[
        str | None,
        typer.Option("--cacert", envvar=finding.CACERT, metavar="FILE", help="Authorities to trust at tls: addresses."),
    ] = None,
) -> None:
    """Deploy and migrate network functions, and show where they run and why."""
    given: Globals = ctx.obj
    ctx.obj = replace(given, cacert=cacert)


@app.command("kinds")
def kinds(
    ctx: typer.Context, agent: AgentOption = None, chosen: FormatOption = None, pretty: PrettyOption = False
) -> None:
    """List the kinds that can be deployed."""
    run(ctx, agent, chosen, pretty, lambda client, _: views.kinds(client.kinds()))


@app.command("list")
def list_command(
    ctx: typer.Context, agent: AgentOption = None, chosen: FormatOption = None, pretty: PrettyOption = False
) -> None:
    """List all network functions."""
    run(ctx, agent, chosen, pretty, lambda client, _: views.instances(client.instances()))


@app.command("show")
def show(
    ctx: typer.Context,
    reference: Reference,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Show one network function."""
    run(ctx, agent, chosen, pretty, lambda client, _: views.instance(client.instance(reference)))


@app.command("deploy")
def deploy(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new network function.")],
    kind: Annotated[str, typer.Option("--kind", metavar="K", help="One of: unoctl nf kinds")],
    config: Annotated[
        Path | None, typer.Option("--with", metavar="FILE", help="Its configuration, JSON or TOML.")
    ] = None,
    ports: Annotated[int | None, typer.Option("--ports", min=0, max=2, help="Number of virtual ports.")] = None,
    flavor: Annotated[str | None, typer.Option("--flavor", metavar="F", help="Its size.")] = None,
    pin: Annotated[
        str | None,
        typer.Option("--pin", metavar="S", help="The only switch where it may run; default: nfagent decides."),
    ] = None,
    no_wait: NoWaitOption = False,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Deploy a network function, and wait until it runs."""

    def work(client: NfClient, output: Output) -> View:
        given = {"name": name, "kind": kind, "ports": ports, "flavor": flavor, "pin": pin}
        order: Json = {key: value for key, value in given.items() if value is not None}
        if config is not None:
            order["config"] = configuration(config)
        made = client.create(order)
        return views.instance(made) if no_wait else _await_settled(client, output, made["id"])

    run(ctx, agent, chosen, pretty, work)


@app.command("configure")
def configure(
    ctx: typer.Context,
    reference: Reference,
    config: ConfigFile,
    no_wait: NoWaitOption = False,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Change a network function's configuration, and wait until it is in force."""

    def work(client: NfClient, output: Output) -> View:
        amended = client.amend(reference, {"config": configuration(config)})
        return views.instance(amended) if no_wait else _await_settled(client, output, amended["id"])

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
    """Delete a network function, and wait until it is gone."""

    def work(client: NfClient, output: Output) -> View | None:
        ended = client.delete(reference)
        if no_wait:
            return views.instance(ended)
        with output.progress(f"deleting {ended['name']}") as progress:
            until(client, lambda: _is_gone(client, ended["id"], progress))
        return None

    run(ctx, agent, chosen, pretty, work)


@app.command("migrate")
def migrate(
    ctx: typer.Context,
    reference: Reference,
    target: Annotated[
        str | None, typer.Argument(metavar="[SWITCH]", help="Target; may be omitted if only one other switch exists.")
    ] = None,
    no_wait: NoWaitOption = False,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Migrate a network function with its state, and wait until it has arrived."""

    def work(client: NfClient, output: Output) -> View:
        asked = client.migrate(reference, target)
        if no_wait:
            return views.migrations([asked], {asked["instance"]: reference})
        with output.progress(f"moving {reference} to {asked['target']}") as progress:
            return views.migration(until_moved(client, asked["epoch"], progress.update))

    run(ctx, agent, chosen, pretty, work)


@app.command("migrations")
def migrations(
    ctx: typer.Context,
    reference: Annotated[str | None, typer.Argument(metavar="[NF]", help="Only this function's.")] = None,
    most: Annotated[int, typer.Option("--most", min=1, max=1000, help="How many, newest first.")] = 20,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """List migrations: from where to where, when, with which outcome."""

    def work(client: NfClient, _: Output) -> View:
        only = client.instance(reference)["id"] if reference else None
        return views.migrations(client.migrations(only, most), _names(client))

    run(ctx, agent, chosen, pretty, work)


@app.command("why")
def why(
    ctx: typer.Context,
    reference: Reference,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Explain why a network function runs where it does, and not elsewhere."""
    run(ctx, agent, chosen, pretty, lambda client, _: views.why(client.why(reference), reference))


@app.command("load")
def load(
    ctx: typer.Context, agent: AgentOption = None, chosen: FormatOption = None, pretty: PrettyOption = False
) -> None:
    """Print the measured load: network functions, PCIe links, traffic matrix."""
    run(ctx, agent, chosen, pretty, lambda client, _: views.load(client.load(), _names(client)))


@app.command("logs")
def logs(
    ctx: typer.Context,
    reference: Reference,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what it says from then on, until Ctrl-C.")
    ] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Print what the process before it said: why it ended.")
    ] = False,
    most: Annotated[
        int, typer.Option("--most", min=1, max=_LOG_MAX, help="Bytes of the earlier output, at most.")
    ] = 65_536,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Print what a network function says, wherever it runs; -f goes on, also while it moves."""
    if follow and previous:
        raise typer.BadParameter("what was before does not go on; use one of --follow and --previous")

    def work(client: NfClient, output: Output) -> None:
        part = client.log(reference, None, most, previous=previous)
        output.pass_text(part["text"])
        while follow:
            if not part["more"]:
                time.sleep(_LOG_PERIOD_S)
            part = client.log(reference, part["position"], _LOG_MAX)
            if part["text"]:
                output.pass_text(part["text"])

    try:
        run(ctx, agent, chosen, pretty, work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command("assets")
def assets(
    ctx: typer.Context,
    reference: Reference,
    lines: Annotated[bool, typer.Option("--lines", help="Print PRADS' lines that its history has.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print lines, and new ones from then on, until Ctrl-C.")
    ] = False,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Print the hosts that a function of kind assets knows, or its lines; -f goes on, also while it moves."""

    def work(client: NfClient, output: Output) -> View | None:
        identifier = client.instance(reference)["id"]
        if not lines and not follow:
            return views.assets(client.assets(identifier))
        after = 0
        while True:
            try:
                found = client.asset_lines(identifier, after)
            except ApiRefusedError as error:
                # It moves, or is restarted.
                if not follow or error.code != "assets-unavailable":
                    raise
                time.sleep(_LOG_PERIOD_S)
                continue
            output.pass_text("".join(f"{each['line']}\n" for each in found))
            if found:
                after = found[-1]["number"]
            elif not follow:
                return None
            else:
                time.sleep(_LOG_PERIOD_S)

    try:
        run(ctx, agent, chosen, pretty, work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command("events")
def events(
    ctx: typer.Context,
    after: Annotated[int | None, typer.Option("--after", min=0, help="Begin after this id; default: now.")] = None,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Print events as they happen, until Ctrl-C; with --format json one object per line."""

    def work(client: NfClient, output: Output) -> None:
        for event in client.events(after):
            if "id" in event:
                output.show(View(event, views.event(event)))

    try:
        run(ctx, agent, chosen, pretty, work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


# ---- waiting


def _await_settled(client: NfClient, output: Output, instance: str) -> View:
    def look() -> Json | None:
        found = client.instance(instance)
        progress.update(f"{found['name']}: {found['reason'] or found['status']}")
        waits = found["status"] == "active" and found["config_state"] == "pending" and not found["reason"]
        return None if waits or found["status"] not in ("active", "error") else found

    with output.progress("deploying") as progress:
        found = until(client, look)
    applied = found["status"] == "active" and found["config_state"] == "applied"
    return views.instance(found, 0 if applied else 1)


def _is_gone(client: NfClient, instance: str, progress: Progress) -> bool | None:
    try:
        found = client.instance(instance)
    except ApiRefusedError as error:
        if error.status == _NOT_FOUND:
            return True
        raise
    progress.update(f"{found['name']}: {found['reason'] or found['status']}")
    return None


def _names(client: NfClient) -> dict[str, str]:
    """Return how to refer to each instance, by id: PROJECT/NAME if several projects have one of that name."""
    found = client.instances()
    count = Counter(each["name"] for each in found)
    return {
        each["id"]: each["name"] if count[each["name"]] == 1 else f"{each['project']}/{each['name']}" for each in found
    }
