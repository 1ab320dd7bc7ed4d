"""Connects virtual ports to slots: plumbing on every switch, mapping in oneswitchd."""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from nfagent.errors import WiringError
from nfagent.homing import bring, is_at_home, leave, own
from nfagent.model import InstancePort
from nfagent.removals import Removals
from server.config import ServerConfig
from server.errors import ApiRefusedError, ServerError
from server.names import patch_names
from server.oneswitchd.answers import Status, VirtualPort
from server.oneswitchd.client import Client
from server.oneswitchd.settling import settled
from server.openvswitch.bridges import Plumbing
from server.openvswitch.servers import ServerPlumbing

_REQUEST_S = 5.0
_QUICK_S = 2.0  # people learn within 5 s that oneswitchd hangs
_ATTACH_S = 5.0  # for each of connecting and attaching: a migration says within 15 s what it waits for
_AT_ONCE = 2  # connecting reads whole databases; more of it at once only delays answers to clients
_TURN_S = 1.0  # a switch that hangs delays the others' ports no longer
_MOVE_S = 8.0  # by then oneswitchd has reported what the move waits for; the next attempt resumes it


class ServerWiring:
    """Implements `nfagent.protocols.Wiring`.

    Each call opens its own connections, so that calls never wait for each other: it takes seconds to notice that a
    switch has vanished. Concurrent calls on one switch share only the rows of its bridges, whose sets of ports OVSDB
    changes by mutation.

    Args:
        config: of the server.
        is_cut_off: whether a switch is disconnected now; its ports are created when it is back.
    """

    def __init__(self, config: ServerConfig, is_cut_off: Callable[[str], bool] = lambda _: False) -> None:
        self._config = config
        self._is_cut_off = is_cut_off
        self._turns = threading.Semaphore(_AT_ONCE)
        self._removals = Removals(self._turn, self._remove)

    def connect(self, ports: Sequence[tuple[InstancePort, str]], location: str, owner: str) -> None:
        places, away = (
            {port.number: f"port {port.number} ({port.name}) on {edge}" for port, edge in ports},
            self._away(),
        )
        what = f"{', '.join(places.values())} of {location}"
        if location in away:
            raise WiringError(f"{what}: {location} is cut off")
        edges = [edge for _, edge in ports]
        with _explained(what), self._plumbing(away, *_patches(places), *edges) as plumbing:
            plumbing.connect(places, {location: edges})
        with self.client() as client:
            for port, edge in ports:
                with _explained(f"{places[port.number]} of {location}"):
                    settled(lambda port=port, edge=edge: _map(client, port, location, edge, owner))

    def attach(self, location: str, interface: str) -> None:
        """Put an interface on the bridge ``edge`` of a location.

        Raises:
            WiringError: that failed.
        """
        with _explained(f"interface {interface} of {location}"):
            switch = self._config.find_switch(location)
            with Plumbing(switch, timeout_s=_ATTACH_S, tls=self._config.oneswitchd.tls, ports=[interface]) as plumbing:
                plumbing.attach(interface)

    def homes(self, owner: str) -> dict[int, tuple[str, str]]:
        with _explained("the virtual ports"), self.client() as client:
            owned = [port for port in client.ports() if port.owner == owner]
        return {port.number: (port.switch, port.interface) for port in owned if is_at_home(port)}

    def carried(self, location: str) -> dict[str, set[int]]:
        with _explained("the virtual ports"), self.quick_client() as client:
            ports = client.ports()
        carried: defaultdict[str, set[int]] = defaultdict(set)
        for port in ports:
            for place in (port, port.move):
                if place is not None and place.switch == location:
                    carried[place.interface].add(port.number)
        return dict(carried)

    def disconnect(self, port: InstancePort) -> None:
        with _explained(f"port {port.number} ({port.name})"):
            with self.client() as client:
                _unmap(client, port)
            self._removals.remove(port.number)

    def _remove(self, numbers: Collection[int]) -> None:
        with ServerPlumbing(self._config, without=self._away(), ports=_patches(numbers)) as plumbing:
            plumbing.remove_virtual_ports(*numbers)

    def _plumbing(self, away: list[str], *ports: str) -> ServerPlumbing:
        """Connect to the switches' databases, in turn with other threads."""
        with self._turn():
            return ServerPlumbing(self._config, without=away, ports=ports)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        has_turn = self._turns.acquire(timeout=_TURN_S)
        try:
            yield
        finally:
            if has_turn:
                self._turns.release()

    def _away(self) -> list[str]:
        return [switch.name for switch in self._config.switch if self._is_cut_off(switch.name)]

    def status(self) -> Status:
        """Return oneswitchd's status.

        Raises:
            ServerError: oneswitchd does not answer.
        """
        with self.client() as client:
            return client.status()

    def quick_status(self) -> Status:
        """Return oneswitchd's status, or raise as `status`, but soon."""
        with self.quick_client() as client:
            return client.status()

    def ports(self) -> list[VirtualPort]:
        """Return all virtual ports that oneswitchd knows.

        Raises:
            ServerError: oneswitchd does not answer.
        """
        with self.client() as client:
            return client.ports()

    def client(self) -> Client:
        """Return a client of oneswitchd."""
        return Client.of(self._config.oneswitchd, _REQUEST_S, _MOVE_S)

    def quick_client(self) -> Client:
        """Return a client that gives up soon."""
        return Client.of(self._config.oneswitchd, _QUICK_S)


def _patches(numbers: Iterable[int]) -> list[str]:
    return [name for number in numbers for name in patch_names(number)]


def _map(client: Client, port: InstancePort, location: str, interface: str, owner: str) -> None:
    """Map the port in oneswitchd, or move it there make-before-break.

    Ports without an owner come from versions of nfagent before ports had owners.
    """
    at = next((each for each in client.ports() if each.number == port.number), None)
    if at is None:
        client.add_port(port.number, port.name, location, interface, owner=owner)
        return
    if at.owner != owner:
        client.give_port(port.number, owner, force=own(at) is not None)
    bring(client, port, location, interface, "done")


def _unmap(client: Client, port: InstancePort) -> None:
    leave(client, port, executor_too=True)
    try:
        # Refused while oneswitchd changes the executor again, because it gathers the ports.
        settled(lambda: client.delete_port(port.number, own(client.port(port.number))), {"move-in-progress"})
    except ApiRefusedError as error:
        if error.code != "port-unknown":
            raise


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise WiringError(f"{what}: {error}") from error
