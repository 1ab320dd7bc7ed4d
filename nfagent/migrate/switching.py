"""The switches' part in a migration: oneswitchd's moves of ports, and markers down the paths that were left."""

import contextlib
import hmac
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from nfagent.errors import WiringError
from nfagent.homing import GRACE_MS, bring, is_to, leave, own
from nfagent.model import InstancePort
from nfagent.wiring import ServerWiring
from server.config import ServerConfig, SwitchConfig
from server.errors import ServerError, ToolError
from server.names import EDGE
from server.oneswitchd.answers import Stage, VirtualPort
from server.oneswitchd.client import Client
from server.openvswitch.unixctl import Unixctl

_log = logging.getLogger(__name__)

# Without ovs-appctl: Open vSwitch looks at each flow that it caches within max-revalidator (500 ms); two rounds.
_BOUNDED_QUIESCE_S = 1.0
_ROUNDS = 2
_QUIESCE_S = 2.0  # a switch that hangs forwards nothing either
PAUSES = (("version",), *(("revalidator/pause",), ("revalidator/resume",)) * 2)
"""Asked by one call, because this process may die and a switch must not stay paused: the next pause would stop it for
good. A switch that finds that its client has gone cannot answer the first command, and discards the others."""
_AT_ONCE_S = 0.1  # for an answer that usually takes 1 ms
_STALL_MS = 5  # for which a switch may stop to look at its caches at once
_DATAPATH = re.compile(r"^(\w+)@\S+:$", re.MULTILINE)
_DURATION = re.compile(r"dump duration *: (\d+)ms")
_STATISTICS = "dpif-netdev/pmd-stats-show"
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
    """Sends markers down each path to the interfaces that some ports leave."""

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

    def quiesce(self, locations: Sequence[str]) -> None:
        """Wait until no switch on the ways between some locations sends anything by paths that have been flipped."""
        ...

    def bridges(self, locations: Sequence[str]) -> list[str]:
        """Where the bridges ``edge`` on the ways between some locations are managed without TLS."""
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

    def quiesce(self, locations: Sequence[str]) -> None:
        switches = [self._config.find_switch(name) for name in self._on_the_way(locations)]
        if not (left := _revalidate_at_once(switches)):
            return
        with ThreadPoolExecutor(len(left)) as pool:
            if not all(pool.map(_revalidate, left)):
                time.sleep(_BOUNDED_QUIESCE_S)

    def bridges(self, locations: Sequence[str]) -> list[str]:
        edges = [self._config.find_switch(name).edge for name in self._on_the_way(locations)]
        return [edge for edge in edges if not edge.startswith("ssl:")]

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
            owners: dict[int, str | None] = {}
            for port, _ in ports:
                with _explained(port):
                    owners[port.number] = own(client.port(port.number))
            stack.pop_all()
            return _Marking(client, ports, owners, epoch, secret)


def _is_wired(at: VirtualPort, place: Place) -> bool:
    """Return whether packets reach a port at a place: oneswitchd undoes a prepared move when a switch goes away."""
    return (at.switch, at.interface) == place or (at.move is not None and is_to(at.move, *place))


class _Marking:
    """See `Marking`: oneswitchd knows the paths, and sends on its own sessions."""

    def __init__(
        self, client: Client, ports: Sequence[Moved], owners: Mapping[int, str | None], epoch: int, secret: str
    ) -> None:
        self._client, self._ports, self._owners, self._epoch, self._secret = client, ports, owners, epoch, secret

    def send(self, first: int) -> int:
        sent = 0
        for port, to in self._ports:
            numbers = range(first + sent, first + sent + _MOST_PATHS)
            frames = [marker(port.mac, self._secret, self._epoch, number) for number in numbers]
            with _explained(port):
                sent += len(self._client.send_markers(port.number, *to, frames, self._owners[port.number]))
        return sent

    def close(self) -> None:
        self._client.close()


def _revalidate(switch: SwitchConfig) -> bool:
    """Wait until a switch has looked at all flows that it caches, in a round that began after this was called.

    False: it cannot be asked. The command waits for the end of a round, which may have begun before: hence two.
    """
    try:
        with contextlib.closing(Unixctl(Path(switch.control or ""), _QUIESCE_S)) as daemon:
            for _ in range(_ROUNDS):
                _await_round(daemon)
    except ToolError as error:
        _log.info("%s cannot be asked when its caches are right: %s", switch.name, error)
        return False
    return True


def _revalidate_at_once(switches: Sequence[SwitchConfig]) -> list[SwitchConfig]:
    """Have switches look at all flows that they cache while they do nothing else; return those that cannot.

    Rounds begin 5 ms apart (udpif_revalidator in ofproto-dpif-upcall.c), and packets wait. This takes 1 ms: the second
    pause begins when the round after the first one has ended. Its caches are right then if one thread does all: others
    might be adding a flow by the old rules.
    """
    with contextlib.ExitStack() as stack:
        daemons: dict[str, Unixctl] = {}
        for switch in switches:
            with contextlib.suppress(ToolError):
                daemon = Unixctl(Path(switch.control or ""), _AT_ONCE_S)
                stack.callback(daemon.close_when_answered)
                daemons[switch.name] = daemon
        asked = _asked(daemons, ("upcall/show",), (_STATISTICS,))
        alone = {name: daemons[name] for name, told in asked.items() if _is_alone(*told)}
        done = _asked(alone, *PAUSES)
    return [switch for switch in switches if switch.name not in done]


def _is_alone(shown: str, statistics: str) -> bool:
    """Tell whether a switch's main thread does all, and would not stop for long."""
    is_short = all(int(took) <= _STALL_MS for took in _DURATION.findall(shown))
    return is_short and set(_DATAPATH.findall(shown)) in ({"netdev"}, {"dummy"}) and "pmd thread" not in statistics


def _asked(daemons: Mapping[str, Unixctl], *commands: tuple[str, ...]) -> dict[str, list[str]]:
    """Ask all at a time; return the answers of those that do not refuse."""
    begun: dict[str, Callable[[], list[str]]] = {}
    answers: dict[str, list[str]] = {}
    for name, daemon in daemons.items():
        with contextlib.suppress(ToolError):
            begun[name] = daemon.begin(*commands)
    for name, answer in begun.items():
        with contextlib.suppress(ToolError):
            answers[name] = answer()
    return answers


def _await_round(daemon: Unixctl) -> None:
    """Wait for the end of a round that begins now, and not within 500 ms (max-revalidator).

    An address that was learnt goes: that is a reason for one. No rule of ``edge`` looks at such addresses, and this one
    is nobody's.
    """
    address = (_FROM[:3] + random.randbytes(3)).hex(":")
    try:
        daemon.call("fdb/add", EDGE, EDGE, "0", address)
    except ToolError:  # before Open vSwitch 2.17
        daemon.call("revalidator/wait")
        return
    daemon.call_at_once(("fdb/del", EDGE, "0", address), ("revalidator/wait",))


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
