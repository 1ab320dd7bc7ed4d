"""A site behind the function `ipsec`, keyed by charon, and one behind strongSwan's libipsec, with a NAT between.

``west`` is a host of the protected network, and the station where the gateway's charon runs; ``nf`` has the gateway;
``nat`` is a router that hides ``east``, where strongSwan protects packets itself, or which has a gateway as well,
``nf2``, and then no NAT.
"""

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.bare_hosts import BareHosts
from lab.server import HostProcess
from nfagent.control import Control
from nfagent.errors import ControlUnreachableError
from tests.nfs.awaiting import await_that
from tests.nfs.charon import Charon
from tests.nfs.wire import nf_program

WEST, EAST = "10.1.0.5", "10.2.0.5"
HOSTS = ("west", "nf", "nat", "east", "nf2")
LINKS = [
    "link add w0 netns west type veth peer name n0 netns nf",
    "link add n1 netns nf type veth peer name r0 netns nat",
]
LINK = "link add r1 netns nat type veth peer name e0 netns east"
LINKS_OF_TWO = [
    "link add r1 netns nat type veth peer name n1 netns nf2",
    "link add n0 netns nf2 type veth peer name e0 netns east",
]
ADDRESSES = {
    "west": {"lo": ["192.0.2.1/32", "2001:db8:1::1/128"], "w0": ["10.1.0.9/24", f"{WEST}/24", "fd01::9/64"]},
    "nf": {"n0": [], "n1": []},
    "nat": {"r0": ["192.0.2.254/24", "2001:db8:1::fe/64"], "r1": ["198.51.100.254/24", "2001:db8:2::fe/64"]},
    "east": {"lo": [f"{EAST}/32"], "e0": ["198.51.100.7/24", "2001:db8:2::7/64"]},
}
ADDRESSES_OF_TWO = {
    "east": {"lo": ["198.51.100.7/32", "2001:db8:2::7/128"], "e0": ["10.2.0.9/24", f"{EAST}/24", "fd02::9/64"]},
    "nf2": {"n0": [], "n1": []},
}
ROUTERS = {"west": ["10.1.0.1", "fd01::1"], "east": ["198.51.100.254", "2001:db8:2::fe"]}
ROUTERS_OF_TWO = {"east": ["10.2.0.1", "fd02::1"]}
ENDS = {
    "west": "local_addrs = 192.0.2.1",
    "east": "local_addrs = 198.51.100.7\nremote_addrs = 192.0.2.1",
}
ENDS_IPV6 = {
    "west": "local_addrs = 2001:db8:1::1",
    "east": "local_addrs = 2001:db8:2::7\nremote_addrs = 2001:db8:1::1",
}


def gateway(ike_host: str, inside: list[str], outside: list[str], routers: list[str]) -> dict[str, Any]:
    """Return the configuration of a gateway."""
    interfaces = [{"addresses": inside}, {"addresses": outside, "gateways": routers}]
    return {"ike_host": ike_host, "interfaces": interfaces}


NF_OF = {"west": "nf", "east": "nf2"}
GATEWAYS = {
    "nf": gateway(
        "10.1.0.9",
        ["10.1.0.1/24", "fd01::1/64"],
        ["192.0.2.1/24", "2001:db8:1::1/64"],
        ["192.0.2.254", "2001:db8:1::fe"],
    ),
    "nf2": gateway(
        "10.2.0.9",
        ["10.2.0.1/24", "fd02::1/64"],
        ["198.51.100.7/24", "2001:db8:2::7/64"],
        ["198.51.100.254", "2001:db8:2::fe"],
    ),
}
NETWORKS = {"west": "10.1.0.0/24", "east": "10.2.0.0/24"}


