"""server.toml of a lab."""

from pathlib import Path

from lab.spec import LabSpec
from lab.state import LabState
from server.config import LinkConfig, OneswitchdConfig, PortConfig, ServerConfig, SwitchConfig
from server.names import LinkType

_DATAPATH_ID = "0000000000000001"


def server_config(spec: LabSpec, state: LabState) -> ServerConfig:
    """Return the configuration of oneswitchd and unoctl for this lab; their sockets are in the lab's directory."""
    here = Path(state.directory)
    capped: LinkType | None = None if spec.pcie_mbps is None else "vlan"
    types: dict[str, LinkType | None] = {
        switch.name: "pcie" if switch.link == "tcp" else switch.link or capped for switch in spec.switches
    }
    links = {
        link.switch: LinkConfig(
            hypervisor=link.hypervisor, local=link.local, type=types[link.switch], address=link.address
        )
        for link in state.links
    }
    return ServerConfig(
        oneswitchd=OneswitchdConfig(
            datapath_id=_DATAPATH_ID,
            executor=spec.executor,
            meters=spec.meters,
            listen=[f"punix:{here}/oneswitchd.mgmt", *spec.listen],
            controllers=list(spec.controllers),
            api=f"unix:{here}/oneswitchd.sock",
            offload=f"unix:{here}/offload.sock",
            state=f"{here}/ports.json",
            journal=f"{here}/journal",
        ),
        switch=[
            SwitchConfig(
                name=switch.name,
                virt=switch.virt,
                edge=str(switch.edge),
                ovsdb=switch.ovsdb,
                control=switch.control,
                link=links.get(switch.name),
            )
            for switch in state.switches
        ],
        port=[
            PortConfig(number=port.number, name=port.name, switch=port.switch, interface=port.interface)
            for port in spec.ports
        ],
    )
