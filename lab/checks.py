"""The checks of a demonstration, and their output."""

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from lab.control_plane import OsKenController
from lab.errors import LabError, StartError
from lab.ovs import DAEMONS
from lab.state import LabState, LabSwitch


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        title: what was checked.
        holds: whether it holds.
        detail: the observation; its first line follows the title.
        figures: for --format=json.
    """

    title: str
    holds: bool
    detail: str
    figures: dict[str, Any] = field(default_factory=dict)


def one_switch(controller: OsKenController, state: LabState) -> Check:
    """Check that a controller is connected to one datapath that has the ports of all switches."""
    controller.wait_for_line(r": ports ")
    seen = controller.seen()
    holds = list(seen.values()) == [[f"{port.number} {port.name}" for port in state.ports]]
    datapaths = "; ".join(f"switch {datapath_id}: ports {', '.join(ports)}" for datapath_id, ports in seen.items())
    homes = {each.name: [port.name for port in state.ports if port.switch == each.name] for each in state.switches}
    behind = ", ".join(f"{name} ({', '.join(ports) or 'no port'})" for name, ports in homes.items())
    return Check("the controller sees one switch", holds, f"{datapaths or 'it sees none'}\nbehind it: {behind}")


def require_switches(switches: Iterable[LabSwitch]) -> None:
    """Raise if a daemon of a switch has ended.

    Raises:
        StartError: it has ended.
    """
    for switch in switches:
        for daemon in DAEMONS:
            if daemon not in switch.processes:
                raise StartError(f"{daemon} of {switch.name} has ended; its logs are in {switch.directory}")


def run_check(check: Callable[[], Check], require_running: Callable[[], None], console: Console) -> Check:
    """Run a check and print its result, with its docstring meanwhile.

    Args:
        check: the check.
        require_running: raises `LabError`, which names a process that has ended.
        console: for people.

    Raises:
        LabError: a process has ended, which explains any failure of the check.
    """
    with console.status((check.__doc__ or "").strip().partition("\n")[0]):
        try:
            result = check()
        except (LabError, OSError, subprocess.SubprocessError, TimeoutError):
            require_running()
            raise
    require_running()
    mark = "[green]ok[/green]  " if result.holds else "[red]FAIL[/red]"
    first, *rest = result.detail.splitlines()
    console.print(f"{mark} {result.title}: {first}", soft_wrap=True)
    for line in rest:
        console.print(f"       {line}", soft_wrap=True)
    return result
