"""oneswitchd and a controller for a lab, outside its namespaces, as on a real server."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.errors import StartError
from lab.programs import environment, find_program
from lab.waiting import wait_for_sockets
from server.config import ServerConfig
from server.errors import ServerError
from server.oneswitchd.answers import Status
from server.oneswitchd.client import Client

_STOP_S = 5.0
_POLL_S = 0.01


class Daemon:
    """A program that ends with this process, even if this process is killed.

    Args:
        name: name in messages and of its log file.
        argv: program and arguments.
        directory: directory of ``NAME.log``.
        variables: further variables of its environment.
    """

    def __init__(
        self, name: str, argv: Sequence[str], directory: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [find_program("setpriv"), "--pdeathsig", "KILL", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(), **(variables or {})},
            )

    @property
    def pid(self) -> int:
        """Return the process id, of the program itself: setpriv has become it."""
        return self._process.pid

    def is_running(self) -> bool:
        """Tell whether it is running."""
        return self._process.poll() is None

    def require_running(self) -> None:
        """Raise if it has ended.

        Raises:
            StartError: it has ended; with the end of its log.
        """
        code = self._process.poll()
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            lines = self.log.read_text(errors="replace").splitlines()[-5:]
            raise StartError(f"{self.name} {how}; the end of {self.log}:\n  " + "\n  ".join(lines or ["(empty)"]))

    def wait_for_line(self, pattern: str, timeout_s: float = 10.0) -> None:
        """Wait until a line of its log matches the regular expression, or the time limit expires.

        Raises:
            StartError: it has ended.
        """
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.log.read_text(errors="replace")) and time.monotonic() < deadline:
            self.require_running()
            time.sleep(_POLL_S)

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """End it, and return when it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(with_signal)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class Oneswitchd(Daemon):
    """oneswitchd on a server.toml, with a REST client.

    Args:
        server_toml: its configuration.
        binary: default: the installed one.
        variables: further variables of its environment.

    Raises:
        StartError: oneswitchd is not installed.
    """

    def __init__(
        self, server_toml: Path, binary: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        self.config = ServerConfig.load(server_toml)
        self.client = Client.of(self.config.oneswitchd, 30.0)
        program = str(binary or find_installed("oneswitchd"))
        super().__init__("oneswitchd", [program, "--config", str(server_toml)], server_toml.parent, variables)

    @property
    def management(self) -> str:
        """Return the target for ``ovs-ofctl``: the ``punix:`` listener, as ``unix:PATH``."""
        return next(f"unix:{each[6:]}" for each in self.config.oneswitchd.listen if each.startswith("punix:"))

    def wait_up(self, controllers: int = 0, timeout_s: float = 30.0) -> Status:
        """Wait until all switches and this number of controllers are connected.

        Raises:
            StartError: oneswitchd has ended, or the time limit expired; with what is missing.
        """
        deadline = time.monotonic() + timeout_s
        api = Path(self.config.oneswitchd.api.removeprefix("unix:"))
        if wait_for_sockets([api], self.is_running, timeout_s):
            self.require_running()
            raise StartError(f"oneswitchd does not serve {api} after {timeout_s:.0f} s; see {self.log}")
        self.require_running()
        try:
            status = self.client.await_up(controllers, deadline - time.monotonic())
        except ServerError:
            self.require_running()
            raise
        down = [s.name for s in status.switches if s.virt.state != "up" or s.edge.state != "up"]
        connected = sum(each.state == "connected" for each in status.controllers)
        if down or connected < controllers:
            missing = f"switches {', '.join(down)}" if down else f"{controllers - connected} controller(s)"
            raise StartError(f"oneswitchd still waits for {missing} after {timeout_s:.0f} s; see {self.log}")
        return status


class OsKenController(Daemon):
    """An os-ken application that listens for switches on a loopback port.

    Args:
        application: its file.
        directory: for its log.
        port: TCP port; see `free_port`.
        options: further command-line options.
    """

    def __init__(self, application: Path, directory: Path, port: int, options: Sequence[str] = ()) -> None:
        if find_spec("os_ken") is None:
            raise StartError("the controller needs os-ken; install it: pip install 'uno-server[examples]'")
        runner = application.parent / "run_os_ken.py"
        argv = [sys.executable, "-u", str(runner), str(application)]
        argv += ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port), *options]
        super().__init__("controller", argv, directory)

    def seen(self) -> dict[str, list[str]]:
        """Return what the example applications log of the switches that they see: ports by datapath id."""
        found = re.findall(r"switch ([0-9a-f]{16}): ports (.*)", self.log.read_text())
        return {datapath_id: ports.split(", ") for datapath_id, ports in found}


def find_installed(name: str) -> Path:
    """Find a program of this project: first beside this Python, then on PATH.

    Raises:
        StartError: it is not installed.
    """
    beside = Path(sys.executable).with_name(name)
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name)
    if found is None:
        raise StartError(f"{name} is not installed; run `make build`, or `pip install .`")
    return Path(found)


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
