"""oneswitchd: whether it answers, and its view of switches, controllers and ports."""

from collections.abc import Iterator

from server.errors import ApiError, ConfigError, TextError, ToolError
from server.oneswitchd.answers import BridgeState, Controller, Status, SwitchState
from unoctl.doctor.facts import Facts
from unoctl.doctor.findings import Finding, Topic
from unoctl.doctor.mending import restart_oneswitchd, restart_switch

TOPIC = Topic("oneswitchd")


def daemon(facts: Facts) -> Iterator[Finding]:
    """Check the daemon itself; if it does not answer, skip the rest."""
    try:
        status = facts.status
    except ApiError as error:
        yield TOPIC.fail("REST", str(error), restart_oneswitchd(facts))
        return
    yield TOPIC.ok("REST", f"{facts.server.oneswitchd.api} answers, version {status.version}")
    yield from _identity(facts, status)
    yield from _management(facts)
    for switch in status.switches:
        yield from _switch(facts, switch)
    yield from _controllers(status)
    yield from _ports(facts)


def _identity(facts: Facts, status: Status) -> Iterator[Finding]:
    datapath_id = facts.server.oneswitchd.datapath_id
    if status.datapath_id.lower() != datapath_id.lower():
        found = f"it runs as {status.datapath_id}, but {facts.server.path} says {datapath_id}"
        yield TOPIC.fail("datapath id", found, "restart oneswitchd with this file, or give --config the other one")
    running = {switch.name for switch in status.switches}
    configured = {switch.name for switch in facts.server.switch}
    if running != configured:
        found = f"it controls {_names(running)}, but {facts.server.path} has {_names(configured)}"
        yield TOPIC.fail("switches", found, "restart oneswitchd with this file")


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _management(facts: Facts) -> Iterator[Finding]:
    try:
        count = len(facts.virtual_flows)
    except ConfigError as error:
        yield TOPIC.warn("management socket", str(error), 'add a "punix:" method to [oneswitchd] listen')
    except (ToolError, TextError) as error:
        yield TOPIC.fail("management socket", str(error), "restart oneswitchd; see its log")
    else:
        yield TOPIC.ok("management socket", f"answers with {count} virtual rules")


def _switch(facts: Facts, switch: SwitchState) -> Iterator[Finding]:
    for name, bridge in (("virt", switch.virt), ("edge", switch.edge)):
        yield _bridge(f"{switch.name} {name}", bridge, restart_switch(facts, switch.name))
    if switch.link is not None and switch.link.state != "up":
        ends = f"{switch.link.hypervisor} -- {switch.link.local}"
        yield TOPIC.fail(
            f"{switch.name} link", f"{ends} is {switch.link.state}", "set both ends up: ip link set dev X up"
        )


def _bridge(subject: str, bridge: BridgeState, restart: str) -> Finding:
    if bridge.state == "up" and bridge.last_error:
        mend = "see oneswitchd's log; it retries after 1, 2, 4 to 32 s"
        return TOPIC.warn(subject, f"{bridge.target} {bridge.last_error}", mend)
    if bridge.state == "up":
        return TOPIC.ok(subject, f"{bridge.target} is up")
    why = f": {bridge.last_error}" if bridge.last_error else ""
    if bridge.state == "syncing":
        return TOPIC.warn(subject, f"{bridge.target} is syncing", "wait a moment and run doctor again")
    if bridge.state == "silent":
        why = ": it is connected, but does not answer; its ovs-vswitchd hangs"
    return TOPIC.fail(subject, f"{bridge.target} is {bridge.state}{why}", f"see that switch's sockets above; {restart}")


def _controllers(status: Status) -> Iterator[Finding]:
    connected = [controller for controller in status.controllers if controller.state == "connected"]
    for controller in status.controllers:
        if controller.state != "connected":
            yield TOPIC.warn(f"controller {controller.target}", _unconnected(controller), "start the controller there")
    if not status.controllers:
        mend = 'add one to [oneswitchd] controllers, for example "tcp:127.0.0.1:6633", or connect to a ptcp: listener'
        yield TOPIC.warn("controllers", "none: without rules every packet is dropped", mend)
    elif connected:
        yield TOPIC.ok("controllers", f"{len(connected)} of {len(status.controllers)} connected")


def _unconnected(controller: Controller) -> str:
    why = f": {controller.last_error}" if controller.last_error else ""
    return f"{controller.state}{why}"


def _ports(facts: Facts) -> Iterator[Finding]:
    down = [port for port in facts.mapped if port.state != "up"]
    for port in down:
        mend = f"attach {port.interface} to edge of {port.switch} and set it up, or unoctl port move {port.number}"
        yield TOPIC.warn(f"port {port.number} {port.name}", port.reason or "down, no reason given", mend)
    for port in facts.mapped:
        if port.move is not None:
            found = f"a move to {port.move.switch} {port.move.interface} is stopped at {port.move.stage}"
            yield TOPIC.warn(
                f"port {port.number} {port.name}", found, f"unoctl port continue {port.number}, or port abort"
            )
    if facts.mapped and not down:
        yield TOPIC.ok("ports", f"{len(facts.mapped)} mapped, all up")
