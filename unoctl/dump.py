"""``unoctl dump-ports`` and ``unoctl dump-flows``."""

from dataclasses import asdict
from enum import StrEnum

from rich.text import Text

from server.config import ServerConfig
from server.errors import ToolError
from server.oneswitchd.answers import VirtualPort
from server.oneswitchd.client import Client, as_json
from server.openvswitch import openflow_tools
from unoctl.flow_text import Flow, PortCounters, parse_flows, parse_ports
from unoctl.render import View, table, tree_text


class Bridge(StrEnum):
    """A bridge of a switch."""

    VIRT = "virt"
    EDGE = "edge"


class Kind(StrEnum):
    """Kind of rules: the controllers' own, or their translations on the switches."""

    VIRTUAL = "virtual"
    PHYSICAL = "physical"


def ports(server: ServerConfig, client: Client) -> View:
    """Show virtual ports with home, interface, flow-id, state, and their counters as a controller would get them.

    Without a management socket the ports are shown without counters; the data contain the reason.

    Raises:
        ApiError: oneswitchd does not answer or refuses.
        ConfigError: no management socket is configured.
    """
    answer = client.ports()
    counters, problem = _counters(server)
    data = {
        "ports": [_port_record(port, counters.get(str(port.number))) for port in answer],
        "counters_missing": problem,
    }
    columns = ("PORT", "NAME", "STATE", "SWITCH", "INTERFACE", "EXECUTOR", "FLOW-ID", "OWNER")
    counted = ("RX-PKTS", "RX-BYTES", "TX-PKTS", "TX-BYTES", "DROPS", "ERRORS")
    rows = [(*_port_cells(port), *_counter_cells(counters.get(str(port.number)))) for port in answer]
    return View(data, table((*columns, *counted), rows, right=("PORT", "FLOW-ID", *counted)))


def _counters(server: ServerConfig) -> tuple[dict[str, PortCounters], str | None]:
    try:
        text = openflow_tools.dump_ports(server.management_target(), server.oneswitchd.tls)
    except ToolError as error:
        return {}, str(error)
    return parse_ports(text), None


def _port_record(port: VirtualPort, counters: PortCounters | None) -> dict[str, object]:
    return {**as_json(port), "counters": asdict(counters) if counters else None}


def _port_cells(port: VirtualPort) -> tuple[object, ...]:
    return (port.number, port.name, port.state, port.switch, port.interface, port.executing, port.flow_id, port.owner)


def _counter_cells(counters: PortCounters | None) -> tuple[int | None, ...]:
    if counters is None:
        return (None,) * 6
    return (
        counters.rx_packets,
        counters.rx_bytes,
        counters.tx_packets,
        counters.tx_bytes,
        _sum(counters.rx_dropped, counters.tx_dropped),
        _sum(counters.rx_errors, counters.tx_errors),
    )


def _sum(first: int | None, second: int | None) -> int | None:
    if first is None and second is None:
        return None
    return (first or 0) + (second or 0)


def flows(server: ServerConfig, kind: Kind, switch: str | None, bridge: Bridge | None) -> View:
    """Show rules of the one switch, or of the bridges under it.

    Args:
        server: the server.
        kind: virtual or physical.
        switch: only this one (physical); None: all.
        bridge: only this one (physical); None: both.

    Raises:
        ConfigError: no such switch, or no management socket.
        ToolError: oneswitchd's management socket does not answer (virtual).
    """
    if kind is Kind.VIRTUAL:
        text = openflow_tools.dump_flows(server.management_target(), server.oneswitchd.tls)
        parsed = parse_flows(text)
        data = {"kind": "virtual", "flows": [flow.as_json() for flow in parsed]}
        return View(data, _flow_lines(parsed))
    return _physical(server, switch, bridge)


def _physical(server: ServerConfig, switch: str | None, bridge: Bridge | None) -> View:
    """Show every bridge that answers; name the others, which make the exit status 1."""
    switches = [server.find_switch(switch)] if switch else list(server.switch)
    bridges = [bridge] if bridge else list(Bridge)
    data: list[dict[str, object]] = []
    body = Text()
    failed = False
    for one in switches:
        for name in bridges:
            body.append("\n" if body else "")
            body.append(f"{one.name} {name}:\n", style="bold")
            record: dict[str, object] = {"switch": one.name, "bridge": str(name)}
            try:
                parsed = parse_flows(openflow_tools.dump_flows(one.target(name), server.oneswitchd.tls))
            except ToolError as error:
                failed = True
                record["error"] = str(error)
                body.append_text(tree_text([(1, Text(str(error), style="red"))]))
            else:
                record["flows"] = [flow.as_json() for flow in parsed]
                body.append_text(_flow_lines(parsed, depth=1))
            data.append(record)
    return View({"kind": "physical", "bridges": data}, body, exit_status=1 if failed else 0)


def _flow_lines(parsed: list[Flow], depth: int = 0) -> Text:
    return tree_text((depth, _flow_line(flow)) for flow in parsed)


def _flow_line(flow: Flow) -> Text:
    head = f"cookie={flow.cookie:#x}, table={flow.table}, n_packets={flow.packets}, n_bytes={flow.bytes}"
    for name, value in (("idle_timeout", flow.idle_timeout_s), ("hard_timeout", flow.hard_timeout_s)):
        head += f", {name}={value}" if value else ""
    flags = "".join(f" {flag}" for flag in flow.flags)
    match = ",".join((f"priority={flow.priority}", *flow.match))
    actions = ",".join(flow.actions)
    return Text.assemble((f"{head},{flags} ", "dim"), match, (" actions=", "bold"), actions)
