"""oneswitchd over several switches, to be compared with one bridge."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from lab.control_plane import Oneswitchd
from lab.errors import StartError
from lab.spec import LabSpec, Meters
from lab.wires import Place
from server.names import HOME, LinkType
from server.oneswitchd.answers import VirtualPort
from server.oneswitchd.settling import settled
from tests.oracle.pools import PORTS
from tests.oracle.world import NOTICE_S, POLL_S, World

_MISSES_VERSION = 1


class OneSwitch(World):
    """oneswitchd over ``switches`` switches.

    Args:
        switches: how many; the hypervisor is one of them.
        binary: None finds the installed oneswitchd.
        executor: the server's default; runs begin with it.
        stateful: rules may keep state that all ports share.
        meters: whether meters gather the ports, too.
        links: types of the PCIe links, and `LabSpec.ovs` where the installed Open vSwitch lacks ports of type ``pcie``.
    """

    def __init__(
        self,
        switches: int,
        binary: Path | None = None,
        executor: str = HOME,
        *,
        stateful: bool = False,
        meters: Meters = "per-executor",
        links: tuple[LinkType, ...] = (),
        ovs: str | None = None,
    ) -> None:
        self._binary = binary
        self._daemon: Oneswitchd | None = None
        spec = server(switches).with_links(*links)
        self.spec = dataclasses.replace(spec, executor=executor, meters=meters, ovs=ovs)
        self._executed: set[int] = set()
        self._cut_off: set[int] = set()
        super().__init__(self.spec, stateful=stateful)

    @property
    def daemon(self) -> Oneswitchd:
        """The running oneswitchd."""
        if self._daemon is None:
            self._daemon = self._stack.enter_context(Oneswitchd(self.lab.server_toml, self._binary))
            self._daemon.wait_up()
        return self._daemon

    def begin_binary(self, binary: Path) -> None:
        """Continue with another oneswitchd without the state of the previous one."""
        self._hang_up()
        self.daemon.stop()
        for file in (self.daemon.config.oneswitchd.state, self.daemon.config.oneswitchd.journal):
            Path(str(file)).unlink(missing_ok=True)
        self._daemon, self._binary = None, binary
        self._executed.clear()
        self.places = {port.number: (port.switch, port.interface) for port in self.spec.ports}
        self.channel = self._connect()
        self._fresh = True

    def _end_control_plane(self) -> None:
        self.daemon.stop()
        self._daemon = None

    def restart_switch(self, switch: int) -> None:
        """Kill and restart an ovs-vswitchd."""
        hub, *snics = [each.name for each in self.spec.switches]
        restarted = self.lab.switch([hub, *snics][switch % (1 + len(snics))])
        up = {port.number for port in self.daemon.client.ports() if port.state == "up"}
        # Without their sockets, the sNICs' PCIe ports would wait up to 8 s before reconnecting to the hypervisor.
        cut = snics if restarted.name == hub else []
        for snic in cut:
            self.lab.unlink(snic)
        restarted.kill("ovs-vswitchd")
        restarted.start("ovs-vswitchd")
        for snic in cut:
            self.lab.relink(snic)
        self._open_controls()
        self.wires.reconnect()
        for port in sorted(self._down):
            self._set_interface(port, up=False)
        self.daemon.wait_up()
        self._await_ports(up, "up")

    def break_link(self, switch: int) -> None:
        snic, behind = self._snic(switch), set(self.behind(switch))
        self._cut_off = {port.number for port in self.daemon.client.ports() if port.state == "up"} & behind
        if snic is not None:
            self.lab.unlink(snic)
            self._await_ports(self._cut_off, "down")

    def mend_link(self, switch: int) -> None:
        snic = self._snic(switch)
        if snic is not None:
            self.lab.relink(snic)
            self._await_ports(self._cut_off, "up")

    def behind(self, switch: int) -> list[int]:
        """The ports that are cut off when the link of the sNIC with this index (modulo their number) is.

        They are at that sNIC, or their pipeline is.
        """
        snic = self._snic(switch)
        return [port.number for port in self.daemon.client.ports() if snic in (port.switch, port.executing)]

    def _snic(self, switch: int) -> str | None:
        snics = self.spec.switches[1:]
        return snics[switch % len(snics)].name if snics else None

    def _await_ports(self, numbers: set[int], state: str) -> None:
        deadline = time.monotonic() + NOTICE_S
        while {port.state for port in self.daemon.client.ports() if port.number in numbers} - {state}:
            if time.monotonic() > deadline:
                raise StartError(f"not all of ports {sorted(numbers)} are {state} after {NOTICE_S:g} s")
            time.sleep(POLL_S)

    def interfaces_of(self, port: int) -> list[Place]:
        place = self.spec.ports[port - 1].switch, self.spec.ports[port - 1].interface
        hosts = [[(each.switch, each.name) for each in host.interfaces] for host in self.spec.hosts]
        return next(places for places in hosts if place in places)

    def _path(self) -> Path:
        return Path(self.daemon.management.removeprefix("unix:"))

    def is_gathered(self) -> bool:
        """Tell whether ports have left their executors for state that all share."""
        return self.daemon.client.status().virtual.gathered is not None

    def go_home(self) -> None:
        super().go_home()
        self._await(lambda: not self.is_gathered(), "the ports did not go home")
        self._flush()

    def _await_misses(self) -> None:
        if not any(channel.dialect.version == _MISSES_VERSION for channel in (self.channel, *self._others.values())):
            return
        missing = lambda: [each.misses for each in self.daemon.client.status().switches]  # noqa: E731
        if "down" not in missing():
            return
        self._await(lambda: "down" not in missing(), "packets that meet no rule do not come")
        self._let_switches_notice()

    def _await(self, done: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + NOTICE_S
        while not done():
            if time.monotonic() > deadline:
                raise StartError(f"{otherwise} within {NOTICE_S:g} s")
            time.sleep(POLL_S)

    def move(self, port: int, switch: int) -> None:
        """Move a port to the switch with this index (modulo their number)."""
        goal = self.spec.switches[switch % len(self.spec.switches)].name
        if self.places[port][0] == goal:
            return
        interface = next(name for switch, name in self.interfaces_of(port) if switch == goal)
        _at_rest(lambda: self.daemon.client.move_port(port, goal, interface, "done", 0))
        self.places[port] = (goal, interface)

    def execute(self, port: int, switch: int) -> None:
        """Move a port's pipeline to the switch with this index (modulo their number)."""
        goal = self.spec.switches[switch % len(self.spec.switches)].name
        self._bring(port, goal)
        self._executed.add(port)

    def home(self) -> None:
        for port in self._executed:
            self._bring(port, self.spec.executor)
        self._executed.clear()
        names = [switch.name for switch in self.spec.switches]
        for port in self.spec.ports:
            self.move(port.number, names.index(port.switch))

    def _bring(self, port: int, executor: str) -> None:
        _at_rest(lambda: self.daemon.client.change_executor(port, executor, "done", 0))


def _at_rest(request: Callable[[], VirtualPort]) -> None:
    """Make a request, repeated while oneswitchd moves the port: ports that an earlier script has gathered go home."""
    settled(request, {"move-in-progress"})


def server(switches: int) -> LabSpec:
    """Return a server with six hosts, evenly spread, each of which can move to any switch."""
    return LabSpec.star(switches - 1, len(PORTS) // switches, mobile=True, substrate="dummy")
