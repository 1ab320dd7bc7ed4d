"""The switches: whether they answer, and whether bridges, ports and links match docs/architecture.md."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from server.names import EDGE, MULTICAST_OFPORT, VIRT
from server.oneswitchd.answers import VirtualPort
from server.openvswitch.ovsdb_text import Interface
from unoctl.doctor.facts import Facts, SwitchFacts
from unoctl.doctor.findings import Finding, Topic
from unoctl.doctor.machine import version_finding
from unoctl.doctor.mending import restart_switch

SOCKETS = Topic("sockets")
BRIDGE = Topic("bridges")
LINKS = Topic("links")
TAG_BYTES = 4
_PLUMB = "unoctl plumb creates them"


def sockets(facts: Facts) -> Iterator[Finding]:
    """Check that every address of a switch exists, is permitted and answers."""
    for switch in facts.switches:
        yield from _switch_sockets(facts, switch)


def _switch_sockets(server: Facts, facts: SwitchFacts) -> Iterator[Finding]:
    switch = facts.switch
    for key, address, asked in (
        ("ovsdb", switch.ovsdb, "database"),
        ("virt", switch.virt, "virt_ports"),
        ("edge", switch.edge, "edge_ports"),
        ("control", switch.control, "version"),
    ):
        subject = f"{facts.name} {key}"
        mend = restart_switch(server, facts.name, "ovsdb-server" if key == "ovsdb" else "ovs-vswitchd")
        if address is None:
            needs = "trace" if key == "control" else "port commands and half of these checks"
            add = f"add {key} to [[switch]] {facts.name} in {facts.server.path}"
            yield SOCKETS.warn(subject, f"not configured; {needs} cannot work", add)
        elif problem := _unreachable(address, facts.name, mend):
            yield SOCKETS.fail(subject, *problem)
        elif error := facts.problem(asked):
            yield SOCKETS.fail(subject, str(error), f"{mend}; its log says more")
        else:
            yield SOCKETS.ok(subject, f"{address} answers")
    if switch.control is not None and facts.problem("version") is None:
        judged = version_finding(facts.version)
        yield Finding(judged.level, SOCKETS.name, f"{facts.name} version", judged.message, judged.mend)


def _unreachable(address: str, switch: str, restart: str) -> tuple[str, str] | None:
    """Return why a unix socket cannot be used, and the remedy; None if it can, and for other addresses."""
    path = Path(address.removeprefix("unix:"))
    if not address.startswith(("unix:", "/")):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except PermissionError:
            return f"{path}: not permitted for user {os.geteuid()}", f"run as the user of {switch}'s Open vSwitch"
        except OSError as error:
            if error.errno == errno.ENOENT:
                return f"{path}: does not exist", f"{restart}; or correct the path in server.toml"
            return f"{path}: {error.strerror or error}", restart
    return None


def bridges(facts: Facts) -> Iterator[Finding]:
    """Check both bridges of every switch, and their ports."""
    for switch in facts.switches:
        yield from _bridge_rows(switch)
        for bridge in (VIRT, EDGE):
            if switch.problem(f"{bridge}_ports") is None:
                yield from _bridge_ports(switch, bridge, facts.ports)


def _bridge_rows(facts: SwitchFacts) -> Iterator[Finding]:
    if facts.switch.ovsdb is None or facts.problem("database"):
        return
    for name in (VIRT, EDGE):
        subject = f"{facts.name} {name}"
        row = facts.database.bridges.get(name)
        if row is None:
            yield BRIDGE.fail(subject, "the bridge does not exist", _PLUMB)
            continue
        if row.fail_mode != "secure":
            mend = f"ovs-vsctl --db={facts.switch.ovsdb} set-fail-mode {name} secure"
            found = f"fail_mode is {row.fail_mode or 'standalone'}: it forwards without rules; expected secure"
            yield BRIDGE.fail(subject, found, mend)
        if row.protocols and "OpenFlow13" not in row.protocols:
            mend = f"ovs-vsctl --db={facts.switch.ovsdb} add bridge {name} protocols OpenFlow13"
            yield BRIDGE.fail(subject, f"protocols are {', '.join(row.protocols)}; OpenFlow13 is missing", mend)


def _bridge_ports(facts: SwitchFacts, bridge: str, ports: list[VirtualPort]) -> Iterator[Finding]:
    found = facts.virt_ports if bridge == "virt" else facts.edge_ports
    subject = f"{facts.name} {bridge}"
    missing = [name for name in _expected_ports(facts, bridge, ports) if name not in found]
    if missing:
        errors = "; ".join(_open_error(facts, name) for name in missing)
        yield BRIDGE.fail(subject, f"ports are missing: {', '.join(missing)}{errors and f' ({errors})'}", _PLUMB)
    wrong = [
        f"{name} is {found[name]}, not {number}"
        for name, number in _expected_numbers(bridge, ports).items()
        if name in found and found[name] != number
    ]
    if wrong:
        mend = "remove the port that has the number, then the patch pair, and run unoctl plumb"
        yield BRIDGE.fail(subject, f"wrong OpenFlow port numbers: {', '.join(wrong)}", mend)
    if not missing and not wrong:
        yield BRIDGE.ok(subject, f"all {len(_expected_ports(facts, bridge, ports))} ports exist")


def _expected_ports(facts: SwitchFacts, bridge: str, ports: list[VirtualPort]) -> list[str]:
    patches = [f"{bridge}-{port.number}" for port in ports] + [f"{bridge}-mc"]
    if bridge == "virt":
        return patches
    pcie = [port.interface for port in facts.server.pcie_ports(facts.name)]
    return [*patches, *pcie, *(port.interface for port in ports if port.switch == facts.name)]


def _expected_numbers(bridge: str, ports: list[VirtualPort]) -> dict[str, int]:
    if bridge != "virt":
        return {}
    return {f"virt-{port.number}": port.number for port in ports} | {"virt-mc": MULTICAST_OFPORT}


def _open_error(facts: SwitchFacts, name: str) -> str:
    """Return Open vSwitch's error for an interface that it could not open."""
    if facts.switch.ovsdb is None or facts.problem("database"):
        return ""
    row = facts.database.interfaces.get(name)
    return row.error if row and row.error else ""


