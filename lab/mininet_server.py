"""The emulated server for Mininet 2.3: topology, switch, host and CLI, which examples/mininet_server.py gives ``mn``.

Every switch of the server is a separate Open vSwitch, both daemons in the network namespace of its Mininet node;
oneswitchd controls them and is the switch that Mininet's controllers connect to.

Mininet runs on the system's Python, which lacks this project's dependencies. So this module imports only modules that
need nothing but the standard library, and runs everything else as programs.
"""

# Mininet is installed for the system's Python, where a type checker of .venv cannot see it.
# pyright: reportMissingImports=false

import http.client
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mininet.cli import CLI
from mininet.log import error, output
from mininet.node import Host, OVSSwitch, Switch
from mininet.topo import Topo

from lab import namespaces
from lab.ovs import DAEMONS, OvsSwitch
from lab.programs import environment, find_program
from server.names import EDGE, VIRT
from server.processes import start_time
from server.toml_dump import dump_document

ROOT = Path(__file__).resolve().parent.parent
PCIE_MTU = 1600  # a full tenant frame and the flow-id's tag
DATAPATH_ID = "0000000000000001"
START_S = 20.0

_PLUMB = """
import sys
from pathlib import Path
from server.errors import ServerError
from server.config import ServerConfig
from server.openvswitch.servers import ServerPlumbing
try:
    with ServerPlumbing(ServerConfig.load(Path(sys.argv[1]))) as server:
        server.ensure()
except ServerError as error:
    sys.exit(str(error))
"""


class MininetError(Exception):
    """The server did not start; the message says why. ``mn`` prints it and cleans up."""


def program(name: str) -> str:
    """Return the path of a program of this project: from ``make build``, or installed.

    Raises:
        MininetError: it is not installed.
    """
    built = ROOT / ".venv/bin" / name
    found = str(built) if os.access(built, os.X_OK) else shutil.which(name)
    if found is None:
        raise MininetError(f"{name} is not installed; in {ROOT} run: make build")
    return found


class ServerTopo(Topo):
    """One server: a hypervisor with two VMs; per sNIC an NF's host and an outside host behind its wire.

    ``vm2`` also has an interface at ``snic0``, to move to. ``--topo server,2`` has two sNICs.
    """

    def build(self, snics: int = 1) -> None:
        """Build the topology; Mininet calls it."""
        self.addSwitch("hypervisor", cls=ServerSwitch, hub=True)
        self._host("vm1", "hypervisor", "vm1")
        self._host("vm2", "hypervisor", "vm2")
        for index in range(snics):
            snic = f"snic{index}"
            self.addSwitch(snic, cls=ServerSwitch)
            self.addLink("hypervisor", snic, intfName1=f"pcie-{snic}", intfName2="pf0hpf")
            self._host(f"nf{index + 1}", snic, "pf0vf1")
            self._host(f"out{index + 1}", snic, "p0")
        if snics:
            self.addLink("vm2", "snic0", port1=1, intfName2="pf0vf0")

    def _host(self, name: str, switch: str, interface: str) -> None:
        number = len(self.hosts()) + 1
        address = {"ip": f"10.0.0.{number}/24", "mac": f"02:00:00:00:00:{number:02x}"}
        self.addHost(name, cls=ServerHost, **address)
        self.addLink(name, switch, port1=0, intfName2=interface, params2={"virtual_port": number})


