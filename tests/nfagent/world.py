"""An agent for tests: its files are in a directory, its switches simulated, its NFs a small test program."""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from nfagent.agent import Agent
from nfagent.config import AgentConfig
from nfagent.errors import WiringError
from nfagent.migrate.switching import Moved, Place
from nfagent.model import InstancePort
from server.processes import PROC

TENANT_TOKEN = "tenant-token-0123456789"
OTHER_TOKEN = "other-token-0123456789"
ADMIN_TOKEN = "admin-token-0123456789"

_SERVER = """
[oneswitchd]
datapath_id = "00000000000000a1"
api = "unix:{directory}/no-oneswitchd.sock"
[[switch]]
name = "hypervisor"
virt = "unix:{directory}/virt.mgmt"
edge = "unix:{directory}/edge.mgmt"
[[switch]]
name = "snic0"
virt = "tcp:127.0.0.1:1"
edge = "tcp:127.0.0.1:2"
link = {{ hypervisor = "pcie-snic0", local = "pf0hpf" }}
[[port]]
number = 1001
switch = "hypervisor"
interface = "vm1"
"""

_AGENT = """
server = "{directory}/server.toml"
state = "{directory}/state"
runtime = "{directory}/run"
nf = ""
project_files = "{directory}/files"
[api]
listen = ["unix:{directory}/nfagent.sock", "tcp:127.0.0.1:0"]
tokens = "{directory}/tokens"
anonymous = "{anonymous}"
streams = 3
[quota]
instances = {instances}
ports = 8
workers = 250
chains = 3
[monitor]
period_s = {period_s}
[port_numbers]
first = 1000
last = 1003
[[kind]]
name = "sleeper"
summary = "does nothing, for a long time"
command = ["sleep", "100000"]
[[kind]]
name = "reader"
command = ["sleep", "100000"]
files = ["log.path", "listeners[].tls.key"]
[[kind]]
name = "broken"
command = ["sh", "-c", "echo it cannot be; exit 3"]
[[kind]]
name = "brief"
command = ["sh", "-c", "sleep 1; echo enough >&2; exit 4"]
[[kind]]
name = "loud"
command = ["sh", "-c", "printf 'one\\\\ntwo \\\\033[31mred\\\\n'; exec sleep 100000"]
[[kind]]
name = "family"
command = ["sh", "-c", "sleep 100000 & sleep 100000 & wait"]
[[kind]]
name = "here-only"
command = ["sh", "-c", 'case {{config}} in *.hypervisor.json) exec sleep 100000;; esac; echo not there; exit 1']
[[kind]]
name = "wired"
ports = [1, 1]
command = ["sleep", "100000"]
[[location]]
switch = "hypervisor"
slot = [{home_slots}]
[[location]]
switch = "snic0"
slot = [{snic_slots}]
[[kind]]
name = "toy"
summary = "speaks the control protocol, has a number as its state"
movable = true
ports = [0, 2]
command = ["{python}", "{toy}", "--config", "{{config}}", "{{ports}}", "--control", "{{control}}"]
"""


@dataclass
class FakeMarking:
    """See `nfagent.migrate.switching.Marking`."""

    paths: int
    note: Callable[[int], None]

    def send(self, first: int) -> int:
        """See `Marking`."""
        self.note(first)
        return self.paths

    def close(self) -> None:
        """See `Marking`."""


@dataclass
class FakeQuiescing:
    """Waits as the wiring does that made it."""

    wait: Callable[[], None]

    def close(self) -> None:
        """See `Quiescing`."""


