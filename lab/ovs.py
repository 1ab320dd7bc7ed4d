"""The two daemons of one switch: ovsdb-server and ovs-vswitchd, each switch with its own."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lab import namespaces
from lab.errors import StartError
from lab.programs import environment, find_program, find_schema
from lab.waiting import wait_for_sockets
from server.processes import wait_gone

Daemon = Literal["ovsdb-server", "ovs-vswitchd"]
VSWITCHD: Daemon = "ovs-vswitchd"
DAEMONS: tuple[Daemon, ...] = ("ovsdb-server", VSWITCHD)

_START_S = 20.0
_STOP_S = 3.0


@dataclass
class OvsSwitch:
    """The daemons of one switch and their files.

    Attributes:
        name: of the switch.
        directory: run directory, database and logs; created here.
        netns: name of the network namespace to run in; None is the current one.
        vswitchd_options: more options for ovs-vswitchd.
        bridges: bridges that a restarted ovs-vswitchd must serve before it counts as up.
        pids: of running daemons, in this process's PID namespace.
    """

    name: str
    directory: Path
    netns: str | None = None
    vswitchd_options: tuple[str, ...] = ()
    bridges: tuple[str, ...] = ()
    pids: dict[Daemon, int] = field(default_factory=dict)

    @property
    def db_socket(self) -> Path:
        """Return the path of ovsdb-server's socket."""
        return self.directory / "db.sock"

    def control(self, daemon: Daemon = "ovs-vswitchd") -> Path:
        """Return the ``ovs-appctl`` target of ``daemon``."""
        return self.directory / f"{daemon}.ctl"

    def management(self, bridge: str) -> Path:
        """Return the OpenFlow socket of ``bridge``."""
        return self.directory / f"{bridge}.mgmt"

    def create(self) -> None:
        """Create the directory and an empty database."""
        self.directory.mkdir(parents=True)
        command = [find_program("ovsdb-tool"), "create", str(self.directory / "conf.db"), str(find_schema())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StartError(f"switch {self.name}: ovsdb-tool: {done.stderr.strip()}")

    def launch(self, daemon: Daemon) -> None:
        """Start ``daemon`` without waiting for it."""
        for stale in self._sockets(daemon):
            stale.unlink(missing_ok=True)
        log = os.open(self.directory / f"{daemon}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with namespaces.entered(self.netns) if self.netns else contextlib.nullcontext():
                self.pids[daemon] = os.posix_spawn(
                    find_program("setpriv"),
                    ["setpriv", "--pdeathsig", "KILL", find_program(daemon), *self._arguments(daemon)],
                    self._environment(),
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, log, 1),
                        (os.POSIX_SPAWN_DUP2, log, 2),
                    ],
                )
        finally:
            os.close(log)

    def await_up(self, daemon: Daemon, alive: Callable[[int], bool]) -> None:
        """Wait until ``daemon`` answers at its sockets.

        Args:
            daemon: a launched daemon.
            alive: tells whether the process with that id is running.

        Raises:
            StartError: it ended, or took too long; with the end of its log.
        """
        missing = wait_for_sockets(self._sockets(daemon), lambda: alive(self.pids[daemon]), _START_S)
        if missing:
            raise StartError(
                f"switch {self.name}: {daemon} does not answer at {missing[0]} after {_START_S:g} s or has ended. "
                f"Its log ends: {self.log_tail(daemon)}"
            )

    def kill(self, daemon: Daemon, with_signal: signal.Signals = signal.SIGKILL) -> bool:
        """End ``daemon`` and wait until it has ended; return False if it was not running."""
        pid = self.pids.pop(daemon, None)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, with_signal)
        _reap(pid)
        return True

    def log_tail(self, daemon: Daemon, lines: int = 5) -> str:
        """Return the last lines of the log of ``daemon``, joined by " | "."""
        for suffix in ("log", "out"):
            with contextlib.suppress(OSError):
                text = (self.directory / f"{daemon}.{suffix}").read_text(errors="replace").strip()
                if text:
                    return " | ".join(text.splitlines()[-lines:])
        return "(empty)"

    def _sockets(self, daemon: Daemon) -> list[Path]:
        if daemon == "ovsdb-server":
            return [self.db_socket, self.control(daemon)]
        return [self.control(daemon), *(self.management(bridge) for bridge in self.bridges)]

    def _arguments(self, daemon: Daemon) -> list[str]:
        common = [
            f"--pidfile={self.directory}/{daemon}.pid",
            f"--log-file={self.directory}/{daemon}.log",
            f"--unixctl={self.control(daemon)}",
            "-vconsole:off",
        ]
        if daemon == "ovsdb-server":
            return [*common, f"--remote=punix:{self.db_socket}", str(self.directory / "conf.db")]
        return [*common, "--disable-system", *self.vswitchd_options, f"unix:{self.db_socket}"]

    def _environment(self) -> dict[str, str]:
        here = str(self.directory)
        return {**environment(), "OVS_RUNDIR": here, "OVS_LOGDIR": here, "OVS_DBDIR": here, "OVS_SYSCONFDIR": here}


def _reap(pid: int) -> None:
    """Wait for ``pid``, a child, to end; kill it after `_STOP_S` seconds."""
    if not wait_gone(pid, _STOP_S):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
