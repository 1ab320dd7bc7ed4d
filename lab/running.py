"""A lab from the inside: built, operated and stopped by its supervisor."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from lab import quota
from lab.directory import SERVER_TOML
from lab.errors import ControlError, StartError
from lab.ovs import DAEMONS, VSWITCHD, Daemon, OvsSwitch
from lab.processes import OuterProc
from lab.reference import BRIDGE, make_bridge
from lab.server_toml import server_config
from lab.spec import LabSpec, SwitchSpec
from lab.state import HostState, LabState, LabSwitch, LinkState, PortState, SlotState
from lab.substrate import Substrate
from server.config import ServerConfig
from server.errors import ConfigError, PlumbingError
from server.names import EDGE, VIRT
from server.openvswitch.layout import Interface, Layout
from server.openvswitch.servers import ServerPlumbing

_ENDING_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGABRT", "SIGSEGV")


class RunningLab:
    """The lab's processes and their state.

    Args:
        spec: the lab.
        directory: the lab's existing directory.
        outer: process ids as seen from outside.
        substrate: wires and hosts.
        user_namespace: for lab.json.
    """

    def __init__(
        self, spec: LabSpec, directory: Path, outer: OuterProc, substrate: Substrate, *, user_namespace: bool
    ) -> None:
        self._spec = spec
        self._outer = outer
        self._substrate = substrate
        self._switches: dict[str, OvsSwitch] = {}
        self._notes: list[str] = []
        self.state = LabState(
            name=directory.name,
            substrate=spec.substrate,
            directory=str(directory),
            server_toml=None if spec.plain else str(directory / SERVER_TOML),
            pid=outer.own_pid,
            start_time=outer.start_time(),
            user_namespace=user_namespace,
            datapath_type=substrate.datapath_type,
            switches=[],
            links=[],
            hosts=[],
            ports=[PortState(port.number, port.name, port.switch, port.interface) for port in spec.ports],
        )

    def build(self, progress: Callable[[str], None]) -> None:
        """Start everything.

        Args:
            progress: shows the progress.

        Raises:
            StartError: something did not start.
        """
        spec = self._spec
        progress(f"wiring {len(spec.switches)} switches and {len(spec.hosts)} hosts")
        self._substrate.prepare()
        self._switches = {switch.name: self._substrate.switch(switch) for switch in spec.switches}
        progress(f"starting Open vSwitch: {', '.join(self._switches)}")
        for switch in self._switches.values():
            switch.create()
        for daemon in DAEMONS:
            for switch in self._switches.values():
                switch.launch(daemon)
            for switch in self._switches.values():
                switch.await_up(daemon, _runs)
        self._describe()
        try:
            with self._substrate.opening_ports():
                self._make_reference(progress) if spec.plain else self._plumb(progress)
        except (ConfigError, PlumbingError) as error:
            raise StartError(str(error)) from error
        self._substrate.await_links(self._switches)
        self.state.notes = [*self._substrate.notes, *self._notes]
        self._note_processes()

    def _plumb(self, progress: Callable[[str], None]) -> None:
        progress("plumbing the bridges virt and edge on each switch")
        config = server_config(self._spec, self.state)
        (Path(self.state.directory) / SERVER_TOML).write_text(config.dump())
        with ServerPlumbing(config, datapath_type=self._substrate.datapath_type) as plumbing:
            chosen = plumbing.links()
            for link in self.state.links:
                link.type = chosen[link.switch].type
            self._substrate.make_links(self.state.links)
            for spec in self._spec.switches:
                plumbing.on(spec.name).ensure(self._layout(spec, config, plumbing.pcie_ports(spec.name, chosen)))
                self._switches[spec.name].bridges = (VIRT, EDGE)

    def _make_reference(self, progress: Callable[[str], None]) -> None:
        progress(f"creating the plain bridge {BRIDGE}")
        spec, state = self._spec.switches[0], self.state.switches[0]
        interfaces = self._substrate.interfaces(spec)
        make_bridge(self._spec, spec, state.ovsdb, self._substrate.datapath_type, interfaces)
        self._switches[spec.name].bridges = (BRIDGE,)

    def stop(self) -> None:
        """End the daemons; this process's end ends the namespaces."""
        for daemon in reversed(DAEMONS):
            for switch in self._switches.values():
                with contextlib.suppress(ProcessLookupError):
                    if daemon in switch.pids:
                        os.kill(switch.pids[daemon], signal.SIGTERM)
            for switch in self._switches.values():
                switch.kill(daemon, signal.SIGTERM)

    def reap(self) -> None:
        """Collect ended children, orphans included, as the first process of a namespace must."""
        changed = False
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                changed |= any(_forget(switch, pid) for switch in self._switches.values())
        if changed:
            self._changed()

    # ---- requests

    def kill(self, switch: str, daemon: str, signal_name: str = "SIGKILL") -> None:
        """End a daemon of a switch.

        Raises:
            ControlError: unknown switch, daemon or signal, or the daemon is not running.
        """
        found, which = self._find_switch(switch), _daemon(daemon)
        if signal_name not in _ENDING_SIGNALS:
            raise ControlError(f"signal {signal_name!r} does not end a process; expected {', '.join(_ENDING_SIGNALS)}")
        number = signal.Signals[signal_name]
        if not found.kill(which, number):
            raise ControlError(f"{which} of {switch} is not running")
        self._changed()

    def start(self, switch: str, daemon: str) -> None:
        """Start a daemon of a switch and wait until it serves again.

        Raises:
            ControlError: unknown switch or daemon, or the daemon is already running.
            StartError: it did not start.
        """
        found, which = self._find_switch(switch), _daemon(daemon)
        if which in found.pids:
            raise ControlError(f"{which} of {switch} is already running")
        with self._substrate.opening_ports():
            found.launch(which)
            found.await_up(which, _runs)
        self._substrate.await_links(self._serving())
        self._changed()

    def set_link(self, snic: str, up: bool) -> None:
        """Take the PCIe link of an sNIC down or up.

        Raises:
            ControlError: unknown sNIC.
        """
        link = next((link for link in self.state.links if link.switch == snic), None)
        if link is None:
            raise ControlError(f"unknown sNIC {snic!r}; expected {', '.join(each.switch for each in self.state.links)}")
        spec = next(switch for switch in self._spec.switches if switch.name == snic)
        self._substrate.set_link(spec, up=up)
        link.up = up
        self._substrate.await_links(self._serving())
        self._changed()

    def activate(self, host: str, switch: str) -> None:
        """Make the host's interface at ``switch`` its active one.

        Raises:
            ControlError: unknown host, or it has no interface there.
        """
        state = next((each for each in self.state.hosts if each.name == host), None)
        if state is None:
            raise ControlError(f"unknown host {host!r}; expected {', '.join(each.name for each in self.state.hosts)}")
        new = next((each for each in state.interfaces if each.switch == switch), None)
        if new is None:
            places = ", ".join(each.switch for each in state.interfaces)
            raise ControlError(f"host {host} has no interface on {switch}; it has one on {places}")
        old = next(each for each in state.interfaces if each.name == state.active)
        if new is not old:
            spec = next(each for each in self._spec.hosts if each.name == host)
            self._substrate.activate(spec, old, new)
            state.active = new.name
            self._changed()

    # ---- description

    def _layout(self, switch: SwitchSpec, config: ServerConfig, pcie: Mapping[str, Interface]) -> Layout:
        """Lay out what server.toml asks for, plus all interfaces plugged into edge, to which ports may move."""
        special = {**self._substrate.interfaces(switch), **pcie}
        physical = tuple(special.get(name, Interface(name)) for name in self._spec.plugged(switch.name))
        return dataclasses.replace(Layout.of(config, switch.name, special), physical=physical)

    def _describe(self) -> None:
        substrate, spec = self._substrate, self._spec
        self.state.switches = [
            LabSwitch(
                name=switch.name,
                directory=str(switch.directory),
                netns=substrate.netns(switch.name),
                ovsdb=f"unix:{switch.db_socket}",
                virt=f"unix:{switch.management(BRIDGE if spec.plain else VIRT)}",
                edge=None if spec.plain else f"unix:{switch.management(EDGE)}",
                control=str(switch.control()),
            )
            for switch in self._switches.values()
        ]
        self.state.links = [
            LinkState(
                snic.name,
                snic.downlink,
                snic.uplink,
                spec.pcie_mbps,
                address=substrate.meeting_address(snic) if snic.link == "tcp" else None,
            )
            for snic in spec.switches[1:]
            if snic.uplink and snic.downlink
        ]
        for host in spec.hosts:
            interfaces = substrate.host_interfaces(host)
            self.state.hosts.append(
                HostState(host.name, substrate.netns(host.name), host.address, host.mac, interfaces, interfaces[0].name)
            )

        groups = self._groups()
        self.state.slots = [
            SlotState(
                slot.name, str(substrate.netns(slot.name)), slot.switch, list(slot.interfaces), groups.get(slot.name)
            )
            for slot in spec.slots
        ]

    def _groups(self) -> dict[str, str]:
        """Create the control groups of slow slots, by slot; note why there are none."""
        slow = {slot.name: slot.speed for slot in self._spec.slots if slot.speed is not None}
        if not slow:
            return {}
        quotas = quota.find()
        if isinstance(quotas, str):
            self._notes.append(f"functions in {', '.join(slow)} are not slowed, but use whole cores: {quotas}")
            return {}
        made: dict[str, str] = {}
        try:
            for name, speed in slow.items():
                made[name] = str(quotas.limit(f"uno-lab-{self.state.pid}-{name}", speed))
        except OSError as error:
            quota.remove(made.values())
            raise StartError(f"{quotas.directory}: a CPU quota for {', '.join(slow)}: {error.strerror}") from error
        return made

    def _changed(self) -> None:
        self._note_processes()
        self.state.write()

    def _note_processes(self) -> None:
        for state in self.state.switches:
            pids = self._switches[state.name].pids
            state.processes = {daemon: self._outer.outer_pid(pid) for daemon, pid in pids.items()}

    def _serving(self) -> dict[str, OvsSwitch]:
        """Return the running switches whose PCIe link, if any, is not broken."""
        broken = {link.switch for link in self.state.links if not link.up}
        return {name: each for name, each in self._switches.items() if VSWITCHD in each.pids and name not in broken}

    def _find_switch(self, name: str) -> OvsSwitch:
        if name not in self._switches:
            raise ControlError(f"unknown switch {name!r}; expected {', '.join(self._switches)}")
        return self._switches[name]


def _daemon(name: str) -> Daemon:
    for daemon in get_args(Daemon):
        if daemon == name:
            return daemon
    raise ControlError(f"unknown daemon {name!r}; expected {', '.join(DAEMONS)}")


def _forget(switch: OvsSwitch, pid: int) -> bool:
    for daemon in _running(switch):
        if switch.pids[daemon] == pid:
            del switch.pids[daemon]
            return True
    return False


def _running(switch: OvsSwitch) -> Iterator[Daemon]:
    yield from tuple(switch.pids)


def _runs(pid: int) -> bool:
    """Tell whether a child is running, without reaping it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
