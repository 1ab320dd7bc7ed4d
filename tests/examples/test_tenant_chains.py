"""The example of tenants' chains: packets pass each function once, both ways, and nothing evades a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from tests.examples.chained import Server, serving
from tests.examples.switches import wait_for

VIP, OTHER_VIP = "10.0.0.100", "10.0.0.200"
# Ports 1 to 4 are on the hypervisor, 5 to 8 on the smart NIC.
CLIENT, SERVER, OUTSIDE, INSIDE, LAST, OTHER_CLIENT, OTHER_LAST = 1, 2, 3, 6, 7, 5, 8
CHAINS = f"{VIP} via vm{OUTSIDE}+nf{INSIDE} nf{LAST}, {OTHER_VIP} via nf{OTHER_LAST}"
MAC = {number: f"02:00:00:00:00:{number:02x}" for number in range(1, 9)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, "tenant_chains.py", f"chains = {CHAINS}", 4) as made:
        wait_for("the chains", lambda: f"arp_spa={VIP}" in made.flows() and f"in_port={OTHER_LAST}" in made.flows())
        wait_for("the group", lambda: "output:7" in groups(made))
        yield made


def groups(server: Server) -> str:
    return server.ofctl("dump-groups")


def packet(source: str, target: str, from_mac: str, to_mac: str) -> Packet:
    return Ether(src=from_mac, dst=to_mac) / IP(src=source, dst=target) / UDP(sport=1, dport=2)


def test_packets_pass_each_function_once_there_and_back(server: Server) -> None:
    there = packet("10.0.0.1", VIP, MAC[CLIENT], MAC[LAST])
    back = packet(VIP, "10.0.0.1", MAC[LAST], MAC[CLIENT])
    assert server.send(CLIENT, there) == {OUTSIDE}
    assert server.send(INSIDE, there) == {LAST}
    wait_for("the client learnt", lambda: f"in_port={CLIENT},dl_src={MAC[CLIENT]}" in server.flows())
    server.wires.purge()
    assert server.send(LAST, back) == {INSIDE}
    assert server.send(OUTSIDE, back) == {CLIENT}
    asks = Ether(src=MAC[CLIENT], dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, psrc="10.0.0.1", pdst=VIP)
    assert server.send(CLIENT, asks) == {OUTSIDE}
    assert server.send(INSIDE, asks) == {LAST}
    assert f"in_port={INSIDE},dl_src" not in server.flows(), "nobody is learnt behind a function in line"


def test_floods_and_strangers_do_not_enter_the_functions(server: Server) -> None:
    asks = Ether(src=MAC[CLIENT], dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, psrc="10.0.0.1", pdst="10.0.0.2")
    everybody = set(MAC) - {OUTSIDE, INSIDE}
    assert server.send(CLIENT, asks) == everybody - {CLIENT}
    assert server.send(INSIDE, asks) == set()
    assert server.send(OUTSIDE, packet("10.0.0.1", VIP, MAC[CLIENT], MAC[LAST])) == set()
    assert server.send(OTHER_CLIENT, packet("10.0.0.5", OTHER_VIP, MAC[OTHER_CLIENT], MAC[LAST])) == {OTHER_LAST}


def test_nothing_evades_a_missing_function(server: Server) -> None:
    there = packet("10.0.0.1", VIP, MAC[CLIENT], MAC[LAST])
    place = server.oneswitchd.client.find_port(f"nf{INSIDE}")
    server.oneswitchd.client.delete_port(INSIDE)
    wait_for("the chain to end", lambda: f"arp_spa={VIP}" not in server.flows())
    server.wires.purge()
    assert server.send(CLIENT, there) == set()
    server.oneswitchd.client.add_port(INSIDE, f"nf{INSIDE}", place.switch, place.interface)
    wait_for("the chain", lambda: f"arp_spa={VIP}" in server.flows())
    server.wires.purge()
    assert server.send(CLIENT, there) == {OUTSIDE}
