"""Offloaded flows bypass their network function; its port's counters tell nothing of that."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from lab.offload_writer import INSTANCE, Writer, writing
from lab.server import Lab
from lab.wires import Place, Wires
from tests.recovery.conftest import Server, eventually, serving

VIP, BACKEND, CLIENT = "10.0.0.9", "10.0.0.11", "10.0.0.1"
FUNCTION_MAC, BACKEND_MAC = "02:00:00:00:00:09", "02:00:00:00:00:11"
# Ports of the lab: vm1 and vm2 on the hypervisor, the function and the second client on snic0.
CLIENT_PORT, BACKEND_PORT, FUNCTION_PORT, NEAR_PORT = 1, 2, 3, 4
TARGET = {
    "eth_src": FUNCTION_MAC,
    "eth_dst": BACKEND_MAC,
    "source": None,
    "destination": [BACKEND, 8080],
    "tunnel": None,
}


@pytest.fixture
def server(lab: Lab) -> Iterator[Server]:
    """A function at port 3, whose controller sends it what is for the VIP, and its output to the backend."""
    with serving(lab, audit_s=0, log="debug") as server:
        for client in (CLIENT_PORT, NEAR_PORT):
            server.ofctl("add-flow", f"cookie=1,ip,in_port={client},nw_dst={VIP},actions=output:{FUNCTION_PORT}")
        server.ofctl("add-flow", f"cookie=2,in_port={FUNCTION_PORT},actions=output:{BACKEND_PORT}")
        yield server


@pytest.fixture
def address(server: Server) -> str:
    """The address of the offload socket."""
    return str(server.lab.config.oneswitchd.offload)


def _frame(data: bytes) -> Packet:
    return Ether(data)


def flow(port: int = 1234, protocol: str = "tcp", client: str = CLIENT) -> list[Any]:
    return [protocol, client, port, VIP, 80]


def packet(port: int = 1234, flags: str = "A", ttl: int = 64, size: int = 100) -> Packet:
    head = Ether(src="02:00:00:00:00:01", dst=FUNCTION_MAC) / IP(src=CLIENT, dst=VIP, ttl=ttl)
    return _frame(bytes(head / TCP(sport=port, dport=80, flags=flags) / Raw(b"x" * size)))


def rewritten(sent: Packet) -> Packet:
    packet = sent.copy()
    packet.src, packet.dst = FUNCTION_MAC, BACKEND_MAC
    packet[IP].dst, packet[IP].ttl = BACKEND, sent[IP].ttl - 1
    upper = packet[TCP] if TCP in packet else packet[UDP]
    upper.dport = 8080
    del packet[IP].chksum, upper.chksum
    return _frame(bytes(packet))


def counters(server: Server, port: int) -> dict[str, int]:
    """Return the counters of a virtual port, as its controller sees them."""
    text = server.ofctl("dump-ports", str(port))
    found = re.search(r"rx pkts=(\d+), bytes=(\d+).*\n +tx pkts=(\d+), bytes=(\d+)", text)
    assert found, text
    names = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
    return dict(zip(names, map(int, found.groups()), strict=True))


def carry(wires: Wires, source: Place, *packets: Packet) -> dict[Place, list[bytes]]:
    for sent in packets:
        wires.inject(source, bytes(sent))
    return wires.settle()


@pytest.mark.parametrize("client", ["vm1", "out1"], ids=["over-pcie", "on-the-same-switch"])
def test_an_offloaded_flow_bypasses_the_function(server: Server, address: str, client: str) -> None:
    function, source, backend = server.place("nf1"), server.place(client), server.place("vm2")
    with writing(address, FUNCTION_PORT) as writer, server.wires() as wires:
        sent = packet()
        assert carry(wires, source, sent) == {function: [bytes(sent)]}
        before = counters(server, FUNCTION_PORT)
        writer.send({"target": [7, TARGET]})
        writer.install(1, flow(), 7, counter=5)
        wires.purge()  # the cached flow of before
        sent = [packet(size=size) for size in (10, 200, 1000)]
        assert carry(wires, source, *sent) == {backend: [bytes(rewritten(each)) for each in sent]}
        for flags in ("S", "FA", "R"):
            end = packet(flags=flags)
            assert carry(wires, source, end) == {function: [bytes(end)]}
        other = packet(port=1235)
        assert carry(wires, source, other) == {function: [bytes(other)]}
        wires.purge()
        (offload,) = server.oneswitchd.client.status().offload
        assert (offload.port, offload.writer, offload.flows, offload.targets) == (FUNCTION_PORT, True, 1, 1)
        octets = sum(len(each) for each in sent)
        ends = sum(len(each) for each in (other, *(packet(flags=flags) for flags in ("S", "FA", "R"))))
        expected = {
            "rx_packets": before["rx_packets"] + 3,
            "rx_bytes": before["rx_bytes"] + octets,
            "tx_packets": before["tx_packets"] + 3 + 4,
            "tx_bytes": before["tx_bytes"] + octets + ends,
        }
        assert counters(server, FUNCTION_PORT) == expected
        writer.remove(1)
        assert writer.carried == {5: (3, octets)}
        assert carry(wires, source, sent[0]) == {function: [bytes(sent[0])]}
        expected["tx_packets"] += 1
        expected["tx_bytes"] += len(sent[0])
        writer.send({"drop": 7})
        assert writer.listed() == []
        assert counters(server, FUNCTION_PORT) == expected
    assert "n_packets=3" in server.ofctl("dump-flows", f"in_port={FUNCTION_PORT}")


def test_udp_fragments_and_tags(server: Server, address: str) -> None:
    function, source, backend = server.place("nf1"), server.place("vm1"), server.place("vm2")
    head = Ether(src="02:00:00:00:00:01", dst=FUNCTION_MAC)
    datagram = _frame(bytes(head / IP(src=CLIENT, dst=VIP) / UDP(sport=53, dport=80) / Raw(b"x" * 40)))
    first = _frame(bytes(head / IP(src=CLIENT, dst=VIP, flags="MF") / UDP(sport=53, dport=80) / Raw(b"x" * 40)))
    tagged = _frame(bytes(head / Dot1Q(vlan=5) / IP(src=CLIENT, dst=VIP) / UDP(sport=53, dport=80) / Raw(b"x" * 40)))
    with writing(address, FUNCTION_PORT) as writer, server.wires() as wires:
        writer.send({"target": [7, TARGET]})
        writer.install(1, flow(53, "udp"), 7)
        assert carry(wires, source, datagram) == {backend: [bytes(rewritten(datagram))]}
        for other in (first, tagged):
            assert carry(wires, source, other) == {function: [bytes(other)]}


def test_a_small_flow_is_cached_with_few_bits_of_its_port(server: Server, address: str) -> None:
    """It depends only on the offloaded flows of its own client, even if another client's are in the same table."""
    alike = "10.0.0.65"  # the same 6 low bits
    with writing(address, FUNCTION_PORT) as writer:
        writer.send({"target": [7, TARGET]})
        writer.install(1, flow(0x1000), 7)
        writer.install(2, flow(0x8001, client=alike), 7)

        near = server.place("out1")

        def ports(client: str) -> list[str]:
            tcp = (
                f"in_port={near[1]},tcp,nw_src={client},nw_dst={VIP},nw_ttl=64,tp_src={0x8000},tp_dst=80,tcp_flags=ack"
            )
            traced = server.lab.switch("snic0").appctl("ofproto/trace", "edge", tcp)
            return re.findall(r"tp_src=[^,]*", traced.rpartition("Megaflow:")[2])

        assert ports(CLIENT) == ["tp_src=0x8000/0x8000"]
        assert ports(alike) == [f"tp_src={0x8000}"]
        assert ports("10.0.0.2") == []


