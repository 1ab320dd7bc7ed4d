"""Implements ``unoctl plumb``: creates the bridges, patch ports, PCIe ports and interfaces of server.toml."""

from collections.abc import Collection
from enum import StrEnum

from server.config import ServerConfig
from server.errors import ApiError
from server.oneswitchd.client import Client
from server.openvswitch.servers import ServerPlumbing
from unoctl.render import View, table


class Datapath(StrEnum):
    """Open vSwitch's datapath types: its own, the kernel's (which hardware offloads), and one for tests."""

    netdev = "netdev"
    system = "system"
    dummy = "dummy"


def mapped(client: Client) -> list[int]:
    """Return the numbers of oneswitchd's ports; none if it does not answer, as before its first start."""
    try:
        return [port.number for port in client.ports()]
    except ApiError:
        return []


def run(server: ServerConfig, datapath: Datapath, numbers: Collection[int] = ()) -> View:
    """Create what is missing, and remove nothing. Idempotent.

    Args:
        server: names the switches' databases.
        datapath: type of new bridges.
        numbers: further virtual ports whose patch ports every switch needs.

    Raises:
        PlumbingError: a switch's database does not answer, or an existing item is incompatible.
    """
    with ServerPlumbing(server, datapath_type=datapath.value) as plumbing:
        changed = {*plumbing.ensure(), *(plumbing.connect(numbers) if numbers else ())}
        links = plumbing.links()
    rows, data = [], []
    for switch in server.switch:
        link = links.get(switch.name)
        told = f"{link.type}: {link.reason}" if link else ""
        rows.append((switch.name, "plumbed" if switch.name in changed else "unchanged", told))
        chosen = {"type": link.type, "reason": link.reason} if link else None
        data.append({"switch": switch.name, "changed": switch.name in changed, "link": chosen})
    return View(data, table(("SWITCH", "", "PCIE LINK"), rows))
