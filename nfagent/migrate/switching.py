"""The switches' part in a migration: oneswitchd's moves of ports, and markers down the paths that were left."""

import contextlib
import hmac
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from nfagent.errors import WiringError
from nfagent.homing import bring, is_to, leave
from nfagent.migrate.packet_out import Outlet
from nfagent.model import InstancePort
from nfagent.wiring import ServerWiring
from server.config import ServerConfig, SwitchConfig, TlsConfig
from server.errors import ServerError, ToolError
from server.names import EDGE
from server.oneswitchd.answers import Stage
from server.openvswitch import openflow_tools
from server.openvswitch.unixctl import Unixctl

_log = logging.getLogger(__name__)

# Without ovs-appctl: Open vSwitch looks at each flow that it caches within max-revalidator (500 ms); two rounds.
_BOUNDED_QUIESCE_S = 1.0
_ROUNDS = 2
_QUIESCE_S = 2.0  # a switch that hangs forwards nothing either
_BATCH = 32  # packets: NETDEV_MAX_BURST
_TURNS = 2  # before the first answer it may have polled too early
_FRESH_S = 0.01  # in which no backlog comes to be that one more turn does not forward
_STATISTICS = "dpif-netdev/pmd-stats-show"
_RECEIVED = re.compile(r"^main thread:\n\s+packets received: (\d+)", re.MULTILINE)
_TURN_S = 1.0
_VLAN = 0x8100
_CFI = 0x1000  # of an OXM's VLAN id: there is a tag
_MARKER_TYPE = b"\x88\xb5"
_MARKER_MAGIC = b"nfmg"
_MARKER_PURPOSE = b"nf migration: markers"
_MARKER_BYTES = 64
_FROM = bytes.fromhex("026e666d6700")
_DEAD = (ConnectionRefusedError, FileNotFoundError)

Place = tuple[str, str]
"""A location, and an interface on its bridge ``edge``."""

Moved = tuple[InstancePort, Place, Place]
"""A port, where it was or is until now, and where it goes."""

_Path = tuple[SwitchConfig, str, int | None]
"""A switch, a port of its bridge ``edge``, and the flow-id that a packet has there."""


class Marking(Protocol):
    """Sends markers down each path that led to some ports before they were flipped."""

    @property
    def unmarked(self) -> list[str]:
        """The switches that did not answer: nothing is sent down the paths that begin there."""
        ...

    def send(self, first: int) -> int:
        """One down each path, numbered from ``first`` on; returns how many paths there are.

        Raises:
            WiringError: a switch does not take them.
        """
        ...

    def close(self) -> None:
        """Give its connections back."""
        ...


