"""PCIe links between ports of Open vSwitch's type ``pcie``, for Open vSwitch with the patches of ``ovs-patches/``.

Both substrates use them alike. A port is not a device: it is an end of rings in memory that the two ovs-vswitchd share,
or of a TCP connection between them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.errors import ControlError, StartError
from lab.ovs import OvsSwitch
from lab.spec import LabSpec, SwitchSpec
from lab.state import LinkState
from server.openvswitch.ovsdb import SwitchDatabase

_UP_S = 12.0
_CUT = ".cut"  # ends the path where no peer listens
_NOWHERE = "127.0.0.1:1"  # an address where no peer listens


class PcieLinks:
    """The sNICs' links of that type; none before `choose`.

    Args:
        spec: the lab.
        switches: directory of the switches' directories.
    """

    def __init__(self, spec: LabSpec, switches: Path) -> None:
        self._hub = spec.switches[0].name
        self._snics = spec.switches[1:]
        self._directory = switches
        self._chosen: dict[str, LinkState] = {}

    def choose(self, links: Sequence[LinkState]) -> None:
        """Tell all links, with their types."""
        self._chosen = {link.switch: link for link in links if link.type == "pcie"}

    def has(self, snic: str) -> bool:
        """Tell whether the link of an sNIC has this type."""
        return snic in self._chosen

    def others(self) -> list[SwitchSpec]:
        """Return the sNICs whose links are devices."""
        return [snic for snic in self._snics if not self.has(snic.name)]

    def over_tcp(self) -> list[SwitchSpec]:
        """Return the sNICs whose links' ends meet over TCP."""
        return [snic for snic in self._snics if self._address(snic) is not None]

    def await_up(self, running: Mapping[str, OvsSwitch]) -> None:
        """Wait until the links between switches whose ovs-vswitchd runs carry packets.

        Raises:
            StartError: one does not.
        """
        for snic in self._snics:
            if self.has(snic.name) and self._hub in running and snic.name in running:
                for switch, port in ((snic.name, snic.uplink), (self._hub, snic.downlink)):
                    self._await_up(switch, str(port))

    def _await_up(self, switch: str, port: str) -> None:
        database = self._database(switch)
        try:
            if not database.wait_for(lambda: _link_state(database, port) == ["up"], _UP_S):
                raise StartError(f"PCIe port {port} of {switch}: its link is not up after {_UP_S:g} s")
        finally:
            database.close()

    def set_link(self, snic: SwitchSpec, *, up: bool) -> None:
        """Take the link of an sNIC down or up: its end looks for the other one at the right socket, or at none."""
        database = self._database(snic.name)
        try:
            with database.lock:
                row = database.row("Interface", str(snic.uplink))
                options = dict(row.options) if row is not None else {}
            if ("path" if self._address(snic) is None else "address") not in options:
                raise ControlError(f"PCIe port {snic.uplink} of {snic.name} is not a port of type pcie any more")
            database.commit(
                [database.api.db_set("Interface", str(snic.uplink), ("options", self._meeting(snic, options, up=up)))]
            )
            if not up and not database.wait_for(lambda: _link_state(database, str(snic.uplink)) == ["down"], _UP_S):
                raise StartError(f"PCIe port {snic.uplink} of {snic.name}: its link stays up without a peer")
        finally:
            database.close()

    def _meeting(self, snic: SwitchSpec, options: Mapping[str, str], *, up: bool) -> dict[str, str]:
        """Return the options of the sNIC's end with the place where the other end is, or with one where none is."""
        address = self._address(snic)
        if address is not None:
            return {**options, "address": address if up else _NOWHERE}
        path = options["path"].removesuffix(_CUT)
        return {**options, "path": path if up else path + _CUT}

    def _address(self, snic: SwitchSpec) -> str | None:
        link = self._chosen.get(snic.name)
        return None if link is None else link.address

    def _database(self, switch: str) -> SwitchDatabase:
        return SwitchDatabase(switch, f"unix:{self._directory / switch / 'db.sock'}")


def _link_state(database: SwitchDatabase, port: str) -> list[str]:
    row = database.row("Interface", port)
    return row.link_state if row is not None else []
