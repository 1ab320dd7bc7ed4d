"""``uno-lab``: start, show, use and end emulated servers."""

import dataclasses
import json
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab import awaiting, breaking
from lab.directory import LabDirectory, running_labs
from lab.errors import LabError, SpecError
from lab.server import Lab, enter_command
from lab.spec import LabSpec, LinkKind
from lab.state import LabState
from server.version import VersionOption

DEFAULT_NAME = "uno"

app = typer.Typer(
    help="Emulated servers with smart NICs: switches, PCIe links, hosts and wires. Needs no root.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def global_options(version: VersionOption = False) -> None:
    """Emulated servers with smart NICs: switches, PCIe links, hosts and wires. Needs no root."""


class Spec(StrEnum):
    """Predefined servers."""

    demo = "demo"
    star = "star"


class SubstrateName(StrEnum):
    """Substrate of the server."""

    netns = "netns"
    dummy = "dummy"


class Power(StrEnum):
    """Whether a smart NIC has power."""

    off = "off"
    on = "on"


class Format(StrEnum):
    """Format of results on standard output."""

    text = "text"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]
NameArgument = Annotated[str, typer.Argument(help="Name of the lab.")]
NameOption = Annotated[str, typer.Option("--name", help="Name of the lab.")]
PartArgument = Annotated[
    str,
    typer.Argument(metavar="PART", help="A switch, SWITCH/ovsdb-server, oneswitchd, nfagent, or a network function."),
]


@app.command()
def up(
    spec: Annotated[
        Spec | None, typer.Option(help="demo: one sNIC, four hosts (default); star: sized by the next three options.")
    ] = None,
    switches: Annotated[
        int | None, typer.Option(min=1, help="star: number of switches, the hypervisor included (2).")
    ] = None,
    hosts: Annotated[int | None, typer.Option(min=0, help="star: number of hosts on each switch (2).")] = None,
    mobile: Annotated[bool, typer.Option("--mobile", help="star: each host has an interface on every switch.")] = False,
    name: Annotated[str, typer.Option(help="Name of the lab; several may run side by side.")] = DEFAULT_NAME,
    substrate: Annotated[
        SubstrateName, typer.Option(help="netns: namespaces and real traffic; dummy: frames by API.")
    ] = SubstrateName.netns,
    pcie_mbps: Annotated[float | None, typer.Option(help="Bandwidth of each PCIe link and direction in Mb/s.")] = None,
    link: Annotated[
        LinkKind | None,
        typer.Option(
            help="PCIe links: VLAN tags, ports of type pcie (default if the Open vSwitch here has them), or these over "
            "TCP."
        ),
    ] = None,
    static_arp: Annotated[
        bool, typer.Option("--static-arp", help="Hosts know each other's MAC addresses from the start.")
    ] = False,
    slots: Annotated[
        int, typer.Option(min=0, help="Slots for network functions on each switch, and an agent.toml for nfagent.")
    ] = 0,
    slot_wires: Annotated[
        int, typer.Option(min=1, max=2, help="Interfaces of each slot: 2 for functions that packets pass through.")
    ] = 1,
    snic_speed: Annotated[
        float | None,
        typer.Option(help="Part of a core that each slot on an sNIC gets, as if its cores were slow; needs root."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="TCP port of nfagent and its dashboard; default: a free one.")
    ] = None,
    controller: Annotated[
        list[str] | None, typer.Option(help="OpenFlow controller for server.toml; may be repeated.")
    ] = None,
    listen: Annotated[
        list[str] | None, typer.Option(help="Address where oneswitchd listens, for server.toml; may be repeated.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach/--foreground", help="Return when ready, or stay.")] = False,
    output: FormatOption = Format.text,
) -> None:
    """Start a lab. In the foreground Ctrl-C ends it; if detached, uno-lab down does."""
    options = {
        "substrate": substrate.value,
        "pcie_mbps": pcie_mbps,
        "static_arp": static_arp,
        "controllers": tuple(controller or ()),
        "listen": tuple(listen or ()),
    }
    progress = Console(stderr=True, highlight=False)
    _signals_interrupt()
    with _errors_told():
        sized = mobile or switches is not None or hosts is not None
        if sized and spec is Spec.demo:
            raise SpecError("--switches, --hosts and --mobile size a star; leave out --spec demo")
        if sized or spec is Spec.star:
            wanted = LabSpec.star((switches or 2) - 1, 2 if hosts is None else hosts, mobile=mobile, **options)
        else:
            wanted = LabSpec.demo(**options)
        wanted = wanted.with_links(link) if link else wanted
        lab = Lab(wanted.with_slots(slots, slot_wires, snic_speed), name)
        with lab.start(lambda text: progress.print(f"[dim]{escape(text)}[/dim]"), detach=detach):
            more = _write_agent_toml(lab, port) if slots else ""
            _print_state(lab.state, output)
            if more:
                progress.print(more, soft_wrap=True)
            if not detach:
                _wait_for_end(lab, progress)


