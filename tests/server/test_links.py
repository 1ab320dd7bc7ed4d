"""The choice of a PCIe link's type."""

import pytest

from server.config import ServerConfig
from server.errors import ConfigError, PlumbingError
from server.names import PCIE_OFPORTS
from server.openvswitch import links
from server.openvswitch.layout import Interface
from server.openvswitch.links import LinkChoice, SwitchSide

_ABLE, _STOCK = frozenset({"system", "pcie"}), frozenset({"system"})


def server(link: str = "", ovsdb: str = "unix:/run/s/db.sock") -> ServerConfig:
    return ServerConfig.parse(f"""
        [oneswitchd]
        datapath_id = "0000000000000001"
        [[switch]]
        name = "hypervisor"
        virt = "unix:/run/h/virt.mgmt"
        edge = "unix:/run/h/edge.mgmt"
        ovsdb = "unix:/run/h/db.sock"
        [[switch]]
        name = "snic0"
        virt = "unix:/run/s/virt.mgmt"
        edge = "unix:/run/s/edge.mgmt"
        ovsdb = "{ovsdb}"
        link = {{ hypervisor = "pcie-snic0", local = "pf0hpf"{link} }}
        """)


def side(types: frozenset[str] = _ABLE, **ports: str) -> SwitchSide:
    names = {name.replace("_", "-"): kind for name, kind in ports.items()}
    return SwitchSide(types, names, {name: 1 + index for index, name in enumerate(names)})


def choice(config: ServerConfig, hub: SwitchSide, local: SwitchSide) -> LinkChoice:
    return links.choose(config, config.snics[0], hub, local)


def test_two_switches_of_one_machine_that_can_get_ports_of_type_pcie() -> None:
    assert choice(server(), side(), side()).type == "pcie"


@pytest.mark.parametrize(
    ("hub", "local", "reason"),
    [
        (side(_STOCK), side(), "the Open vSwitch of hypervisor cannot"),
        (side(), side(_STOCK), "the Open vSwitch of snic0 cannot"),
        (side(_STOCK), side(_STOCK), "the Open vSwitch of hypervisor and snic0 cannot"),
        (side(pcie_snic0=""), side(), "its ports exist"),
        (side(), side(pf0hpf="dummy"), "its ports exist"),
    ],
)
def test_other_links_carry_tags_and_say_why(hub: SwitchSide, local: SwitchSide, reason: str) -> None:
    found = choice(server(), hub, local)
    assert found.type == "vlan"
    assert reason in found.reason


def test_the_other_end_of_a_port_of_type_pcie_is_one_too() -> None:
    assert choice(server(), side(pcie_snic0="pcie"), side()).type == "pcie"


def test_switches_that_may_be_on_two_machines_need_a_path() -> None:
    remote = "tcp:192.168.100.2:6642"
    assert "two machines" in choice(server(ovsdb=remote), side(), side()).reason
    assert choice(server(', path = "/run/link.sock"', remote), side(), side()).type == "pcie"
    assert choice(server(', address = "192.0.2.1:7700"', remote), side(), side()).type == "pcie"


def test_server_toml_decides() -> None:
    assert choice(server(', type = "vlan"'), side(), side()) == LinkChoice("vlan", "server.toml says so")
    demanded = server(', type = "pcie"')
    assert choice(demanded, side(), side()) == LinkChoice("pcie", "server.toml says so")
    with pytest.raises(ConfigError, match='link of snic0 has type = "pcie", but the Open vSwitch of snic0 cannot'):
        choice(demanded, side(), side(_STOCK))


def test_the_ends_meet_at_a_socket_beside_the_hypervisors_database() -> None:
    config = server()
    hub, local = (links.port(config, config.snics[0], side(), at_hub=at_hub) for at_hub in (True, False))
    path = "/run/h/pcie-snic0.sock"
    assert hub == Interface("pcie-snic0", "pcie", {"path": path, "role": "listen"}, PCIE_OFPORTS[0])
    assert local == Interface("pf0hpf", "pcie", {"path": path, "role": "connect"}, PCIE_OFPORTS[0])


def test_the_ends_meet_at_the_address_of_a_link_between_two_machines() -> None:
    config = server(', address = "192.0.2.1:7700"')
    hub, local = (links.port(config, config.snics[0], side(), at_hub=at_hub) for at_hub in (True, False))
    assert hub.options == {"address": "192.0.2.1:7700", "role": "listen"}
    assert local.options == {"address": "192.0.2.1:7700", "role": "connect"}


def test_pmd_threads_poll_the_queues_that_a_link_asks_for() -> None:
    config = server(", queues = 2")
    hub = links.port(config, config.snics[0], side(), at_hub=True)
    assert (hub.type, hub.options["n_rxq"]) == ("pcie-pmd", "2")
    assert choice(config, side(pcie_snic0="pcie-pmd"), side()).type == "pcie"
    server(', address = "192.0.2.1:7700", queues = 1')
    with pytest.raises(ConfigError, match=r"queues.* is 2, but a connection over TCP \(address\) has one"):
        server(', address = "192.0.2.1:7700", queues = 2')


@pytest.mark.parametrize(
    "address",
    ["192.0.2.1", "192.0.2.1:0", "192.0.2.1:65536", "example.com:7700", "2001:db8::1:7700", "[192.0.2.1]:7700"],
)
def test_an_address_is_an_ip_address_and_a_port(address: str) -> None:
    with pytest.raises(ConfigError, match=r"is not an IP address and a TCP port|is not between 1 and 65535"):
        server(f', address = "{address}"')
    server(', address = "[2001:db8::1]:7700"')


def test_a_link_meets_at_a_path_or_at_an_address() -> None:
    with pytest.raises(ConfigError, match="is there beside path"):
        server(', path = "/run/link.sock", address = "192.0.2.1:7700"')


def test_a_port_keeps_its_number_and_a_new_one_gets_the_lowest_free_one() -> None:
    first, second, *others = PCIE_OFPORTS
    there = SwitchSide(_ABLE, {}, {"pcie-snic1": first, "vm1": 3})
    assert there.free_number("pcie-snic1") == first
    assert there.free_number("pcie-snic0") == second
    assert there.having(Interface("pcie-snic0", ofport=second)).free_number("pcie-snic2") == others[0]
    full = SwitchSide(_ABLE, {}, {f"p{number}": number for number in PCIE_OFPORTS})
    with pytest.raises(PlumbingError, match="65025 to 65278 are taken"):
        links.port(server(), server().snics[0], full, at_hub=True)
