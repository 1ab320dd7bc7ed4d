"""Switches that are killed and started again while packets cross the link between them.

peer 1 --- switch `left`, which listens --- switch `right`, which connects --- peer 2
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.ovs.peer import Peer
from tests.ovs.switch import FRUGAL, Switch

# The first test builds Open vSwitch.
pytestmark = pytest.mark.timeout(7200)
Kind = Literal["memory", "tcp"]
BURST = 100
ETHERNET = b"\x02" * 6 + b"\x04" * 6 + b"\x88\xb5"
NUMBER = struct.Struct("!Q")


class End:
    """A switch and the peer that sends and receives there; port 1 leads to the peer, port 2 to the other switch."""

    def __init__(self, folder: Path, programs: Path, link: tuple[str, ...]) -> None:
        self.switch = Switch(folder, programs, FRUGAL)
        self.path = self.switch.add_port("wire", 1)
        self.switch.vsctl(
            "add-port", "br", "link", "--", "set", "interface", "link", "type=pcie", "ofport_request=2", *link
        )
        self.rules()
        self.peer = Peer(self.path)
        self.sent = self.seen = 0

    def rules(self) -> None:
        for port, other in ((1, 2), (2, 1)):
            self.switch.ofctl("add-flow", f"in_port={port},actions=set_field:{port}->tun_id,{other}")

    def restart(self) -> None:
        """Starts the killed switch, with the same database."""
        self.peer.close()
        self.switch.start_vswitchd()
        self.switch.await_bridge()
        self.rules()
        self.peer = Peer(self.path)

    def send(self, count: int) -> int:
        """Sends numbered packets without reading; returns how many the ring to the switch took."""
        before = self.sent
        for _ in range(count):
            if not self.peer.put(ETHERNET + NUMBER.pack(self.sent + 1) + bytes(40), 1):
                break
            self.sent += 1
        return self.sent - before

    def receive(self, timeout: float = 10) -> int:
        """Receives a packet and returns its number, which grows from packet to packet."""
        frame, tun_id = self.peer.get(timeout)
        assert (frame[:14], frame[22:], tun_id) == (ETHERNET, bytes(40), 2), frame
        (number,) = NUMBER.unpack(frame[14:22])
        assert number > self.seen, f"packet {number} after {self.seen}"
        self.seen = number
        return number

    def drain(self) -> None:
        """Reads what is left of a burst."""
        while True:
            try:
                self.receive(0.02)
            except (TimeoutError, OSError):
                return


class Pair:
    """Two switches with a link between them."""

    def __init__(self, folder: Path, programs: Path, kind: Kind) -> None:
        where = f"options:path={folder}/link.sock"
        left = ("options:role=listen", "options:address=127.0.0.1:0" if kind == "tcp" else where)
        self.left = End(folder / "left", programs, left)
        if kind == "tcp":
            self.left.switch.wait(lambda: bool(self.left.switch.tcp_ports()), "the TCP port")
            where = f"options:address=127.0.0.1:{self.left.switch.tcp_ports()[-1]}"
            # The same port after a restart.
            self.left.switch.vsctl("set", "interface", "link", where)
        self.right = End(folder / "right", programs, ("options:role=connect", where))
        self.await_link()

    def await_link(self) -> None:
        for end in (self.left, self.right):
            end.switch.wait(lambda end=end: end.switch.link_state("link") == "up", "link")

    def check_whole(self) -> None:
        """Sends bursts in both directions, of which no packet may be lost."""
        for source, target in ((self.left, self.right), (self.right, self.left)):
            first = source.sent + 1
            assert source.send(BURST) == BURST
            for number in range(first, first + BURST):
                assert target.receive() == number

    def restart(self, victim: End, survivor: End) -> None:
        """Kills a switch in the middle of bursts, and starts it again."""
        forwarded = survivor.switch.counter("wire", "rx pkts")
        taken = survivor.send(BURST)
        victim.send(BURST)
        victim.switch.kill_vswitchd()
        taken += survivor.send(BURST)
        victim.drain()
        survivor.drain()
        survivor.switch.wait(lambda: survivor.switch.link_state("link") == "down", "end of the carrier")
        # Every packet left through the link, or was dropped and counted.
        survivor.switch.wait(
            lambda: survivor.switch.counter("wire", "rx pkts") - forwarded == taken, "arrival of the burst"
        )
        sent, dropped = (survivor.switch.counter("link", name) for name in ("tx pkts", "tx drop"))
        assert sent + dropped == survivor.switch.counter("wire", "rx pkts")
        victim.restart()
        self.await_link()
        self.check_whole()

    def stop(self) -> None:
        for end in (self.left, self.right):
            end.peer.close()
            end.switch.stop()


@pytest.fixture(params=["memory", "tcp"])
def pair(request: pytest.FixtureRequest, directory: Path, programs: Path) -> Iterator[Pair]:
    made = Pair(directory, programs, request.param)
    yield made
    made.stop()


def restart_each(pair: Pair, times: int) -> None:
    """Restart each switch `times` times: only packets of the burst in flight are lost, and nothing leaks."""
    pair.check_whole()
    for victim, survivor in ((pair.left, pair.right), (pair.right, pair.left)):
        warm = min(times, 10)
        for _ in range(warm):
            pair.restart(victim, survivor)
        held = usage(survivor.switch)
        fresh = victim.switch.descriptors()
        for number in range(times - warm):
            pair.restart(victim, survivor)
            assert victim.switch.descriptors() <= fresh, f"restart {number}"
        descriptors, mappings, resident = usage(survivor.switch)
        assert descriptors <= held[0]
        assert mappings <= held[1] + 8  # the allocator keeps some
        assert resident < held[2] + 4 * 2**20 + times * 512


def usage(switch: Switch) -> tuple[int, int, int]:
    return switch.descriptors(), switch.mappings(), switch.resident()


def test_restarts_lose_only_packets_in_flight(pair: Pair) -> None:
    restart_each(pair, 2)


@pytest.mark.soak
def test_a_thousand_restarts(pair: Pair) -> None:
    restart_each(pair, 1000)