def links(facts: Facts) -> Iterator[Finding]:
    """Check that PCIe links and tenants' interfaces are up, and that the links carry the largest frames."""
    readable = [switch for switch in facts.switches if switch.switch.ovsdb and switch.problem("database") is None]
    largest = _largest_tenant_mtu(readable, facts.ports)
    for switch in readable:
        for pcie in facts.server.pcie_ports(switch.name):
            row = switch.database.interfaces.get(pcie.interface)
            if row is not None:
                yield _pcie_finding(switch, row, largest)
        yield from _tenant_findings(switch, facts.ports)


def _largest_tenant_mtu(switches: list[SwitchFacts], ports: list[VirtualPort]) -> tuple[int, str]:
    """Return the largest MTU of a virtual port's interface, and its owner."""
    sizes = [(0, "")]
    for switch in switches:
        for port in ports:
            row = switch.database.interfaces.get(port.interface)
            if port.switch == switch.name and row is not None and row.mtu is not None:
                sizes.append((row.mtu, f"{port.interface} of {switch.name}"))
    return max(sizes)


def _pcie_finding(facts: SwitchFacts, row: Interface, largest: tuple[int, str]) -> Finding:
    subject = f"{facts.name} {row.name}"
    needed, whose = largest[0] + TAG_BYTES, largest[1]
    if _is_down(row) and row.type.startswith("pcie"):
        found = "the PCIe port is down: the other end of its link is not there"
        return LINKS.fail(
            subject, found, "start the switch at the other end, or compare options:path or address of both"
        )
    if _is_down(row):
        return LINKS.fail(subject, "the PCIe port is down", f"in {facts.name}'s network namespace: {_up(row.name)}")
    if row.type == "dummy":
        return LINKS.ok(subject, "up; the MTU of a dummy port does not matter")
    if row.type.startswith("pcie"):
        return _beside_finding(subject, row, largest)
    if row.mtu is not None and largest[0] and row.mtu < needed:
        found = f"MTU {row.mtu} is below {needed}: tagged full-size frames of {whose} are lost"
        mend = f"at both ends of the link, in their network namespaces: ip link set dev {row.name} mtu {needed + 96}"
        return LINKS.fail(subject, found, mend)
    return LINKS.ok(subject, f"up, MTU {row.mtu if row.mtu is not None else 'unknown'}")


def _beside_finding(subject: str, row: Interface, largest: tuple[int, str]) -> Finding:
    """Judge a port of type ``pcie``, which carries flow-ids beside the packets."""
    if row.mtu is not None and row.mtu < largest[0]:
        found = f"MTU {row.mtu} is below {largest[0]}, that of {largest[1]}: its full-size frames are lost"
        return LINKS.fail(subject, found, f"at both ends: ovs-vsctl set interface {row.name} mtu_request={largest[0]}")
    return LINKS.ok(subject, f"up, type pcie, MTU {row.mtu if row.mtu is not None else 'unknown'}")


def _tenant_findings(facts: SwitchFacts, ports: list[VirtualPort]) -> Iterator[Finding]:
    here = [port for port in ports if port.switch == facts.name]
    down = [port for port in here if (row := facts.database.interfaces.get(port.interface)) and _is_down(row)]
    for port in down:
        mend = f"in {facts.name}'s network namespace: {_up(port.interface)}; and start the program at its other end"
        yield LINKS.warn(f"{facts.name} {port.interface}", f"port {port.number} ({port.name}) is down", mend)
    if here and not down:
        yield LINKS.ok(f"{facts.name} interfaces", f"{len(here)} of virtual ports, all up")


def _is_down(row: Interface) -> bool:
    return "down" in (row.link_state, row.admin_state)


def _up(interface: str) -> str:
    return f"ip link set dev {interface} up"