def test_flows_of_a_function_with_two_ports_pass_or_are_dropped(server: Server, address: str) -> None:
    """Port 3 is in front of the function, port 4 behind it, both at snic0."""
    front, behind = FUNCTION_PORT, NEAR_PORT
    function, source, backend = server.place("nf1"), server.place("vm1"), server.place("vm2")
    server.ofctl("add-flow", f"cookie=3,in_port={behind},priority=40000,actions=output:{BACKEND_PORT}")
    sent = [packet(size=size) for size in (10, 200, 1000)]
    octets = sum(len(each) for each in sent)
    with writing(address, front) as writer, server.wires() as wires:
        writer.send({"pass": [7, behind]}, {"deny": 8})
        before = {port: counters(server, port) for port in (front, behind)}
        writer.install(1, flow(), 7, counter=5)
        writer.install(2, flow(1235), 8, counter=6)
        assert carry(wires, source, *sent) == {backend: [bytes(each) for each in sent]}
        assert carry(wires, source, packet(port=1235)) == {}
        for ended in (packet(flags="FA"), packet(port=1235, flags="R")):
            assert carry(wires, source, ended) == {function: [bytes(ended)]}
        wires.purge()
        assert "n_packets=3" in server.ofctl("dump-flows", "cookie=3/-1")
        after = {port: counters(server, port) for port in (front, behind)}
        grown = {port: {name: after[port][name] - before[port][name] for name in after[port]} for port in after}
        assert grown[front]["tx_packets"] == 3 + 1 + 2  # passed, dropped, ends
        assert (grown[front]["rx_packets"], grown[front]["rx_bytes"]) == (0, 0)
        assert (grown[behind]["rx_packets"], grown[behind]["rx_bytes"]) == (3, octets)
        assert grown[behind]["tx_packets"] == 0
        server.kill("oneswitchd")
        assert carry(wires, source, sent[0], packet(port=1235)) == {backend: [bytes(sent[0])]}
    server.start("oneswitchd")
    server.oneswitchd.wait_up()
    with writing(address, front, epoch=2) as writer, server.wires() as wires:
        assert [rule[0] for rule in writer.listed()] == [1, 2]
        assert carry(wires, source, sent[0], packet(port=1235)) == {backend: [bytes(sent[0])]}
        writer.remove(1)
        writer.remove(2)
        assert (writer.carried[5][0], writer.carried[6][0]) == (5, 3)
    assert server.repairs() == 0


