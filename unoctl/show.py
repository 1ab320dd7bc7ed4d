"""``unoctl show``: the one switch, and the server behind it."""

from collections.abc import Iterator

from rich.text import Text

from server.config import ServerConfig
from server.oneswitchd.answers import (
    BridgeState,
    Controller,
    Gathered,
    LinkState,
    Status,
    SwitchState,
    VirtualPort,
)
from server.oneswitchd.client import Client, as_json
from unoctl.render import View, state, tree_text

Line = tuple[int, Text | str]


def collect(server: ServerConfig, client: Client) -> View:
    """Query oneswitchd and combine its answers.

    Raises:
        ApiError: oneswitchd does not answer or refuses.
    """
    status = client.status()
    ports = client.ports()
    data = {
        "config": str(server.path),
        "status": as_json(status),
        "ports": [as_json(port) for port in ports],
    }
    lines = [*_virtual_lines(status, ports), *_server_lines(server, status, ports)]
    return View(data, tree_text(lines))


def _virtual_lines(status: Status, ports: list[VirtualPort]) -> Iterator[Line]:
    yield 0, Text.assemble("datapath ", (status.datapath_id, "bold"))
    yield 1, f"oneswitchd {status.version}, up {duration(status.uptime_s)}, refused {status.refused} messages"
    virtual = status.virtual
    yield 1, f"{virtual.flows} flows, {virtual.groups} groups, {virtual.meters} meters"
    if virtual.gathered:
        yield from _gathered_lines(virtual.gathered)
    for method in status.listen:
        yield 1, f"listens on {method}"
    for controller in status.controllers:
        yield from _controller_lines(controller)
    for port in ports:
        yield 1, Text.assemble(f"Port {port.number} ", (port.name, "bold"), ": ", state(port.state), *_flags(port))
        if port.reason:
            yield 2, port.reason
        if port.owner:
            yield 2, f"belongs to {port.owner}"


def _gathered_lines(gathered: Gathered) -> Iterator[Line]:
    yield 1, f"all ports execute at {gathered.at}: {gathered.reason}"
    if gathered.choice:
        yield 2, f"there, because {gathered.choice}"


def _flags(port: VirtualPort) -> Iterator[str]:
    if port.config:
        yield " " + " ".join(port.config)


def _controller_lines(controller: Controller) -> Iterator[Line]:
    role = f", {controller.role}" if controller.role else ""
    yield 1, Text.assemble(f"Controller {controller.target}: ", state(controller.state), role)
    if controller.last_error:
        yield 2, controller.last_error


def _server_lines(server: ServerConfig, status: Status, ports: list[VirtualPort]) -> Iterator[Line]:
    yield 0, f"server {server.path}"
    for switch in status.switches:
        role = "hub" if switch.hub else "sNIC"
        yield 1, Text.assemble("Switch ", (switch.name, "bold"), f" ({role})")
        yield from _bridge_lines("virt", switch.virt, _virt_counts(switch))
        yield from _bridge_lines("edge", switch.edge, f"{switch.edge_flows} flows, {switch.repairs} repairs")
        if switch.link:
            ends = f"{switch.link.hypervisor} -- {switch.link.local}"
            yield 2, Text.assemble(f"PCIe link {ends}: ", state(switch.link.state), *_type(switch.link))
        for port in ports:
            if port.switch == switch.name:
                yield from _home_lines(port)
                yield from _offload_lines(port, status)


def _type(link: LinkState) -> Iterator[str]:
    if link.reason:
        yield f", type {link.type or 'unknown'}: {link.reason}"


def _virt_counts(switch: SwitchState) -> str:
    return f"{switch.physical_flows} flows, {switch.physical_groups} groups, {switch.physical_meters} meters"


def _bridge_lines(name: str, bridge: BridgeState, counts: str) -> Iterator[Line]:
    yield 2, Text.assemble(f"Bridge {name} {bridge.target}: ", state(bridge.state), f", {counts}")
    if bridge.last_error:
        yield 3, bridge.last_error


def _home_lines(port: VirtualPort) -> Iterator[Line]:
    flow_id = "none" if port.flow_id is None else str(port.flow_id)
    yield 2, Text.assemble(f"Port {port.number} ", (port.name, "bold"), f" on {port.interface}, flow-id {flow_id}")
    if port.executing != port.switch:
        yield 3, f"executed at {port.executing}, ingress flow-id {port.ingress_id}"
    if port.move and (port.move.switch, port.move.interface) == (port.switch, port.interface):
        yield 3, f"its executor changes to {port.move.executor}: {port.move.stage}"
    elif port.move:
        yield 3, f"moving to {port.move.switch} {port.move.interface}: {port.move.stage}"


def _offload_lines(port: VirtualPort, status: Status) -> Iterator[Line]:
    for offload in status.offload:
        if offload.port == port.number:
            writer = "" if offload.writer else ", no writer"
            counts = f"{offload.flows} flows to {offload.targets} targets, {offload.packets} packets carried"
            yield 3, f"offloads {counts}{writer}"


def duration(seconds: float) -> str:
    """Format a duration for people: ``42 s``, ``3 min 5 s``, ``2 h 7 min``, ``4 d 1 h``."""
    whole = int(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for name, size in units:
        count, whole = divmod(whole, size)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
