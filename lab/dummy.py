"""The substrate ``dummy``: Open vSwitch's dummy devices joined by unix sockets. No namespaces, no privileges.

Each interface of a host is a socket at which `lab.wires.Wires` reads and writes frames; a PCIe link is a socket between
two switches. Each frame is preceded by its length in 16 bits.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from lab.errors import ControlError, StartError
from lab.hosts import interface_name, pcie_ports
from lab.ovs import OvsSwitch
from lab.pcie import PcieLinks
from lab.spec import PCIE_MTU, HostSpec, LabSpec, SwitchSpec
from lab.state import HostInterface, LinkState
from lab.unixctl import unixctl
from server.openvswitch.layout import DatapathType, Interface
from server.openvswitch.ovsdb import SwitchDatabase

_LINK_S = 12.0
_POLL_S = 0.005  # no event exists for it outside of ovs-vswitchd


class DummySubstrate:
    """See `lab.substrate.Substrate`.

    Args:
        spec: the lab.
        switches: directory for the switches' directories.
    """

    def __init__(self, spec: LabSpec, switches: Path) -> None:
        self._spec = spec
        self._directory = switches
        self._links = PcieLinks(spec, switches)
        self.datapath_type: DatapathType = "dummy"
        self.notes: list[str] = []

    def prepare(self) -> None:
        """Do nothing: Open vSwitch creates the sockets."""

    def switch(self, spec: SwitchSpec) -> OvsSwitch:
        return OvsSwitch(spec.name, self._directory / spec.name, vswitchd_options=("--enable-dummy",))

    def opening_ports(self) -> AbstractContextManager[None]:
        return nullcontext()

    def meeting_address(self, snic: SwitchSpec) -> str:  # noqa: ARG002
        """Return a port of the loopback interface that is free now."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            return f"127.0.0.1:{free.getsockname()[1]}"

    def make_links(self, links: Sequence[LinkState]) -> None:
        """Note the types: Open vSwitch creates the links."""
        self._links.choose(links)

    def interfaces(self, spec: SwitchSpec) -> Mapping[str, Interface]:
        found = {}
        for host in self._spec.hosts:
            for each in host.interfaces:
                if each.switch == spec.name:
                    listen = {"pstream": f"punix:{self._socket(spec.name, each.name)}"}
                    found[each.name] = Interface(each.name, "dummy", listen)
        for name in pcie_ports(self._links.others(), spec):
            found[name] = Interface(name, "dummy", self._link_end(spec, name), mtu=PCIE_MTU)
        return found

    def await_links(self, running: Mapping[str, OvsSwitch]) -> None:
        """Wait for the sNICs' ends, which reconnect after Open vSwitch's backoff of 1 to 8 s."""
        hub = self._spec.switches[0].name
        deadline = time.monotonic() + _LINK_S
        self._links.await_up(running)
        for snic in self._links.others():
            if hub not in running or snic.name not in running or snic.uplink is None:
                continue
            control = running[snic.name].control()
            while "disconnected" in unixctl(control, "netdev-dummy/conn-state", snic.uplink):
                if time.monotonic() > deadline:
                    raise StartError(
                        f"PCIe link of {snic.name}: its socket did not connect within {_LINK_S:g} s; "
                        "if its switch's clock was stopped, warp it by 8 s"
                    )
                time.sleep(_POLL_S)
            for _ in range(2):  # the second answer is from a later turn of its main loop, after accept()
                unixctl(running[hub].control(), "version")

    def netns(self, name: str) -> str | None:  # noqa: ARG002
        return None

    def host_interfaces(self, host: HostSpec) -> list[HostInterface]:
        return [
            HostInterface(interface_name(index), each.switch, each.name, str(self._socket(each.switch, each.name)))
            for index, each in enumerate(host.interfaces)
        ]

    def activate(self, host: HostSpec, old: HostInterface, new: HostInterface) -> None:
        """Do nothing: the injecting side chooses the interface."""

    def set_link(self, snic: SwitchSpec, *, up: bool) -> None:
        """Take a link up or down; a dummy device that is down still passes frames, so the socket must go as well."""
        if self._links.has(snic.name):
            self._links.set_link(snic, up=up)
            return
        ends = ((self._spec.switches[0].name, snic.downlink), (snic.name, snic.uplink))
        database = SwitchDatabase(snic.name, f"unix:{self._directory / snic.name / 'db.sock'}")
        try:
            cut = [database.api.db_clear("Interface", str(snic.uplink), "options")]
            mend = [database.api.db_set("Interface", str(snic.uplink), ("options", self._link_end(snic, "")))]
            database.commit(mend if up else cut)
        finally:
            database.close()
        for switch, name in ends:
            control = self._directory / switch / "ovs-vswitchd.ctl"
            answer = unixctl(control, "netdev-dummy/set-admin-state", str(name), "up" if up else "down")
            if answer.strip() != "OK":
                raise ControlError(f"PCIe port {name} of {switch}: {answer.strip()}")

    def _socket(self, switch: str, interface: str) -> Path:
        return self._directory / switch / f"{interface}.sock"

    def _link_end(self, spec: SwitchSpec, name: str) -> dict[str, str]:
        hub = self._spec.switches[0].name
        if spec.uplink is None:
            return {"pstream": f"punix:{self._socket(hub, name)}"}
        return {"stream": f"unix:{self._socket(hub, str(spec.downlink))}"}
