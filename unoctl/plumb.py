"""Implements ``unoctl plumb``: creates the bridges, patch ports, PCIe ports and interfaces of server.toml."""

from enum import StrEnum

from server.errors import ConfigError
from server.openvswitch.servers import ServerPlumbing
from unoctl.render import View, table
from unoctl.topology import Server


class Datapath(StrEnum):
    """Open vSwitch's datapath types: its own, the kernel's (which hardware offloads), and one for tests."""

    netdev = "netdev"
    system = "system"
    dummy = "dummy"


def run(server: Server, datapath: Datapath) -> View:
    """Create what is missing, and remove nothing. Idempotent.

    Args:
        server: as `unoctl.topology.load` makes it.
        datapath: of bridges that have to be made.

    Raises:
        PlumbingError: a switch's database does not answer, or something that is there does not fit.
    """
    if server.source is None:
        raise ConfigError(f"{server.path}: not read from a file; cannot reach the switches' OVSDB")
    with ServerPlumbing(server.source, datapath_type=datapath.value) as plumbing:
        changed = plumbing.ensure()
    rows = [(switch.name, "plumbed" if switch.name in changed else "as it was") for switch in server.switches]
    return View([{"switch": name, "changed": name in changed} for name, _ in rows], table(("SWITCH", ""), rows))
