"""One plain bridge with the same hosts and port numbers, as a reference for a server with smart NICs."""

from collections.abc import Mapping

from lab.spec import LabSpec, PortSpec, SwitchSpec
from server.errors import InterfaceError
from server.openvswitch.layout import DatapathType, Interface
from server.openvswitch.ovsdb import SwitchDatabase

BRIDGE = "br0"


def make_bridge(
    spec: LabSpec, switch: SwitchSpec, remote: str, datapath_type: DatapathType, interfaces: Mapping[str, Interface]
) -> None:
    """Create `BRIDGE` on the one switch of a plain ``spec``, each port with the number of its virtual port.

    Args:
        spec: the lab.
        switch: its switch.
        remote: address of its database.
        datapath_type: of the bridge.
        interfaces: interfaces that are not plain network devices.

    Raises:
        InterfaceError, DatabaseError: see `server.openvswitch`.
    """
    database = SwitchDatabase(switch.name, remote)
    api = database.api
    try:
        commands = [
            api.add_br(BRIDGE, may_exist=False, datapath_type=datapath_type),
            api.db_set("Bridge", BRIDGE, ("fail_mode", "secure")),
        ]
        for port in spec.ports:
            columns = interfaces.get(port.interface, Interface(port.interface)).columns()
            columns["ofport_request"] = port.number
            commands.append(api.add_port(BRIDGE, port.interface, may_exist=False, **columns))
        database.commit(commands)
        with database.lock:
            failed = {port.interface: problem for port in spec.ports if (problem := _problem(database, port))}
        if failed:
            raise InterfaceError(switch.name, failed)
    finally:
        database.close()


def _problem(database: SwitchDatabase, port: PortSpec) -> str | None:
    row = database.row("Interface", port.interface)
    if row is None or row.ofport == [port.number]:
        return None if row is not None else "it vanished while it was being created"
    return row.error[0] if row.error else f"got port number {row.ofport}, not {port.number}"
