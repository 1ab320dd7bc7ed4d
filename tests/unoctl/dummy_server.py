"""A server of dummy switches with the ``edge`` rules of docs/architecture.md, installed by the test itself.

It stands in for oneswitchd where a test is about unoctl: the rules are written down here from the contract's table, so
that a trace has something to follow. ``virtual`` installs rules in every ``virt``.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from server.config import ServerConfig
from server.oneswitchd.answers import VirtualPort
from server.openvswitch.layout import Interface, Layout
from server.openvswitch.servers import ServerPlumbing
from tests.unoctl.dummy_ovs import DummySwitch

MULTICAST = 4094
PRIORITY = 100  # cookie of oneswitchd's rules in edge


@dataclass(frozen=True)
class Mapped:
    """A virtual port of the test: its home, and its interface there. Its flow-id is ``flow_id``."""

    number: int
    switch: str
    interface: str
    flow_id: int


class DummyServer:
    """Switches, their plumbing and their edge rules.

    Args:
        folder: short; the switches' sockets and server.toml go there.
        snics: how many sNICs.
        ports: the virtual ports.
        api: what server.toml says about oneswitchd's REST.
    """

    def __init__(self, folder: Path, snics: int, ports: Sequence[Mapped], api: str = "") -> None:
        self.folder = folder
        self.mapped = tuple(ports)
        names = ["hypervisor", *(f"snic{index}" for index in range(snics))]
        self.switches = {name: DummySwitch(name, folder / name) for name in names}
        self.path = folder / "server.toml"
        self._api = api or f"unix:{folder}/oneswitchd.sock"
        self._stack = ExitStack()

    def __enter__(self) -> "DummyServer":
        with ExitStack() as stack:
            for switch in self.switches.values():
                stack.enter_context(switch)
            self.path.write_text(self._toml())
            config = ServerConfig.load(self.path)
            with ServerPlumbing(config, datapath_type="dummy") as plumbing:
                for name, switch in self.switches.items():
                    plumbing.on(name).ensure(Layout.of(config, name, self._interfaces(switch)))
            self.install_edge()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def ports(self) -> list[VirtualPort]:
        """Return the ports as oneswitchd lists them."""
        return [
            VirtualPort(
                number=port.number,
                name=f"v{port.number}",
                switch=port.switch,
                interface=port.interface,
                flow_id=port.flow_id,
                state="up",
            )
            for port in self.mapped
        ]

    def virtual(self, flows: Iterable[str], groups: Iterable[str] = (), meters: Iterable[str] = ()) -> None:
        """Replace the virtual rules on every switch."""
        rules = list(flows)
        for switch in self.switches.values():
            switch.ofctl("del-flows", "virt")
            switch.ofctl("del-groups", "virt")
            switch.ofctl("del-meters", "virt")
            for meter in meters:
                switch.ofctl("add-meter", "virt", meter)
            for group in groups:
                switch.ofctl("add-group", "virt", group)
            switch.add_flows("virt", rules)
            switch.forget()

    def ofport(self, switch: str, interface: str) -> str:
        return self.switches[switch].vsctl("get", "interface", interface, "ofport").strip()

    def install_edge(self) -> None:
        """Install the contract's table "Rules in edge"."""
        for name, switch in self.switches.items():
            switch.ofctl("del-flows", "edge")
            switch.ofctl("del-groups", "edge")
            switch.ofctl("add-group", "edge", "group_id=1,type=select,bucket=resubmit(,1)")
            switch.ofctl("add-group", "edge", "group_id=2,type=indirect,bucket=group:1")
            switch.add_flows("edge", [f"priority={PRIORITY},{rule}" for rule in self._edge_rules(name)])
            remote = [f"virt-{port.number}" for port in self.mapped if port.switch != name]
            for port in ("virt", *remote):
                switch.no_flood("virt", port)

    def _edge_rules(self, here: str) -> list[str]:
        rules: list[str] = []
        links = {peer: self.ofport(here, link) for peer, link in self._links(here).items()}
        local = [self.ofport(here, port.interface) for port in self.mapped if port.switch == here]
        for port in self.mapped:
            patch = self.ofport(here, f"edge-{port.number}")
            if port.switch == here:
                interface = self.ofport(here, port.interface)
                rules += [f"in_port={interface},actions=output:{patch}", f"in_port={patch},actions=output:{interface}"]
                deliver = f"pop_vlan,output:{interface}"
                rules += [f"in_port={link},dl_vlan={port.flow_id},actions={deliver}" for link in links.values()]
                continue
            out = links.get(port.switch) or links["hypervisor"]
            tag = f"push_vlan:0x8100,set_field:{port.flow_id + 4096}->vlan_vid"
            rules += [
                f"in_port={patch},vlan_tci=0x0000/0x1fff,actions={tag},output:{out}",
                f"in_port={patch},vlan_tci=0x1000/0x1000,actions=clone(group:2)",
                f"table=1,in_port={patch},actions={tag},output:{out}",
            ]
            rules += [
                f"in_port={link},dl_vlan={port.flow_id},actions=output:{out}"
                for peer, link in links.items()
                if peer != port.switch and here == "hypervisor"
            ]
        tag = f"push_vlan:0x8100,set_field:{MULTICAST + 4096}->vlan_vid"
        everywhere = "".join(f",output:{link}" for link in links.values())
        rules.append(f"in_port={self.ofport(here, 'edge-mc')},actions={tag}{everywhere}")
        for link in links.values():
            others = [f"output:{other}" for other in links.values() if other != link]
            deliveries = [f"output:{interface}" for interface in local]
            rules.append(f"in_port={link},dl_vlan={MULTICAST},actions={','.join([*others, 'pop_vlan', *deliveries])}")
        return rules

    def _links(self, here: str) -> dict[str, str]:
        if here != "hypervisor":
            return {"hypervisor": "pf0hpf"}
        return {name: f"pcie-{name}" for name in self.switches if name != "hypervisor"}

    def _interfaces(self, switch: DummySwitch) -> dict[str, Interface]:
        special = {
            port.interface: Interface(port.interface, "dummy", switch.options(port.interface))
            for port in self.mapped
            if port.switch == switch.name
        }
        for peer, link in self._links(switch.name).items():
            socket = f"unix:{self.folder}/{peer if peer != 'hypervisor' else switch.name}.link"
            kind, address = ("pstream", f"p{socket}") if switch.name == "hypervisor" else ("stream", socket)
            special[link] = Interface(link, "dummy", {kind: address})
        return special

    def _toml(self) -> str:
        text = f"""[oneswitchd]
datapath_id = "0000000000000001"
listen = ["punix:{self.folder}/oneswitchd.mgmt"]
api = "{self._api}"
"""
        for name, switch in self.switches.items():
            text += f"""
[[switch]]
name = "{name}"
virt = "{switch.target("virt")}"
edge = "{switch.target("edge")}"
ovsdb = "{switch.db}"
control = "{switch.control}"
"""
            if name != "hypervisor":
                text += f'link = {{ hypervisor = "pcie-{name}", local = "pf0hpf" }}\n'
        for port in self.mapped:
            text += f"""
[[port]]
number = {port.number}
name = "v{port.number}"
switch = "{port.switch}"
interface = "{port.interface}"
"""
        return text
