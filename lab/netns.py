"""The substrate ``netns``: network namespaces, veth pairs, real traffic. Runs inside the lab's namespaces."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lab import hosts, namespaces
from lab.buffers import PortBuffers
from lab.ovs import OvsSwitch
from lab.pcie import PcieLinks
from lab.spec import HostSpec, LabSpec, SwitchSpec
from lab.state import HostInterface, LinkState
from server.openvswitch.layout import DatapathType, Interface

_TUN = Path("/dev/net/tun")
_MEETING_PORT = 7700


class NetnsSubstrate:
    """See `lab.substrate.Substrate`.

    Args:
        spec: the lab.
        switches: directory for the switches' directories.
        outer_pid: this process, as seen from outside.
        buffers: for the ports' receive buffers.
    """

    def __init__(self, spec: LabSpec, switches: Path, outer_pid: int, buffers: PortBuffers) -> None:
        self._spec = spec
        self._directory = switches
        self._outer_pid = outer_pid
        self._buffers = buffers
        self._links = PcieLinks(spec, switches)
        self._notes: list[str] = []
        self.datapath_type: DatapathType = self._choose_datapath()

    @property
    def notes(self) -> list[str]:
        return [*self._notes, *([self._buffers.note] if self._buffers.note else [])]

    def add_note(self, note: str) -> None:
        """Add a line to ``notes``."""
        self._notes.append(note)

    def _choose_datapath(self) -> DatapathType:
        """Prefer type netdev, whose bridges need a tap each; type dummy forwards alike between the same devices."""
        try:
            os.close(os.open(_TUN, os.O_RDWR))
        except OSError as error:
            self._notes.append(
                f"bridges have datapath_type dummy instead of netdev, because {_TUN} cannot be opened "
                f"({error.strerror}): they forward alike, but have no network device of their own name"
            )
            return "dummy"
        return "netdev"

    def prepare(self) -> None:
        namespaces.add([each.name for each in (*self._spec.switches, *self._spec.hosts, *self._spec.slots)])
        hosts.make_wires(self._spec)
        for switch in self._spec.switches:
            hosts.configure_switch(self._spec, switch)
        for host in self._spec.hosts:
            hosts.configure_host(self._spec, host)
        for slot in self._spec.slots:
            hosts.configure_slot(slot)

    def meeting_address(self, snic: SwitchSpec) -> str:
        return f"{hosts.Network.of(self._spec, snic).hub}:{_MEETING_PORT}"

    def make_links(self, links: Sequence[LinkState]) -> None:
        self._links.choose(links)
        hosts.make_links(self._spec, self._links.others())
        hosts.make_networks(self._spec, self._links.over_tcp())

    def switch(self, spec: SwitchSpec) -> OvsSwitch:
        options = ("--enable-dummy",) if self.datapath_type == "dummy" else ()
        return OvsSwitch(spec.name, self._directory / spec.name, spec.name, options)

    def opening_ports(self) -> AbstractContextManager[None]:
        return self._buffers.raised()

    def interfaces(self, spec: SwitchSpec) -> Mapping[str, Interface]:
        capped = self._spec.pcie_mbps is not None
        names = hosts.pcie_ports(self._links.others(), spec)
        return {name: Interface(name, shaped_elsewhere=capped) for name in names}

    def await_links(self, running: Mapping[str, OvsSwitch]) -> None:
        """Wait for links of type ``pcie``: veth pairs carry frames from the start."""
        self._links.await_up(running)

    def netns(self, name: str) -> str | None:
        return f"/proc/{self._outer_pid}/root{namespaces.NETNS_DIRECTORY}/{name}"

    def host_interfaces(self, host: HostSpec) -> list[HostInterface]:
        return [
            HostInterface(hosts.interface_name(index), each.switch, each.name)
            for index, each in enumerate(host.interfaces)
        ]

    def activate(self, host: HostSpec, old: HostInterface, new: HostInterface) -> None:
        hosts.activate(host, old.name, new.name)

    def set_link(self, snic: SwitchSpec, *, up: bool) -> None:
        if self._links.has(snic.name):
            self._links.set_link(snic, up=up)
        else:
            hosts.set_link(snic, up=up)
