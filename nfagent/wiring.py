"""Virtual ports on slots: plumbing on every switch, the mapping in oneswitchd."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nfagent.errors import WiringError
from nfagent.homing import bring, is_at_home, leave, own
from nfagent.model import Port
from nfagent.plumbing.bridges import Plumbing
from nfagent.plumbing.errors import PlumbingError
from nfagent.plumbing.server_config import ServerConfig
from nfagent.plumbing.servers import ServerPlumbing
from unoctl.client import Client
from unoctl.errors import ApiRefusedError, UnoctlError
from unoctl.model import Port as SwitchPort
from unoctl.model import Status
from unoctl.settling import settled

_REQUEST_S = 5.0
_MOVE_S = 8.0  # then the next try goes on with the move, and what it waits for has been said


class ServerWiring:
    """See `nfagent.protocols.Wiring`.

    Each call dials the switches anew, and none waits for another: a switch that has vanished without a word is
    noticed after seconds, in which what others do goes on. Two that change one switch have no rows in common but its
    bridges, whose sets of ports OVSDB changes by mutation.

    Args:
        config: of the server.
        is_cut_off: whether a switch cannot be asked now; ports are made there when they are connected again.
    """

    def __init__(self, config: ServerConfig, is_cut_off: Callable[[str], bool] = lambda _: False) -> None:
        self._config = config
        self._is_cut_off = is_cut_off

    def connect(self, port: Port, location: str, interface: str, owner: str) -> None:
        what, away = f"port {port.number} ({port.name}) on {interface} of {location}", self._away()
        if location in away:
            raise WiringError(f"{what}: {location} is cut off")
        with _explained(what):
            with ServerPlumbing(self._config, without=away) as plumbing:
                plumbing.add_virtual_port(port.number)
                plumbing.on(location).attach(interface)
            with self.client() as client:
                settled(lambda: _map(client, port, location, interface, owner))

    def attach(self, location: str, interface: str) -> None:
        """Put an interface on the bridge ``edge`` of a location.

        Raises:
            WiringError: it could not be.
        """
        with _explained(f"interface {interface} of {location}"):
            switch = self._config.find_switch(location)
            with Plumbing(switch, tls=self._config.oneswitchd.tls) as plumbing:
                plumbing.attach(interface)

    def homes(self, owner: str) -> dict[int, tuple[str, str]]:
        with _explained("the virtual ports"), self.client() as client:
            owned = [port for port in client.ports() if port.owner == owner]
        return {port.number: (port.switch, port.interface) for port in owned if is_at_home(port)}

    def disconnect(self, port: Port) -> None:
        with _explained(f"port {port.number} ({port.name})"):
            with self.client() as client:
                _unmap(client, port)
            with ServerPlumbing(self._config, without=self._away()) as plumbing:
                plumbing.remove_virtual_port(port.number)

    def _away(self) -> list[str]:
        return [switch.name for switch in self._config.switch if self._is_cut_off(switch.name)]

    def status(self) -> Status:
        """What oneswitchd says.

        Raises:
            UnoctlError: nothing.
        """
        with self.client() as client:
            return client.status()

    def ports(self) -> list[SwitchPort]:
        """All virtual ports, as oneswitchd has them.

        Raises:
            UnoctlError: it does not say.
        """
        with self.client() as client:
            return client.ports()

    def client(self) -> Client:
        """Of oneswitchd."""
        own = self._config.oneswitchd
        return Client(own.api, _REQUEST_S, own.api_token_file, _MOVE_S)


def _map(client: Client, port: Port, location: str, interface: str, owner: str) -> None:
    """Have oneswitchd show the port there; one that is elsewhere, or on its way, is moved, make-before-break.

    A port without an owner was made by an nfagent of before there were owners.
    """
    at = next((each for each in client.ports() if each.number == port.number), None)
    if at is None:
        client.add_port(port.number, port.name, location, interface, owner=owner)
        return
    if at.owner != owner:
        client.give_port(port.number, owner, force=own(at) is not None)
    bring(client, port, location, interface, "done")


def _unmap(client: Client, port: Port) -> None:
    leave(client, port, executor_too=True)
    try:
        client.delete_port(port.number, own(client.port(port.number)))
    except ApiRefusedError as error:
        if error.code != "port-unknown":
            raise


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (UnoctlError, PlumbingError) as error:
        raise WiringError(f"{what}: {error}") from error
