"""The command ``unoctl trace``: finds the port, makes the packet, traces it and prints the tree."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from server.config import ServerConfig
from server.errors import ApiUnreachableError, UsageError
from server.oneswitchd.answers import VirtualPort
from server.oneswitchd.client import Client
from unoctl.render import View, tree_text
from unoctl.trace import packet_text, through
from unoctl.trace.model import Outcome, Pass, Stage, Step, Trace, trace_json
from unoctl.trace.through import Function, Passage
from unoctl.trace.tracer import Tracer

Line = tuple[int, Text | str]
# Steps in which ofproto/trace continues a recirculated packet; the tree shows that anyway.
_BOOKKEEPING = ("thaw", "Resuming from ", "Restoring actions: ", "unroll_xlate(", "restored state: ")
_STYLES = {"exit": "green", "pcie": "blue", "packet-in": "blue", "dropped": "red", "not-followed": "bold red"}
_WITH_BYTES = ("exit", "pcie", "packet-in")


def run(
    server: ServerConfig,
    virtual_port: str,
    packet: str,
    ct_next: Sequence[str],
    show_hex: bool,
    functions: Sequence[Function] | None = None,
) -> View:
    """Trace one packet; the exit status is 1 where the trace ended before the packet.

    If oneswitchd is down, the ports are those of the configuration file: the rules are still on the switches.

    Args:
        server: the server.
        virtual_port: where the packet enters, by name or number.
        packet: in flow syntax, or its bytes.
        ct_next: connection states.
        show_hex: print bytes, too.
        functions: network functions to follow it through; None: the trace ends at their ports.
    """
    ports, port, notes = _ports(server, virtual_port)
    tracer = Tracer(server, ports, ct_next)
    trace = tracer.trace(port, packet_text.to_bytes(packet), notes)
    if functions is None:
        return View(trace_json(trace), tree_text(_lines(trace, show_hex)), 0 if trace.complete else 1)
    passages = through.follow(tracer, trace, functions, ports)
    data = trace_json(trace) | {"functions": [passage.to_json() for passage in passages]}
    complete = trace.complete and all(passage.complete for passage in passages)
    return View(data, tree_text(_lines_through(trace, passages, show_hex)), 0 if complete else 1)


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
    found = [port for port in ports if virtual_port in (str(port.number), port.name)]
    if not found:
        raise UsageError(f"{silent}, and {server.path} has no port '{virtual_port}'")
    return ports, found[0], (f"{silent}; ports are those of {server.path}, flow-ids unknown",)


def _lines_through(trace: Trace, passages: Sequence[Passage], show_hex: bool) -> Iterator[Line]:
    yield from _lines(trace, show_hex)
    for passage in passages:
        yield 0, Text(f"It {passage.text}", style="bold magenta")
        if passage.trace is not None:
            yield from _lines(passage.trace, show_hex)
    if passages:
        names = [passage.function.name for passage in passages]
        ends = passages[-1].trace.exits if passages[-1].trace else []
        yield 0, Text.assemble("Passes: ", (" -> ".join([trace.name, *names, *map(_leaving, ends)]), "bold"))


def _lines(trace: Trace, show_hex: bool) -> Iterator[Line]:
    yield 0, Text.assemble(f"Packet into port {trace.port} ", (trace.name, "bold"), f", {len(trace.data)} bytes")
    yield 1, Text(trace.flow, style="dim")
    for note in trace.notes:
        yield 1, Text(note, style="yellow")
    yield from _stage_lines(0, trace.stage, show_hex)
    yield 0, Text.assemble("Leaves through: ", (", ".join(map(_leaving, trace.exits)) or "no port", "bold"))


def _leaving(outcome: Outcome) -> str:
    exit_ = outcome.details
    if exit_["local"]:
        return f"LOCAL of {exit_['switch']}"
    name = exit_["interface"] if exit_["port"] is None else f"port {exit_['port']} {exit_['name']}"
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
    size = f", {len(outcome.data)} bytes" if outcome.type in _WITH_BYTES else ""
    yield depth, Text.assemble(("=> ", "bold"), (outcome.headline + size, _STYLES.get(outcome.type, "")))
    for condition in outcome.conditions:
        yield depth + 1, Text(f"if {condition}", style="yellow")
    if flow := outcome.details.get("flow"):
        yield depth + 1, Text(flow, style="dim")
    if show_hex and outcome.type in _WITH_BYTES:
        yield depth + 1, outcome.data.hex()
    if stage := outcome.details.get("stage"):
        yield from _stage_lines(depth + 1, stage, show_hex)
    for branch in outcome.details.get("branches", ()):
        if branch.share != branch.shares:
            yield depth + 1, Text(f"{branch.share} of {branch.shares} hash values:", style="yellow")
        yield from _pass_lines(depth + 1, branch.pass_, show_hex)
