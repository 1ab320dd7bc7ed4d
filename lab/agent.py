"""nfagent on a lab: its network functions run in the lab's slots."""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from lab.control_plane import Daemon, find_installed, free_port
from lab.errors import StartError
from lab.hosts import interface_name
from lab.server import Lab, enter_command
from lab.spec import HYPERVISOR
from lab.state import SlotState
from lab.waiting import wait_for_sockets
from nfagent.config import AgentConfig
from nfagent.launch.local import LocalLauncher
from server.toml_dump import dump_document

AGENT_TOML = "agent.toml"
SOCKET = "nfagent.sock"
RUNTIME = "run"
STATE = "state"

_UP_S = 120.0
_ANSWER_S = 60.0
_CORES = {"host": 2.0, "nic": 1.0}
_PCIE_MBPS = 10_000


class AgentProcess:
    """``nfagent serve`` as a process, with the lab's slots as its locations.

    It ends with this process, even if this process is killed. Deployed functions keep running when it ends or is
    killed, so that `start` finds them; leaving the ``with`` block ends them too.

    Args:
        lab: a running lab; oneswitchd need not run yet.
        directory: for its files, created if missing; at most 40 bytes long, because it contains unix sockets.
        settings: tables of agent.toml, added to the generated ones: ``{"decide": {...}, "kind": [...]}``.
        cores: of each location, by its switch's name; default 2 on the hypervisor and 1 on an sNIC.
        pcie_mbps: of each sNIC's link; default: the lab's cap, or 10,000.
        variables: further variables of its environment.

    Attributes:
        address: ``http://127.0.0.1:PORT``, where every local client is an administrator.
        client: client of its REST interface, over the unix socket.
        runtime: directory of running functions; it contains control sockets ``INSTANCE.LOCATION.sock``.

    Raises:
        StartError, ConfigError: it did not start; nothing remains of it.

    Example:
        >>> with Lab(LabSpec.demo().with_slots(2)).start() as lab, Oneswitchd(lab.server_toml):     # doctest: +SKIP
        ...     with AgentProcess(lab, lab.directory / "nfagent") as agent:
        ...         agent.client.post("/api/v1/instances", json={"name": "lb1", "kind": "l4lb", "config": {...}})
        ...         agent.kill()
        ...         agent.start()
    """

    def __init__(
        self,
        lab: Lab,
        directory: Path,
        settings: Mapping[str, Any] | None = None,
        *,
        cores: Mapping[str, float] | None = None,
        pcie_mbps: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._variables = variables
        self._socket = directory / SOCKET
        self.runtime = directory / RUNTIME
        self.config = directory / AGENT_TOML
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        write_config(lab, directory, port, settings, cores=cores, pcie_mbps=pcie_mbps)
        AgentConfig.load(self.config)  # report its errors here, not in a log
        transport = httpx.HTTPTransport(uds=str(self._socket))
        self.client = httpx.Client(transport=transport, base_url="http://nfagent", timeout=_ANSWER_S)
        self._process: Daemon | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> Path:
        """Return the path of its log; the instances' logs are in ``state/log`` beside it."""
        return self._directory / "nfagent.log"

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            StartError: it is not running.
        """
        if self._process is None:
            raise StartError("nfagent is not running; start() it again")
        return self._process.pid

    def start(self) -> None:
        """Start it (again); return when its API answers.

        Raises:
            StartError: it is already running, or did not start; with the end of its log.
        """
        if self._process is not None:
            raise StartError(f"nfagent is already running, as process {self._process.pid}")
        argv = [sys.executable, "-m", "nfagent", "serve", "--config", str(self.config)]
        process = self._process = Daemon("nfagent", argv, self._directory, self._variables)
        missing = wait_for_sockets([self._socket], process.is_running, _UP_S)
        process.require_running()
        if missing:
            raise StartError(f"nfagent does not serve {self._socket} after {_UP_S:g} s; see {process.log}")

    def kill(self) -> None:
        """Kill it; deployed functions keep running."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it cleanly; deployed functions keep running."""
        self._end(signal.SIGTERM)

    def require_running(self) -> None:
        """Raise if it has ended.

        Raises:
            StartError: it has ended; with the end of its log.
        """
        if self._process is not None:
            self._process.require_running()

    def close(self) -> None:
        """End it and all its functions."""
        self.stop()
        self.client.close()
        launcher = LocalLauncher(self.runtime, self._directory / STATE / "log")
        for key in launcher.all_keys():
            launcher.stop(key, 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process is not None:
            self._process.stop(with_signal)
            self._process = None


def write_config(
    lab: Lab,
    directory: Path,
    port: int,
    settings: Mapping[str, Any] | None = None,
    *,
    cores: Mapping[str, float] | None = None,
    pcie_mbps: int | None = None,
) -> Path:
    """Write ``agent.toml`` for a running lab into a directory, and return its path.

    Args:
        lab: a running lab.
        directory: for all of the agent's files, created if missing.
        port: on the loopback interface; every local client is an administrator there.
        settings: as `AgentProcess`.
        cores: as `AgentProcess`.
        pcie_mbps: as `AgentProcess`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / AGENT_TOML
    document = {
        "server": str(lab.server_toml),
        "state": str(directory / STATE),
        "runtime": str(directory / RUNTIME),
        "nf": str(find_installed("nf")),
        # Attaching or detaching an XDP program holds the kernel's interface lock for 10 ms. The lab's switches wait for
        # it with all packets, because their data path is in user space.
        "nf_backend": "packet",
        "api": {"listen": [f"unix:{directory / SOCKET}", f"tcp:127.0.0.1:{port}"], "anonymous": "admin"},
        "location": _locations(lab, cores or {}, pcie_mbps),
        **(settings or {}),
    }
    path.write_text(dump_document(document))
    return path


def _locations(lab: Lab, cores: Mapping[str, float], pcie_mbps: int | None) -> list[dict[str, Any]]:
    state = lab.state
    caps = {link.switch: link.mbps for link in state.links}
    locations = []
    for switch in state.switches:
        is_host = switch.name == HYPERVISOR
        location: dict[str, Any] = {"switch": switch.name}
        location["cores"] = float(cores.get(switch.name, _CORES["host" if is_host else "nic"]))
        if not is_host:
            location["pcie_mbps"] = pcie_mbps or int(caps[switch.name] or _PCIE_MBPS)
        location["slot"] = [_slot(lab, slot) for slot in state.slots if slot.switch == switch.name]
        locations.append(location)
    return locations


def _slot(lab: Lab, slot: SlotState) -> dict[str, Any]:
    enter, _ = enter_command(lab.state, slot.name)
    wires = [{"edge": name, "inside": interface_name(index)} for index, name in enumerate(slot.interfaces)]
    return {"name": slot.name, "wires": wires, "enter": enter}
