"""Simulated switches: oneswitchd's REST interface, OVSDB, and markers in flight.

nfagent's own part is real: `nfagent.wiring.ServerWiring` and `nfagent.migrate.switching.ServerSwitching`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nfagent.errors import WiringError
from nfagent.migrate.switching import ServerSwitching
from nfagent.wiring import ServerWiring
from server.config import ServerConfig, SwitchConfig
from server.errors import ApiNoAnswerError, ApiRefusedError, ApiUnreachableError, DatabaseUnreachableError
from server.oneswitchd import answers as model
from server.oneswitchd.answers import BridgeState, Status, SwitchState

if TYPE_CHECKING:
    from tests.nfagent.faults.world import World

HUB, NIC, ONESWITCHD = "hypervisor", "snic0", "oneswitchd"
_STAGES = ("preparing", "prepared", "flipped", "done")
_STEP_S = 1.0
_REQUEST_S = 10.0
_GONE_S = 5.0  # a switch away for longer is not awaited
_MOVE_S = 120.0


@dataclass
class Moving:
    """A move of a port."""

    to: tuple[str, str]
    stage: str
    until: str


@dataclass
class FakePort:
    """A virtual port."""

    number: int
    name: str
    home: tuple[str, str]
    moving: Moving | None = None
    owner: str | None = None

    @property
    def leads_to(self) -> tuple[str, str]:
        """Return where packets for the port go."""
        if self.moving is not None and self.moving.stage == "flipped":
            return self.moving.to
        return self.home


class Switches:
    """All switches, and oneswitchd."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ports: dict[int, FakePort] = {}
        self.attached: set[tuple[str, str]] = set()
        self._down: dict[str, float] = {}  # since when
        self._arrived: set[int] = set()

    def is_up(self, name: str) -> bool:
        """Tell whether a switch or oneswitchd answers."""
        return name not in self._down

    def is_gone(self, name: str) -> bool:
        """Tell whether a switch has been away for too long to be awaited."""
        return self._world.clock.now - self._down.get(name, math.inf) >= _GONE_S

    def lose(self, name: str, seconds: float) -> None:
        """Take a switch away for a while."""
        self._down.setdefault(name, self._world.clock.now)
        if seconds < math.inf:
            self._world.clock.at(seconds, f"back {name}", lambda: self._back(name))

    def _back(self, name: str) -> None:
        self._down.pop(name, None)
        self._world.watch()

    def forget_moves(self) -> None:
        """Forget all moves, as oneswitchd does when restarted without its journal."""
        for port in self.ports.values():
            port.moving = None

    def advance(self, port: FakePort) -> None:
        """Advance a move as far as possible now.

        Raises:
            ApiRefusedError: it failed and was rolled back.
        """
        move = port.moving
        if move is None or not self.is_up(ONESWITCHD):
            return
        if move.stage in ("preparing", "prepared"):
            if any(map(self.is_gone, (move.to[0], HUB))):
                port.moving = None
                raise ApiRefusedError(409, "move-failed", f"switch {move.to[0]} is down; the move was undone")
            if not all(map(self.is_up, (move.to[0], HUB))):
                return
            move.stage = "prepared" if move.until == "prepared" else "flipped"
        # The flip is sent to all switches; those that are not gone confirm each later stage.
        waited = [name for name in (HUB, port.home[0], move.to[0]) if not self.is_up(name) and not self.is_gone(name)]
        if move.stage == "flipped" and move.until == "done" and not waited:
            port.home, port.moving = move.to, None

    def arrive(self, numbers: Sequence[int]) -> None:
        """Deliver sent markers."""
        self._arrived.update(numbers)

    def marked(self, first: int, paths: int) -> int:
        """Return how many of these markers have arrived."""
        return len(self._arrived.intersection(range(first, first + paths)))

    def status(self) -> Status:
        """Return oneswitchd's status."""
        if not self.is_up(ONESWITCHD):
            raise ApiUnreachableError("nothing listens")
        return Status(version="1", datapath_id="1", switches=(self._state(HUB), self._state(NIC)))

    def _state(self, name: str) -> SwitchState:
        bridge = BridgeState(target="x", state="up" if self.is_up(name) else "down")
        return SwitchState(name=name, hub=name == HUB, virt=bridge, edge=bridge)