def test_a_disconnected_writer_loses_its_rules(server: Server, address: str) -> None:
    edge = server.bridge("snic0", "edge")

    def offloaded() -> bool:
        return bool(server.ofctl("dump-groups", target=edge).count(f"group_id={FUNCTION_PORT << 16 | 7}"))

    with writing(address, FUNCTION_PORT) as writer:
        writer.send({"target": [7, TARGET]})
        writer.install(1, flow(), 7)
        assert offloaded()
    with writing(address, FUNCTION_PORT, epoch=2) as writer:
        assert [rule[0] for rule in writer.listed()] == [1]
    assert eventually(lambda: not offloaded(), 10)
    assert "reg1" not in server.ofctl("dump-flows", target=edge)


def test_a_restarted_oneswitchd_knows_the_rules(server: Server, address: str) -> None:
    source, backend = server.place("vm1"), server.place("vm2")
    sent = packet()
    with writing(address, FUNCTION_PORT) as writer, server.wires() as wires:
        writer.send({"target": [7, TARGET]})
        writer.install(1, flow(), 7)
        writer.install(2, flow(1235), 7)
        carry(wires, source, sent)
        before = counters(server, FUNCTION_PORT)
        writer.remove(2)
        server.kill("oneswitchd")
        assert carry(wires, source, sent) == {backend: [bytes(rewritten(sent))]}
    server.start("oneswitchd")
    server.oneswitchd.wait_up()
    with writing(address, FUNCTION_PORT, epoch=2) as writer, server.wires() as wires:
        assert [rule[0] for rule in writer.listed()] == [1]
        assert carry(wires, source, sent) == {backend: [bytes(rewritten(sent))]}
        wires.purge()
        writer.remove(1)
        assert writer.carried == {0: (3, 3 * len(sent))}
        assert counters(server, FUNCTION_PORT)["rx_packets"] == before["rx_packets"] + 2
    assert server.repairs() == 0


