"""Rules on the switches beside what they should be.

``edge`` is compared with the table "Rules in edge" of docs/architecture.md, worked out here from the ports alone: a
second opinion, not oneswitchd's. ``virt`` is compared with the virtual rules: every virtual rule on every switch that
runs a pipeline it can match in, and nothing else there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from server.config import ServerConfig
from server.errors import ServerError
from server.names import MULTICAST_VIDS
from server.oneswitchd.answers import VirtualPort
from unoctl.doctor.facts import Facts, SwitchFacts
from unoctl.doctor.findings import Finding, Topic
from unoctl.flow_text import Flow, split_field

TOPIC = Topic("drift")
SHOWN = 3
# Of every rule that oneswitchd has in edge.
PRIORITY = 100
# oneswitchd's hidden group that stands for FLOOD and ALL in the rules on the switches.
FLOOD_GROUP = "group:4294966784"
FLOODS = ("FLOOD", "ALL")
_REPAIR = "oneswitchd repairs it when it next looks; if it stays: restart oneswitchd, and report it"

Match = frozenset[str]
Actions = tuple[str, ...]

UNTAGGED, TAGGED = "vlan_tci=0x0000/0x1fff", "vlan_tci=0x1000/0x1000"
# The detour of what has a tag already: the group that encloses the one that has it parsed anew.
REPARSED: Actions = ("group:2",)


@dataclass(frozen=True)
class EdgeRule:
    """A rule that ``edge`` should have; ``why`` says which line of the table it comes from."""

    match: Match
    actions: Actions
    why: str


def drift(facts: Facts) -> Iterator[Finding]:
    """Compare both bridges of every switch that answers."""
    try:
        ports = facts.mapped
    except ServerError:
        yield TOPIC.warn("rules", "not compared: oneswitchd does not answer", "see oneswitchd above")
        return
    if any(port.move for port in ports):
        yield TOPIC.warn("rules", "not compared: a port is moving", "look again when the move is done")
        return
    for switch in facts.switches:
        if switch.problem("edge_flows") is None and switch.problem("edge_ports") is None:
            yield _edge(facts.server, switch, ports)
    yield from _virt(facts, ports)


def _edge(server: ServerConfig, switch: SwitchFacts, ports: list[VirtualPort]) -> Finding:
    subject = f"{switch.name} edge"
    wanted = {rule.match: rule for rule in edge_rules(server, switch.name, switch.edge_ports, ports)}
    # Of oneswitchd's priority: any other rule follows from no port, and may hide one that does.
    found = {frozenset(flow.match): flow for flow in switch.edge_flows if (flow.table, flow.priority) == (0, PRIORITY)}
    multicast = {match for match in found if _is_multicast(match, switch)}
    wrong = [
        f"a rule that follows from no port: {_shown(flow)}" for flow in switch.edge_flows if flow.priority != PRIORITY
    ]
    wrong += [f"{rule.why}: no rule" for match, rule in wanted.items() if match not in found]
    for match, flow in found.items():
        rule = wanted.get(match)
        if rule is not None and not _does(flow, rule):
            wrong.append(f"{rule.why}: actions are {','.join(flow.actions)}, not {','.join(rule.actions)}")
        elif rule is None and match not in multicast:
            wrong.append(f"a rule that follows from no port: {_shown(flow)}")
    if server.pcie_ports(switch.name) and ports and not multicast:
        wrong.append("no multicast rule")
    if wrong:
        return TOPIC.fail(subject, _some(wrong), _REPAIR)
    return TOPIC.ok(subject, f"{len(found)} rules are as derived")


def edge_rules(
    server: ServerConfig, here: str, numbers: dict[str, int | None], ports: Iterable[VirtualPort]
) -> Iterator[EdgeRule]:
    """The unicast rules of docs/architecture.md for one switch.

    Args:
        server: for the PCIe links.
        here: the switch.
        numbers: OpenFlow port numbers on its ``edge``, by name.
        ports: the virtual ports; one without flow-id has local rules only.
    """
    for port in ports:
        patch, interface = numbers.get(f"edge-{port.number}"), numbers.get(port.interface)
        subject = f"port {port.number} ({port.name})"
        if port.switch == here and patch is not None and interface is not None:
            if port.executing == here:
                yield EdgeRule(_match(interface), (f"output:{patch}",), f"{subject} in")
            yield EdgeRule(_match(patch), (f"output:{interface}",), f"{subject} out")
            for link in server.pcie_ports(here):
                if (number := numbers.get(link.interface)) is not None:
                    actions = ("pop_vlan", f"output:{interface}")
                    yield EdgeRule(
                        _match(number, port.flow_id), actions, f"{subject} delivered from {link.peer_switch}"
                    )
        elif port.switch != here:
            yield from _remote_rules(server, here, numbers, port, patch)
        if port.executing != port.switch:
            yield from _execution_rules(server, here, numbers, port)


def _execution_rules(
    server: ServerConfig, here: str, numbers: dict[str, int | None], port: VirtualPort
) -> Iterator[EdgeRule]:
    """The way of a port's packets to the switch that executes them, and into its ``virt``."""
    subject = f"port {port.number} ({port.name})"
    goal, home = port.executing, port.switch
    if port.ingress_id is None:
        return
    if here == home:
        source, out = numbers.get(port.interface), numbers.get(server.toward(here, goal).interface)
        actions = ("push_vlan:0x8100", f"set_field:{port.ingress_id + 0x1000}->vlan_vid", f"output:{out}")
        match = None if source is None else _match(source)
    elif here == goal:
        source, out = numbers.get(server.toward(here, home).interface), numbers.get(f"edge-{port.number}")
        actions = ("pop_vlan", "encap(nsh)", "decap()", f"output:{out}")
        match = None if source is None else _match(source, port.ingress_id)
    elif here == server.hypervisor.name:
        source, out = numbers.get(server.toward(here, home).interface), numbers.get(server.toward(here, goal).interface)
        actions = (f"output:{out}",)
        match = None if source is None else _match(source, port.ingress_id)
    else:
        return
    if match is not None and out is not None:
        yield EdgeRule(match, actions, f"{subject} to be executed at {goal}")