class Switching(Protocol):
    """What the switches do in a migration. All methods can be called again; they raise `WiringError`."""

    def prepare(self, port: InstancePort, location: str, interface: str) -> None:
        """Make everything for the port at this interface; traffic stays where it is."""
        ...

    def abort(self, port: InstancePort) -> None:
        """Undo `prepare`."""
        ...

    def flip(self, port: InstancePort, location: str, interface: str) -> None:
        """Point all paths to this interface; the old one goes on working in both directions."""
        ...

    def quiesce(self) -> None:
        """Wait until no switch sends anything by paths that have been flipped."""
        ...

    def bridges(self, locations: Sequence[str]) -> list[str]:
        """Where the bridges ``edge`` on the ways between some locations are managed without TLS."""
        ...

    def are_in_step(self, locations: Sequence[str]) -> bool:
        """Whether those switches are connected and have their rules, as far as somebody says."""
        ...

    def marking(self, ports: Sequence[Moved], epoch: int, secret: str) -> Marking:
        """Make ready to send markers of a migration down the old paths of all its ports, which are prepared.

        Args:
            ports: of the instance.
            epoch: of the migration.
            secret: of the migration, 64 hexadecimal digits.
        """
        ...

    def finish(self, port: InstancePort, location: str, interface: str) -> None:
        """Remove what led to the old interface."""
        ...

    def passing(self, old: str, new: str) -> Callable[[float], str | None]:
        """Something ready to be called when the process at ``old`` has just sent its last packet, with a limit in s.

        When that returns, what it sent has passed the switches on which packets of ``new`` could overtake it, or the
        limit is over for a switch whose backlog cannot be told from traffic. It returns why not, where one does not
        answer.
        """
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
        self._tls = config.oneswitchd.tls

    def prepare(self, port: InstancePort, location: str, interface: str) -> None:
        self._wiring.attach(location, interface)
        self._bring(port, location, interface, "prepared")

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

    def quiesce(self) -> None:
        with ThreadPoolExecutor(len(self._config.switch)) as pool:
            if not all(pool.map(_revalidate, self._config.switch)):
                time.sleep(_BOUNDED_QUIESCE_S)

    def bridges(self, locations: Sequence[str]) -> list[str]:
        edges = [self._config.find_switch(name).edge for name in self._on_the_way(locations)]
        return [edge for edge in edges if not edge.startswith("ssl:")]

    def are_in_step(self, locations: Sequence[str]) -> bool:
        names = self._on_the_way(locations)
        try:
            switches = self._wiring.status().switches
        except ServerError:
            return True  # they go on without it
        return all({each.virt.state, each.edge.state} == {"up"} for each in switches if each.name in names)

    def _on_the_way(self, locations: Sequence[str]) -> list[str]:
        return list(dict.fromkeys((*locations, self._config.hypervisor.name)))

    def passing(self, old: str, new: str) -> Callable[[float], str | None]:
        names = dict.fromkeys((old, self._config.hypervisor.name, new))  # in the order in which packets pass them
        return _Passing([path for name in names if (path := self._control(name)) is not None])

    def _control(self, name: str) -> Path | None:
        path = Path(self._config.find_switch(name).control or "")
        try:
            Unixctl(path, _TURN_S).close()
        except ToolError as error:
            _log.info("%s cannot be asked whether packets have passed it: %s", name, error)
            return None
        return path

    def marking(self, ports: Sequence[Moved], epoch: int, secret: str) -> Marking:
        with contextlib.ExitStack() as stack:
            outlets: list[tuple[InstancePort, Outlet | _TlsOutlet]] = []
            unmarked: list[str] = []
            for port, old, new in ports:
                with _explained(port):
                    paths = self._paths_of(port, old, new)
                for path in paths:
                    try:
                        outlet = stack.enter_context(contextlib.closing(self._outlet(*path)))
                    except ToolError as error:
                        _log.warning("no marker can be sent from %s: %s", path[0].name, error)
                        if not isinstance(error.__cause__, _DEAD):  # what it had on the way died with it
                            unmarked.append(path[0].name)
                    else:
                        outlets.append((port, outlet))
            return _Marking(outlets, unmarked, epoch, secret, stack.pop_all())

    def _outlet(self, switch: SwitchConfig, port: str, vlan: int | None) -> "Outlet | _TlsOutlet":
        if switch.edge.startswith("ssl:"):
            return _TlsOutlet(switch.edge, port, vlan, self._tls)
        return Outlet(switch.edge, port, vlan)

    def _paths_of(self, port: InstancePort, old: Place, new: Place) -> list[_Path]:
        with self._wiring.client() as client:
            at = client.port(port.number)
        if at.move is None or at.flow_id is None or not is_to(at.move, *new):
            raise WiringError(f"port {port.number} ({port.name}) is not on its way to {new[1]} of {new[0]}")
        return self._old_paths(at.flow_id, old, new[0])

    def _old_paths(self, flow_id: int, left: Place, location: str) -> list[_Path]:
        """Return the starts of the last hops to the old interface, with the port and tag that lead there.

        While a port moves, a switch sends its packets to the new interface, but never back where they came from
        (`arrival_goal` in oneswitch/core/src/layout/edge.rs). So the old interface is reached from its own switch, from
        the hypervisor, and from the new one.
        """
        hub, old = self._config.hypervisor, self._config.find_switch(left[0])
        paths: list[_Path] = [(old, left[1], None)]
        if old.link is not None:
            paths.append((hub, old.link.hypervisor, flow_id))
        new = self._config.find_switch(location)
        if new.link is not None and new.name != old.name:
            paths.append((new, new.link.local, flow_id))
        return paths


