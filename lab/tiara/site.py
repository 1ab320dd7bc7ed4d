"""The hosts of ``uno-lab tiara``, and their processes."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.bare_hosts import BareHosts
from lab.ends import End
from lab.errors import StartError
from lab.programs import search_path
from lab.server import HostProcess
from lab.tiara.settings import (
    CLIENT,
    CLIENT_ADDRESS,
    DEPTH,
    FABRIC,
    MTU,
    MUXES,
    NETWORK,
    NIC,
    OUTSIDE,
    PORT,
    SERVERS,
    SWITCH,
    VIP,
    VTEP,
    VTEP_MAC,
    Server,
    mux_config,
    nic_config,
    switch_config,
)
from lab.waiting import wait_for_sockets
from nfagent.control import Connection

_SOON_S, _POLL_S = 20.0, 0.05
_NAT = "lab.tiara.server_nat"
_PORTS = {CLIENT: ("eth0",), SWITCH: ("out", "in")}
_GATEWAY = "10.9.9.1"
"""The next hop of a server's answers, which only `lab.tiara.server_nat` sees."""


class Site:
    """A client, three tiers of a load balancer, and real servers behind VXLAN, in namespaces.

    Raises:
        LabError: something did not start; nothing remains of it.
    """

    def __init__(self) -> None:
        self._nf = _program()
        self._functions: dict[str, HostProcess] = {}
        self.webs: dict[str, End] = {}
        with ExitStack() as stack:
            self.home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="uno-tiara-")))
            within = [NIC, *MUXES, *(each.name for each in SERVERS)]
            self.hosts = stack.enter_context(BareHosts([CLIENT, SWITCH, FABRIC, *within], _links(within)))
            try:
                self._set_up(within)
            except RuntimeError as error:
                raise StartError(str(error)) from error
            for server in SERVERS:
                self._start_nat(server, stack)
                self.start_web(server.name)
            for name in (SWITCH, NIC, *MUXES):
                self.start(name)
            self._stack = stack.pop_all()

    def _set_up(self, within: Sequence[str]) -> None:
        self._shell(CLIENT, _plain("eth0"), f"ip address add {CLIENT_ADDRESS}/24 dev eth0",
                    f"ip route add {VIP} via {OUTSIDE}")  # fmt: skip
        self._shell(SWITCH, _bare("out", 1500), _bare("in", MTU))
        for name in (NIC, *MUXES):
            self._shell(name, _bare("eth0", MTU))
        ports = [f"f-{name}" for name in (*within, SWITCH)]
        bridge = "ip link add br0 type bridge mcast_snooping 0 && ip link set br0 up"
        self._shell(FABRIC, *(_bare(port, MTU) for port in ports), bridge,
                    *(f"ip link set {port} master br0" for port in ports))  # fmt: skip
        for server in SERVERS:
            self._shell(server.name, *_server_lines(server))

    def _shell(self, host: str, *lines: str) -> None:
        self.hosts.run(host, "sh", "-ec", "\n".join(lines))

    def _start_nat(self, server: Server, stack: ExitStack) -> None:
        ends = [f"--server={server.address}:{server.port}", f"--vip={VIP}:{PORT}"]
        ways = ["--from=n1", "--to=vx0", f"--mac={server.mac}", f"--gateway={VTEP_MAC}"]
        stack.callback(End(self.hosts, server.name, _NAT, [*ends, *ways]).close)

    def start_web(self, name: str) -> None:
        """Start a web server."""
        server = next(each for each in SERVERS if each.name == name)
        self.webs[name] = End(self.hosts, name, "lab.web", [f"--name={name}", f"--port={server.port}", "--size=512"])

    def start(self, name: str, depth: int = DEPTH) -> None:
        """Start the function of a host, and wait until its control socket answers.

        Args:
            name: of the host.
            depth: of the T-NIC's table.
        """
        kind, config = name, switch_config()
        more: list[str] = []
        if name == NIC:
            config = nic_config(self.home, depth)
        elif name in MUXES:
            kind, config = "l4lb", mux_config(name)
            more = ["--offload", f"tnic:{self.home}/{name}.table"]
        path = self.home / f"{name}.json"
        path.write_text(json.dumps(config))
        for port in _PORTS.get(name, ("eth0",)):
            more += ["--port", port]
        command = [self._nf, "run", kind, "--config", str(path), "--control", str(self.socket(name))]
        with self.log(name).open("ab") as log:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._functions[name] = self.hosts.popen(name, [*command, "--backend", "packet", *more], **options)
        if wait_for_sockets([self.socket(name)], lambda: self._functions[name].poll() is None, _SOON_S):
            raise StartError(f"{kind} in {name} does not answer: {self.log(name).read_text()[-500:]}")

    def kill(self, name: str) -> None:
        """Kill the function of a host."""
        process = self._functions[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def hang(self, name: str) -> None:
        """Stop the function of a host, which goes on after `resume`."""
        self._functions[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a function go on that hangs."""
        self._functions[name].send_signal(signal.SIGCONT)

    def socket(self, name: str) -> Path:
        """Return the control socket of a host's function."""
        return self.home / f"{name}.sock"

    def log(self, name: str) -> Path:
        """Return the log of a host's function."""
        return self.home / f"{name}.log"

    def ask(self, name: str, verb: str, **arguments: Any) -> Mapping[str, Any]:
        """Ask the function of a host.

        Raises:
            ControlError: it does not answer, or refuses.
        """
        with Connection(self.socket(name)) as connection:
            return connection.ask(verb, **arguments)

    def require_running(self) -> None:
        """Raise if a function has ended by itself.

        Raises:
            StartError: it has ended.
        """
        for name, process in self._functions.items():
            if process.poll() not in (None, -signal.SIGKILL, 128 + signal.SIGKILL):
                raise StartError(f"the function in {name} has ended: {self.log(name).read_text()[-500:]}")

    def until(self, holds: Callable[[], bool], soon_s: float = _SOON_S) -> bool:
        """Wait for a condition; tell whether it holds within the time limit."""
        deadline = time.monotonic() + soon_s
        while not (found := holds()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def _program() -> str:
    found = shutil.which("nf", path=f"{Path(sys.executable).parent}:{search_path()}")
    if found is None:
        raise StartError("nf is not installed; tools/prepare builds it")
    return found


def _links(within: Sequence[str]) -> list[str]:
    def link(host: str, name: str, peer: str, other: str) -> str:
        return f"link add {name} netns {host} type veth peer name {other} netns {peer}"

    inside = [link(name, "eth0", FABRIC, f"f-{name}") for name in within]
    return [link(CLIENT, "eth0", SWITCH, "out"), link(SWITCH, "in", FABRIC, f"f-{SWITCH}"), *inside]


def _plain(name: str) -> str:
    """Return the lines for an interface whose frames are complete."""
    return f"ip link set lo up\nethtool -K {name} tx off tso off gso off gro off\nip link set {name} up"


def _bare(name: str, mtu: int) -> str:
    """Return the lines for an interface without addresses of the kernel's."""
    return f"sysctl -qw net.ipv6.conf.{name}.disable_ipv6=1\nip link set {name} mtu {mtu}\n{_plain(name)}"


def _server_lines(server: Server) -> list[str]:
    filters = " ".join(f"net.ipv4.conf.{each}.rp_filter=0" for each in ("all", "default", "eth0"))
    tunnel = f"id {NETWORK} local {server.vtep} remote {VTEP} dstport 4789 dev eth0 nolearning"
    return [
        f"sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 {filters}",
        f"ip link set eth0 mtu {MTU} address {server.vtep_mac}",
        f"{_plain('eth0')}\nip address add {server.vtep}/24 dev eth0",
        f"ip link add vx0 address {server.mac} type vxlan {tunnel}",
        f"ip link set vx0 mtu 1500 up\nip address add {server.address}/32 dev vx0",
        "ip link add n0 type veth peer name n1",
        f"{_plain('n0')}\nip link set n1 up",
        f"ip neighbour add {_GATEWAY} lladdr 02:00:00:00:99:01 dev n0 nud permanent",
        f"ip route add default via {_GATEWAY} dev n0 onlink",
    ]
