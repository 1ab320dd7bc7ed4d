"""Queries the switches' data paths, over the control sockets of their vswitchd."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from nfagent.errors import LaunchError
from nfagent.monitor.matrix import Snapshot
from nfagent.monitor.megaflows import parse_dump
from nfagent.monitor.port_counters import parse_show
from server.errors import ToolError
from server.openvswitch.unixctl import Unixctl

_ANSWER_S = 5.0


class Control(Protocol):
    """A vswitchd that answers commands; raises `ToolError` if it does not."""

    def call(self, command: str, *arguments: str) -> str: ...

    def close(self) -> None: ...


class SwitchProbe:
    """A switch, with a connection while it is looked at.

    An open one costs an idle vswitchd nothing, but a busy one reads it ten times in each turn of its main loop
    (``run_connection`` in unixctl.c).

    Thread safety: one thread at a time.

    Args:
        connect: connects to its vswitchd.
        clock: of snapshots, in seconds.
    """

    def __init__(self, connect: Callable[[], Control], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._control: Control | None = None

    def look(self) -> Snapshot:
        """Return the data path's counters.

        Raises:
            ToolError: it does not answer.
        """
        try:
            flows, flows_at = self.ask("dpctl/dump-flows", "-m", "--names")
            counters, counters_at = self.ask("dpctl/show", "-s")
        finally:
            self.close()
        return Snapshot(flows_at, {flow.key: flow for flow in parse_dump(flows)}, counters_at, parse_show(counters))

    def close(self) -> None:
        """Close the connection; `ask` opens another one."""
        if self._control is not None:
            self._control.close()
            self._control = None

    def ask(self, command: str, *arguments: str) -> tuple[str, float]:
        """Return an answer, and its time: midway between request and answer; raises as `look`."""
        if self._control is None:
            self._control = self._connect()
        begun = self._clock()
        text = self._control.call(command, *arguments)
        return text, (begun + self._clock()) / 2


def local_control(path: str) -> Callable[[], Control]:
    """Connect to a vswitchd of this machine."""
    return lambda: Unixctl(Path(path), _ANSWER_S)


class RemoteControl:
    """A vswitchd of another machine, with a process there for each command.

    Args:
        run: runs a command there; raises `LaunchError`.
        path: path of the control socket there.
    """

    def __init__(self, run: Callable[[list[str]], str], path: str) -> None:
        self._run = run
        self._path = path

    def call(self, command: str, *arguments: str) -> str:
        """See `Control`."""
        try:
            return self._run(["ovs-appctl", "-t", self._path, command, *arguments])
        except LaunchError as error:
            raise ToolError(str(error)) from error

    def close(self) -> None:
        """Do nothing: there is no connection to close."""