class FakeClient:
    """See `server.oneswitchd.client.Client`."""

    def __init__(self, world: World) -> None:
        self._world, self._switches = world, world.switches

    @contextlib.contextmanager
    def _request(self, what: str) -> Iterator[None]:
        def refused(said: str) -> ApiRefusedError:
            return ApiRefusedError(500, "test", said)

        with self._world.crossing("switch", what, refused, ApiNoAnswerError):
            if not self._switches.is_up(ONESWITCHD):
                raise ApiUnreachableError("nothing listens")
            yield

    def port(self, number: int) -> model.VirtualPort:
        with self._request(f"port {number}"):
            return self._shown(self._find(number))

    def ports(self) -> list[model.VirtualPort]:
        with self._request("ports"):
            return [self._shown(port) for port in self._switches.ports.values()]

    def status(self) -> Status:
        return self._switches.status()

    def add_port(self, number: int, name: str, switch: str, interface: str, *, owner: str | None) -> model.VirtualPort:
        with self._request(f"add {number}"):
            self._check((switch, interface))
            if number in self._switches.ports:
                raise ApiRefusedError(409, "port-exists", f"port {number}")
            made = self._switches.ports[number] = FakePort(number, name, (switch, interface), owner=owner)
            return self._shown(made)

    def delete_port(self, number: int, owner: str | None) -> None:
        with self._request(f"delete {number}"):
            self._find_owned(number, owner)
            del self._switches.ports[number]

    def give_port(self, number: int, owner: str | None, force: bool) -> model.VirtualPort:
        with self._request(f"give {number}"):
            port = self._find(number) if force else self._find_owned(number, owner)
            port.owner = owner
            return self._shown(port)

    def move_port(
        self,
        number: int,
        switch: str,
        interface: str,
        until: str,
        grace_ms: int | None,
        force: bool,
        owner: str | None,
    ) -> model.VirtualPort:
        with self._request(f"move {number} {switch} {until}"):
            port = self._find_owned(number, owner)
            if port.moving is not None:
                raise ApiRefusedError(409, "move-in-progress", f"port {number} is moving to {port.moving.to[1]}")
            self._check((switch, interface))
            port.moving = Moving((switch, interface), "preparing", until)
            return self._until(port, until, force)

    def continue_move(self, number: int, until: str, force: bool = False) -> model.VirtualPort:
        with self._request(f"continue {number} {until}"):
            port = self._find(number)
            if port.moving is None:
                raise ApiRefusedError(409, "no-move", f"port {number} is not moving")
            port.moving.until = max(port.moving.until, until, key=_STAGES.index)
            return self._until(port, until, force)

    def abort_move(self, number: int) -> model.VirtualPort:
        with self._request(f"abort {number}"):
            port = self._find(number)
            if port.moving is None:
                raise ApiRefusedError(409, "no-move", f"port {number} is not moving")
            if port.moving.stage == "flipped":
                raise ApiRefusedError(409, "move-past-abort", f"the move of port {number} has flipped")
            port.moving = None
            return self._shown(port)

    def send_markers(
        self, number: int, switch: str, interface: str, frames: Sequence[bytes], owner: str | None
    ) -> tuple[str, ...]:
        with self._request(f"markers {number}"):
            port = self._find_owned(number, owner)
            if port.moving is None or port.moving.to != (switch, interface):
                raise ApiRefusedError(409, "no-move", f"port {number} is not moving to {interface} of {switch}")
            paths = _old_paths(port)
            if len(frames) < len(paths):
                raise ApiRefusedError(409, "markers-missing", f"port {number} has {len(paths)} old paths")
            if down := [name for name in paths if not self._switches.is_up(name)]:
                raise ApiRefusedError(409, "switch-down", f"switch {', '.join(down)} is not connected")
            numbers = [int.from_bytes(frame[26:30], "big") for frame in frames[: len(paths)]]
            epoch, to = int.from_bytes(frames[0][18:26], "big"), frames[0][:6].hex(":")
            self._world.note(f"markers {epoch} {numbers} to {to} by {', '.join(paths)}")
            self._switches.arrive(numbers)
            return paths

    def _until(self, port: FakePort, until: str, force: bool) -> model.VirtualPort:
        """Answer when a stage is reached, or never."""
        end = self._world.clock.now + _MOVE_S
        self._switches.advance(port)
        while port.moving is not None and _STAGES.index(port.moving.stage) < _STAGES.index(until):
            if self._world.clock.now >= end:
                raise ApiNoAnswerError("no answer in time")
            if force and port.moving.stage == "flipped":
                port.home, port.moving = port.moving.to, None
                break
            self._world.clock.sleep(_STEP_S)
            self._switches.advance(port)
        return self._shown(port)

    def _find(self, number: int) -> FakePort:
        if number not in self._switches.ports:
            raise ApiRefusedError(404, "port-unknown", f"there is no port {number}")
        return self._switches.ports[number]

    def _find_owned(self, number: int, owner: str | None) -> FakePort:
        port = self._find(number)
        if port.owner not in (None, owner):
            raise ApiRefusedError(409, "port-owned", f"port {number} belongs to {port.owner}")
        return port

    def _check(self, to: tuple[str, str]) -> None:
        taken = next((each.number for each in self._switches.ports.values() if each.home == to), None)
        if taken is not None:
            raise ApiRefusedError(409, "interface-taken", f"{to} has port {taken}")
        if not self._switches.is_up(to[0]):
            raise ApiRefusedError(503, "switch-down", f"switch {to[0]} is down")
        if to not in self._switches.attached:
            raise ApiRefusedError(409, "interface-missing", f"{to[0]} has no interface {to[1]}")

    def _shown(self, port: FakePort) -> model.VirtualPort:
        move = port.moving and model.PortMove(
            switch=port.moving.to[0],
            interface=port.moving.to[1],
            stage=port.moving.stage,
            old_paths=_old_paths(port),
        )
        switch, interface = port.leads_to
        return model.VirtualPort(
            number=port.number,
            name=port.name,
            switch=switch,
            interface=interface,
            flow_id=7,
            owner=port.owner,
            move=move,
        )

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _old_paths(port: FakePort) -> tuple[str, ...]:
    assert port.moving is not None
    return tuple(dict.fromkeys((port.home[0], HUB, port.moving.to[0])))