def _remote_rules(
    server: ServerConfig, here: str, numbers: dict[str, int | None], port: VirtualPort, patch: int | None
) -> Iterator[EdgeRule]:
    out = numbers.get(server.toward(here, port.switch).interface)
    if out is None or port.flow_id is None:
        return
    subject = f"port {port.number} ({port.name})"
    if patch is not None:
        tag = ("push_vlan:0x8100", f"set_field:{port.flow_id + 0x1000}->vlan_vid", f"output:{out}")
        yield EdgeRule(_match(patch) | {UNTAGGED}, tag, f"{subject} toward {port.switch}")
        yield EdgeRule(_match(patch) | {TAGGED}, REPARSED, f"{subject} toward {port.switch}, tagged")
    if here != server.hypervisor.name:
        return
    for link in server.pcie_ports(here):
        number = numbers.get(link.interface)
        if link.peer_switch != port.switch and number is not None:
            yield EdgeRule(_match(number, port.flow_id), (f"output:{out}",), f"{subject} in transit")


def _does(flow: Flow, rule: EdgeRule) -> bool:
    """Whether a rule's actions are those that it should have; of the detour only where it leads."""
    if rule.actions == REPARSED:
        return any(REPARSED[0] in action for action in flow.actions)
    return _plain(flow.actions) == _plain(rule.actions)


def _match(in_port: int, vid: int | None = None) -> Match:
    terms = {f"in_port={in_port}"}
    return frozenset(terms if vid is None else terms | {f"dl_vlan={vid}"})


def _is_multicast(match: Match, switch: SwitchFacts) -> bool:
    """A rule for flooded packets: out of ``edge-mc``, or with a multicast tag from a PCIe link."""
    fields = dict(split_field(term) for term in match)
    if fields.get("in_port") == str(switch.edge_ports.get("edge-mc")):
        return True
    vid = fields.get("dl_vlan") or ""
    return vid.isdecimal() and int(vid) in MULTICAST_VIDS


def _virt(facts: Facts, ports: list[VirtualPort]) -> Iterator[Finding]:
    try:
        virtual, executors = facts.virtual_flows, set(facts.status.virtual.executors)
    except ServerError as error:
        yield TOPIC.warn("virt", f"not compared: {error}", "see oneswitchd above")
        return
    at = {port.number: port.executing for port in ports}
    for switch in facts.switches:
        if switch.problem("virt_flows") is None:
            yield compare_virt(switch.name, virtual, switch.virt_flows, at, executors)


def compare_virt(
    name: str, virtual: list[Flow], physical: list[Flow], at: dict[int, str], executors: set[str]
) -> Finding:
    """The virtual rules beside those of one switch's ``virt``.

    Args:
        name: the switch.
        virtual: the controllers' rules.
        physical: the switch's.
        at: the switch that runs the pipeline of each virtual port.
        executors: the switches that run any.
    """
    there = {flow.key: flow for flow in physical}
    known = {flow.key for flow in virtual}
    wanted = [flow for flow in virtual if _belongs(flow, name, at, executors)]
    wrong = [f"missing: {_shown(flow)}" for flow in wanted if flow.key not in there]
    wrong += [
        f"other actions: {_shown(flow)}"
        for flow in wanted
        if flow.key in there and _plain(there[flow.key].actions) != _plain(flow.actions)
    ]
    wrong += [f"nobody's: {_shown(flow)}" for flow in physical if flow.key not in known]
    if wrong:
        return TOPIC.fail(f"{name} virt", _some(wrong), _REPAIR)
    return TOPIC.ok(f"{name} virt", f"{len(physical)} rules, as the {len(virtual)} virtual ones want them")


def _belongs(flow: Flow, name: str, at: dict[int, str], executors: set[str]) -> bool:
    """A rule that matches in_port goes where that port's pipeline runs, any other to every executor."""
    for term in flow.match:
        field, _, value = term.partition("=")
        if field == "in_port":
            return value.isdecimal() and at.get(int(value)) == name
    return name in executors


def _plain(actions: Iterable[str]) -> Actions:
    """Actions in one spelling: ``output:3`` for ``3``, FLOOD for its group, no parameters that are the default."""
    plain: list[str] = []
    for action in actions:
        word = action.removeprefix("output:")
        if word == FLOOD_GROUP or word in FLOODS:
            word = FLOODS[0]
        plain.append(word.replace(FLOOD_GROUP, FLOODS[0]))
    return tuple(plain)


def _shown(flow: Flow) -> str:
    match = ",".join((f"priority={flow.priority}", *flow.match))
    return f"table={flow.table},{match}"


def _some(problems: list[str]) -> str:
    more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(problems[:SHOWN]) + more
