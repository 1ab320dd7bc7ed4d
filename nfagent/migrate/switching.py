"""The switches' part in a migration: oneswitchd's moves of ports, and markers down the paths that were left."""

import contextlib
import hmac
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from nfagent.errors import WiringError
from nfagent.homing import GRACE_MS, bring, is_to, leave, own
from nfagent.migrate.quiescing import Quiescing, SwitchQuiescing, single_threaded
from nfagent.model import InstancePort
from nfagent.wiring import ServerWiring
from server.config import ServerConfig
from server.errors import ServerError
from server.oneswitchd.answers import Stage, VirtualPort
from server.oneswitchd.client import Client

_MOST_PATHS = 3
_MARKER_TYPE = b"\x88\xb5"
_MARKER_MAGIC = b"nfmg"
_MARKER_PURPOSE = b"nf migration: markers"
_MARKER_BYTES = 64
_FROM = bytes.fromhex("026e666d6700")

Place = tuple[str, str]
"""A location, and an interface on its bridge ``edge``."""

Moved = tuple[InstancePort, Place]
"""A port, and where it goes or is."""


class Marking(Protocol):
    """Sends markers down each path to the interfaces that some ports leave.

    Attributes:
        paths: how many are sent, unless a switch goes away; 0: unknown.
    """

    paths: int

    def send(self, first: int) -> int:
        """Send one down each path, numbered from ``first`` on; returns the number of paths.

        Raises:
            WiringError: a switch did not take its marker; other switches may have taken theirs.
        """
        ...

    def close(self) -> None:
        """Close its connection."""
        ...


class Switching(Protocol):
    """The switches' part in a migration. All methods can be called again; they raise `WiringError`."""

    def prepare(self, port: InstancePort, location: str, interface: str) -> None:
        """Make everything for the port at this interface; traffic stays where it is."""
        ...

    def await_settled(self) -> None:
        """Wait until a flip of the ports that were prepared takes effect at once."""
        ...

    def abort(self, port: InstancePort) -> None:
        """Undo `prepare`."""
        ...

    def flip(self, port: InstancePort, location: str, interface: str) -> None:
        """Point all paths to this interface; the old one goes on working in both directions."""
        ...

    def quiescing(self, locations: Sequence[str]) -> Quiescing:
        """Connect to the switches on the ways between some locations, before a flip."""
        ...

    def bridges(self, locations: Sequence[str]) -> list[str]:
        """Where the bridges ``edge`` on the ways between some locations are managed without TLS."""
        ...

    def single_threaded(self, locations: Sequence[str]) -> set[str]:
        """Return those of `bridges` that answer there with the thread that forwards all packets."""
        ...

    def are_in_step(self, locations: Sequence[str], wires: Sequence[Moved]) -> bool:
        """Return whether those switches are connected, and lead packets to and from these ports at these interfaces.

        True if oneswitchd does not answer: the switches go on without it.
        """
        ...

    def marking(self, ports: Sequence[Moved], epoch: int, secret: str) -> Marking:
        """Connect to what sends markers of a migration down the old paths of all its ports, which are prepared.

        Packets wait for the markers, so everything that takes time has happened when this returns.

        Args:
            ports: of the instance.
            epoch: of the migration.
            secret: of the migration, 64 hexadecimal digits.
        """
        ...

    def finish(self, port: InstancePort, location: str, interface: str) -> None:
        """Remove what led to the old interface."""
        ...


