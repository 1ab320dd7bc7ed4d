"""Ryu's router and firewall, which output to NORMAL, do the same on one bridge and on a server without any setting.

Ports 1 and 2 are on the hypervisor, 3 and 4 on the smart NIC.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from lab.control_plane import Daemon, free_port
from tests.examples.switches import PATIENCE_S, Switch, one_bridge, one_server, ryu_manager, wait_for

BROADCAST = "ff:ff:ff:ff:ff:ff"
# Hosts 1 and 2 are in the first network, 3 and 4 in the second.
HOSTS = {port: (f"02:00:00:00:00:0{port}", f"10.0.{(port + 1) // 2}.{port + 10}") for port in range(1, 5)}
GATEWAYS = {1: "10.0.1.1", 2: "10.0.2.1"}
_DEVICE = re.compile(r"aa:55:aa:55:00:[0-9a-f]{2}")
_DURATION = re.compile(r"duration=[^,]*, |n_packets=\d+, |n_bytes=\d+, |cookie=0x[0-9a-f]+, ")


class Managed:
    """A switch and the REST interface of the application in charge of it."""

    def __init__(self, switch: Switch, port: int) -> None:
        self.switch = switch
        self._url = f"http://127.0.0.1:{port}"
        self.log: list[object] = []

    def rest(self, method: str, path: str, **content: str) -> None:
        """Send a request; log its answer without the switch's name."""
        body = json.dumps(content).encode() if content else None
        request = urllib.request.Request(self._url + path, body, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            answer = json.load(response)
        for each in answer:
            each.pop("switch_id", None)
        self.log.append((method, path, answer))

    def send(self, port: int, frame: Packet, wanted: Callable[[Packet], bool], at: set[int]) -> dict[int, Packet]:
        """Send a frame; return the first wanted packet of each port, once each port of `at` has sent one."""

        def found(seen: dict[int, list[bytes]]) -> dict[int, Packet]:
            first = {number: next(filter(wanted, map(Ether, frames)), None) for number, frames in seen.items()}
            return {number: packet for number, packet in sorted(first.items()) if packet is not None}

        packets = found(self.switch.exchange(port, bytes(frame), lambda seen: set(found(seen)) >= at))
        self.log.append({number: _DEVICE.sub("a port's address", each.summary()) for number, each in packets.items()})
        return packets

    def rules(self) -> list[str]:
        """Return the rules without their counters, cookies and ages."""
        lines = self.switch.flows().splitlines()[1:]
        return sorted(_DURATION.sub("", line) for line in lines)


@contextlib.contextmanager
def managed(application: str, switches: Callable, directory: Path) -> Iterator[Managed]:
    openflow, rest = free_port(), free_port()
    listen = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(openflow)]
    listen += ["--wsapi-host", "127.0.0.1", "--wsapi-port", str(rest)]
    command = [str(ryu_manager()), application, *listen]
    directory.mkdir()
    with Daemon("ryu", command, directory) as ryu, switches(f"tcp:127.0.0.1:{openflow}") as switch:
        wait_for("the first rules", lambda: "priority" in switch.flows())
        yield Managed(switch, rest)
        ryu.require_running()


