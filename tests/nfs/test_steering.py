"""Frames and workers: AF_PACKET gives both directions of a function's own connections to one worker."""

import ipaddress
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import xor
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from tests.crates import build_example
from tests.nfs.wire import Nf, Wire

pytestmark = pytest.mark.namespaces

WORKERS = 3
SOURCE = "02000000a517"
_OWN = ("10.9.0.50", "10.9.0.51", "fd09::50")


def _network(source: str, destination: str) -> Packet:
    return IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination)


def _by_source(source: str, port: int) -> int:
    address = ipaddress.ip_address(source).packed
    words = [int.from_bytes(address[at : at + 4], "big") for at in range(0, len(address), 4)]
    return (reduce(xor, words) ^ port) % WORKERS


def _frames() -> Iterator[tuple[Packet, int]]:
    """The frames, and the number of the worker that gets each."""
    for own in _OWN:
        peer = "fd09::9" if ":" in own else "10.9.0.9"
        for port in range(2000, 2007):
            yield _network(peer, own) / TCP(sport=80, dport=port, flags="A"), port % WORKERS
    for source, others in (("10.9.7.1", ("10.9.0.99", "10.9.0.98")), ("fd09::7:1", ("fd09::51", "fd08::50"))):
        for port in range(3000, 3005):
            for other in others:
                yield _network(source, other) / TCP(sport=port, dport=443, flags="A"), _by_source(source, port)
    for network in (_network("10.9.0.9", _OWN[0]), _network("fd09::9", _OWN[2])):
        yield network / UDP(sport=80, dport=2001), 0
    yield IP(src="10.9.0.9", dst=_OWN[0], flags="MF") / TCP(sport=80, dport=2001), 0
    yield IP(src="10.9.0.9", dst=_OWN[0], frag=3) / Raw(bytes(20)), 0


def _command(bump: Path, wire: Wire) -> list[str]:
    return [str(bump), ",".join(_OWN), str(wire.control), "n0", "packet", "n1", "packet"]


def test_frames_reach_the_worker_that_their_port_or_their_source_names(directory: Path) -> None:
    bump = build_example("nf-runtime", "bump")
    link = Ether(src=bytes.fromhex(SOURCE).hex(":"), dst="02:00:00:00:99:ff")
    samples = [(bytes(link / packet), worker) for packet, worker in _frames()]
    expected = Counter((frame[:5] + bytes([worker]) + frame[6:]).hex() for frame, worker in samples)
    assert {worker for _, worker in samples} == set(range(WORKERS))
    with Wire(directory) as wire, Nf(wire, _command(bump, wire)):
        sink = wire.peer("b", "frame_sink", "b0", SOURCE, str(len(samples)))
        lines = [(bytes(10) + frame).hex() for frame, _ in samples]
        assert wire.peer("a", "offloaded_source", "a0", lines=lines).result() == len(samples)
        assert Counter(sink.result()) == expected
