"""Packets that meet no rule, over OpenFlow 1.0: every controller gets the same packet-ins as from one bridge."""

import struct
import time
from collections.abc import Iterator

import pytest

from lab.wires import Place, Wires
from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.peer import Peer, frame

_NICIRA, _VENDOR = 0x2320, 4
_SET_PACKET_IN_FORMAT, _SET_ASYNC_CONFIG = 16, 19
_PATIENCE_S = 30.0
_LAST = 4
CONTROLLERS = {
    "1.0": (1, b""),
    "1.0 with nxt_packet_in": (1, struct.pack("!III", _NICIRA, _SET_PACKET_IN_FORMAT, 1)),
    "1.0 with nxt_packet_in2": (1, struct.pack("!III", _NICIRA, _SET_PACKET_IN_FORMAT, 2)),
    "1.0 without misses": (1, struct.pack("!II6I", _NICIRA, _SET_ASYNC_CONFIG, 2, 0, 7, 7, 7, 7)),
    "1.3": (4, b""),
    "1.3 with nxt_packet_in2": (4, struct.pack("!III", _NICIRA, _SET_PACKET_IN_FORMAT, 2)),
}
"""The version of each controller, and the body of a message of Nicira's."""


def packet(number: int) -> bytes:
    """Return a frame with this number."""
    return bytes.fromhex("ffffffffffff0200000000010800") + number.to_bytes(46)


class Switch:
    """A switch with several controllers."""

    def __init__(self, target: str, wires: Wires, places: dict[int, Place]) -> None:
        self._wires, self._places = wires, places
        self._kept: list[str] = []
        self.peers = {
            name: Peer(target, frame(0, version=version), version) for name, (version, _) in CONTROLLERS.items()
        }
        for name, (version, body) in CONTROLLERS.items():
            ask = frame(9, struct.pack("!HH", 0, 0xFFFF), version)
            self.peers[name].send(ask + frame(_VENDOR, body, version) * bool(body))
            assert self.peers[name].answers() == []

    def inject(self, port: int, number: int) -> None:
        """Let a host send a packet, and wait until it has gone through."""
        self._wires.purge()
        self._wires.inject(self._places[port], packet(number))
        self._wires.settle()

    def add(self, rule: of.FlowMod) -> None:
        """Add a rule over OpenFlow 1.3."""
        peer = self.peers["1.3"]
        peer.send(rule.encode(1))
        self._kept += peer.answers()

    def await_miss(self) -> None:
        """Send a packet, which the first controller gets: the switches are ready when it has its first answer."""
        deadline = time.monotonic() + _PATIENCE_S
        self.inject(1, 0)
        while not self.peers["1.0"].answers():
            assert time.monotonic() < deadline

    def heard(self) -> dict[str, list[str]]:
        """Return what controllers get until the last packet."""
        last = packet(_LAST).hex()
        heard = {name: list[str]() for name in CONTROLLERS} | {"1.3": self._kept}
        deadline = time.monotonic() + _PATIENCE_S
        while not all(any(last in each for each in messages) for messages in heard.values()):
            assert time.monotonic() < deadline, heard
            for name, peer in self.peers.items():
                heard[name] += [each for each in peer.answers() if packet(0).hex() not in each]
        return heard


@pytest.fixture
def switches() -> Iterator[tuple[Switch, Switch]]:
    """oneswitchd over two switches, and a bridge."""
    with Comparison(2, binary()) as comparison:
        ours, reference = comparison.ours, comparison.reference
        worlds = zip(comparison.targets, (ours, reference), strict=True)
        first, second = (Switch(target, world.wires, world.places) for target, world in worlds)
        yield first, second
        for peer in (*first.peers.values(), *second.peers.values()):
            peer.close()


def test_controllers_get_the_packets_without_a_rule_that_one_bridge_sends(switches: tuple[Switch, Switch]) -> None:
    ours, reference = (_heard(switch) for switch in switches)
    assert ours == reference
    counts = {name: len(messages) for name, messages in ours.items()}
    assert counts == {
        name: 1 if "without" in name else 4 if version == 1 else 2 for name, (version, _) in CONTROLLERS.items()
    }


def _heard(switch: Switch) -> dict[str, list[str]]:
    """Send packets that miss in table 0, miss in table 3, meet a rule for misses, and meet another rule."""
    switch.await_miss()
    switch.inject(4, 1)
    switch.add(of.FlowMod(priority=1, fields=(("in_port", 2, None),), instructions=of.goto(3)))
    switch.inject(2, 2)
    to_controller = of.apply_actions(of.output(of.CONTROLLER, 0xFFFF))
    switch.add(of.FlowMod(instructions=to_controller))
    switch.inject(3, 3)
    switch.add(of.FlowMod(priority=1, fields=(("in_port", 1, None),), instructions=to_controller))
    switch.inject(1, _LAST)
    return switch.heard()