def route(world: Managed) -> None:
    """Address a router with two networks, and let packets cross it."""
    for address in GATEWAYS.values():
        world.rest("POST", "/router/all", address=f"{address}/24")
    (mac1, ip1), (mac3, ip3) = HOSTS[1], HOSTS[3]
    ask = Ether(src=mac1, dst=BROADCAST) / ARP(op="who-has", hwsrc=mac1, psrc=ip1, pdst=GATEWAYS[1])
    reply = world.send(1, ask, lambda p: ARP in p and p[ARP].op == 2, {1})[1]
    gateway = reply[ARP].hwsrc
    assert reply[ARP].psrc == GATEWAYS[1]

    ping = Ether(src=mac1, dst=gateway) / IP(src=ip1, dst=GATEWAYS[1]) / ICMP(id=1, seq=1)
    world.send(1, ping, lambda p: ICMP in p and p[ICMP].type == 0, {1})

    # It looks for a host that it does not know, and holds the packet until that one answers.
    data = Ether(src=mac1, dst=gateway) / IP(src=ip1, dst=ip3) / UDP(sport=5, dport=6)
    asked = world.send(1, data, lambda p: ARP in p and p[ARP].pdst == ip3, {2, 3, 4})[3]
    answer = Ether(src=mac3, dst=asked.src) / ARP(
        op="is-at", hwsrc=mac3, psrc=ip3, hwdst=asked[ARP].hwsrc, pdst=GATEWAYS[2]
    )
    assert world.send(3, answer, _is_udp, {3})[3].dst == mac3
    world.switch.wires.purge()  # the flow that led the first packet to the controller
    again = world.send(1, data, _is_udp, {3})[3]
    assert (again.dst, again[IP].ttl) == (mac3, data[IP].ttl - 1), "a rule routes it now"

    # Within a network it switches, by NORMAL, which has not seen any packet from the receiver.
    (mac2, ip2) = HOSTS[2]
    local = Ether(src=mac2, dst=mac1) / IP(src=ip2, dst=ip1) / UDP(sport=7, dport=8)
    assert world.send(2, local, _is_udp, {1, 3, 4})[1][IP].ttl == local[IP].ttl
    world.rest("GET", "/router/all")


def _is_udp(packet: Packet) -> bool:
    return UDP in packet


def guard(world: Managed) -> None:
    """Allow two hosts on different switches to exchange UDP, one of them not from a certain port."""
    world.rest("PUT", "/firewall/module/enable/all")
    (mac1, ip1), (mac3, ip3) = HOSTS[1], HOSTS[3]
    there = Ether(src=mac1, dst=mac3) / IP(src=ip1, dst=ip3) / UDP(sport=5, dport=6)
    back = Ether(src=mac3, dst=mac1) / IP(src=ip3, dst=ip1) / UDP(sport=6, dport=5)
    assert world.send(1, there, _is_udp, set()) == {}, "nothing is allowed yet"
    rules = "/firewall/rules/all"
    world.rest("POST", rules, nw_src=f"{ip1}/32", nw_dst=f"{ip3}/32", nw_proto="UDP")
    world.rest("POST", rules, nw_src=f"{ip3}/32", nw_dst=f"{ip1}/32", nw_proto="UDP")
    world.rest("POST", rules, nw_src=f"{ip3}/32", nw_proto="UDP", tp_src="9", actions="DENY", priority="10")
    world.switch.wires.purge()
    assert set(world.send(1, there, _is_udp, {2, 3, 4})) == {2, 3, 4}, "NORMAL floods to an unknown address"
    world.switch.wires.purge()
    assert set(world.send(3, back, _is_udp, {1})) == {1}
    world.switch.wires.purge()
    assert set(world.send(1, there, _is_udp, {3})) == {3}, "NORMAL has learned where the other host is"
    denied = Ether(src=mac3, dst=mac1) / IP(src=ip3, dst=ip1) / UDP(sport=9, dport=5)
    assert world.send(3, denied, _is_udp, set()) == {}
    world.rest("GET", rules)
    world.rest("DELETE", rules, rule_id="all")
    world.rest("GET", rules)


@pytest.mark.parametrize(
    ("application", "scenario"),
    [("ryu.app.rest_router", route), ("ryu.app.rest_firewall", guard)],
    ids=["router", "firewall"],
)
def test_an_application_with_normal_does_the_same_as_on_one_bridge(
    application: str, scenario: Callable[[Managed], None], tmp_path: Path
) -> None:
    outcomes = []
    for switches in (one_bridge, one_server):
        with managed(application, switches, tmp_path / switches.__name__) as world:
            scenario(world)
            outcomes.append((world.log, world.rules()))
    (log, rules), (reference_log, reference_rules) = outcomes[1], outcomes[0]
    assert log == reference_log
    assert len(rules) == len(reference_rules)