@dataclass
class FakeWiring:
    """Remembers where ports are, fails on request, and refuses interfaces that other ports have, like oneswitchd."""

    places: dict[int, Place] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    moves: dict[int, Place] = field(default_factory=dict)
    markers: list[tuple[int, int]] = field(default_factory=list)
    broken: bool = False
    asked: int = 0
    passed: list[str] = field(default_factory=list)
    quiet_after: int = 0  # a flip takes effect after this many markers
    _marked: threading.Condition = field(default_factory=threading.Condition)

    def connect(self, ports: Sequence[tuple[InstancePort, str]], location: str, owner: str) -> None:
        """See `nfagent.protocols.Wiring`."""
        self._check()
        for port, interface in ports:
            self._check_free(port, (location, interface))
            self.moves.pop(port.number, None)
            self.owners[port.number] = owner
            self.places[port.number] = (location, interface)

    def homes(self, owner: str) -> dict[int, tuple[str, str]]:
        """See `nfagent.protocols.Wiring`."""
        self._check()
        return {number: place for number, place in self.places.items() if self.owners.get(number) == owner}

    def carried(self, location: str) -> dict[str, set[int]]:
        """See `nfagent.protocols.Wiring`."""
        self._check()
        carried: defaultdict[str, set[int]] = defaultdict(set)
        for number, (place, interface) in self._known():
            if place == location:
                carried[interface].add(number)
        return dict(carried)

    def disconnect(self, port: InstancePort) -> None:
        """See `nfagent.protocols.Wiring`."""
        self._check()
        self.places.pop(port.number, None)

    # ---- moves, as `nfagent.migrate.switching.Switching`, without switches

    def bridges(self, locations: Sequence[str]) -> list[str]:
        assert locations
        return []

    def single_threaded(self, locations: Sequence[str]) -> set[str]:
        assert locations
        return set()

    def are_in_step(self, locations: Sequence[str], wires: Sequence[Moved]) -> bool:
        return bool(locations and wires)

    def prepare(self, port: InstancePort, location: str, interface: str) -> None:
        """See `Switching`."""
        self._check()
        self._check_free(port, (location, interface))
        self.moves[port.number] = (location, interface)

    def abort(self, port: InstancePort) -> None:
        """See `Switching`."""
        self._check()
        self.moves.pop(port.number, None)

    def flip(self, port: InstancePort, location: str, interface: str) -> None:
        """See `Switching`."""
        self._check()
        self.places[port.number] = (location, interface)

    def await_settled(self) -> None:
        """See `Switching`."""

    def quiescing(self, locations: Sequence[str]) -> "FakeQuiescing":
        """See `Switching`."""
        assert len(locations) == 2
        return FakeQuiescing(self._quiesce)

    def _quiesce(self) -> None:
        self._check()
        with self._marked:
            assert self._marked.wait_for(lambda: len(self.markers) >= self.quiet_after, 60)

    def marking(self, ports: Sequence[Moved], epoch: int, secret: str) -> "FakeMarking":
        """See `Switching`."""
        self._check()
        assert len(bytes.fromhex(secret)) == 32
        assert all(self.moves[port.number] == to for port, to in ports)
        return FakeMarking(2 * len(ports), lambda first: self._note(epoch, first))

    def _note(self, epoch: int, first: int) -> None:
        with self._marked:
            self.markers.append((epoch, first))
            self._marked.notify_all()

    def finish(self, port: InstancePort, location: str, interface: str) -> None:
        """See `Switching`."""
        self._check()
        self.places[port.number] = (location, interface)
        self.moves.pop(port.number, None)

    def _check(self) -> None:
        self.asked += 1
        if self.broken:
            raise WiringError("no oneswitchd answers")

    def _known(self) -> list[tuple[int, Place]]:
        return [*self.places.items(), *self.moves.items()]

    def _check_free(self, port: InstancePort, at: Place) -> None:
        taken = next((number for number, place in self._known() if place == at and number != port.number), None)
        if taken is not None:
            raise WiringError(f"port {port.number}: interface-taken: {at} has port {taken}")