class ServerHost(Host):
    """A host of the server; its interfaces share one MAC address, and one at a time has the IP address."""

    active: Any = None

    def config(self, **params: Any) -> Any:
        """Configure the host; Mininet calls it when the interfaces exist."""
        result = super().config(**params)
        self.active = self.defaultIntf()
        for interface in self.intfList():
            if interface is not self.active:
                interface.setMAC(self.active.MAC())
            # A userspace switch forwards frames unchanged, even those without a checksum.
            self.cmd("ethtool -K", interface, "tx off")
        # While the host moves, two interfaces have its address, and packets may arrive at either.
        self.cmd("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.all.arp_ignore=1")
        self.cmd("sysctl -w net.ipv6.conf.all.disable_ipv6=1")
        return result

    def interface_at(self, switch: str) -> tuple[Any, Any]:
        """Return the interface plugged into ``switch``, and the switch's end of that wire.

        Raises:
            LookupError: it does not exist; the message lists the switches that have one.
        """
        ends = {far.node.name: (near, far) for near, far in map(_both_ends, self.intfList())}
        if switch not in ends:
            raise LookupError(f"{self.name} has no interface at {switch}; it has one at {', '.join(sorted(ends))}")
        return ends[switch]

    def activate(self, interface: Any) -> None:
        """Move the IP address to another interface, make-before-break."""
        if interface is not self.active:
            address = f"{self.IP()}/{self.defaultIntf().prefixLen}"
            self.cmd(f"ip addr add {address} dev {interface} && ip addr del {address} dev {self.active}")
            self.active = interface


class ServerSwitch(OVSSwitch):
    """The hypervisor (``hub``) or an sNIC of a server: an Open vSwitch of its own, with the bridges virt and edge.

    All such switches of one network form one server. An interface with the parameter ``virtual_port`` (in ``params1``
    or ``params2`` of its link) is the port with that number; one without is a target for moves.
    """

    ovs: OvsSwitch | None = None
    server: "Server | None" = None

    def __init__(self, name: str, hub: bool = False, **params: Any) -> None:
        self.hub = hub
        self.controllers: list[str] = []
        # Controllers see oneswitchd's datapath id; Mininet insists on one here too.
        params = {"dpid": DATAPATH_ID, **params, "inNamespace": True, "datapath": "user"}
        super().__init__(name, **params)

    @classmethod
    def setup(cls) -> None:
        """Do not look for the system's Open vSwitch service, which is not used."""
        for needed in ("ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovs-ofctl", "ethtool"):
            find_program(needed)
        cls.OVSVersion = "2.17"

    def vsctl(self, *args: Any, **kwargs: Any) -> Any:
        """Run ovs-vsctl on this switch's own database."""
        return self.cmd("ovs-vsctl", f"--db=unix:{self._ovs.db_socket}", "--timeout=10", *args, **kwargs)

    def dpctl(self, *args: Any) -> str:
        """Run ovs-ofctl on both bridges."""
        outputs = []
        for bridge in (VIRT, EDGE):
            target = f"unix:{self._ovs.management(bridge)}"
            outputs.append(f"--- {bridge}\n" + self.cmd("ovs-ofctl -O OpenFlow13", args[0], target, *args[1:]))
        return "".join(outputs)

    def start(self, controllers: Iterable[Any]) -> None:
        """Record the controllers: all switches start together, in `batchStartup`. A stopped one starts again."""
        if self.server is None:
            self.controllers = [f"{each.protocol}:{each.IP()}:{each.port}" for each in controllers]
        else:
            self.launch()
            self.server.await_switches()

    @classmethod
    def batchStartup(cls, switches: Any, run: Any = None) -> Any:
        """Start the server that these switches form."""
        Server(list(switches)).start()
        return switches

    def stop(self, deleteIntfs: bool = True) -> None:
        """End both daemons; oneswitchd keeps running and waits for them."""
        if self.ovs is not None:
            for daemon in reversed(DAEMONS):
                self.ovs.kill(daemon)
        Switch.stop(self, deleteIntfs)

    @classmethod
    def batchShutdown(cls, switches: Any, run: Any = None) -> Any:
        """End the server."""
        for switch in switches:
            switch.stop()
        for server in {switch.server for switch in switches if switch.server is not None}:
            server.stop()
        return switches

    def connected(self) -> bool:
        """Tell whether oneswitchd reaches this switch, and a controller if one is configured."""
        return self.server is not None and self.server.ready()

    def attach(self, intf: Any) -> None:
        """Make an interface that was added later a virtual port, with the lowest free number."""
        self.cmd("ip link set", intf, "up")
        self._server.unoctl("port", "add", "auto", "--switch", self.name, "--interface", str(intf))

    def detach(self, intf: Any) -> None:
        """Remove the virtual port of an interface."""
        self._server.unoctl("port", "del", str(intf), "--detach")

    def launch(self) -> None:
        """Start both daemons in this node's network namespace."""
        netns = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            with namespaces.entered(fd=netns):
                for daemon in DAEMONS:
                    self._ovs.launch(daemon)
                    self._ovs.await_up(daemon, lambda pid: start_time(pid) is not None)
        finally:
            os.close(netns)

    def wires(self) -> list[tuple[Any, Any]]:
        """Return each interface of this switch, and the far end of its wire."""
        return [_both_ends(each) for each in self.intfList() if each.link is not None]

    @property
    def _ovs(self) -> OvsSwitch:
        if self.ovs is None:
            raise MininetError(f"switch {self.name} has not been started")
        return self.ovs

    @property
    def _server(self) -> "Server":
        if self.server is None:
            raise MininetError(f"switch {self.name} has not been started")
        return self.server


