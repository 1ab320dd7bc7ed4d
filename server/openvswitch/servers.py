"""Plumbing of all switches of a server together."""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from server.config import ServerConfig
from server.openvswitch import links
from server.openvswitch.bridges import Plumbing, SwitchInventory
from server.openvswitch.layout import DatapathType, Interface, Layout
from server.openvswitch.links import LinkChoice


class ServerPlumbing:
    """One `Plumbing` for each switch of ``config``, except those in ``without``; ``ports``: see there.

    Raises:
        DatabaseUnreachableError: for the first switch whose database does not answer.

    Example:
        >>> with ServerPlumbing(ServerConfig.load()) as server:     # doctest: +SKIP
        ...     server.ensure()
        ...     server.connect([5], {"snic0": ["pf0vf0"]})
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        datapath_type: DatapathType = "netdev",
        timeout_s: float = 10.0,
        without: Collection[str] = (),
        ports: Collection[str] | None = None,
    ) -> None:
        self._config = config
        self._switches: dict[str, Plumbing] = {}
        tls = config.oneswitchd.tls
        with ExitStack() as undo:
            for switch in config.switch:
                if switch.name in without:
                    continue
                plumbing = Plumbing(switch, datapath_type=datapath_type, timeout_s=timeout_s, tls=tls, ports=ports)
                undo.callback(plumbing.close)
                self._switches[switch.name] = plumbing
            undo.pop_all()

    def close(self) -> None:
        """Close all connections."""
        for plumbing in self._switches.values():
            plumbing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def on(self, switch: str) -> Plumbing:
        """Return the plumbing of one switch.

        Raises:
            ConfigError: there is no such switch; the message lists those there are.
        """
        return self._switches[self._config.find_switch(switch).name]

    def ensure(self, interfaces: dict[str, dict[str, Interface]] | None = None) -> list[str]:
        """Create what server.toml asks for; return the switches on which something was missing.

        Args:
            interfaces: by switch and name, those that are not plain network devices.

        Raises:
            ConfigError: server.toml demands a type of link that is impossible here.
            OwnershipError, InterfaceError, DatabaseError: see `Plumbing.ensure`.
        """
        given = interfaces or {}
        chosen = self.links()
        special = {name: {**self.pcie_ports(name, chosen), **given.get(name, {})} for name in self._switches}
        return [
            name
            for name, plumbing in self._switches.items()
            if plumbing.ensure(Layout.of(self._config, name, special[name]))
        ]

    def connect(self, numbers: Collection[int], interfaces: Mapping[str, Collection[str]] | None = None) -> list[str]:
        """Create the patch pairs of virtual ports on every switch, and attach interfaces to ``edge``, by switch.

        Each switch applies all of it in one transaction. Returns those that lacked something.
        """
        attached = interfaces or {}
        return [name for name, each in self._switches.items() if each.connect(numbers, attached.get(name, ()))]

    def links(self) -> dict[str, LinkChoice]:
        """Return how the link of each sNIC is to carry flow-ids, by the sNIC's name.

        Raises:
            ConfigError: see `ensure`.
        """
        hub = self.on(self._config.hypervisor.name).side()
        return {
            snic.name: links.choose(self._config, snic, hub, self.on(snic.name).side()) for snic in self._config.snics
        }

    def pcie_ports(self, name: str, chosen: Mapping[str, LinkChoice]) -> dict[str, Interface]:
        """Return the ports of type ``pcie`` that a switch is to have if the links are as `links` says, by name."""
        at_hub = name == self._config.hypervisor.name
        side = self.on(name).side()
        found: dict[str, Interface] = {}
        for snic in self._config.snics:
            if (at_hub or snic.name == name) and chosen[snic.name].type == links.PCIE:
                made = links.port(self._config, snic, side, at_hub=at_hub)
                found[made.name] = made
                side = side.having(made)
        return found

    def remove_virtual_ports(self, *numbers: int) -> list[str]:
        """Remove the patch pairs of ``numbers`` from every switch; return those that had one."""
        return [name for name, plumbing in self._switches.items() if plumbing.remove_virtual_ports(*numbers)]

    def describe(self) -> list[SwitchInventory]:
        """Describe each switch."""
        return [plumbing.describe() for plumbing in self._switches.values()]