class Peers:
    """The two sites, with their daemons running.

    Args:
        directory: for sockets, configurations and logs.
        two: the other site has a gateway, too, and there is no NAT.
        backend: how `nf` reads its ports; moves need ``packet``.
        levels: of the daemons' logs.
        interval: between the plugin's looks at its gateway, in milliseconds.
    """

    def __init__(
        self,
        directory: Path,
        *,
        two: bool = False,
        backend: str = "packet",
        levels: tuple[int, int] = (1, 1),
        interval: int = 100,
    ) -> None:
        self.directory, self._interval = directory, interval
        self.charons: dict[str, Charon] = {}
        self.hosts = BareHosts(HOSTS, [*LINKS, *(LINKS_OF_TWO if two else [LINK])])
        # `translate` sets a link down.
        settings = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.all.keep_addr_on_down=1"]
        settings += [f"net.ipv6.conf.{name}.accept_dad=0" for name in ("all", "r0")]
        self.hosts.run("nat", "sysctl", "-qw", *settings)
        for host, interfaces in (ADDRESSES | (ADDRESSES_OF_TWO if two else {})).items():
            for interface, addresses in interfaces.items():
                for address in addresses:
                    nodad = ["nodad"] if ":" in address else []
                    self.hosts.run(host, "ip", "addr", "add", address, "dev", interface, *nodad)
                self.hosts.run(host, "ip", "link", "set", interface, "up")
        routers = ROUTERS | (ROUTERS_OF_TWO if two else {})
        for host, interface in (("west", "w0"), ("east", "e0")):
            self.hosts.run(host, "ethtool", "-K", interface, "tx", "off")
            self.hosts.run(host, "sysctl", "-qw", "net.ipv4.conf.all.arp_announce=2")
            for router in routers[host]:
                self.hosts.run(host, "ip", "route", "add", "default", "via", router)
        self.start_nf("first", f"--backend={backend}")
        self.start_charon("west", "kernel-nf", level=levels[0])
        if two:
            self._start_instance("nf2", "first", f"--backend={backend}")
            self.start_charon("east", "kernel-nf", level=levels[1])
        else:
            self.translate("masquerade")
            self.start_charon("east", "kernel-libipsec", level=levels[1])

    def close(self) -> None:
        self.hosts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def translate(self, how: str) -> None:
        """Have the NAT translate in another way, and forget its connections."""
        rules = f"table ip nat {{\nchain post {{\ntype nat hook postrouting priority 100\noif r0 {how}\n}}\n}}\n"
        path = self.directory / "nat.nft"
        path.write_text(f"flush ruleset\n{rules}")
        self.hosts.run("nat", "nft", "-f", str(path))
        self.hosts.run("nat", "ip", "link", "set", "r0", "down")
        self.hosts.run("nat", "ip", "link", "set", "r0", "up")

    def start_nf(self, name: str = "first", *more: str) -> None:
        """Start the gateway of the west site."""
        self.nf, self._control = self._start_instance("nf", name, *more)

    def _start_instance(self, host: str, name: str, *more: str) -> tuple[HostProcess, Control]:
        path, socket = self.directory / f"{host}.json", self.directory / f"{host}.{name}.sock"
        path.write_text(json.dumps(GATEWAYS[host]))
        command = [
            nf_program(),
            "run",
            "ipsec",
            f"--config={path}",
            "--port=n0",
            "--port=n1",
            f"--control={socket}",
            *more,
        ]
        log = self.directory / f"{host}.log"
        with log.open("ab") as out:
            process = self.hosts.popen(host, command, stderr=out, stdout=out)
        control = Control(socket)

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                control.exchange("status")
            except ControlUnreachableError:
                return False
            return True

        await_that(answers)
        return process, control

    def move(self) -> None:
        """Have another instance take over the state of the present one, and end that (nfs/README.md, "Migration")."""
        old, process = self._control, self.nf
        state = old.exchange("prepare", epoch=1, secret="5e" * 32)
        self.start_nf("second", "--backend=packet", "--hold")
        passed = {"secret": "5e" * 32, "rings": state.value["rings"], "sealed": state.value["sealed"]}
        self._control.exchange("hold", epoch=1, mode="memfd", descriptors=state.descriptors, **passed)
        with ThreadPoolExecutor(1) as beside:
            taken = beside.submit(self._control.exchange, "commit", epoch=1)
            old.exchange("give", epoch=1)
            taken.result()
        process.kill()
        self._control.exchange("orphaned", epoch=1)
        self._control.exchange("handover", epoch=1)
        for descriptor in state.descriptors:
            os.close(descriptor)

    def ask(self, verb: str) -> dict[str, Any]:
        return self._control.exchange(verb).value

    def tunnel(self) -> dict[str, Any]:
        """Return the negotiated tunnel of the function; empty: it has none."""
        return next(iter(self.ask("ipsec.show")["tunnels"]), {})

    def spis(self, direction: str) -> list[int]:
        """Return the SPIs of the tunnel, the newest first."""
        associations = self.tunnel().get("associations", [])
        return [each["spi"] for each in associations if each["direction"] == direction]

    def start_charon(self, host: str, kernel: str, *, level: int = 1) -> None:
        socket = f"{self.directory}/{NF_OF[host]}.*.sock"
        start = partial(self.hosts.popen, host)
        routes = kernel == "kernel-libipsec"
        self.charons[host] = Charon(
            self.directory,
            host,
            start,
            kernel=kernel,
            socket=socket,
            install_routes=routes,
            level=level,
            interval=self._interval,
        )
        self.load(host)

    def swanctl(self, host: str, *command: str, check: bool = True) -> str:
        return self.charons[host].swanctl(*command, check=check)

    def load(self, host: str, limits: str = "", *, ends: dict[str, str] = ENDS, **more: Any) -> None:
        """Give a daemon its connection, with lifetimes; see `Charon.load`."""
        self.charons[host].load(ends[host], NETWORKS, limits=limits, **more)

    def connect(self) -> None:
        """Have the hidden site initiate; wait until both have keys."""
        self.swanctl("east", "--initiate", "--child=net")
        await_that(lambda: self.spis("outbound"))
        self.await_path()

    def await_path(self) -> None:
        """Wait until a packet passes: gateways drop packets until ARP has answered."""
        await_that(
            lambda: "1 received" in self.hosts.run("west", "ping", "-c1", "-W0.2", "-I", WEST, EAST, check=False)
        )

    def pings(self, host: str, count: int) -> subprocess.Popen[str]:
        """Start pinging the other site every 5 ms, until as many answers have come; see `all_return`."""
        ends = {"west": (WEST, EAST), "east": (EAST, WEST)}[host]
        # Without -w, ping does not wait longer than 5 ms for the last answer.
        command = ["ping", "-i", "0.005", "-c", str(count), "-w", "60", "-I", *ends]
        return self.hosts.popen(host, command, stdout=subprocess.PIPE, text=True)

    def all_return(self, pings: subprocess.Popen[str], count: int) -> None:
        """Check that each ping was answered once; otherwise tell what the function dropped, and how the logs end."""
        said, _ = pings.communicate(timeout=90)
        answered = sorted(map(int, re.findall(r"bytes from .*icmp_seq=(\d+)", said)))
        # While answers are late, it sends more than that many.
        if answered != list(range(1, max(count, len(answered)) + 1)):
            logs = "".join(f"\n{host}: {charon.log()[-2000:]}" for host, charon in self.charons.items())
            raise AssertionError(f"{said}dropped: {self.ask('status')['packets_dropped']}{logs}")
