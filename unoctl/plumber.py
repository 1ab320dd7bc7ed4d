"""The OVSDB side of port commands: :mod:`server.openvswitch.bridges` as `unoctl.ports` needs it."""

from types import TracebackType
from typing import Self

from server.config import ServerConfig
from server.openvswitch.bridges import Plumbing
from server.openvswitch.layout import Interface


class OvsdbPlumber:
    """Implements :class:`unoctl.ports.Plumber`; connects to a switch's OVSDB when it is first needed.

    Args:
        server: names the switches' databases.
        interface_type: Open vSwitch's type of attached interfaces; "" is an existing network device.
    """

    def __init__(self, server: ServerConfig, interface_type: str = "") -> None:
        self._server = server
        self._interface_type = interface_type
        self._open: dict[str, Plumbing] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for plumbing in self._open.values():
            plumbing.close()

    def make_patches(self, number: int) -> list[str]:
        """See the protocol."""
        made: list[str] = []
        try:
            for switch in self._server.switch:
                if self._on(switch.name).add_virtual_port(number):
                    made.append(switch.name)  # noqa: PERF401 - those made so far are needed when a later one fails
        except BaseException:
            self.remove_patches(number, made)
            raise
        return made

    def remove_patches(self, number: int, switches: list[str]) -> None:
        """See the protocol."""
        for name in switches:
            self._on(name).remove_virtual_ports(number)

    def attach(self, switch: str, interface: str) -> bool:
        """See the protocol."""
        plumbing = self._on(switch)
        there = plumbing.describe().find(interface) is not None
        plumbing.attach(Interface(interface, self._interface_type))
        return not there

    def detach(self, switch: str, interface: str) -> bool:
        """See the protocol."""
        return self._on(switch).detach(interface)

    def _on(self, name: str) -> Plumbing:
        if name not in self._open:
            self._open[name] = Plumbing(self._server.find_switch(name), tls=self._server.oneswitchd.tls)
        return self._open[name]
