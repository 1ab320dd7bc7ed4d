"""A server with oneswitchd in front, parts of which are killed and restarted."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.control_plane import Oneswitchd
from lab.errors import ControlError
from lab.programs import environment
from lab.server import Lab
from lab.wires import Place, Wires
from server.oneswitchd.answers import Findings

_POLL_S = 0.01


class Server:
    """A lab on the dummy substrate, and its oneswitchd.

    Args:
        lab: started.
        settings: keys of ``[oneswitchd]`` that differ from the lab's own.
    """

    def __init__(self, lab: Lab, **settings: object) -> None:
        self.lab = lab
        self._server_toml = lab.server_toml
        if settings:
            config = lab.config
            changed = config.oneswitchd.model_copy(update=settings)
            self._server_toml = lab.directory / "changed.toml"
            self._server_toml.write_text(config.model_copy(update={"oneswitchd": changed}).dump())
        self.oneswitchd = Oneswitchd(self._server_toml)
        self.running = True
        self.oneswitchd.wait_up()

    # ---- parts

    def kill(self, part: str) -> None:
        """Kill ``oneswitchd`` with SIGKILL, or a daemon of a switch: ``vswitchd snic0``."""
        if part == "oneswitchd":
            self.oneswitchd.stop(signal.SIGKILL)
            self.running = False
        else:
            daemon, switch = part.split()
            self.lab.switch(switch).kill(daemon)

    def start(self, part: str) -> None:
        """Start a killed part."""
        if part == "oneswitchd":
            self.oneswitchd = Oneswitchd(self._server_toml)
            self.running = True
        else:
            daemon, switch = part.split()
            try:
                self.lab.switch(switch).start(daemon)
            except ControlError as error:
                # After several kills Open vSwitch takes long to connect the dummy PCIe link, which rules do not need.
                if "did not connect" not in str(error):
                    raise

    def restart(self, part: str) -> None:
        """Kill and restart a part."""
        self.kill(part)
        self.start(part)

    @contextlib.contextmanager
    def halted(self) -> Iterator[None]:
        """Stop oneswitchd meanwhile, so that it finds all changes afterwards."""
        os.kill(self.oneswitchd.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.oneswitchd.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End oneswitchd."""
        if self.running:
            self.oneswitchd.stop()

    # ---- queries

    def ofctl(self, command: str, *arguments: str, target: str | None = None) -> str:
        """Run ``ovs-ofctl COMMAND TARGET ...``; the default target is the one switch."""
        argv = ["ovs-ofctl", "-O", "OpenFlow13", command, target or self.oneswitchd.management, *arguments]
        environ = environment() | {"OVS_RUNDIR": str(self.lab.directory)}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, env=environ, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cookies(self, target: str | None = None) -> set[int]:
        """Return the cookies of all rules of the one switch, or of a bridge."""
        return {
            int(cookie, 16) for cookie in re.findall(r"cookie=(0x[0-9a-f]+)", self.ofctl("dump-flows", target=target))
        }

    def bridge(self, switch: str, name: str = "virt") -> str:
        """Return the OpenFlow target of a bridge."""
        found = next(each for each in self.lab.state.switches if each.name == switch)
        return found.virt if name == "virt" else str(found.edge)

    def tables(self) -> list[str]:
        """Return everything on all bridges, as text without counters and times.

        A rewritten rule has the rest of its hard timeout.
        """
        texts: list[str] = []
        for switch in self.lab.state.switches:
            for bridge in (switch.virt, str(switch.edge)):
                dump = self.ofctl("dump-flows", "--no-stats", target=bridge)
                flows = re.sub(r"hard_timeout=\d+", "hard_timeout", dump).splitlines()
                groups = self.ofctl("dump-groups", target=bridge).splitlines()[1:]
                texts += [*sorted(flows), *sorted(groups)]
        return texts

    def repairs(self) -> int:
        """Return the number of oneswitchd's repairs since its start."""
        return sum(switch.repairs for switch in self.oneswitchd.client.status().switches)

    def audits(self) -> dict[str, Findings | None]:
        """Have oneswitchd audit every bridge; return what was found on each."""
        audits = self.oneswitchd.client.audit()
        assert all(audit.audited for audit in audits)
        return {f"{audit.switch} {audit.bridge}": audit.found for audit in audits}

    def place(self, port: str) -> Place:
        """Return where a virtual port is plugged in."""
        there = self.oneswitchd.client.find_port(port)
        return there.switch, there.interface

    def wires(self) -> Wires:
        """Return the hosts' interfaces."""
        return Wires(self.lab.state)


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Tell whether a condition without an event becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


@contextlib.contextmanager
def serving(lab: Lab, **settings: object) -> Iterator[Server]:
    """Run oneswitchd in front of a lab."""
    server = Server(lab, **settings)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(lab: Lab) -> Iterator[Server]:
    """The lab with oneswitchd in front, without audits."""
    with serving(lab, audit_s=0, log="debug") as server:
        yield server


@pytest.fixture
def server_dir(lab: Lab) -> Path:
    """Return the directory of its files."""
    return lab.directory
