"""The hosts: a client, the load balancer's host in the middle, and one with the addresses of all web servers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from lab.bare_hosts import BareHosts
from lab.server import HostProcess
from lab.web_path.impairment import Impairment

CLIENT, MIDDLE, SERVERS = "client", "middle", "servers"
FRONT, BACK = "m0", "m1"
"""The load balancer's interfaces toward the client and toward the servers."""
PORT = 80
NETWORK = "10.1.0.0/24"
VIP, VIP6 = "10.1.0.100", "fd01::100"
OWN, OWN6 = ("10.1.0.2", "10.2.0.2"), ("fd01::2", "fd02::2")
"""The load balancer's own addresses on both sides."""
CLIENT_ADDRESS, _CLIENT6 = "10.1.0.1", "fd01::1"


@dataclass(frozen=True)
class Origin:
    """A web server's name and addresses."""

    name: str
    address: str
    address6: str


ORIGINS = tuple(
    Origin(name, f"10.2.0.1{number}", f"fd02::1{number}") for number, name in enumerate(("one", "two", "three"), 1)
)


class WebPath:
    """The hosts, without a load balancer.

    Args:
        offloads: whether interfaces may carry unfinished checksums and frames longer than the MTU.
        impaired: whether an `Impairment` is on each of both wires; needs `offloads` off.
        direct: whether the client's interface is connected to the servers'; `target` is then the first server.
    """

    def __init__(self, *, offloads: bool = False, impaired: bool = False, direct: bool = False) -> None:
        wires = ["wire0", "wire1"] if impaired else []
        middle = [] if direct else [MIDDLE]
        self._hosts = BareHosts([CLIENT, *middle, SERVERS, *wires], _links(impaired=impaired, direct=direct))
        self.target = ORIGINS[0].address if direct else VIP
        self.target6 = ORIGINS[0].address6 if direct else VIP6
        self.front: Impairment | None = None
        self.back: Impairment | None = None
        try:
            self._set_up(offloads=offloads, wires=wires, direct=direct)
            if impaired:
                self.front, self.back = (Impairment(self._hosts, wire) for wire in wires)
        except BaseException:
            self._hosts.close()
            raise

    def _set_up(self, *, offloads: bool, wires: Sequence[str], direct: bool) -> None:
        client = ("10.2.0.1/24", "fd02::1/64") if direct else (f"{CLIENT_ADDRESS}/24", f"{_CLIENT6}/64")
        servers = [f"{each.address}/24" for each in ORIGINS] + [f"{each.address6}/64" for each in ORIGINS]
        self._configure(CLIENT, {"eth0": client}, offloads=offloads)
        self._configure(SERVERS, {"eth0": servers}, offloads=offloads)
        if not direct:
            self._configure(MIDDLE, {FRONT: (), BACK: ()}, offloads=offloads)
        for wire in wires:
            self._configure(wire, {"w0": (), "w1": ()}, offloads=False)

    def _configure(self, host: str, interfaces: dict[str, Sequence[str]], *, offloads: bool) -> None:
        script = ["ip link set lo up"]
        for name, addresses in interfaces.items():
            if not offloads:
                script.append(f"ethtool -K {name} tx off tso off gso off gro off")
            # An address of its own on an interface without any would add packets to the counts.
            quiet = int(not addresses)
            script.append(f"sysctl -qw net.ipv6.conf.{name}.disable_ipv6={quiet} net.ipv6.conf.{name}.accept_dad=0")
            script.append(f"ip link set {name} up")
            script += [f"ip address add {each} dev {name}{' nodad' * (':' in each)}" for each in addresses]
        # Without it, what one connection learned about the path would slow the next ones.
        script.append("sysctl -qw net.ipv4.tcp_no_metrics_save=1")
        self.run(host, "sh", "-ec", "\n".join(script))

    def close(self) -> None:
        """End every program in the hosts, and the hosts."""
        self._hosts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self, host: str, *command: str, check: bool = True, timeout_s: float = 60) -> str:
        """Run a program inside a host to its end; return its output."""
        return self._hosts.run(host, *command, check=check, timeout_s=timeout_s)

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> HostProcess:
        """Start a program inside a host; the options are those of `subprocess.Popen`."""
        return self._hosts.popen(host, argv, **options)

    def give_addresses(self) -> None:
        """Give the kernel in the middle the VIP and the load balancer's address toward the servers."""
        self._configure(
            MIDDLE, {FRONT: (f"{VIP}/24", f"{VIP6}/64"), BACK: (f"{OWN[1]}/24", f"{OWN6[1]}/64")}, offloads=True
        )

    def set_tcp(self, hosts: Sequence[str], **settings: object) -> None:
        """Set the hosts' ``net.ipv4.tcp_...`` for new connections, for example ``sack=0``."""
        words = [f"net.ipv4.tcp_{name}={value}" for name, value in settings.items()]
        for host in hosts:
            self.run(host, "sysctl", "-qw", *words)

    def packets(self) -> tuple[int, int]:
        """Return the packets that the load balancer's two interfaces have received, and sent."""
        links = json.loads(self.run(MIDDLE, "ip", "-j", "-s", "link", "show"))
        ours = [each["stats64"] for each in links if each["ifname"] in (FRONT, BACK)]
        received, sent = (sum(each[way]["packets"] for each in ours) for way in ("rx", "tx"))
        return received, sent


def _links(*, impaired: bool, direct: bool) -> list[str]:
    def link(first: tuple[str, str], second: tuple[str, str]) -> str:
        (host, name), (other_host, other) = first, second
        return f"link add {name} netns {host} type veth peer name {other} netns {other_host}"

    if direct:
        return [link((CLIENT, "eth0"), (SERVERS, "eth0"))]
    if impaired:
        return [
            link((CLIENT, "eth0"), ("wire0", "w0")),
            link(("wire0", "w1"), (MIDDLE, FRONT)),
            link((MIDDLE, BACK), ("wire1", "w0")),
            link(("wire1", "w1"), (SERVERS, "eth0")),
        ]
    return [link((CLIENT, "eth0"), (MIDDLE, FRONT)), link((MIDDLE, BACK), (SERVERS, "eth0"))]
