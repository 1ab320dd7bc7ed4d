"""The service chain example: packets for an address pass a network function's port while it is up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from tests.examples.chained import Server, serving
from tests.examples.switches import wait_for

VIP = "10.0.0.100"
# Ports 1 and 2 are on the hypervisor, 3 and 4 on the smart NIC; 3 is the network function's.
MACS = {number: f"02:00:00:00:00:{number:02x}" for number in (1, 2, 3, 4)}
FUNCTION, NAME = 3, "nf3"


def learn_all(server: Server) -> None:
    for number, mac in MACS.items():
        server.send(
            number, Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, psrc=f"10.0.0.{number}", pdst="10.0.0.9")
        )
    wait_for(
        "all senders learnt", lambda: all(f"in_port={n},dl_src={mac}" in server.flows() for n, mac in MACS.items())
    )
    server.wires.purge()


def udp(source: int, target_mac: str, target: str) -> Packet:
    return Ether(src=MACS[source], dst=target_mac) / IP(src=f"10.0.0.{source}", dst=target) / UDP(sport=1, dport=2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = f"vips = {VIP}, 10.0.0.101\nnetwork_function = {NAME}"
    with serving(tmp_path, "service_chain.py", settings, 2) as made:
        wait_for("the chain", lambda: f"nw_dst={VIP}" in made.flows())
        yield made


def test_only_packets_for_the_address_pass_the_function(server: Server) -> None:
    assert server.send(1, udp(1, MACS[2], "10.0.0.2")) == {2, 3, 4}, "an unknown address is flooded"
    learn_all(server)
    assert server.send(1, udp(1, MACS[2], "10.0.0.2")) == {2}
    assert server.send(1, udp(1, MACS[2], VIP)) == {FUNCTION}, "for any Ethernet address"
    assert server.send(4, udp(4, MACS[FUNCTION], VIP)) == {FUNCTION}, "also from the other switch"
    assert server.send(FUNCTION, udp(FUNCTION, MACS[2], VIP)) == {2}, "packets from the function continue"
    asks = Ether(src=MACS[1], dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, psrc="10.0.0.1", pdst=VIP)
    assert server.send(1, asks) == {FUNCTION}, "only the function is asked for the address"


def test_the_chain_follows_the_function_up_and_down(server: Server) -> None:
    learn_all(server)
    place = server.oneswitchd.client.find_port(NAME)
    server.oneswitchd.client.delete_port(FUNCTION)
    wait_for("the chain to end", lambda: f"nw_dst={VIP}" not in server.flows())
    wait_for("it to be forgotten as a receiver", lambda: f"dl_dst={MACS[FUNCTION]}" not in server.flows())
    server.wires.purge()
    assert server.send(1, udp(1, MACS[2], VIP)) == {2}
    server.oneswitchd.client.add_port(FUNCTION, NAME, place.switch, place.interface)
    wait_for("the chain", lambda: f"nw_dst={VIP}" in server.flows())
    server.wires.purge()
    assert server.send(1, udp(1, MACS[2], VIP)) == {FUNCTION}


def test_the_example_follows_an_address_to_another_port(server: Server) -> None:
    learn_all(server)
    moved = udp(4, MACS[2], "10.0.0.2")
    moved.src = MACS[1]
    assert server.send(4, moved) == {2}
    wait_for("the sender at its new port", lambda: f"in_port=4,dl_src={MACS[1]}" in server.flows())
    server.wires.purge()
    assert server.send(2, udp(2, MACS[1], "10.0.0.1")) == {4}