class _Marking:
    """See `Marking`."""

    def __init__(
        self,
        outlets: "list[tuple[InstancePort, Outlet | _TlsOutlet]]",
        unmarked: list[str],
        epoch: int,
        secret: str,
        stack: contextlib.ExitStack,
    ) -> None:
        self._outlets, self.unmarked, self._stack = outlets, unmarked, stack
        self._epoch, self._secret = epoch, secret

    def send(self, first: int) -> int:
        for number, (port, outlet) in enumerate(self._outlets, first):
            with _explained(port):
                outlet.put(marker(port.mac, self._secret, self._epoch, number))
        for port, outlet in self._outlets:
            with _explained(port):
                outlet.settle()
        return len(self._outlets)

    def close(self) -> None:
        self._stack.close()


class _TlsOutlet:
    """As `Outlet`, at a bridge that is reached by TLS: a process for each frame."""

    def __init__(self, target: str, port: str, vlan: int | None, tls: TlsConfig | None) -> None:
        self._target, self._port, self._tls = target, port, tls
        self._tag = f"push_vlan:{_VLAN:#x},set_field:{_CFI | vlan}->vlan_vid," if vlan is not None else ""

    def put(self, frame: bytes) -> None:
        message = f"in_port=controller,packet={frame.hex()},actions={self._tag}output:{self._port}"
        openflow_tools.ofctl("packet-out", self._target, message, tls=self._tls)

    def settle(self) -> None:
        """It has been taken."""

    def close(self) -> None:
        """There is no connection."""


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


class _Passing:
    """Lets switches forward all that waits at their ports.

    In each turn a switch's main thread polls every port, takes up to 32 packets of each, and then accepts connections
    to its control socket. So between the answers on two connections, one after the other, every port was polled. (On
    one connection a turn answers several requests.) Ports that are polled by threads of their own (DPDK, AF_XDP) do not
    let packets wait.
    """

    def __init__(self, daemons: list[Path]) -> None:
        self._daemons = daemons
        self._passed = float("-inf")

    def __call__(self, limit_s: float) -> str | None:
        """Return why a switch did not; `limit_s` is for each."""
        is_fresh = time.monotonic() - self._passed < _FRESH_S
        try:
            for daemon in self._daemons:
                if is_fresh:
                    _turn(daemon)
                else:
                    _empty(daemon, time.monotonic() + limit_s)
        except ToolError as error:
            _log.warning("a switch does not say whether packets have passed it: %s", error)
            return str(error)
        self._passed = time.monotonic()
        return None


def _turn(daemon: Path) -> None:
    """Let a switch forward what has come since it had no backlog, a moment ago."""
    for _ in range(_TURNS):
        _ask(daemon, "version")


def _empty(daemon: Path, deadline: float) -> None:
    """Wait until none of a switch's ports has a backlog, as after the switch has stood still.

    At 32 packets in each turn, some 160,000/s, a backlog cannot be told from traffic: hence the deadline.
    """
    before = _received(daemon)
    while (now := _received(daemon)) - before >= _BATCH and time.monotonic() < deadline:
        before = now


def _received(daemon: Path) -> int:
    """How many packets the main thread has taken from ports; 0: it has no datapath in user space."""
    try:
        answer = _ask(daemon, _STATISTICS)
    except ToolError:
        _ask(daemon, "version")  # it lives, or this fails, too
        return 0
    found = _RECEIVED.search(answer)
    return int(found[1]) if found else 0


def _ask(daemon: Path, command: str) -> str:
    with contextlib.closing(Unixctl(daemon, _TURN_S)) as control:
        return control.call(command)


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
