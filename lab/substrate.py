"""The interface between the supervisor and a substrate (`lab.netns`, `lab.dummy`)."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from lab.ovs import OvsSwitch
from lab.spec import HostSpec, SwitchSpec
from lab.state import HostInterface, LinkState
from server.openvswitch.layout import DatapathType, Interface


class Substrate(Protocol):
    """Wires and hosts around Open vSwitch switches.

    Attributes:
        datapath_type: for the bridges.
    """

    datapath_type: DatapathType

    @property
    def notes(self) -> list[str]:
        """List this machine's limitations and their reasons; complete once the ports are open."""
        ...

    def prepare(self) -> None:
        """Create what must exist before the switches start, except PCIe links."""
        ...

    def switch(self, spec: SwitchSpec) -> OvsSwitch:
        """Return the switch's daemons, not yet started."""
        ...

    def opening_ports(self) -> AbstractContextManager[None]:
        """Surround the moments in which ovs-vswitchd opens its ports."""
        ...

    def meeting_address(self, snic: SwitchSpec) -> str:
        """Return the IP address of the hypervisor and the TCP port at which the ends of an sNIC's link are to meet."""
        ...

    def make_links(self, links: Sequence[LinkState]) -> None:
        """Create the PCIe links' devices: where a link consists of devices, and where its ends meet over TCP."""
        ...

    def interfaces(self, spec: SwitchSpec) -> Mapping[str, Interface]:
        """Return the interfaces of ``spec`` that are not plain network devices, except ports of type ``pcie``."""
        ...

    def await_links(self, running: Mapping[str, OvsSwitch]) -> None:
        """Wait until the PCIe links between those switches, whose ovs-vswitchd runs, carry frames."""
        ...

    def netns(self, name: str) -> str | None:
        """Return the path, as seen from outside, of the network namespace of a switch or host."""
        ...

    def host_interfaces(self, host: HostSpec) -> list[HostInterface]:
        """Return the host's interfaces, the initially active one first."""
        ...

    def activate(self, host: HostSpec, old: HostInterface, new: HostInterface) -> None:
        """Make ``new`` the host's active interface instead of ``old``."""
        ...

    def set_link(self, snic: SwitchSpec, *, up: bool) -> None:
        """Take the PCIe link of ``snic`` down or up."""
        ...
