"""Names and numbers of docs/architecture.md that plumbing and the lab share."""

from typing import Literal

VIRT = "virt"
EDGE = "edge"

HOME = "home"
"""The executor value for a port's own switch; no switch has this name."""

PORT_MIN = 1
PORT_MAX = 0xFDFF

MULTICAST_PORT = "mc"
MULTICAST_OFPORT = 0xFE00
MULTICAST_IDS = range(4087, 4095)
"""Flow-ids of floods on a PCIe link, MULTICAST(g)."""

LinkType = Literal["vlan", "pcie"]
"""How a PCIe link carries flow-ids: in VLAN tags, or beside the packets between ports of type ``pcie``."""

PCIE_OFPORTS = range(0xFE01, 0xFEFF)
"""OpenFlow port numbers of PCIe ports of Open vSwitch's type ``pcie``: OpenFlow does not tell oneswitchd their type."""

NAME_MAX_BYTES = 15  # Linux's IFNAMSIZ without the final NUL, and OpenFlow's OFP_MAX_PORT_NAME_LEN likewise


def patch_names(port: int | str) -> tuple[str, str]:
    """Return the names of the patch ports, on virt and on edge, of a virtual port number or `MULTICAST_PORT`."""
    return f"{VIRT}-{port}", f"{EDGE}-{port}"
