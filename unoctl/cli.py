"""The command line of ``unoctl``; each command calls the module that implements it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from server.oneswitchd.answers import Stage
from server.version import VersionOption
from unoctl import completion, dump, logs, place, plumb, ports, show
from unoctl.capture.command import Wanted
from unoctl.capture.command import run as capture
from unoctl.capture.follow import Limits
from unoctl.command import FormatOption, Globals, PrettyOption, carry_out
from unoctl.doctor import checkup
from unoctl.nf import finding
from unoctl.nf.asking import AgentOption
from unoctl.nf.client import NfClient
from unoctl.nf.commands import app as nf_app
from unoctl.plumber import OvsdbPlumber
from unoctl.render import Format, View, table
from unoctl.session import Choice, Session
from unoctl.trace import command as trace
from unoctl.trace.through import Function

app = typer.Typer(
    name="unoctl",
    help="Show and change a server that controllers see as one OpenFlow switch.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
port_app = typer.Typer(help="Create, move and remove virtual ports.", no_args_is_help=True)
log_app = typer.Typer(help="Show and change oneswitchd's log levels.", no_args_is_help=True)
app.add_typer(port_app, name="port")
app.add_typer(log_app, name="log")
app.add_typer(nf_app, name="nf")

# The code that reads the file reports errors, with the reason.
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", readable=False, help="The server.toml to use.")
]
VirtualPort = Annotated[
    str,
    typer.Argument(metavar="V", help="Virtual port: number or name.", autocompletion=completion.virtual_ports),
]
SwitchOption = Annotated[
    str, typer.Option("--switch", metavar="S", help="Name of the switch.", autocompletion=completion.switches)
]
OnlySwitchOption = Annotated[
    str | None,
    typer.Option("--switch", metavar="S", help="Only this switch (physical).", autocompletion=completion.switches),
]
LogSettings = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE=]LEVEL...", help="off error warn info debug trace", autocompletion=completion.log_settings
    ),
]
InterfaceOption = Annotated[str, typer.Option("--interface", metavar="I", help="Interface on the switch.")]
TypeOption = Annotated[
    str, typer.Option("--type", metavar="T", help="Open vSwitch's type of a new interface; default: a network device.")
]
UntilOption = Annotated[Stage, typer.Option("--until", help="Stop when this stage is reached.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Even if the port has an owner (a network function).")]
DetachOption = Annotated[bool, typer.Option("--detach", help="Remove the unused interface from the switch.")]


@app.callback()
def global_options(
    ctx: typer.Context,
    config: ConfigOption = None,
    lab: Annotated[str | None, typer.Option("--lab", metavar="NAME", help="Use the server.toml of this lab.")] = None,
    chosen: Annotated[Format, typer.Option("--format", help="Format of the result.")] = Format.TABLE,
    pretty: PrettyOption = False,
    version: VersionOption = False,  # noqa: ARG001
) -> None:
    """Show and change a server that controllers see as one OpenFlow switch."""
    ctx.obj = Globals(Choice(config, lab, os.environ), chosen, pretty)


def run(ctx: typer.Context, chosen: Format | None, pretty: bool, work: Callable[[Session], View]) -> None:
    """Run a command on the selected server."""
    given: Globals = ctx.obj
    carry_out(ctx, chosen, pretty, lambda output: work(Session(given.choice, output)))


@app.command("show")
def show_command(ctx: typer.Context, chosen: FormatOption = None, pretty: PrettyOption = False) -> None:
    """Show the switch as controllers see it, and the server behind it."""

    def work(session: Session) -> View:
        with session.client() as client:
            return show.collect(session.server, client)

    run(ctx, chosen, pretty, work)


@app.command("dump-ports")
def dump_ports(ctx: typer.Context, chosen: FormatOption = None, pretty: PrettyOption = False) -> None:
    """List virtual ports: home, interface, executor, owner, flow-id, state, counters."""

    def work(session: Session) -> View:
        with session.client() as client:
            return dump.ports(session.server, client)

    run(ctx, chosen, pretty, work)


@app.command("dump-flows")
def dump_flows(
    ctx: typer.Context,
    kind: Annotated[dump.Kind, typer.Argument(help="The controllers' rules, or those installed for them.")],
    switch: OnlySwitchOption = None,
    bridge: Annotated[dump.Bridge | None, typer.Option("--bridge", help="Only this bridge (physical).")] = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Print the rules of the virtual switch, or of the bridges behind it."""
    run(ctx, chosen, pretty, lambda session: dump.flows(session.server, kind, switch, bridge))


