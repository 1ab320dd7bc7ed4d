"""A `pcie` port and a peer that keeps the rules, breaks them, or dies."""

import contextlib
import os
import socket
from pathlib import Path

import pytest

from tests.ovs.fuzz import check_alive, fuzz
from tests.ovs.peer import DATA_OFFSET, HEAD, MAGIC, MESSAGE, READY, TAIL, WAKE, Peer
from tests.ovs.switch import Switch

# The first test builds Open vSwitch.
pytestmark = pytest.mark.timeout(900)
FRAME = b"\x02" * 6 + b"\x04" * 6 + b"\x88\xb5" + bytes(range(46))


def two_ports(switch: Switch, *settings: str) -> tuple[Path, Path]:
    """Two ports, between which the switch forwards; it sets the flow-ids 7 and 8, which check_alive expects."""
    ports = (switch.add_port("p1", 1, *settings), switch.add_port("p2", 2, *settings))
    switch.ofctl("add-flow", "in_port=1,actions=set_field:8->tun_id,2")
    switch.ofctl("add-flow", "in_port=2,actions=set_field:7->tun_id,1")
    return ports


def test_flow_id_beside_the_packet(switch: Switch) -> None:
    first, second = (Peer(path) for path in (switch.add_port("p1", 1), switch.add_port("p2", 2)))
    switch.ofctl("add-flow", "in_port=1,tun_id=0x123,actions=2")
    switch.ofctl("add-flow", "in_port=1,tun_id=0x124,actions=set_field:0xffffffff->tun_id,2")
    switch.ofctl("add-flow", "in_port=1,tun_id=0,actions=2,set_field:5->tun_id,IN_PORT")
    for sent, received in ((0x123, 0x123), (0x124, 0xFFFFFFFF), (0, 0), (0x123, 0x123)):
        assert first.put(FRAME, sent)
        assert second.get() == (FRAME, received)
    assert first.get() == (FRAME, 5)


@pytest.mark.parametrize("size", [14, 60, 1514, 9230])
def test_sizes(switch: Switch, size: int) -> None:
    first, second = (Peer(path) for path in two_ports(switch))
    frame = (FRAME * 200)[:size]
    for _ in range(3):
        assert first.put(frame, 1)
        assert second.get() == (frame, 8)


def test_around_the_ring(switch: Switch) -> None:
    """In order and complete, several times around a small ring, into 3 queues."""
    paths = two_ports(switch, "options:ring_size=262144")
    first, second = Peer(paths[0]), Peer(paths[1], queues=3)
    for number in range(2000):
        frame = FRAME[:14] + number.to_bytes(4) + bytes(number * 37 % 1400)
        assert first.put(frame)
        assert second.get() == (frame, 8)


def test_carrier_follows_the_peer(switch: Switch) -> None:
    path = switch.add_port("p1", 1)
    for _ in range(3):
        peer = Peer(path)
        switch.wait(lambda: switch.link_state("p1") == "up", "carrier")
        peer.close()
        switch.wait(lambda: switch.link_state("p1") == "down", "end of the carrier")


def test_restart_of_the_switch(switch: Switch) -> None:
    ports = two_ports(switch)
    peer = Peer(ports[0])
    switch.kill_vswitchd()
    assert peer.closed()
    switch.start_vswitchd()
    Peer(ports[0]).close()


def reconnect(switch: Switch, times: int) -> None:
    ports = two_ports(switch)
    check_alive(switch, ports)

    def state() -> tuple[int, int]:
        return switch.descriptors(), switch.mappings()

    for _ in range(20):
        Peer(ports[0]).close()
    check_alive(switch, ports)
    resident = switch.resident()
    descriptors, mappings = state()
    honest = Peer(ports[1])
    for number in range(times):
        peer = Peer(ports[0], queues=1 + number % 3)
        assert peer.put(FRAME)
        assert honest.get() == (FRAME, 8)
        peer.close()
    honest.close()
    check_alive(switch, ports)
    switch.wait(lambda: switch.descriptors() <= descriptors, "release of descriptors")
    switch.wait(lambda: switch.mappings() <= mappings + 8, "release of memory")  # the allocator keeps some
    assert switch.resident() < resident + 4 * 2**20 + times * 512


