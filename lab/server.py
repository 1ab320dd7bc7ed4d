"""A lab from the outside: start it, use its hosts, break its parts, end it."""

import contextlib
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lab import control, namespaces, quota
from lab.directory import SERVER_TOML, LabDirectory
from lab.errors import ControlError, LabError
from lab.launch import Launched, launch
from lab.ovs import DAEMONS
from lab.processes import children, in_network_namespaces
from lab.programs import environment
from lab.spec import LabSpec
from lab.state import HostInterface, HostState, LabState
from lab.unixctl import unixctl
from lab.wires import Wires
from server.processes import is_running, wait_gone

if TYPE_CHECKING:
    from server.config import ServerConfig

_END_S = 15.0
_ASK_S = 20.0
_PACKET_SOCKET = re.compile(r":(\S+)\s.*?skmem:\([^)]*,d(\d+)\)", re.DOTALL)


def _silent(_: str) -> None:
    pass


class Lab:
    """An emulated server.

    Args:
        spec: the server.
        name: the lab's name; by default a generated one.

    Example:
        >>> with Lab(LabSpec.demo()).start() as lab:                                     # doctest: +SKIP
        ...     lab.exec("vm1", ["ping", "-c1", lab.host("vm2").address.split("/")[0]])
        ...     lab.switch("snic0").kill("ovs-vswitchd")
        ...     lab.switch("snic0").start("ovs-vswitchd")
    """

    def __init__(self, spec: LabSpec, name: str | None = None) -> None:
        self.spec: LabSpec | None = spec
        self._directory = LabDirectory(name or _made_up_name())
        self._launched: Launched | None = None

    @classmethod
    def attach(cls, name: str) -> Self:
        """Attach to the running lab called ``name``. Leaving the ``with`` block does not end it.

        Raises:
            LabNotRunningError: it is not running; the message lists running labs.
        """
        lab = cls.named(name)
        lab._directory.require_state()
        return lab

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the lab called ``name``, whether running or only left as files."""
        lab = cls.__new__(cls)
        lab.spec = None
        lab._directory = LabDirectory(name)
        lab._launched = None
        return lab

    def start(self, progress: Callable[[str], None] = _silent, *, detach: bool = False) -> Self:
        """Start the lab; return when it is ready.

        Args:
            progress: shows the progress.
            detach: let the lab outlive this process. Otherwise it ends with it, even if this process is killed.

        Raises:
            LabRunningError: a lab of that name is running.
            NamespacesRefusedError: this user may not create namespaces here.
            SpecError, StartError: it is impossible, or did not start; nothing remains of it.
        """
        if self.spec is None:
            raise LabError(f"lab {self.name} was attached to, so it is already running")
        with self._directory.locked():
            launched = launch(self.spec, self._directory, progress, detach=detach)
        self._launched = None if detach else launched
        return self

    def down(self) -> None:
        """End the lab and remove its files, if it is running."""
        with self._directory.locked():
            state = self._directory.state()
            if state is not None:
                control.request(self._directory.path, "down")
                if not wait_gone(state.pid, _END_S) and is_running(state.pid, state.start_time):
                    os.kill(state.pid, signal.SIGKILL)
                    wait_gone(state.pid, _END_S)
            if self._launched is not None:
                self._launched.release()
                self._launched = None
            self._directory.remove()

    def wait(self) -> None:
        """Return when the lab has ended, for whatever reason."""
        state = self._directory.state()
        if state is not None:
            wait_gone(state.pid, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._launched is not None:
            self.down()

    # ---- what there is

    @property
    def name(self) -> str:
        """The lab's name."""
        return self._directory.name

    @property
    def directory(self) -> Path:
        """The directory of its files."""
        return self._directory.path

    @property
    def state(self) -> LabState:
        """Return the lab's current state.

        Raises:
            LabNotRunningError: it has ended.
        """
        return self._directory.require_state()

    @property
    def server_toml(self) -> Path:
        """Return the configuration for oneswitchd and unoctl."""
        return self.directory / SERVER_TOML

    @property
    def config(self) -> "ServerConfig":
        """Return the parsed ``server_toml``."""
        from server.config import ServerConfig

        return ServerConfig.load(self.server_toml)

    def host(self, name: str) -> HostState:
        """Return a host's current state.

        Raises:
            ControlError: unknown host.
        """
        hosts = self.state.hosts
        for host in hosts:
            if host.name == name:
                return host
        raise ControlError(f"lab {self.name} has no host {name!r}; it has {', '.join(host.name for host in hosts)}")

    def switch(self, name: str) -> "LabSwitch":
        """Return a switch.

        Raises:
            ControlError: unknown switch.
        """
        names = [switch.name for switch in self.state.switches]
        if name not in names:
            raise ControlError(f"lab {self.name} has no switch {name!r}; it has {', '.join(names)}")
        return LabSwitch(self, name)

    def set_speed(self, slot: str, speed: float) -> None:
        """Change the part of a core that the functions in a slot get.

        Raises:
            ControlError: the slot has no quota; the lab's notes say why.
        """
        group = next((each.group for each in self.state.slots if each.name == slot), None)
        quotas = quota.find()
        if group is None or isinstance(quotas, str):
            raise ControlError(f"slot {slot!r} has no CPU quota to change; see the notes of lab {self.name}")
        quotas.limit(Path(group).name, speed)

    # ---- hosts

    def popen(self, host: str, argv: Sequence[str], **options: Any) -> "HostProcess":
        """Start a program inside a host (or a switch's namespace).

        Args:
            host: name of a host or switch.
            argv: program and arguments.
            options: as for `subprocess.Popen`.

        Raises:
            ControlError: unknown host, or the substrate has no namespaces.
        """
        enter, variables = enter_command(self.state, host)
        given: Mapping[str, str] = options.pop("env", None) or {}
        return HostProcess([*enter, *argv], env={**variables, **given}, **options)

    def exec(
        self, host: str, argv: Sequence[str], *, timeout_s: float | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside a host and collect its output.

        Args:
            host: name of a host or switch.
            argv: program and arguments.
            timeout_s: end it after this time and raise `subprocess.TimeoutExpired`.
            check: raise `subprocess.CalledProcessError` if it fails.
        """
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.popen(host, argv, text=True, **pipes) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(list(argv), process.returncode, out, err)
        if check and done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, done.args, out, err)
        return done

    def wires(self) -> Wires:
        """Return the hosts' interfaces, to inject and collect frames at (substrate dummy only)."""
        return Wires(self.state)

    def activate(self, host: str, switch: str) -> HostInterface:
        """Make the host's interface at ``switch`` the one with the IP address; return it."""
        control.request(self.directory, "activate", host=host, switch=switch)
        state = self.host(host)
        return next(each for each in state.interfaces if each.name == state.active)

    # ---- faults

    def unlink(self, snic: str) -> None:
        """Break the PCIe link of an sNIC."""
        control.request(self.directory, "link", snic=snic, up=False)

    def relink(self, snic: str) -> None:
        """Restore the PCIe link of an sNIC."""
        control.request(self.directory, "link", snic=snic, up=True)


class LabSwitch:
    """One switch of a running lab."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._lab = lab
        self.name = name

    def kill(self, daemon: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End ``ovs-vswitchd`` (or ``vswitchd``) or ``ovsdb-server``; return when it has ended.

        Raises:
            ControlError: it is not running, or unknown daemon.
        """
        request = {"switch": self.name, "daemon": _full_name(daemon), "signal_name": with_signal.name}
        control.request(self._lab.directory, "kill", **request)

    def start(self, daemon: str) -> None:
        """Start a stopped daemon; return when it serves again.

        Raises:
            ControlError: it is running, or did not start.
        """
        control.request(self._lab.directory, "start", switch=self.name, daemon=_full_name(daemon))

    def power_off(self) -> None:
        """End all of an sNIC at once, as if it had lost power: its PCIe link, its daemons, the processes in its slots.

        Hosts at its wires are cut off. An agent may restart an NF in its slot, where it is unreachable.

        Raises:
            ControlError: it is not an sNIC, or is already without power.
        """
        self._lab.unlink(self.name)
        for daemon in reversed(DAEMONS):
            self.kill(daemon)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def power_on(self) -> None:
        """Start what `power_off` ended, except the processes in its slots."""
        for daemon in DAEMONS:
            self.start(daemon)
        self._lab.relink(self.name)

    def processes(self) -> list[int]:
        """Return the processes in the switch's slots, including those that wait for them outside of the lab."""
        slots = [slot.netns for slot in self._lab.state.slots if slot.switch == self.name]
        return [pid for found in in_network_namespaces(slots).values() for pid in found]

    def overflowed(self) -> dict[str, int]:
        """Count frames lost to a full receive buffer of a port since it was opened, by port: ovs-vswitchd was too slow.

        Raises:
            ControlError: ``ss`` does not report it.
        """
        done = self._lab.exec(self.name, ["ss", "--packet", "--memory", "--no-header"], timeout_s=_ASK_S, check=False)
        if done.returncode != 0:
            raise ControlError(f"ss in {self.name}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        found = _PACKET_SOCKET.findall(done.stdout)
        return {port: int(count) for port, count in found if port != "*" and int(count)}

    def appctl(self, command: str, *arguments: str) -> str:
        """Return ovs-vswitchd's answer to an ``ovs-appctl`` command.

        Raises:
            ControlError: it is not running, or refused; with its message.
        """
        state = next(switch for switch in self._lab.state.switches if switch.name == self.name)
        return unixctl(Path(state.control), command, *arguments)


class HostProcess(subprocess.Popen[Any]):
    """A program inside a host. Signals go to the program itself, not to the ``nsenter`` that waits for it outside."""

    def send_signal(self, sig: int) -> None:
        """Send a signal to the program, if it has not ended."""
        if self.poll() is not None:
            return
        if sig == signal.SIGCONT:
            os.kill(self.pid, sig)  # nsenter stops with its program
        for child in children(self.pid) or [self.pid]:
            try:
                os.kill(child, sig)
            except ProcessLookupError:
                continue


def enter_command(state: LabState, host: str) -> tuple[list[str], dict[str, str]]:
    """Return the prefix that runs a command inside a host (a switch, a slot), and its environment.

    Raises:
        ControlError: unknown host, or the substrate has no namespaces.
    """
    places = {each.name: each.netns for each in (*state.hosts, *state.switches, *state.slots)}
    if host not in places:
        raise ControlError(f"lab {state.name} has no host {host!r}; it has {', '.join(places)}")
    netns = places[host]
    if netns is None:
        raise ControlError(f"lab {state.name} has substrate {state.substrate}: its hosts run no programs; use wires()")
    command = namespaces.enter_command(state.pid, netns, user_namespace=state.user_namespace)
    group = next((slot.group for slot in state.slots if slot.name == host), None)
    return [*command, *(quota.enter(group) if group else [])], environment()


def _full_name(daemon: str) -> str:
    return "ovs-vswitchd" if daemon == "vswitchd" else daemon


def _made_up_name() -> str:
    return f"lab-{secrets.token_hex(4)}"
