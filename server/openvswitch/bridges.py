"""The bridges ``virt`` and ``edge`` of one switch, and their ports, over OVSDB.

Items created by plumbing carry ``external_ids:oneswitch=...``; others are never changed or removed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from server.config import SwitchConfig, TlsConfig
from server.errors import DatabaseUnreachableError, InterfaceError, OwnershipError, SwitchNotApplyingError
from server.names import EDGE, MULTICAST_OFPORT, MULTICAST_PORT, PORT_MAX, PORT_MIN, VIRT, patch_names
from server.openvswitch.layout import DatapathType, Interface, Layout
from server.openvswitch.links import SwitchSide
from server.openvswitch.ovsdb import Command, Row, SwitchDatabase
from server.openvswitch.schema import OPEN_VSWITCH

MARK = "oneswitch"

Role = Literal["bridge", "patch", "pcie", "interface"]


@dataclass(frozen=True)
class PortState:
    """A port on the switch.

    Attributes:
        ofport: OpenFlow port number; None if the switch has not opened the interface yet, or could not.
        role: its purpose for plumbing; None if plumbing did not create it.
        error: Open vSwitch's message why it could not be opened.
    """

    name: str
    bridge: str
    type: str
    ofport: int | None
    role: str | None
    error: str | None


@dataclass(frozen=True)
class SwitchInventory:
    """The result of `Plumbing.describe`."""

    switch: str
    bridges: tuple[str, ...]
    ports: tuple[PortState, ...]

    def find(self, name: str) -> PortState | None:
        """Return the port called ``name``."""
        return next((port for port in self.ports if port.name == name), None)


class Plumbing:
    """Creates and removes ports on one switch.

    Every change is one OVSDB transaction; it returns once ovs-vswitchd has applied it, and removes interfaces that the
    switch could not open before it raises the error. Methods that change something return whether they had to.

    Thread safety: one thread at a time.

    Args:
        switch: names the database. Raises `DatabaseUnreachableError` if it has none or the database does not answer.
        datapath_type: of new bridges.
        timeout_s: seconds for connecting, and for each change.
        tls: PEM files for an ``ssl:`` database.
        ports: names of the only ports that methods are called for; see `SwitchDatabase`. None: any.

    Example:
        >>> with Plumbing(config.hypervisor) as plumbing:          # doctest: +SKIP
        ...     plumbing.ensure(Layout.of(config, "hypervisor"))
        ...     plumbing.add_virtual_port(7)
        ...     plumbing.attach("vm7")
    """

    def __init__(
        self,
        switch: SwitchConfig,
        *,
        datapath_type: DatapathType = "netdev",
        timeout_s: float = 10.0,
        tls: TlsConfig | None = None,
        ports: Collection[str] | None = None,
    ) -> None:
        if switch.ovsdb is None:
            raise DatabaseUnreachableError(f"switch {switch.name}: server.toml lacks its database; add the key ovsdb")
        self._switch = switch
        self._datapath_type = datapath_type
        self._db = SwitchDatabase(switch.name, switch.ovsdb, timeout_s, tls, ports)

    def close(self) -> None:
        """Drop the connection."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def ensure(self, layout: Layout) -> bool:
        """Create the missing parts of ``layout``, including both bridges. Removes nothing.

        Raises:
            OwnershipError: a bridge, port or interface of a needed name exists but is incompatible.
            InterfaceError: the switch could not open some; these were removed again, the others stay.
            DatabaseError: see `SwitchDatabase.commit`.
        """
        wanted = [
            *self._patch_pair(MULTICAST_PORT, MULTICAST_OFPORT),
            *(end for number in layout.virtual_ports for end in self._patch_pair(number, number)),
            *((EDGE, "pcie", interface) for interface in layout.pcie),
            *((EDGE, "interface", interface) for interface in layout.physical),
        ]
        with self._db.lock:
            commands = [*self._bridge_commands(VIRT), *self._bridge_commands(EDGE)]
        return self._apply(commands, wanted)

    def add_virtual_port(self, number: int) -> bool:
        """Create the patch pair of virtual port ``number``, which every switch of the server needs.

        Raises:
            ValueError: ``number`` is not a virtual port's.
            OwnershipError, InterfaceError, DatabaseError: as for `ensure`.
        """
        return self.connect([number])

    def connect(self, numbers: Collection[int], interfaces: Collection[str | Interface] = ()) -> bool:
        """Create the patch pairs of virtual ports, and attach interfaces to ``edge``, in one transaction.

        Raises:
            ValueError, OwnershipError, InterfaceError, DatabaseError: as for `add_virtual_port` and `attach`.
        """
        pairs = [end for number in numbers for end in self._patch_pair(number, number)]
        return self._apply([], [*pairs, *(_attached(interface) for interface in interfaces)])

    def remove_virtual_ports(self, *numbers: int) -> bool:
        """Remove the patch pairs of virtual ports, those that exist, in one transaction.

        Raises:
            OwnershipError: plumbing did not create a port of such a name; nothing was removed.
        """
        for number in numbers:
            _check_number(number)
        return self._remove([name for number in numbers for name in patch_names(number)], "patch")

    def attach(self, interface: str | Interface) -> bool:
        """Attach an interface to ``edge``. Leaves an existing one unchanged, whoever attached it.

        Raises:
            OwnershipError: it is on another bridge, or is a patch or PCIe port.
            InterfaceError: the switch could not open it (with its message); it was removed again.
        """
        return self._apply([], [_attached(interface)])

    def detach(self, interface: str) -> bool:
        """Detach an interface from ``edge``, if it is there.

        Raises:
            OwnershipError: plumbing did not attach it.
        """
        return self._remove([interface], "interface")

    def remove(self) -> bool:
        """Remove everything that plumbing created on this switch, the bridges last."""
        with self._db.lock:
            own = [bridge.name for bridge in self._db.rows("Bridge") if MARK in bridge.external_ids]
            foreign = [
                port.name
                for bridge in self._db.rows("Bridge")
                for port in bridge.ports
                if bridge.name in own and port.name != bridge.name and MARK not in port.external_ids
            ]
        if foreign:
            raise OwnershipError(
                f"switch {self._switch.name}: foreign ports are on the bridges: {', '.join(sorted(foreign))}. "
                "Remove them first."
            )
        self._db.commit([self._db.api.del_br(name) for name in own])
        return bool(own)

    def describe(self) -> SwitchInventory:
        """Return all bridges and ports of the switch, including foreign ones."""
        with self._db.lock:
            bridges = sorted(self._db.rows("Bridge"), key=lambda bridge: bridge.name)
            return SwitchInventory(
                self._switch.name,
                tuple(bridge.name for bridge in bridges),
                tuple(
                    _state(bridge, port) for bridge in bridges for port in sorted(bridge.ports, key=lambda p: p.name)
                ),
            )

    def side(self) -> SwitchSide:
        """Return what this switch tells for the choice of a PCIe link's type.

        Raises:
            SwitchNotApplyingError: its ovs-vswitchd has not told its types of interfaces: it does not run.
        """

        def types() -> frozenset[str]:
            return frozenset(kind for root in self._db.rows(OPEN_VSWITCH) for kind in root.iface_types)

        if not self._db.wait_for(lambda: bool(types())):
            raise SwitchNotApplyingError(f"switch {self._switch.name}: ovs-vswitchd does not run with its database")
        with self._db.lock:
            edge = self._db.row("Bridge", EDGE)
            interfaces = [interface for port in edge.ports for interface in port.interfaces] if edge else []
            return SwitchSide(
                types=types(),
                ports={each.name: each.type for each in interfaces},
                numbers={each.name: number for each in interfaces for number in (each.ofport or each.ofport_request)},
            )

    # ---- making

    def _patch_pair(self, port: int | str, ofport: int) -> list["_Wanted"]:
        if isinstance(port, int):
            _check_number(port)
        virt, edge = patch_names(port)
        return [
            (VIRT, "patch", Interface(virt, "patch", {"peer": edge}, ofport)),
            (EDGE, "patch", Interface(edge, "patch", {"peer": virt})),
        ]

    def _bridge_commands(self, name: str) -> list[Command]:
        api = self._db.api
        row = self._db.row("Bridge", name)
        commands = []
        if row is None:
            commands = [api.add_br(name, may_exist=False, datapath_type=self._datapath_type)]
            commands += [api.db_set("Bridge", name, ("fail_mode", "secure"), ("external_ids", {MARK: name}))]
            commands += [api.db_set("Port", name, ("external_ids", {MARK: "bridge"}))]
        else:
            self._check_bridge(row)
        return commands + self._listener_commands(name, row)

    def _check_bridge(self, row: Row) -> None:
        """Accept an existing bridge as it is, unless it violates the contract."""
        found = f"switch {self._switch.name}: bridge {row.name} exists with"
        if row.fail_mode != ["secure"]:
            raise OwnershipError(
                f"{found} fail_mode {row.fail_mode or 'standalone'}, but secure is required: "
                f"set it (ovs-vsctl set-fail-mode {row.name} secure) or remove the bridge"
            )
        if row.protocols and "OpenFlow13" not in row.protocols:
            raise OwnershipError(f"{found} protocols {row.protocols} without OpenFlow13: add it or remove the bridge")

    def _listener_commands(self, name: str, row: Row | None) -> list[Command]:
        """Make a bridge listen if it is reached over TCP; each bridge already listens on its unix socket."""
        kind, _, rest = (self._switch.virt if name == VIRT else self._switch.edge).partition(":")
        if kind == "unix":
            return []
        host, _, port = rest.rpartition(":") if rest.rpartition(":")[2].isdigit() else (rest, "", "6653")
        target = f"p{kind}:{port}:{host}"
        if row is not None and any(controller.target == target for controller in row.controller):
            return []
        create = self._db.api.db_create_row("Controller", target=target, external_ids={MARK: name})
        return [create, self._db.api.db_add("Bridge", name, "controller", create)]

    def _exists(self, bridge: str, role: Role, interface: Interface) -> bool:
        """Tell whether it exists and fits; raise if something else has its name."""
        port = self._db.row("Port", interface.name)
        if port is None:
            return False
        owner = next((row.name for row in self._db.rows("Bridge") if port in row.ports), "no bridge")
        mark = port.external_ids.get(MARK)
        found = f"switch {self._switch.name}: port {interface.name} already exists"
        if owner != bridge:
            raise OwnershipError(f"{found} on bridge {owner}, but is required on {bridge}: remove it there")
        if mark == role or (mark is None and role in ("interface", "pcie")):
            return True
        made = f"created as {mark}" if mark else "not created by plumbing"
        raise OwnershipError(f"{found} on {bridge}, {made}, but is required as {role}: remove it first")

    def _apply(self, commands: list[Command], wanted: list["_Wanted"]) -> bool:
        """Run ``commands``, create the missing parts of ``wanted``, and check all of it."""
        api = self._db.api
        with self._db.lock:
            missing = [item for item in wanted if not self._exists(*item)]
        for bridge, role, interface in missing:
            commands.append(api.add_port(bridge, interface.name, may_exist=False, **interface.columns()))
            commands.append(api.db_set("Port", interface.name, ("external_ids", {MARK: role})))
            if interface.shaped_elsewhere:
                shaping = api.db_create_row("QoS", type="linux-noop", external_ids={MARK: role})
                commands += [shaping, api.db_set("Port", interface.name, ("qos", shaping))]
        self._db.commit(commands)
        self._db.await_applied()
        self._check_opened(wanted, {interface.name for _, _, interface in missing})
        return bool(commands)

    def _check_opened(self, wanted: list["_Wanted"], made: set[str]) -> None:
        """Check the columns, because a port that could not be opened advances ``cur_cfg`` like any other."""
        with self._db.lock:
            failures = {interface.name: problem for _, _, interface in wanted if (problem := self._problem(interface))}
        if failures:
            self._db.commit([self._db.api.del_port(name) for name in failures if name in made])
            raise InterfaceError(self._switch.name, failures)

    def _problem(self, wanted: Interface) -> str | None:
        row = self._db.row("Interface", wanted.name)
        if row is None:
            return "it vanished while it was being created"
        if row.error:
            return row.error[0]
        if row.ofport in ([], [-1]):
            return "Open vSwitch assigned no port number and gave no reason; see ovs-vswitchd's log"
        if wanted.ofport is not None and row.ofport != [wanted.ofport]:
            return f"Open vSwitch assigned port number {row.ofport[0]}, because another port has {wanted.ofport}"
        return None

    # ---- removing

    def _remove(self, names: Iterable[str], role: Role) -> bool:
        with self._db.lock:
            present = [port for name in names if (port := self._db.row("Port", name)) is not None]
            for port in present:
                mark = port.external_ids.get(MARK)
                if mark != role:
                    whose = f"as {mark}" if mark else "by others"
                    raise OwnershipError(
                        f"switch {self._switch.name}: port {port.name} was created {whose}, so it stays"
                    )
            commands = [self._db.api.del_port(port.name) for port in present]
        self._db.commit(commands)
        return bool(commands)


_Wanted = tuple[str, Role, Interface]


def _attached(interface: str | Interface) -> _Wanted:
    return EDGE, "interface", Interface(interface) if isinstance(interface, str) else interface


def _check_number(number: int) -> None:
    if not PORT_MIN <= number <= PORT_MAX:
        raise ValueError(f"{number} is not a virtual port number; expected {PORT_MIN} to {PORT_MAX}")


def _state(bridge: Row, port: Row) -> PortState:
    interface = port.interfaces[0]
    ofport = interface.ofport[0] if interface.ofport and interface.ofport[0] > 0 else None
    error = interface.error[0] if interface.error else None
    return PortState(port.name, bridge.name, interface.type, ofport, port.external_ids.get(MARK), error)
