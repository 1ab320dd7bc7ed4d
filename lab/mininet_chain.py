"""A service chain in Mininet: functions in hosts of a server, which examples/mininet_server.py gives ``mn``.

Packets of ``out1`` for the address `VIP` pass ``fw``, a firewall (a limiter where ``nf`` has none), ``mon``, an asset
monitor at the smart NIC, and ``lb``, a load balancer, which shares them among web servers. The controller is
examples/tenant_chains.py. Like `lab.mininet_server`, this module needs nothing but the standard library and Mininet.
"""

# Mininet is installed for the system's Python, where a type checker of .venv cannot see it.
# pyright: reportMissingImports=false

import json
import subprocess
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from lab.mininet_server import ServerHost, ServerSwitch, program
from lab.signatures import own_signatures

VIP = "10.0.0.100"
CHAINS = f"{VIP} via fw-out+fw-in mon-out+mon-in lb"
_OWN = "10.0.0.50"
_FILES = Path("/tmp")  # tools/mininet makes it private
_ENOUGH = 1_000_000
_WEBS = {"web1": "10.0.0.2", "web2": "10.0.0.3"}


class FunctionHost(ServerHost):
    """A host in which ``nf run`` runs a function on all interfaces; its control socket is /tmp/NAME.sock."""

    function: "subprocess.Popen[bytes] | None" = None

    def config(self, **params: Any) -> Any:
        """Configure the host and start the function; Mininet calls it when the interfaces exist."""
        result = super().config(**params)
        kind, config = _function(self.name)
        path = _FILES / f"{self.name}.json"
        path.write_text(json.dumps(config))
        ports = []
        for interface in self.intfList():
            self.cmd("ip link set", interface, "up")
            ports += ["--port", str(interface)]
        command = [program("nf"), "run", kind, "--config", str(path), *ports, "--backend", "packet"]
        command += ["--control", str(path.with_suffix(".sock"))]
        with path.with_suffix(".log").open("wb") as log:
            self.function = self.popen(command, stdout=log, stderr=subprocess.STDOUT)
        return result

    def terminate(self) -> None:
        """End the function and the host."""
        if self.function is not None:
            self.function.kill()
            self.function.wait()
        super().terminate()


class ChainTopo(Topo):
    """One server with one smart NIC: clients behind its wire, web servers and functions on both switches."""

    def build(self) -> None:
        """Build the topology; Mininet calls it."""
        self.addSwitch("hypervisor", cls=ServerSwitch, hub=True)
        self.addSwitch("snic0", cls=ServerSwitch)
        self.addLink("hypervisor", "snic0", intfName1="pcie-snic0", intfName2="pf0hpf")
        self._host("out1", "10.0.0.1", ServerHost, "snic0", "p0")
        for name, address in _WEBS.items():
            self._host(name, address, ServerHost, "hypervisor", name)
        self._host("fw", "10.0.0.11", FunctionHost, "hypervisor", "fw-out", "fw-in")
        self._host("mon", "10.0.0.12", FunctionHost, "snic0", "mon-out", "mon-in")
        self._host("lb", "10.0.0.13", FunctionHost, "hypervisor", "lb")

    def _host(self, name: str, address: str, cls: type, switch: str, *interfaces: str) -> None:
        mac = f"02:00:00:00:00:{len(self.hosts()) + 1:02x}"
        self.addHost(name, cls=cls, ip=f"{address}/24", mac=mac)
        for end, interface in enumerate(interfaces):
            number = 10 * len(self.hosts()) + end
            port = {"virtual_port": number, "port_name": interface if len(interfaces) > 1 else name}
            self.addLink(name, switch, port1=end, intfName2=interface, params2=port)


def _function(name: str) -> tuple[str, dict[str, Any]]:
    """Return the kind and the configuration of a host's function."""
    if name == "mon":
        return "assets", {"signatures": str(own_signatures(_FILES))}
    if name == "lb":
        backends = [{"name": web, "address": address} for web, address in _WEBS.items()]
        vip = {"name": "web", "address": VIP, "port": 80, "protocol": "tcp", "mode": "nat", "snat": True}
        return "l4lb", {"interfaces": [{"addresses": [f"{_OWN}/24"]}], "vips": [vip | {"backends": backends}]}
    done = subprocess.run([program("nf"), "list"], capture_output=True, text=True, check=True)
    if not any(line.startswith("firewall ") for line in done.stdout.splitlines()):
        return "limiter", {"packets": _ENOUGH}
    rule = {"name": "web", "from": ["outside"], "destination": [VIP], "protocols": ["tcp"], "ports": [80]}
    return "firewall", {"zones": {"outside": {"ports": [0]}}, "rules": [rule | {"action": "allow"}]}
