"""Two sites of an emulated server, each behind a gateway that nfagent deployed and the site's charon keys."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.errors import ControlError
from lab.frames import Endpoint
from lab.function import Function, ofctl
from lab.server import Lab
from lab.spec import HYPERVISOR, HostSpec, InterfaceSpec, LabSpec, PortSpec, SwitchSpec
from lab.traffic import Stream
from nfagent.control import Control
from nfagent.launch.local import LocalLauncher
from tests.nfs.awaiting import await_that
from tests.nfs.charon import Charon

SNIC = "snic0"
WEST, EAST, TAP = "west", "east", "tap"
NETWORKS = {WEST: "10.1.0.0/24", EAST: "10.2.0.0/24"}
_NET = {WEST: "10.1.0", EAST: "10.2.0"}
_OUTER = {WEST: "192.0.2.1", EAST: "192.0.2.2"}
_PORTS = {WEST: 1, EAST: 2, TAP: 3}
_OTHER = {WEST: EAST, EAST: WEST}
_PROJECT = Path(__file__).resolve().parents[2]


def spec() -> LabSpec:
    """Return a server with a host at each site, one that gets a copy of all between the gateways, and slots."""
    places = {
        WEST: InterfaceSpec(SNIC, "p0"),
        EAST: InterfaceSpec(HYPERVISOR, "vm1"),
        TAP: InterfaceSpec(HYPERVISOR, "vm2"),
    }
    addresses = {WEST: "10.1.0.2/24", EAST: "10.2.0.2/24", TAP: "10.3.0.2/24"}
    hosts = tuple(
        HostSpec(name, (place,), addresses[name], f"02:00:00:00:00:{_PORTS[name]:02x}")
        for name, place in places.items()
    )
    ports = tuple(PortSpec(_PORTS[name], name, place.switch, place.name) for name, place in places.items())
    switches = (SwitchSpec(HYPERVISOR), SwitchSpec(SNIC, "pf0hpf", f"pcie-{SNIC}"))
    return LabSpec(switches, hosts, ports).with_slots(3, 2)


class Gateway:
    """A gateway that nfagent deployed, and the daemon that keys it, in the site's host."""

    def __init__(self, lab: Lab, agent: AgentProcess, end: str, directory: Path) -> None:
        self.end, self._agent, self._lab = end, agent, lab
        net, host = _NET[end], lab.host(end)
        config = {
            "ike_host": f"{net}.2",
            "interfaces": [{"addresses": [f"{net}.1/24"]}, {"addresses": [f"{_OUTER[end]}/24"]}],
            "neighbours": [{"address": f"{net}.2", "mac": host.mac}],
        }
        self.function = Function(agent, {"name": f"gateway-{end}", "kind": "ipsec", "ports": 2, "config": config})
        self.function.await_active()
        for command in (
            f"ip addr add {_OUTER[end]}/32 dev lo",
            f"ip route add default via {net}.1",
            "sysctl -qw net.ipv4.conf.all.arp_announce=2",
        ):
            lab.exec(end, command.split())
        socket = f"{agent.runtime}/{self.function.id}.*.sock"
        self.charon = Charon(directory, end, partial(lab.popen, end), socket=socket)
        ends = f"local_addrs = {_OUTER[end]}\nremote_addrs = {_OUTER[_OTHER[end]]}"
        self.charon.load(ends, NETWORKS, proposals="aes256gcm16-ecp384-esn")

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of its ports, that toward the site first."""
        return [port["number"] for port in self.function.ports]

    @property
    def mac(self) -> str:
        """Return its address on the site's link."""
        return self.function.ports[0]["mac"]

    def place(self) -> str:
        return self.function.show()["placement"]["location"]

    def move(self) -> dict[str, Any]:
        """Move it to the other side; return the migration."""
        return self.function.move({SNIC: HYPERVISOR, HYPERVISOR: SNIC}[self.place()])

    def cut(self, wait_s: float, *, new: bool) -> str:
        """Begin a move, kill its new process or its old one after a while, if it runs; return the outcome."""
        begun = await_that(self._begun)
        assert begun is not None
        old, other, epoch = begun
        time.sleep(wait_s)
        key = f"{self.function.id}.{other if new else old}"
        launcher = LocalLauncher(self._agent.runtime, self._agent.runtime)
        found = launcher.find(key)
        if found is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGKILL)
        outcome = self.function.await_end(epoch)["outcome"]
        self.function.await_active()
        return outcome

    def _begun(self) -> tuple[str, str, int] | None:
        """Begin a move; return where from, where to, and its epoch, or None while it is refused, after a kill."""
        old = self.place()
        other = {SNIC: HYPERVISOR, HYPERVISOR: SNIC}.get(old, SNIC)
        try:
            return old, other, self.function.ask(other)
        except ControlError:
            return None

    def associations(self) -> list[dict[str, Any]]:
        """Return what the running instance tells of its associations, the newest outbound one first."""
        control = Control(self._agent.runtime / f"{self.function.id}.{self.place()}.sock")
        tunnels = control.ask("ipsec.show")["tunnels"]
        return tunnels[0]["associations"] if tunnels else []

    def rekey(self) -> None:
        """Have the daemon negotiate new keys; wait until it has them."""
        before = self._outbound()
        self.charon.swanctl("--rekey", "--child=net")
        await_that(lambda: self._outbound() - before)

    def _outbound(self) -> set[str]:
        """Return the daemon's outbound SPIs, which it knows also while the gateway moves."""
        return set(re.findall(r"^ +out +([0-9a-f]+)", self.charon.swanctl("--list-sas"), re.MULTILINE))