@app.command("trace")
def trace_command(
    ctx: typer.Context,
    virtual_port: VirtualPort,
    packet: Annotated[
        str, typer.Argument(metavar="PACKET", help="Flow syntax (tcp,nw_src=10.0.0.1,...) or hex bytes of a frame.")
    ],
    show_hex: Annotated[bool, typer.Option("--hex", help="Print the bytes wherever the packet leaves.")] = False,
    ct_next: Annotated[
        list[str] | None,
        typer.Option("--ct-next", metavar="STATES", help="Connection state after the next ct(), as in ofproto/trace."),
    ] = None,
    through: Annotated[
        bool, typer.Option("--through", help="Follow it through nfagent's network functions, where that is known.")
    ] = False,
    agent: AgentOption = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Trace a packet from a virtual port through every switch to where it leaves."""
    given: Globals = ctx.obj

    def work(session: Session) -> View:
        functions = _functions(given, agent) if through else None
        return trace.run(session.server, virtual_port, packet, ct_next or [], show_hex, functions)

    run(ctx, chosen, pretty, work)


@app.command("capture")
def capture_command(
    ctx: typer.Context,
    virtual_port: VirtualPort,
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="[FILTER]...", help="Only these packets; see pcap-filter(7).")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write a pcap file; default: to stdout.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after this number of packets.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="End after this time.")] = None,
    megabytes: Annotated[
        int, typer.Option("--megabytes", min=1, help="End after this size; 1 is a million bytes.")
    ] = 100,
    snaplen: Annotated[int, typer.Option("--snaplen", min=14, max=262144, help="Bytes of each packet.")] = 65535,
    entering: Annotated[
        str | None, typer.Option("--enter", metavar="COMMAND", help="The command that reaches the switch's machine.")
    ] = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Capture the packets of a virtual port, wherever it is and while it moves; a terminal shows them as text."""
    limits = Limits(count, seconds, megabytes * 1_000_000)
    wanted = Wanted(virtual_port, filters or [], file, limits, snaplen, entering)
    given: Globals = ctx.obj
    carry_out(ctx, chosen, pretty, lambda output: capture(Session(given.choice, output), wanted))


@app.command("plumb")
def plumb_command(
    ctx: typer.Context,
    datapath: Annotated[
        plumb.Datapath,
        typer.Option("--datapath", help="Data path of new bridges; system: the kernel's, which hardware offloads."),
    ] = plumb.Datapath.netdev,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Create what a switch lacks of server.toml, and of the ports that oneswitchd has mapped."""

    def work(session: Session) -> View:
        with session.client() as client:
            numbers = plumb.mapped(client)
        return plumb.run(session.server, datapath, numbers)

    run(ctx, chosen, pretty, work)


@port_app.command("add")
def port_add(
    ctx: typer.Context,
    number: Annotated[str, typer.Argument(metavar="N|auto", help="Virtual port number; auto: the lowest free.")],
    switch: SwitchOption,
    interface: InterfaceOption,
    name: Annotated[str | None, typer.Option("--name", help="Name of the port; default: the interface's.")] = None,
    executor: Annotated[
        str | None,
        typer.Option("--executor", help="The switch that runs its rules, or home; default: from server.toml."),
    ] = None,
    interface_type: TypeOption = "",
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Create a virtual port: patch ports, interface, mapping."""

    def work(session: Session) -> View:
        wanted = ports.parse_number(number)
        server, output = session.server, session.output
        with (
            session.client() as client,
            OvsdbPlumber(server, interface_type) as plumber,
            output.progress("making a port") as progress,
        ):
            return ports.add(server, client, plumber, wanted, name, switch, interface, executor, progress)

    run(ctx, chosen, pretty, work)


@port_app.command("move")
def port_move(
    ctx: typer.Context,
    virtual_port: VirtualPort,
    switch: SwitchOption,
    interface: InterfaceOption,
    until: UntilOption = "done",
    grace_ms: Annotated[
        int | None, typer.Option("--grace-ms", min=0, help="How long the old path stays open, in ms.")
    ] = None,
    interface_type: TypeOption = "",
    detach: DetachOption = False,
    force: ForceOption = False,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Move a virtual port to another interface without losing a packet."""

    def work(session: Session) -> View:
        server, output = session.server, session.output
        with (
            session.client() as client,
            OvsdbPlumber(server, interface_type) as plumber,
            output.progress("moving a port") as progress,
        ):
            return ports.move(
                server, client, plumber, virtual_port, switch, interface, until, grace_ms, detach, progress, force
            )

    run(ctx, chosen, pretty, work)


@port_app.command("execute")
def port_execute(
    ctx: typer.Context,
    virtual_port: VirtualPort,
    executor: Annotated[str, typer.Argument(metavar="SWITCH|home", help="The switch to run its rules.")],
    until: UntilOption = "done",
    grace_ms: Annotated[
        int | None, typer.Option("--grace-ms", min=0, help="How long the old path stays open, in ms.")
    ] = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Run a virtual port's rules on another switch without losing a packet."""

    def work(session: Session) -> View:
        with session.client() as client, session.output.progress("moving rules") as progress:
            return ports.execute(client, virtual_port, executor, until, grace_ms, progress)

    run(ctx, chosen, pretty, work)


@port_app.command("continue")
def port_continue(
    ctx: typer.Context,
    virtual_port: VirtualPort,
    until: UntilOption = "done",
    force: Annotated[bool, typer.Option("--force", help="Do not wait for switches that do not answer.")] = False,
    detach: DetachOption = False,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Resume a stopped move."""

    def work(session: Session) -> View:
        with (
            session.client() as client,
            OvsdbPlumber(session.server) as plumber,
            session.output.progress("moving a port") as progress,
        ):
            return ports.continue_move(client, plumber, virtual_port, until, force, detach, progress)

    run(ctx, chosen, pretty, work)


@port_app.command("abort")
def port_abort(
    ctx: typer.Context,
    virtual_port: VirtualPort,
    detach: DetachOption = False,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Undo a move that is only prepared."""

    def work(session: Session) -> View:
        with session.client() as client, OvsdbPlumber(session.server) as plumber:
            return ports.abort_move(client, plumber, virtual_port, detach)

    run(ctx, chosen, pretty, work)


@port_app.command("del")
def port_del(
    ctx: typer.Context,
    virtual_port: VirtualPort,
    detach: DetachOption = False,
    force: ForceOption = False,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Remove a virtual port."""

    def work(session: Session) -> View:
        with session.client() as client, OvsdbPlumber(session.server) as plumber:
            return ports.delete(session.server, client, plumber, virtual_port, detach, force)

    run(ctx, chosen, pretty, work)


@log_app.command("show")
def log_show(ctx: typer.Context, chosen: FormatOption = None, pretty: PrettyOption = False) -> None:
    """Show the log levels."""

    def work(session: Session) -> View:
        with session.client() as client:
            return logs.show(client)

    run(ctx, chosen, pretty, work)


@log_app.command("set")
def log_set(
    ctx: typer.Context,
    settings: LogSettings,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Change log levels."""

    def work(session: Session) -> View:
        levels = logs.parse(settings)
        with session.client() as client:
            return logs.change(client, levels)

    run(ctx, chosen, pretty, work)


@app.command("doctor")
def doctor_command(ctx: typer.Context, chosen: FormatOption = None, pretty: PrettyOption = False) -> None:
    """Check machine, switches, oneswitchd, rules and network functions; say how to repair each fault."""
    run(ctx, chosen, pretty, checkup.run)


app.command("place")(place.place_command)


@app.command("list-commands")
def list_commands(ctx: typer.Context, chosen: FormatOption = None, pretty: PrettyOption = False) -> None:
    """List every command."""
    run(ctx, chosen, pretty, lambda _: _commands())


def _functions(given: Globals, agent: str | None) -> list[Function]:
    """Ask nfagent for its network functions."""
    api = finding.address(agent, given.choice.lab, os.environ)
    cacert = given.cacert or os.environ.get(finding.CACERT)
    with NfClient(api, os.environ.get("NFAGENT_TOKEN"), cacert=cacert) as client:
        return [Function.of(instance) for instance in client.instances()]


def _commands() -> View:
    found = list(_walk(typer.main.get_command(app), ""))
    data = [{"command": name, "help": text} for name, text in found]
    return View(data, table(("COMMAND", "WHAT IT DOES"), found))


def _walk(command: Any, name: str) -> Iterator[tuple[str, str]]:
    nested: dict[str, Any] = getattr(command, "commands", {})
    if not nested:
        yield name, command.get_short_help_str(100)
    for inner, each in sorted(nested.items()):
        yield from _walk(each, f"{name} {inner}".strip())


def main() -> None:
    """Entry point of the ``unoctl`` script."""
    app()