class Server:
    """The server that the switches form: their server.toml, the plumbing between them, and oneswitchd.

    Args:
        switches: the hypervisor and its sNICs.

    Raises:
        MininetError: it does not have exactly one hypervisor.
    """

    def __init__(self, switches: list[ServerSwitch]) -> None:
        hubs = [switch for switch in switches if switch.hub]
        if len(hubs) != 1:
            raise MininetError(f"{len(hubs)} switches have hub=True; exactly one must: the server's hypervisor")
        self.switches = [hubs[0], *(switch for switch in switches if not switch.hub)]
        self.directory = Path(tempfile.mkdtemp(prefix="uno-mininet-"))
        self.config = self.directory / "server.toml"
        self._api = self.directory / "oneswitchd.sock"
        self._log = self.directory / "oneswitchd.log"
        self._oneswitchd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the switches, plumb them, and start oneswitchd.

        Raises:
            MininetError: something did not start.
        """
        for switch in self.switches:
            switch.server = self
            switch.ovs = OvsSwitch(switch.name, self.directory / switch.name)
            switch.ovs.create()
            switch.launch()
            switch.ovs.bridges = (VIRT, EDGE)  # it has them from now on, also after a restart
            for near, far in switch.wires():
                if isinstance(far.node, ServerSwitch):
                    switch.cmd("ip link set", near, "mtu", PCIE_MTU)
        self.config.write_text(dump_document(self._document()))
        self._plumb()
        with self._log.open("wb") as lines:
            command = [find_program("setpriv"), "--pdeathsig", "KILL", program("oneswitchd"), "--config", self.config]
            self._oneswitchd = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=lines, stderr=lines)
        self.await_switches()

    def await_switches(self) -> None:
        """Wait until oneswitchd reaches all switches.

        Raises:
            MininetError: it has ended, or the time limit expired.
        """
        deadline = time.monotonic() + START_S
        while not self._switches_up():
            if self._oneswitchd is None or self._oneswitchd.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])
                raise MininetError(f"oneswitchd has ended or does not reach the switches; its log ends:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End oneswitchd and remove all files."""
        if self._oneswitchd is not None:
            self._oneswitchd.terminate()
            self._oneswitchd.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def ready(self) -> bool:
        """Tell whether oneswitchd reaches all switches and all configured controllers."""
        status = self._status()
        return status is not None and _up(status) and all(c["state"] == "connected" for c in status["controllers"])

    def unoctl(self, *arguments: str) -> int:
        """Run unoctl on this server; return its exit status."""
        env = {**environment(), "ONESWITCH_CONFIG": str(self.config)}
        return subprocess.run([program("unoctl"), *arguments], env=env, check=False).returncode

    def _document(self) -> dict[str, object]:
        hub, *snics = self.switches
        tables = [self._switch_table(switch) for switch in self.switches]
        for snic, table in zip(snics, tables[1:], strict=True):
            ends = [(near, far) for near, far in snic.wires() if far.node is hub]
            if len(ends) != 1:
                raise MininetError(f"{snic.name} has {len(ends)} links to {hub.name}; it must have one, its PCIe link")
            near, far = ends[0]
            table["link"] = {"hypervisor": str(far), "local": str(near), "type": "vlan"}  # Mininet makes the link
        return {
            "oneswitchd": {
                "datapath_id": DATAPATH_ID,
                "listen": [f"punix:{self.directory}/oneswitchd.mgmt"],
                "controllers": hub.controllers,
                "api": f"unix:{self._api}",
            },
            "switch": tables,
            "port": [
                {
                    "number": number,
                    "name": near.params.get("port_name", far.node.name),
                    "switch": switch.name,
                    "interface": str(near),
                }
                for switch in self.switches
                for near, far in switch.wires()
                if (number := near.params.get("virtual_port")) is not None
            ],
        }

    def _switch_table(self, switch: ServerSwitch) -> dict[str, object]:
        ovs = switch._ovs
        return {
            "name": switch.name,
            "virt": f"unix:{ovs.management(VIRT)}",
            "edge": f"unix:{ovs.management(EDGE)}",
            "ovsdb": f"unix:{ovs.db_socket}",
            "control": str(ovs.control()),
        }

    def _plumb(self) -> None:
        command = [program("python"), "-c", _PLUMB, str(self.config)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MininetError(f"plumbing failed: {done.stderr.strip()}")

    def _switches_up(self) -> bool:
        status = self._status()
        return status is not None and _up(status)

    def _status(self) -> dict[str, Any] | None:
        connection = _UnixConnection(self._api)
        try:
            connection.request("GET", "/v1/status")
            return json.load(connection.getresponse())
        except OSError:
            return None
        finally:
            connection.close()


class ServerCLI(CLI):
    """Mininet's CLI with two more commands."""

    def do_unoctl(self, line: str) -> None:
        """Run unoctl on the server.

        Usage: unoctl [argument]...; for example: unoctl show
        """
        server = _server_of(self.mn)
        if server is not None:
            server.unoctl(*shlex.split(line))

    def do_move(self, line: str) -> None:
        """Move a host's port to another switch of the server, without losing a packet.

        Usage: move host switch; for example: move vm2 snic0
        """
        server = _server_of(self.mn)
        words = line.split()
        if server is None or len(words) != 2:
            error("usage: move host switch\n")
            return
        host = self.mn.nameToNode.get(words[0])
        if not isinstance(host, ServerHost):
            error(f"no host {words[0]} of the server\n")
            return
        try:
            near, far = host.interface_at(words[1])
        except LookupError as problem:
            error(f"{problem}\n")
            return
        place = ["--switch", words[1], "--interface", str(far)]
        # Between the two stages both paths work: the host switches over now.
        if server.unoctl("port", "move", host.name, *place, "--until", "flipped") == 0:
            host.activate(near)
            server.unoctl("port", "continue", host.name)
            output(f"{host.name} is now at {words[1]}\n")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5.0)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _up(status: dict[str, Any]) -> bool:
    return all(each[bridge]["state"] == "up" for each in status["switches"] for bridge in (VIRT, EDGE))


def _both_ends(interface: Any) -> tuple[Any, Any]:
    link = interface.link
    return interface, link.intf2 if link.intf1 is interface else link.intf1


def _server_of(network: Any) -> Server | None:
    found = next((switch.server for switch in network.switches if isinstance(switch, ServerSwitch)), None)
    if found is None:
        error("this network has no server; start Mininet with: --topo server\n")
    return found