def test_reconnects_leave_nothing_behind(frugal_switch: Switch) -> None:
    reconnect(frugal_switch, 40)


@pytest.mark.soak
def test_a_thousand_reconnects(frugal_switch: Switch) -> None:
    reconnect(frugal_switch, 1000)


def test_peer_that_does_not_read(switch: Switch) -> None:
    """A full ring drops, and the switch serves its other ports."""
    first, second = (Peer(path) for path in two_ports(switch, "options:ring_size=262144"))
    third = Peer(switch.add_port("p3", 3))
    switch.ofctl("add-flow", "in_port=3,actions=set_field:9->tun_id,1")
    for _ in range(3000):
        while not first.put(FRAME):
            switch.appctl("version")
    switch.wait(lambda: switch.counter("p2", "tx drop") > 900, "drops")
    assert third.put(FRAME)
    assert first.get() == (FRAME, 9)
    while (packet := second.received[0].get()) is not None:
        assert packet == (FRAME, 8)
    assert first.put(FRAME)
    assert second.get() == (FRAME, 8)


@pytest.mark.parametrize("lie", ["head", "tail", "length", "padding"])
def test_corrupted_ring(switch: Switch, lie: str) -> None:
    """The switch closes the link, and makes a new one with new memory."""
    ports = two_ports(switch, "options:ring_size=262144")
    first, second = (Peer(path) for path in ports)
    ring = first.sent[0]
    if lie == "head":
        ring.set_word(HEAD, 0x7FFFFFFF)
    elif lie == "tail":
        # The switch looks at it when the ring seems full.
        first.received[0].set_word(TAIL, 0x7FFFFFFF)
        for _ in range(2100):
            while not second.put(FRAME):
                pass
    else:
        ring.put(FRAME, 0)
        ring.memory[ring.offset + DATA_OFFSET : ring.offset + DATA_OFFSET + 4] = (
            b"\xff" if lie == "padding" else b"\x7f"
        ) * 4
    if lie != "tail":
        # A switch that does not sleep yet looks by itself, and may have closed the link.
        with contextlib.suppress(BrokenPipeError):
            first.message(WAKE)
    assert first.closed()
    first.close()
    second.close()
    check_alive(switch, ports)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"x", id="short"),
        pytest.param(MESSAGE.pack(MAGIC, 2, READY, 1, 0, 0, 0), id="version"),
        pytest.param(MESSAGE.pack(MAGIC, 1, READY, 1, 0, 0, 0), id="order"),
        pytest.param(MESSAGE.pack(MAGIC, 1, 1, 65, 0, 0, 0), id="queues"),
        pytest.param(MESSAGE.pack(MAGIC, 1, 1, 0, 0, 0, 0), id="no queues"),
        pytest.param(MESSAGE.pack(MAGIC, 1, 1, 1, 0, 0, 0) + b"x", id="long"),
    ],
)
def test_wrong_first_message(switch: Switch, message: bytes) -> None:
    path = switch.add_port("p1", 1)
    Peer(path).close()
    before = switch.descriptors()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        null = os.open("/dev/null", os.O_RDONLY)
        socket.send_fds(connection, [message], [null, null, null])
        os.close(null)
        assert connection.recv(100) == b""
    Peer(path).close()
    switch.wait(lambda: switch.descriptors() <= before, "release of the sent descriptors")


def test_memory_keeps_its_size(switch: Switch) -> None:
    """Otherwise a peer could make the switch receive SIGBUS."""
    path = switch.add_port("p1", 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.send(MESSAGE.pack(MAGIC, 1, 1, 1, 0, 0, 0))
        _, (memory,), _, _ = socket.recv_fds(connection, MESSAGE.size, 1)
        with pytest.raises(PermissionError):
            os.ftruncate(memory, 0)
        os.close(memory)


def test_garbage(directory: Path, programs: Path) -> None:
    seen = fuzz(programs, directory, 4, seed=1)
    assert all(seen[what] for what in ("writes", "closed by the switch", "checks")), seen


@pytest.mark.soak
def test_garbage_for_ten_minutes(directory: Path, programs: Path) -> None:
    fuzz(programs, directory, 600, seed=2)
