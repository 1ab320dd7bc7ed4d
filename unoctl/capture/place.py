"""Where the interface of a virtual port is, and how to run a program there."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from server.config import ServerConfig
from server.errors import ToolError
from server.oneswitchd.answers import VirtualPort
from server.openvswitch.unixctl import Unixctl

_NET, _USER = "net", "user"


@dataclass(frozen=True)
class Place:
    """An interface of a switch."""

    switch: str
    interface: str

    def __str__(self) -> str:
        return f"{self.interface} at {self.switch}"


def places(port: VirtualPort) -> list[Place]:
    """Return where a port is and, while it moves, where it will be."""
    found = [Place(port.switch, port.interface)]
    if port.move is not None and (target := Place(port.move.switch, port.move.interface)) not in found:
        found.append(target)
    return found


def enter(server: ServerConfig, switch: str) -> list[str]:
    """Return the command prefix that runs a program in the network namespace of a switch's ovs-vswitchd.

    Raises:
        ToolError: server.toml names no control socket for the switch, the daemon does not answer there, or its
            namespace is not to be entered.
    """
    control = next(each.control for each in server.switch if each.name == switch)
    if control is None:
        raise ToolError(
            f"switch {switch}: {server.path} names no control socket for it, so it may be on another machine; "
            f"run unoctl there, or give the command that reaches it: --enter 'ssh {switch}'"
        )
    with contextlib.closing(Unixctl(Path(control))) as daemon:
        pid = daemon.peer_pid()
    if _namespace(pid, _NET) == _namespace(os.getpid(), _NET):
        return []
    prefix = ["nsenter", f"--target={pid}", f"--{_NET}"]
    if _namespace(pid, _USER) != _namespace(os.getpid(), _USER):
        prefix += [f"--{_USER}", "--preserve-credentials"]
    return [*prefix, "--"]


def _namespace(pid: int, kind: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError as error:
        raise ToolError(
            f"cannot read the {kind} namespace of process {pid}: {error.strerror}; "
            "run unoctl as the user of ovs-vswitchd, or as root"
        ) from error