@app.command()
def down(name: NameArgument = DEFAULT_NAME) -> None:
    """End a lab and remove its files."""
    with _errors_told():
        directory = LabDirectory(name)
        if directory.state() is None and not directory.path.exists():
            directory.require_state()
        Lab.named(name).down()
        Console(stderr=True, highlight=False).print(f"lab {escape(name)} has ended")


@app.command(name="list")
def list_labs(output: FormatOption = Format.text) -> None:
    """List running labs."""
    labs = running_labs()
    if output is Format.json:
        typer.echo(json.dumps([dataclasses.asdict(state) for state in labs], indent=2))
        return
    table = Table("lab", "substrate", "switches", "hosts", "process", "directory", box=None, header_style="bold")
    for state in labs:
        counts = (str(len(state.switches)), str(len(state.hosts)), str(state.pid))
        table.add_row(state.name, state.substrate, *counts, state.directory)
    Console(highlight=False).print(table if labs else "no lab is running; start one with: uno-lab up")


@app.command()
def show(name: NameArgument = DEFAULT_NAME, output: FormatOption = Format.text) -> None:
    """Show a lab: its switches, links, hosts and ports, and the directory of its files."""
    with _errors_told():
        _print_state(LabDirectory(name).require_state(), output)


@app.command(
    name="exec", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def exec_(
    context: typer.Context,
    name: NameArgument,
    host: Annotated[str, typer.Argument(help="A host, or a switch for its namespace.")],
) -> None:
    """Run a program inside a host: uno-lab exec NAME HOST COMMAND [ARGUMENT]..."""
    with _errors_told():
        if not context.args:
            raise LabError(f"no command given; expected: uno-lab exec {name} {host} COMMAND [ARGUMENT]...")
        command, environment = enter_command(LabDirectory(name).require_state(), host)
        os.execve(command[0], [*command, *context.args], environment)


@app.command()
def kill(part: PartArgument, name: NameOption = DEFAULT_NAME) -> None:
    """Kill a part of a lab (SIGKILL)."""
    _break(breaking.kill, name, part)


@app.command()
def stop(part: PartArgument, name: NameOption = DEFAULT_NAME) -> None:
    """Let a part of a lab hang (SIGSTOP)."""
    _break(breaking.stop, name, part)


@app.command()
def start(part: PartArgument, name: NameOption = DEFAULT_NAME) -> None:
    """Let a part of a lab go on that hangs, or start a switch's daemon that was killed."""
    _break(breaking.start, name, part)


@app.command()
def wait(
    program: Annotated[str, typer.Argument(metavar="oneswitchd|nfagent", help="The program.")],
    controllers: Annotated[int, typer.Option(min=0, help="How many controllers oneswitchd must have.")] = 0,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds.")] = 60.0,
    name: NameOption = DEFAULT_NAME,
) -> None:
    """Wait until a program that you have started on a lab is ready; fail if it has ended."""
    with _errors_told():
        said = awaiting.wait(Lab.named(name), program, controllers, timeout_s)
        Console(stderr=True, highlight=False).print(escape(said))


@app.command()
def power(
    switch: Annotated[str, typer.Argument(help="A smart NIC.")],
    state: Annotated[Power, typer.Argument(help="Whether it has power.")],
    name: NameOption = DEFAULT_NAME,
) -> None:
    """Take a smart NIC's power, or give it back: its link, its daemons, the functions on it."""
    with _errors_told():
        nic = Lab.named(name).switch(switch)
        nic.power_off() if state is Power.off else nic.power_on()
        Console(stderr=True, highlight=False).print(
            f"{escape(switch)} has {'power' if state is Power.on else 'no power'}"
        )


@app.command()
def demo(
    chain: Annotated[
        bool, typer.Option("--chain", help="Two tenants, each with a firewall, an asset monitor and a load balancer.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C.")] = False,
    output: FormatOption = Format.text,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format=json.")] = False,
) -> None:
    """Deploy a load balancer, move it to the smart NIC as traffic rises, and recover it when the NIC dies."""
    if chain:
        from lab.chain.story import run  # imported here, because other commands do not need it
    else:
        from lab.demo.story import run
    _tell(run, Format.json if as_json else output, keep=keep)


@app.command()
def chaos(
    faults: Annotated[int, typer.Option(min=1, help="How many faults.")] = 20,
    seed: Annotated[int | None, typer.Option(help="Of the series; default: a new one.")] = None,
    output: FormatOption = Format.text,
) -> None:
    """Break parts of a server under traffic, up to three at once; tell which outages were shown and when they ended."""
    from lab.chaos.disk import in_own_mounts  # imported here, because other commands do not need it
    from lab.chaos.story import run

    in_own_mounts()
    series = secrets.randbelow(1_000_000) if seed is None else seed
    _tell(partial(run, faults=faults, seed=series), output)


@app.command()
def l7(
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C.")] = False,
    output: FormatOption = Format.text,
) -> None:
    """Route HTTP requests by a layer-7 load balancer, kill a web server, and move the balancer in mid-request."""
    from lab.l7.story import run  # imported here, because other commands do not need it

    _tell(run, output, keep=keep)


@app.command()
def tiara(
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C.")] = False,
    output: FormatOption = Format.text,
) -> None:
    """Balance load in three tiers (switch, smart NIC, software), and let parts of each die and hang under traffic."""
    from lab.tiara.story import run  # imported here, because other commands do not need it

    _tell(run, output, keep=keep)


@app.command()
def tour(
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C.")] = False,
    output: FormatOption = Format.text,
) -> None:
    """Show one server as one switch: a controller, pings, throughput, and a port that moves under traffic."""
    from lab.tour import run  # imported here, because other commands do not need it

    _tell(run, output, keep=keep)


def main() -> None:
    """Entry point of ``uno-lab``."""
    app()


def _write_agent_toml(lab: Lab, port: int | None) -> str:
    """Write nfagent's configuration; return what to tell about it."""
    from lab.agent import write_config
    from lab.control_plane import free_port

    chosen = port or free_port()
    path = write_config(lab, lab.directory / "nfagent", chosen)
    return (
        f"  network functions: nfagent serve --config {escape(str(path))}\n"
        f"  dashboard, then:   http://127.0.0.1:{chosen}/dashboard"
    )


def _signals_interrupt() -> None:
    """Let signals that end this process end its lab cleanly, as Ctrl-C does."""

    def interrupted(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)


def _wait_for_end(lab: Lab, progress: Console) -> None:
    """Wait for a signal or the lab's own end."""
    try:
        progress.print("[bold]ready[/bold]; Ctrl-C ends it")
        lab.wait()
        raise LabError(f"lab {lab.name} has ended, or another process ended it")
    except KeyboardInterrupt:
        progress.print(f"ending lab {escape(lab.name)}")


def _break(change: Callable[[Lab, str], str], name: str, part: str) -> None:
    with _errors_told():
        Console(stderr=True, highlight=False).print(escape(change(Lab.named(name), part)), soft_wrap=True)


def _tell(run: Callable[..., bool], output: Format, **more: bool) -> None:
    """Run a story for people or as JSON; exit with status 1 if one of its checks does not hold."""
    console = Console(stderr=output is Format.json, highlight=False)
    with _errors_told():
        if not run(console, as_json=output is Format.json, **more):
            raise typer.Exit(1)


@contextmanager
def _errors_told() -> Iterator[None]:
    """Print errors without a traceback, and exit with status 1."""
    try:
        yield
    except LabError as error:
        Console(stderr=True, highlight=False).print(
            f"[bold red]uno-lab:[/bold red] {escape(str(error))}", soft_wrap=True
        )
        raise typer.Exit(1) from error


def _print_state(state: LabState, output: Format) -> None:
    if output is Format.json:
        typer.echo(json.dumps(dataclasses.asdict(state), indent=2))
        return
    console = Console(highlight=False)
    console.print(f"[bold]lab {escape(state.name)}[/bold] ({state.substrate}), process {state.pid}")
    if state.server_toml is not None:
        console.print(f"  configuration: {escape(state.server_toml)}", soft_wrap=True)
    for switch in state.switches:
        running = ", ".join(f"{daemon} {pid}" for daemon, pid in switch.processes.items()) or "nothing runs"
        console.print(f"  switch {switch.name}: {escape(switch.directory)} ({running})", soft_wrap=True)
    for link in state.links:
        rate = "no limit" if link.mbps is None else f"{link.mbps:g} Mb/s"
        up_or_down = "up" if link.up else "[red]down[/red]"
        kind = link.type if link.address is None else f"{link.type} at {link.address}"
        console.print(f"  PCIe link {link.hypervisor} - {link.local} of {link.switch}: {up_or_down}, {kind}, {rate}")
    table = Table(
        "host", "address", "MAC", "interface", "plugged into", "", box=None, header_style="bold", pad_edge=True
    )
    for host in state.hosts:
        for interface in host.interfaces:
            active = "active" if interface.name == host.active and len(host.interfaces) > 1 else ""
            place = f"{interface.port} of {interface.switch}"
            table.add_row(host.name, host.address, host.mac, interface.name, place, active)
    console.print(table)
    ports = Table("port", "name", "interface", "switch", box=None, header_style="bold", pad_edge=True)
    for port in state.ports:
        ports.add_row(str(port.number), port.name, port.interface, port.switch)
    console.print(ports)
    for note in state.notes:
        console.print(f"  note: {escape(note)}", soft_wrap=True)