class FakePlumbing:
    """See `server.openvswitch.servers.ServerPlumbing`, and `Plumbing`; ``world`` is set on a subclass."""

    world: World

    def __init__(
        self,
        config: ServerConfig | SwitchConfig,
        *,
        tls: Any = None,
        without: Collection[str] = (),
        ports: Collection[str] | None = None,
        timeout_s: float = _REQUEST_S,
        at: str = "",
    ) -> None:
        self._at = config.name if isinstance(config, SwitchConfig) else at
        names = [switch.name for switch in config.switch] if isinstance(config, ServerConfig) else [self._at]
        if not at:
            with self.world.crossing("switch", f"ovsdb {self._at or 'all'}", DatabaseUnreachableError):
                for name in names:
                    if name not in without and not self.world.switches.is_up(name):
                        self.world.clock.sleep(timeout_s)
                        raise DatabaseUnreachableError(f"switch {name}: its database does not answer")

    def connect(self, numbers: Collection[int], interfaces: Mapping[str, Collection[str]]) -> None:
        """Attach the interfaces; patch ports are not simulated."""
        assert numbers
        self.world.switches.attached.update((name, each) for name, given in interfaces.items() for each in given)

    def remove_virtual_ports(self, *numbers: int) -> None:
        """Do nothing: patch ports are not simulated."""

    def on(self, switch: str) -> FakePlumbing:
        found = self.world.server.find_switch(switch)
        return type(self)(found, at=found.name)

    def attach(self, interface: str) -> None:
        self.world.switches.attached.add((self._at, interface))

    def __enter__(self) -> FakePlumbing:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: nothing is open."""


class FakeWiring(ServerWiring):
    """A wiring with a simulated oneswitchd."""

    def __init__(self, world: World, is_cut_off: Callable[[str], bool]) -> None:
        super().__init__(world.server, is_cut_off)
        self._world = world

    def client(self) -> Any:
        return FakeClient(self._world)

    def quick_client(self) -> Any:
        return FakeClient(self._world)


class FakeSwitching(ServerSwitching):
    """A switching with simulated oneswitchd and datapaths."""

    def __init__(self, world: World, wiring: FakeWiring) -> None:
        super().__init__(world.server, wiring)
        self._world = world

    def await_settled(self) -> None:
        """Do nothing: its switches change at once."""

    def quiescing(self, locations: Sequence[str]) -> FakeQuiescing:
        assert locations
        return FakeQuiescing(self._world)


class FakeQuiescing:
    """A wait for simulated datapaths."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wait(self) -> None:
        """See `Quiescing`."""
        with self._world.crossing("switch", "quiesce", WiringError):
            if not all(map(self._world.switches.is_up, (HUB, NIC))):
                self._world.clock.sleep(1.0)

    def close(self) -> None:
        """See `Quiescing`."""
