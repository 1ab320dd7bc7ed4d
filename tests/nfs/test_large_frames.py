"""Frames of several segments (GSO) through a function that takes them: real TCP, and segments compared with scapy's."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import checksum

from tests.crates import build_example
from tests.nfs.wire import Nf, Wire

pytestmark = pytest.mark.namespaces

MEGABYTES = 100
SOURCE = "02000000a517"
"""The source address of the frames that the tests make."""


@pytest.fixture(scope="session")
def bump() -> Path:
    """The pass-through function of ``nfs/runtime/examples/bump.rs``."""
    return build_example("nf-runtime", "bump")


def _start(wire: Wire, bump: Path, kind: str, backend: str = "packet") -> Nf:
    return Nf(wire, [str(bump), kind, str(wire.control), "n0", "packet", "n1", backend])


@dataclass
class _Transfer:
    """The costs of a transfer for the function."""

    packets: int
    cpu_ns: int
    merged: int
    completed: int


def _transfer(wire: Wire, nf: Nf) -> _Transfer:
    before = nf.cpu_ns()
    sink = wire.peer("b", "tcp_sink")
    sent = wire.peer("a", "tcp_source", "10.9.0.2", str(MEGABYTES)).result()
    assert sink.result() == sent
    assert sent[0] == MEGABYTES << 20
    status = nf.ask("status")
    assert status["packets_dropped"] == {}
    port = status["ports"][0]
    assert (port["receive_unsegmented"], port["receive_too_long"]) == (0, 0)
    return _Transfer(
        status["packets_in"], nf.cpu_ns() - before, port["receive_merged"], port["receive_checksums_completed"]
    )


def test_a_transfer_in_large_frames_arrives_and_costs_less(directory: Path, bump: Path) -> None:
    with Wire(directory) as wire:
        with _start(wire, bump, "large", "auto") as nf:
            large = _transfer(wire, nf)
            assert nf.ask("status")["ports"][1]["backend"] == "AF_PACKET"
        for host in ("a", "b"):
            wire.run(host, "ethtool", "-K", f"{host}0", "tso", "off", "gso", "off")
        with _start(wire, bump, "plain") as nf:
            plain = _transfer(wire, nf)
    megabyte = {"large": large.cpu_ns / MEGABYTES / 1e6, "plain": plain.cpu_ns / MEGABYTES / 1e6}
    print(f"packets: {large.packets} and {plain.packets}; ms of CPU per MiB: {megabyte}")
    assert (large.completed, plain.merged) == (0, 0)
    assert large.merged > 0
    assert plain.completed > 0
    assert large.packets * 5 < plain.packets
    assert large.cpu_ns * 2 < plain.cpu_ns


def _headers() -> Iterator[Packet]:
    """The headers of the frames: each network protocol, with tags, options and flags."""
    ethernet = Ether(src=bytes.fromhex(SOURCE).hex(":"), dst="02:00:00:00:99:02")
    for network in (IP(src="10.9.0.1", dst="10.9.0.99", id=65_530, ttl=9), IPv6(src="fd09::1", dst="fd09::99", hlim=9)):
        for tag in (None, Dot1Q(vlan=5)):
            link = ethernet / tag if tag else ethernet.copy()
            yield link / network / TCP(sport=4000, dport=9, seq=2**32 - 3000, ack=7, flags="PAFC", window=501)
            options = [("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
            yield link / network / TCP(sport=4001, dport=9, seq=5, ack=7, flags="PA", options=options)


def _left_to_a_card(headers: Packet, payload: bytes, size: int) -> bytes:
    """Return the frame that a sender leaves to a network card, after its header; size 0: only the checksum is left."""
    frame = bytearray(bytes(headers / Raw(payload)))
    start = len(frame) - len(payload) - len(headers[TCP])
    length = len(frame) - start
    if IP in headers:
        address, kind = bytes(frame[start - 8 : start]), 1
    else:
        address, kind = bytes(frame[start - 32 : start]), 4
    pseudo = 0xFFFF - checksum(address + struct.pack(">IHH", length, 0, 6))
    frame[start + 16 : start + 18] = struct.pack(">H", pseudo)
    if headers[TCP].flags.C:
        kind |= 0x80
    return struct.pack("=BBHHHH", 1, kind if size else 0, len(frame) - len(payload), size, start, 16) + bytes(frame)


def _segments(headers: Packet, payload: bytes, size: int) -> Iterator[bytes]:
    """Return the segments as RFC 9293 describes them; scapy computes lengths and checksums."""
    parts = [payload[at : at + size] for at in range(0, len(payload), size)] if size else [payload]
    for index, part in enumerate(parts):
        segment = headers.copy()
        tcp = segment[TCP]
        tcp.seq = (tcp.seq + index * size) % 2**32
        if index + 1 < len(parts):
            tcp.flags = str(tcp.flags).replace("P", "").replace("F", "")
        if index > 0:
            tcp.flags = str(tcp.flags).replace("C", "")
        if IP in segment:
            segment[IP].id = (segment[IP].id + index) % 2**16
        yield bytes(segment / Raw(part))


@pytest.mark.parametrize("output", [pytest.param("xdp", marks=pytest.mark.root), "packet"])
def test_segments_are_those_of_scapy(directory: Path, bump: Path, output: str) -> None:
    """AF_XDP takes complete frames, so the port segments; behind AF_PACKET without offloads, the kernel does."""
    samples = [
        (headers, bytes(range(256)) * 300, length, size)
        for headers in _headers()
        for length, size in ((60_000, 1400), (2800, 1400), (2801, 1400), (700, 0), (999, 100))
    ]
    sent = [_left_to_a_card(headers, payload[:length], size) for headers, payload, length, size in samples]
    expected = [
        segment.hex()
        for headers, payload, length, size in samples
        for segment in _segments(headers, payload[:length], size)
    ]
    with Wire(directory) as wire:
        if output == "packet":
            wire.run("nf", "ethtool", "-K", "n1", "tso", "off", "gso", "off", "tx", "off")
        with _start(wire, bump, "large", output) as nf:
            sink = wire.peer("b", "frame_sink", "b0", SOURCE, str(len(expected)))
            assert wire.peer("a", "offloaded_source", "a0", lines=[frame.hex() for frame in sent]).result() == len(sent)
            assert sink.result() == expected
            merged = sum(size > 0 for _, _, _, size in samples)
            assert nf.ask("status")["ports"][0]["receive_merged"] == merged
