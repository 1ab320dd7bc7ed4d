"""The state of a running lab: the content of lab.json, for programs outside of it."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from lab.spec import Substrate
from server.names import LinkType

FILE = "lab.json"


@dataclass
class LabSwitch:
    """One switch.

    Attributes:
        directory: run directory: database, logs, sockets.
        netns: path of its network namespace, for ``nsenter --net=``; None in the dummy substrate.
        ovsdb, virt, edge: addresses as in server.toml. Of a plain bridge, ``virt`` is that of the only one.
        control: ``ovs-appctl`` target of ovs-vswitchd.
        processes: outer process ids of ``ovsdb-server`` and ``ovs-vswitchd``, as far as they are running.
    """

    name: str
    directory: str
    netns: str | None
    ovsdb: str
    virt: str
    edge: str | None
    control: str
    processes: dict[str, int] = field(default_factory=dict)


@dataclass
class LinkState:
    """One PCIe link: its ports on the hypervisor and the sNIC, bandwidth in Mb/s (None: unlimited), and type.

    ``address``: where its ends meet over TCP; None: they do not.
    """

    switch: str
    hypervisor: str
    local: str
    mbps: float | None
    up: bool = True
    type: LinkType = "vlan"
    address: str | None = None


@dataclass
class HostInterface:
    """An interface of a host.

    Attributes:
        name: inside the host; "" in the dummy substrate.
        switch: the switch it is plugged into.
        port: its name there.
        socket: dummy substrate: the unix socket that frames go through.
    """

    name: str
    switch: str
    port: str
    socket: str | None = None


@dataclass
class HostState:
    """One host; ``active`` names the interface (inside the host) that carries the IP address."""

    name: str
    netns: str | None
    address: str
    mac: str
    interfaces: list[HostInterface]
    active: str

    @property
    def ip(self) -> str:
        """The address without the prefix length."""
        return self.address.partition("/")[0]


@dataclass
class SlotState:
    """A place for one network function; ``interfaces`` are its names on the switch, inside ``eth0``, ``eth1``.

    Attributes:
        group: directory of the control group that limits its CPU time; None: nothing does.
    """

    name: str
    netns: str
    switch: str
    interfaces: list[str]
    group: str | None = None


@dataclass
class PortState:
    """One virtual port at the start of the lab."""

    number: int
    name: str
    switch: str
    interface: str


@dataclass
class LabState:
    """The whole lab.

    Attributes:
        server_toml: path of the configuration; None for a plain bridge, which has none.
        pid, start_time: of the supervisor, as seen from outside; start time in clock ticks since boot.
        user_namespace: whether it runs in its own user namespace (started without root).
        datapath_type: of its bridges.
        notes: limitations of the emulation on this machine, and their reasons.
    """

    name: str
    substrate: Substrate
    directory: str
    server_toml: str | None
    pid: int
    start_time: int
    user_namespace: bool
    datapath_type: str
    switches: list[LabSwitch]
    links: list[LinkState]
    hosts: list[HostState]
    ports: list[PortState]
    slots: list[SlotState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Write lab.json atomically."""
        path = Path(self.directory) / FILE
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        fresh.replace(path)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read lab.json.

        Raises:
            OSError: it does not exist.
            ValueError, KeyError, TypeError: another version of the lab wrote it.
        """
        return cls.from_json(json.loads((directory / FILE).read_text()))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Restore the output of ``dataclasses.asdict``."""
        hosts = [
            HostState(**{**host, "interfaces": [HostInterface(**each) for each in host["interfaces"]]})
            for host in data["hosts"]
        ]
        return cls(
            **{
                **data,
                "switches": [LabSwitch(**item) for item in data["switches"]],
                "links": [LinkState(**item) for item in data["links"]],
                "hosts": hosts,
                "ports": [PortState(**item) for item in data["ports"]],
                "slots": [SlotState(**item) for item in data.get("slots", [])],
            }
        )
