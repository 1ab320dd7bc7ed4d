"""The capacity of locations: from agent.toml, or defaults."""

import os
from dataclasses import dataclass

from nfagent.config import AgentConfig
from server.config import ServerConfig

_NIC_CORES = 4.0
_NIC_FACTOR = 2.0  # UNO 5.3: a DPI takes 5 cores of the host or 10 of the sNIC
_PCIE_MBPS = 10_000


@dataclass(frozen=True)
class Capacity:
    """Capacity of a location.

    Attributes:
        millicores: available to network functions.
        memory_mb: None: unlimited.
        pcie_mbps: of its link, each way; None for the hypervisor.
        core_factor: millicores that do the work of one host millicore, until measured.
        slots: number of interfaces, by name.
    """

    millicores: int
    memory_mb: int | None
    pcie_mbps: int | None
    core_factor: float
    slots: dict[str, int]

    @property
    def location_class(self) -> str:
        """Return ``host`` or ``nic``."""
        return "host" if self.pcie_mbps is None else "nic"


def capacities(config: AgentConfig, server: ServerConfig) -> dict[str, Capacity]:
    """Return the capacities by location, the hypervisor first."""
    return {switch.name: _capacity(config, switch.name, hub=switch.link is None) for switch in server.switch}


def _capacity(config: AgentConfig, switch: str, *, hub: bool) -> Capacity:
    location = config.find_location(switch)
    cores = location.cores or (float(os.cpu_count() or 1) if hub else _NIC_CORES)
    return Capacity(
        millicores=round(cores * 1000),
        memory_mb=location.memory_mb,
        pcie_mbps=None if hub else location.pcie_mbps or _PCIE_MBPS,
        core_factor=1.0 if hub else location.core_factor or _NIC_FACTOR,
        slots={slot.name: len(slot.wires) for slot in location.slot},
    )