class Sites:
    """The server with both gateways.

    Args:
        directory: for the daemons' files.
        mode: of migrations, ``auto`` or ``copy``.
    """

    def __init__(self, directory: Path, mode: str = "auto") -> None:
        self.mode, self._stack = mode, ExitStack()
        with ExitStack() as stack:
            self.lab = stack.enter_context(Lab(spec()).start())
            self.oneswitchd = stack.enter_context(Oneswitchd(self.lab.server_toml))
            self.agent = stack.enter_context(
                AgentProcess(
                    self.lab,
                    self.lab.directory / "nfagent",
                    {"decide": {"enabled": False}, "migrate": {"mode": mode}},
                )
            )
            self.gateways = {end: Gateway(self.lab, self.agent, end, directory) for end in (WEST, EAST)}
            for gateway in self.gateways.values():
                stack.callback(gateway.charon.close)
            self._steer()
            command = [sys.executable, "-m", "tests.nfs.esp_tap", "eth0"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._tap = stack.enter_context(self.lab.popen(TAP, command, cwd=_PROJECT, **pipes))
            assert self._tap.stdout is not None
            assert self._tap.stdout.readline() == "ready\n"
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _steer(self) -> None:
        """Connect each site with its gateway, and the gateways with each other and the tap."""
        west, east = (self.gateways[end].numbers for end in (WEST, EAST))
        paths = [
            (_PORTS[WEST], [west[0]]),
            (west[0], [_PORTS[WEST]]),
            (_PORTS[EAST], [east[0]]),
            (east[0], [_PORTS[EAST]]),
            (west[1], [east[1], _PORTS[TAP]]),
            (east[1], [west[1], _PORTS[TAP]]),
        ]
        for port, outputs in paths:
            actions = ",".join(f"output:{output}" for output in outputs)
            ofctl(self.lab, self.oneswitchd, "add-flow", f"in_port={port},actions={actions}")

    def connect(self) -> None:
        """Have the west initiate; wait until packets pass."""
        self.gateways[WEST].charon.swanctl("--initiate", "--child=net")
        self.await_path()

    def await_path(self) -> None:
        """Wait until packets pass both ways."""
        ping = ["ping", "-c1", "-W0.2", "-I", f"{_NET[WEST]}.2", f"{_NET[EAST]}.2"]
        await_that(lambda: "1 received" in self.lab.exec(WEST, ping, check=False).stdout)

    def stream(self, end: str, rate: float) -> Stream:
        """Start numbered packets from a site to the other one."""
        to = Endpoint(self.gateways[end].mac, f"{_NET[_OTHER[end]]}.2")
        return Stream(self.lab, end, _OTHER[end], rate=rate, to=to, number=_PORTS[end])

    def tapped(self) -> dict[str, Any]:
        """End the tap; return what it has seen."""
        said, _ = self._tap.communicate("", timeout=30)
        return json.loads(said)
