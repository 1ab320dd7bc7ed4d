"""A `pcie` port with `options:address`: a link over TCP to a peer that keeps the rules, breaks them, or dies."""

import random
import select
import socket

import pytest

from tests.ovs.stream_peer import HEADER, MAX_FRAME, StreamPeer, hello, record
from tests.ovs.switch import Switch

# The first test builds Open vSwitch.
pytestmark = pytest.mark.timeout(900)
FRAME = b"\x02" * 6 + b"\x04" * 6 + b"\x88\xb5" + bytes(range(46))


def two_ports(switch: Switch) -> tuple[int, int]:
    """Two ports, between which the switch forwards; it sets the flow-ids 7 and 8."""
    ports = (switch.add_tcp_port("p1", 1), switch.add_tcp_port("p2", 2))
    switch.ofctl("add-flow", "in_port=1,actions=set_field:8->tun_id,2")
    switch.ofctl("add-flow", "in_port=2,actions=set_field:7->tun_id,1")
    return ports


def check_alive(ports: tuple[int, int]) -> None:
    """Fails unless packets cross the switch between honest peers."""
    first, second = (StreamPeer.connect(port) for port in ports)
    first.put(FRAME, 1)
    assert second.get() == (FRAME, 8)
    second.put(FRAME)
    assert first.get() == (FRAME, 7)
    first.close()
    second.close()


def test_flow_id_beside_the_packet(switch: Switch) -> None:
    first, second = (StreamPeer.connect(switch.add_tcp_port(f"p{number}", number)) for number in (1, 2))
    switch.ofctl("add-flow", "in_port=1,tun_id=0x123,actions=2")
    switch.ofctl("add-flow", "in_port=1,tun_id=0x124,actions=set_field:0xffffffff->tun_id,2")
    switch.ofctl("add-flow", "in_port=1,tun_id=0,actions=2,set_field:5->tun_id,IN_PORT")
    for sent, received in ((0x123, 0x123), (0x124, 0xFFFFFFFF), (0, 0), (0x123, 0x123)):
        first.put(FRAME, sent)
        assert second.get() == (FRAME, received)
    assert first.get() == (FRAME, 5)


def test_cut_anywhere(switch: Switch) -> None:
    """Packets of all sizes, which TCP may cut or join anywhere, stay whole and in order."""
    chance = random.Random(1)
    first, second = (StreamPeer.connect(port) for port in two_ports(switch))
    sizes = [14, 60, 1514, 9230, *(chance.randrange(14, 3000) for _ in range(60))]
    frames = [FRAME[:14] + chance.randbytes(size - 14) for size in sizes]
    stream = b"".join(record(frame, 1) for frame in frames)
    while stream:
        size = chance.choice((1, 2, 7, 8, 9, 500, 20_000))
        first.socket.sendall(stream[:size])
        stream = stream[size:]
    for frame in frames:
        assert second.get() == (frame, 8)


def test_switch_that_connects(switch: Switch) -> None:
    """The carrier is up only while the other end is there, and the switch tries again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        address = f"options:address=127.0.0.1:{server.getsockname()[1]}"
        switch.vsctl(
            "add-port", "br", "p1", "--", "set", "interface", "p1", "type=pcie", address, "options:role=connect"
        )
        switch.ofctl("add-flow", "actions=IN_PORT")
        for number in range(3):
            peer = StreamPeer(server.accept()[0], hello(listening=True))
            switch.wait(lambda: switch.link_state("p1") == "up", "carrier")
            peer.put(FRAME, number)
            assert peer.get() == (FRAME, number)
            peer.close()
            switch.wait(lambda: switch.link_state("p1") == "down", "end of the carrier")


@pytest.mark.parametrize(
    "greeting",
    [
        pytest.param(hello(listening=True), id="both listen"),
        pytest.param(hello(magic=1), id="magic"),
        pytest.param(hello(version=2), id="version"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
def test_wrong_hello(switch: Switch, greeting: bytes) -> None:
    port = switch.add_tcp_port("p1", 1)
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(greeting)
        assert closed(connection)
    assert switch.link_state("p1") == "down"
    StreamPeer.connect(port).close()


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("length", [0, MAX_FRAME + 1, 0xFFFFFFFF])
def test_wrong_length(switch: Switch, length: int) -> None:
    ports = two_ports(switch)
    first, second = (StreamPeer.connect(port) for port in ports)
    first.socket.sendall(record(FRAME) + HEADER.pack(length, 0) + bytes(100))
    assert second.get() == (FRAME, 8)
    assert first.closed()
    second.close()
    check_alive(ports)


def test_short_frame(switch: Switch) -> None:
    first, second = (StreamPeer.connect(port) for port in two_ports(switch))
    first.put(b"x" * 13)
    first.put(FRAME)
    assert second.get() == (FRAME, 8)
    assert switch.counter("p1", "rx errs") == 1


def test_peer_that_does_not_read(switch: Switch) -> None:
    """The switch drops and counts, serves its other ports, and sends only whole packets."""
    first, second = (StreamPeer.connect(port) for port in two_ports(switch))
    third = StreamPeer.connect(switch.add_tcp_port("p3", 3))
    switch.ofctl("add-flow", "in_port=3,actions=set_field:9->tun_id,1")
    long = FRAME * 150
    sent = 0
    while not switch.counter("p2", "tx drop"):
        for _ in range(100):
            first.put(long)
        sent += 100
    third.put(FRAME)
    assert first.get() == (FRAME, 9)

    switch.wait(lambda: switch.counter("p1", "rx pkts") == sent, "arrival of all packets")
    passed = switch.counter("p2", "tx pkts")
    assert passed + switch.counter("p2", "tx drop") == sent
    for _ in range(passed):
        assert second.get() == (long, 8)
    assert not select.select([second.socket], [], [], 0)[0]
    first.put(FRAME)
    assert second.get() == (FRAME, 8)


def test_garbage(switch: Switch) -> None:
    """Whatever comes, the switch stays alive and keeps nothing."""
    chance = random.Random(2)
    ports = two_ports(switch)
    check_alive(ports)
    descriptors, mappings = switch.descriptors(), switch.mappings()
    for number in range(60):
        peer = StreamPeer.connect(ports[number % 2])
        parts = (record(FRAME, number), chance.randbytes(chance.randrange(1, 5000)), HEADER.pack(MAX_FRAME, 0))
        try:
            for _ in range(chance.randrange(1, 6)):
                peer.socket.sendall(chance.choice(parts))
        except OSError:
            pass  # the switch gave it up
        peer.close()
    check_alive(ports)
    switch.wait(lambda: switch.descriptors() <= descriptors, "release of descriptors")
    assert switch.mappings() <= mappings + 8  # the allocator keeps some
