"""The command ``unoctl trace``: finds the port, makes the packet, traces it and prints the tree."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from server.config import ServerConfig
from server.errors import ApiUnreachableError, UsageError
from server.oneswitchd.answers import VirtualPort
from server.oneswitchd.client import Client
from unoctl.render import View, tree_text
from unoctl.trace import packet_text
from unoctl.trace.model import (
    Crossing,
    Dropped,
    Exit,
    NotFollowed,
    Outcome,
    Pass,
    Recirculated,
    Stage,
    Step,
    ToController,
    Trace,
    trace_json,
)
from unoctl.trace.tracer import Tracer

Line = tuple[int, Text | str]
# Steps in which ofproto/trace continues a recirculated packet; the tree shows that anyway.
_BOOKKEEPING = ("thaw", "Resuming from ", "Restoring actions: ", "unroll_xlate(", "restored state: ")


def run(server: ServerConfig, virtual_port: str, packet: str, ct_next: Sequence[str], show_hex: bool) -> View:
    """Trace one packet; the exit status is 1 where the trace ended before the packet.

    If oneswitchd is down, the ports are those of the configuration file: the rules are still on the switches.

    Raises:
        UsageError: there is no such port or packet.
        TraceError, ToolError, ConfigError: the port's switch cannot be asked.
    """
    ports, port, notes = _ports(server, virtual_port)
    trace = Tracer(server, ports, ct_next).trace(port, packet_text.to_bytes(packet), notes)
    return View(trace_json(trace), tree_text(_lines(trace, show_hex)), 0 if trace.complete else 1)


def _ports(server: ServerConfig, virtual_port: str) -> tuple[list[VirtualPort], VirtualPort, tuple[str, ...]]:
    try:
        with Client.of(server.oneswitchd) as client:
            return client.ports(), client.find_port(virtual_port), ()
    except ApiUnreachableError:
        ports = [
            VirtualPort(number=port.number, name=port.shown_name, switch=port.switch, interface=port.interface)
            for port in server.port
        ]
    silent = f"oneswitchd does not answer at {server.oneswitchd.api}"
    for port in ports:
        if virtual_port in (str(port.number), port.name):
            return ports, port, (f"{silent}; ports are those of {server.path}, flow-ids unknown",)
    raise UsageError(f"{silent}, and {server.path} has no port '{virtual_port}'")


def _lines(trace: Trace, show_hex: bool) -> Iterator[Line]:
    yield 0, Text.assemble(f"Packet into port {trace.port} ", (trace.name, "bold"), f", {len(trace.data)} bytes")
    yield 1, Text(trace.flow, style="dim")
    for note in trace.notes:
        yield 1, Text(note, style="yellow")
    yield from _stage_lines(0, trace.stage, show_hex)
    leaving = ", ".join(map(_leaving, trace.exits)) or "no port"
    yield 0, Text.assemble("Leaves through: ", (leaving, "bold"))


def _leaving(outcome: Exit) -> str:
    if outcome.local:
        return f"LOCAL of {outcome.switch}"
    name = f"port {outcome.port} {outcome.name}" if outcome.port is not None else outcome.interface
    return f"{name} ({'; '.join(outcome.conditions)})" if outcome.conditions else name


def _stage_lines(depth: int, stage: Stage, show_hex: bool) -> Iterator[Line]:
    yield depth, Text.assemble((stage.switch, "bold"), f", in at {stage.interface} (port {stage.ofport} of edge)")
    yield from _pass_lines(depth + 1, stage.pass_, show_hex)


def _pass_lines(depth: int, translated: Pass, show_hex: bool) -> Iterator[Line]:
    for step in translated.steps:
        if step.kind != "bridge" and not step.text.startswith(_BOOKKEEPING):
            yield depth + step.depth, _step(step)
    yield depth, Text(f"data-path actions: {translated.datapath_actions or 'none'}", style="dim")
    for reason in translated.slow_path:
        yield depth, Text(f"slow path: {reason}", style="yellow")
    for outcome in translated.outcomes:
        yield from _outcome_lines(depth, outcome, show_hex)


def _step(step: Step) -> Text:
    if step.kind == "rule":
        return Text.assemble((f"{step.bridge} ", "cyan"), step.text)
    mark = {"detail": "-> ", "warning": ">> "}.get(step.kind, "")
    return Text(mark + step.text, style="yellow" if step.kind == "warning" else "")


def _outcome_lines(depth: int, outcome: Outcome, show_hex: bool) -> Iterator[Line]:
    yield depth, Text.assemble(("=> ", "bold"), _headline(outcome))
    for condition in outcome.conditions:
        yield depth + 1, Text(f"if {condition}", style="yellow")
    if isinstance(outcome, Exit) and outcome.flow:
        yield depth + 1, Text(outcome.flow, style="dim")
    if show_hex and isinstance(outcome, Exit | Crossing | ToController):
        yield depth + 1, outcome.data.hex()
    if isinstance(outcome, Crossing):
        yield from _stage_lines(depth + 1, outcome.stage, show_hex)
    elif isinstance(outcome, Recirculated):
        for branch in outcome.branches:
            if branch.share != branch.shares:
                yield depth + 1, Text(f"{branch.share} of {branch.shares} hash values:", style="yellow")
            yield from _pass_lines(depth + 1, branch.pass_, show_hex)


def _headline(outcome: Outcome) -> tuple[str, str]:
    """Return an outcome's line and its style."""
    size = f"{len(outcome.data)} bytes"
    match outcome:
        case Exit(local=True):
            return f"{outcome.switch}'s own port of bridge {outcome.interface} (LOCAL), {size}", "yellow"
        case Exit(port=None):
            return f"exit at {outcome.interface} of {outcome.switch}, which is not a virtual port, {size}", "yellow"
        case Exit():
            where = f"interface {outcome.interface} of {outcome.switch}"
            return f"exit at port {outcome.port} {outcome.name}, {where}, {size}", "green"
        case Crossing(flow_id=tag):
            shown = f"flow-id {tag.vid} = {tag.meaning}" if tag else "no flow-id"
            link = f"{outcome.interface} -- {outcome.peer_interface} of {outcome.peer_switch}"
            return f"PCIe {link}, {shown}, {size}", "blue"
        case ToController():
            cut = "" if outcome.max_len == 0xFFFF else f", at most {outcome.max_len}"
            return f"packet-in to the controllers ({outcome.reason}, cookie {outcome.cookie}), {size}{cut}", "blue"
        case Recirculated():
            return f"recirculated: {outcome.why}", ""
        case Dropped():
            return f"dropped: {outcome.reason}", "red"
        case NotFollowed():
            return f"not followed at {outcome.switch}: {outcome.reason}", "bold red"
        case _:
            return outcome.TYPE, ""