def test_requests_that_are_wrong_get_a_reason(server: Server, address: str) -> None:
    with Writer(address) as writer:
        assert writer.hello(77)["error"]["code"] == "port-unknown"
        assert writer.is_closed()
    with writing(address, FUNCTION_PORT, epoch=5) as writer:
        with Writer(address) as stale:
            assert stale.hello(FUNCTION_PORT, epoch=4)["error"]["code"] == "stale-writer"
        with Writer(address) as other:
            answer = other.hello(FUNCTION_PORT, instance=INSTANCE[::-1])
            assert answer["error"]["code"] == "stale-writer"
        writer.send({"install": [1, *flow(), 7, "source", 0]}, {"remove": 9})
        assert writer.next("refused") == {"refused": [[1, "unsupported"]]}
        assert writer.next("effective") == {"effective": [9]}
        writer.send("{}")
        assert writer.next("error")["error"]["code"] == "malformed"
        assert writer.is_closed()


def test_a_move_takes_the_flows_along(server: Server, address: str) -> None:
    """The function's host has a second interface, on the sNIC."""
    function, goal, sent = 2, ("snic0", "pf0vf0"), packet()
    source, backend = server.place("vm1"), server.place("out1")
    server.ofctl("add-flow", f"cookie=1,ip,in_port={CLIENT_PORT},nw_dst={VIP},actions=output:{function}")
    server.ofctl("add-flow", f"cookie=2,in_port={function},actions=output:{NEAR_PORT}")
    with writing(address, function) as writer, server.wires() as wires:
        writer.send({"target": [7, TARGET]})
        writer.install(1, flow(), 7)
        before = counters(server, function)
        assert carry(wires, source, sent) == {backend: [bytes(rewritten(sent))]}
        server.oneswitchd.client.move_port(function, *goal, until="prepared", grace_ms=0)
        assert carry(wires, source, sent) == {backend: [bytes(rewritten(sent))]}
        server.oneswitchd.client.continue_move(function, "done")
        assert carry(wires, source, sent) == {backend: [bytes(rewritten(sent))]}
        old = server.bridge("hypervisor", "edge")
        assert eventually(lambda: "reg1" not in server.ofctl("dump-flows", target=old))
        assert f"group_id={function << 16 | 7}" not in server.ofctl("dump-groups", target=old)
        after = counters(server, function)
        assert after["rx_packets"] == before["rx_packets"] + 3
        assert after["rx_bytes"] == before["rx_bytes"] + 3 * len(sent)
        server.kill("oneswitchd")
    server.start("oneswitchd")
    server.oneswitchd.wait_up()
    with writing(address, function, epoch=2) as writer:
        assert [rule[0] for rule in writer.listed()] == [1]
        assert writer.carried == {0: (3, 3 * len(sent))}
        assert counters(server, function) == after


def test_the_executor_of_the_function_gets_what_it_sends(server: Server, address: str) -> None:
    source, backend, sent = server.place("vm1"), server.place("vm2"), packet()
    with writing(address, FUNCTION_PORT) as writer, server.wires() as wires:
        writer.send({"target": [7, TARGET]})
        writer.install(1, flow(), 7)
        server.oneswitchd.client.change_executor(FUNCTION_PORT, "hypervisor", "done", 0)
        assert carry(wires, source, sent) == {backend: [bytes(rewritten(sent))]}
        wires.purge()
        assert "n_packets=1," in server.ofctl("dump-flows", "cookie=2/-1")