class ServerSwitching:
    """See `Switching`.

    Args:
        config: of the server.
        wiring: of ports.
    """

    def __init__(self, config: ServerConfig, wiring: ServerWiring) -> None:
        self._config = config
        self._wiring = wiring
        self._settled_at = 0.0

    def prepare(self, port: InstancePort, location: str, interface: str) -> None:
        self._wiring.attach(location, interface)
        self._bring(port, location, interface, "prepared")
        self._settled_at = time.monotonic() + GRACE_MS / 1000

    def await_settled(self) -> None:
        # oneswitchd answers before that time, and begins a flip only after it (docs/architecture.md, "A move").
        time.sleep(max(0.0, self._settled_at - time.monotonic()))

    def abort(self, port: InstancePort) -> None:
        with _explained(port), self._wiring.client() as client:
            leave(client, port)

    def flip(self, port: InstancePort, location: str, interface: str) -> None:
        self._bring(port, location, interface, "flipped")

    def finish(self, port: InstancePort, location: str, interface: str) -> None:
        self._bring(port, location, interface, "done")

    def _bring(self, port: InstancePort, location: str, interface: str, until: Stage) -> None:
        with _explained(port), self._wiring.client() as client:
            bring(client, port, location, interface, until)

    def quiescing(self, locations: Sequence[str]) -> Quiescing:
        return SwitchQuiescing([self._config.find_switch(name) for name in self._on_the_way(locations)])

    def bridges(self, locations: Sequence[str]) -> list[str]:
        edges = [self._config.find_switch(name).edge for name in self._on_the_way(locations)]
        return [edge for edge in edges if not edge.startswith("ssl:")]

    def single_threaded(self, locations: Sequence[str]) -> set[str]:
        switches = [self._config.find_switch(name) for name in self._on_the_way(locations)]
        names = single_threaded(switches)
        return {switch.edge for switch in switches if switch.name in names}

    def are_in_step(self, locations: Sequence[str], wires: Sequence[Moved]) -> bool:
        names = self._on_the_way(locations)
        try:
            with self._wiring.client() as client:
                switches = client.status().switches
                are_wired = all(_is_wired(client.port(port.number), place) for port, place in wires)
        except ServerError:
            return True
        return are_wired and all(
            {each.virt.state, each.edge.state} == {"up"} for each in switches if each.name in names
        )

    def _on_the_way(self, locations: Sequence[str]) -> list[str]:
        return list(dict.fromkeys((*locations, self._config.hypervisor.name)))

    def marking(self, ports: Sequence[Moved], epoch: int, secret: str) -> Marking:
        with contextlib.ExitStack() as stack:
            client = self._wiring.client()
            stack.callback(client.close)
            views: dict[int, VirtualPort] = {}
            for port, _ in ports:
                with _explained(port):
                    views[port.number] = client.port(port.number)
            stack.pop_all()
            return _Marking(client, ports, views, epoch, secret)


def _is_wired(at: VirtualPort, place: Place) -> bool:
    """Return whether packets reach a port at a place: oneswitchd undoes a prepared move when a switch goes away."""
    return (at.switch, at.interface) == place or (at.move is not None and is_to(at.move, *place))


class _Marking:
    """See `Marking`: oneswitchd knows the paths, and sends on its own sessions."""

    def __init__(
        self, client: Client, ports: Sequence[Moved], views: Mapping[int, VirtualPort], epoch: int, secret: str
    ) -> None:
        self._client, self._ports, self._epoch, self._secret = client, ports, epoch, secret
        self._owners = {number: own(at) for number, at in views.items()}
        self._paths = {number: len(at.move.old_paths) if at.move else 0 for number, at in views.items()}
        self.paths = sum(self._paths.values()) if all(self._paths.values()) else 0

    def send(self, first: int) -> int:
        sent = 0
        for port, to in self._ports:
            # Not more than expected: somebody may already wait for just these.
            most = self._paths[port.number] or _MOST_PATHS
            numbers = range(first + sent, first + sent + most)
            frames = [marker(port.mac, self._secret, self._epoch, number) for number in numbers]
            with _explained(port):
                sent += len(self._client.send_markers(port.number, *to, frames, self._owners[port.number]))
        return sent

    def close(self) -> None:
        self._client.close()


def unused_number() -> int:
    """Return a random number, which markers of earlier agents are unlikely to have."""
    return random.getrandbits(31)


def marker(mac: str, secret: str, epoch: int, path: int) -> bytes:
    """The frame that goes down a path last; nf_runtime::migration::marker. Without the secret none can be made."""
    key = hmac.digest(bytes.fromhex(secret), _MARKER_PURPOSE, "sha256")
    signed = epoch.to_bytes(8, "big") + path.to_bytes(4, "big")
    frame = bytes.fromhex(mac.replace(":", "")) + _FROM + _MARKER_TYPE + _MARKER_MAGIC + signed
    return (frame + hmac.digest(key, signed, "sha256")).ljust(_MARKER_BYTES, b"\0")


@contextlib.contextmanager
def _explained(port: InstancePort) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise WiringError(f"port {port.number} ({port.name}): {error}") from error
