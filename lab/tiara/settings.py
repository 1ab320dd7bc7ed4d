"""Addresses, and the configurations of the three tiers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLIENT, SWITCH, NIC, FABRIC = "client", "tswitch", "tnic", "fabric"
MUXES = ("smux0", "smux1")
VIP, PORT = "192.0.2.1", 80
CLIENT_ADDRESS, OUTSIDE = "198.51.100.7", "198.51.100.1"
VTEP, VTEP_MAC = "10.0.0.1", "02:00:00:00:10:01"
"""The switch's tunnel endpoint, and the source of its inner frames."""
NIC_ADDRESS = "10.0.0.2"
MUX_ADDRESSES = {name: f"10.0.0.{number}" for number, name in enumerate(MUXES, 3)}
NETWORK = 5000
"""The VXLAN network of the real servers."""
MTU = 1600
"""Of the datacenter: a full packet, with the tunnel's headers or the metadata."""
PERIOD_S, ORPHANS_S = 2, 10
"""The detection period, and the time after which the entries of a dead load balancer are removed."""
DEPTH, WIDTH = 4096, 2
"""The connection table's indexes, and the entries at each."""
CHECK_MS, FALL = 500, 2


@dataclass(frozen=True)
class Server:
    """A real server.

    Attributes:
        vtep: its tunnel endpoint.
        address, port: its end behind the tunnel.
        mac: of its interface there.
    """

    name: str
    vtep: str
    address: str
    mac: str
    port: int = 8080

    @property
    def vtep_mac(self) -> str:
        """Return the MAC address of its tunnel endpoint."""
        return self.mac.replace("02:00:00:08", "02:00:00:09")


SERVERS = tuple(
    Server(f"web{number}", f"10.0.0.{10 + number}", f"10.8.0.{10 + number}", f"02:00:00:08:00:{10 + number:02x}")
    for number in (1, 2, 3)
)


def switch_config() -> dict[str, Any]:
    """Configure the T-switch; load balancers write its servers."""
    return {
        "interfaces": [{"addresses": [f"{OUTSIDE}/24"]}, {"addresses": [f"{VTEP}/24"], "mtu": MTU}],
        "vips": [VIP],
        "mac": VTEP_MAC,
        "nics": [{"name": NIC, "address": NIC_ADDRESS, "muxes": list(MUXES)}],
        "muxes": [{"name": name, "address": address} for name, address in MUX_ADDRESSES.items()],
    }


def nic_config(home: Path, depth: int = DEPTH) -> dict[str, Any]:
    """Configure the T-NIC, with the number of indexes in its table."""
    muxes = [
        {"name": name, "address": address, "socket": str(home / f"{name}.table")}
        for name, address in MUX_ADDRESSES.items()
    ]
    return {
        "interfaces": [{"addresses": [f"{NIC_ADDRESS}/24"], "mtu": MTU}],
        "tswitch": {"address": VTEP, "control": str(home / f"{SWITCH}.sock")},
        "muxes": muxes,
        "table": {"depth": depth, "width": WIDTH, "period": f"{PERIOD_S}s", "orphans": f"{ORPHANS_S}s"},
    }


def mux_config(name: str, servers: tuple[Server, ...] = SERVERS) -> dict[str, Any]:
    """Configure a software load balancer that offloads every established connection."""
    health = {"kind": "http", "fall": FALL, "rise": 2, "interval": f"{CHECK_MS}ms", "timeout": f"{CHECK_MS}ms"}
    backends = [
        {
            "name": each.name,
            "address": each.vtep,
            "port": each.port,
            "inner_address": each.address,
            "inner_mac": each.mac,
        }
        for each in servers
    ]
    vip = {"name": "web", "address": VIP, "port": PORT, "protocol": "tcp", "mode": "vxlan", "vni": NETWORK}
    return {
        "interfaces": [{"addresses": [f"{MUX_ADDRESSES[name]}/24"], "gateways": [VTEP], "mtu": MTU}],
        # Its first health checks must not wait for ARP: a load balancer that is back would take the servers for dead.
        "neighbours": [{"address": each.vtep, "mac": each.vtep_mac} for each in SERVERS],
        "vtep": {"addresses": [VTEP], "mac": VTEP_MAC},
        "offload": {"begin": 0.0, "stop": 0.0, "heavy_packets_per_s": 1.0, "sampling": 1, "idle": "20s"},
        "vips": [vip | {"when_down": "move", "health": health, "backends": backends}],
    }