def write_files(
    directory: Path,
    *,
    anonymous: str = "nobody",
    instances: int = 250,
    period_s: float = 3600,
    more: str = "",
    has_spares: bool = False,
) -> Path:
    """Write server.toml, agent.toml and tokens; return the path of agent.toml.

    Args:
        directory: of the files.
        anonymous: as in agent.toml.
        instances: quota.
        period_s: of the monitor.
        more: end of agent.toml.
        has_spares: whether each location has a second slot.
    """
    toy, enter = Path(__file__).with_name("toy_nf.py"), directory / "enter"
    values = {"directory": directory, "python": sys.executable, "toy": toy}

    def slots(name: str, edge: str) -> str:
        made = [
            f'{{ name = "{name}{end}", wires = [{{ edge = "{edge}{end}", inside = "lo" }}], enter = ["{enter}"] }}'
            for end in ("", "-spare")[: 1 + has_spares]
        ]
        return ", ".join(made)

    # Replaces nsenter: runs the command, but ignores `ip`.
    enter.write_text('#!/bin/sh\n[ "$1" = ip ] || exec "$@"\n')
    enter.chmod(0o755)
    (directory / "server.toml").write_text(_SERVER.format(**values))
    values |= {"home_slots": slots("s0", "vf0"), "snic_slots": slots("s1", "pf0vf0")}
    text = _AGENT.format(**values, anonymous=anonymous, instances=instances, period_s=period_s) + more
    (directory / "agent.toml").write_text(text)
    tokens = directory / "tokens"
    tokens.write_text(f"acme tenant {TENANT_TOKEN}\nother tenant {OTHER_TOKEN}  # another\nops admin {ADMIN_TOKEN}\n")
    tokens.chmod(0o600)
    return directory / "agent.toml"


class World:
    """An agent in this process, and its clients."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self._path = write_files(directory, **options)
        self.wiring = FakeWiring()
        self._clients: list[httpx.Client] = []
        self.start()

    def start(self) -> None:
        """Start the agent."""
        config = AgentConfig.load(self._path)
        self.agent = Agent(config, config.load_server(self._path), self.wiring, self.wiring)
        # There is neither oneswitchd nor a database, as these would tell after a few seconds.
        self.agent._locations.stop()
        self.agent._databases.stop()
        self.url = "http://" + self.agent.addresses[1].removeprefix("tcp:")
        self.operator = self._client(
            httpx.Client(
                transport=httpx.HTTPTransport(uds=str(self.directory / "nfagent.sock")), base_url="http://nfagent"
            )
        )
        self.tenant = self.with_token(TENANT_TOKEN)
        self.admin = self.with_token(ADMIN_TOKEN)

    def with_token(self, token: str) -> httpx.Client:
        """Return a client over TCP."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self._client(httpx.Client(base_url=self.url, headers=headers, trust_env=False))

    def _client(self, client: httpx.Client) -> httpx.Client:
        client.timeout = httpx.Timeout(30.0)
        self._clients.append(client)
        return client

    def stop(self) -> None:
        """Stop the agent; its instances keep running."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.agent.stop()

    def close(self) -> None:
        """Delete everything and stop."""
        self.wiring.broken = False
        try:
            self.wait(self._delete_all)
        finally:
            self.stop()  # otherwise its threads keep pytest from ending

    def _delete_all(self) -> bool:
        """Delete a page of instances; tell whether none was left."""
        found = self.operator.get("/api/v1/instances", params={"limit": 1000}).json()["instances"]
        for instance in found:
            if instance["status"] != "deleting":
                self.operator.delete(f"/api/v1/instances/{instance['id']}")
        return not found

    def create(self, name: str, kind: str = "sleeper", **members: Any) -> dict[str, Any]:
        """Create an instance, as an administrator."""
        answer = self.operator.post("/api/v1/instances", json={"name": name, "kind": kind, **members})
        assert answer.status_code == 202, answer.text
        return answer.json()

    def show(self, instance: dict[str, Any] | str) -> dict[str, Any]:
        """Return an instance as it is now."""
        reference = instance if isinstance(instance, str) else instance["id"]
        return self.operator.get(f"/api/v1/instances/{reference}").json()

    def wait_status(self, instance: dict[str, Any], status: str) -> dict[str, Any]:
        """Wait until an instance has a status; return it as seen then."""
        seen: dict[str, Any] = {}

        def has_it() -> bool:
            seen.clear()
            seen.update(self.show(instance))
            return seen["status"] == status

        self.wait(has_it)
        return seen

    def wait(self, done: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until a condition holds."""
        wait_until(done, timeout_s)


def wait_until(done: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.02)):
        if done():
            return
        pause.wait(0.02)
    raise AssertionError("the condition did not become true in time")


def processes_of(instance: str) -> list[int]:
    """Return the session leaders whose environment names an instance."""
    marker = f"NFAGENT_INSTANCE={instance}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
            if session == int(entry.name) and marker in (entry / "environ").read_bytes().split(b"\0"):
                found.append(session)
        except OSError:
            continue
    return found
