"""Frames of many flows, their records, and the counts from these."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab.flow_frames import FORMS, FRAME_BYTES, RECORD, FlowFrames, Service
from lab.flow_tally import Arrival, FlowTally

SOURCE, TARGET = "02:00:00:00:00:04", "02:00:00:00:00:05"


@settings(deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 2**60), st.integers(1, 2**22))
def test_frames_of_flows_are_recognised_even_rewritten_or_inside_a_tunnel(number: int, now: int, flows: int) -> None:
    frame = FlowFrames(SOURCE, Service(TARGET, "192.0.2.1", 53), flows).make(number, now)
    assert len(frame) == FRAME_BYTES
    parsed = Ether(bytes(frame))
    flow = number % flows
    assert (parsed.src, parsed.dst, parsed[IP].dst, parsed[UDP].dport) == (SOURCE, TARGET, "192.0.2.1", 53)
    assert int.from_bytes(bytes(map(int, parsed[IP].src.split("."))), "big") == 0x6440_0000 + flow // 64
    assert parsed[UDP].sport == 1024 + flow % 64 * 997
    told = parsed[IP].chksum
    del parsed[IP].chksum
    assert Ether(bytes(parsed))[IP].chksum == told
    outer = bytes(Ether(src=TARGET, dst=SOURCE) / IP(src="10.0.1.2", dst="10.0.1.13", proto=4))
    rewritten = frame[:30] + bytes([10, 0, 1, 13]) + frame[34:]
    for mode, arrived in (("ipip", bytearray(outer) + frame[14:]), ("nat", rewritten)):
        record = FORMS[mode].note(arrived + bytes(9), struct.pack("qq", 7, 8))
        assert RECORD.unpack(record) == (number, now, flow, bytes([10, 0, 1, 13]), 7, 8)


def test_each_flow_has_its_own_addresses() -> None:
    frames = FlowFrames(SOURCE, Service(TARGET, "192.0.2.1", 53), 200)
    assert len({bytes(frames.make(number, 0)[26:36]) for number in range(1000)}) == 200


def test_renewed_flows_have_other_ports_in_each_round() -> None:
    frames = FlowFrames(SOURCE, Service(TARGET, "192.0.2.1", 53), 100, renewed=True)
    assert len({bytes(frames.make(number, 0)[26:36]) for number in range(1000)}) == 1000


def test_the_frames_of_a_burst_belong_to_one_flow_and_arrive_as_others() -> None:
    """Divide a burst as Linux does (Linux, net/ipv4/udp_offload.c: __udp_gso_segment)."""
    frames = FlowFrames(SOURCE, Service(TARGET, "192.0.2.1", 53), 100)
    burst = frames.burst(10 * 8, 8, 5)
    flags, kind, headers, each, start, offset = struct.unpack_from("<BBHHHH", burst)
    assert (flags, kind, headers, start, offset) == (1, 5, 42, 34, 6)
    whole = Ether(burst[10:])
    assert (whole[IP].len, whole[UDP].len) == (len(burst) - 10 - 14, len(burst) - 10 - 34)
    told, partial = whole[IP].chksum, whole[UDP].chksum
    del whole[IP].chksum
    again = Ether(bytes(whole))
    assert again[IP].chksum == told
    # Of a partial checksum the field holds the sum of the pseudo header, to which the rest is added.
    del again[UDP].chksum
    rest = bytes(again[UDP])[:6] + bytes(2) + bytes(again[UDP].payload)
    assert ~fold(partial + sum(struct.unpack(f">{len(rest) // 2}H", rest))) & 0xFFFF == Ether(bytes(again))[UDP].chksum
    parts = [burst[10 + headers + at : 10 + headers + at + each] for at in range(0, len(burst) - 10 - headers, each)]
    alone = bytes(frames.make(10, 0)[:headers])
    records = [FORMS["nat"].note(bytearray(alone + part), struct.pack("qq", 7, 8)) for part in parts]
    assert [RECORD.unpack(record)[:3] for record in records] == [(10 * 8 + number, 5, 10) for number in range(8)]
    assert burst[10:22] == alone[:12]
    assert bytes(whole)[26:38] == alone[26:38]


def fold(total: int) -> int:
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def arrivals(*seen: tuple[int, int, int]) -> list[Arrival]:
    return [Arrival(number, flow, bytes([backend]), 0, 0) for number, flow, backend in seen]


def test_loss_duplicates_and_strays_are_counted() -> None:
    tally = FlowTally()
    tally.add(arrivals((0, 0, 1), (1, 1, 2), (3, 1, 2), (2, 0, 1)))  # of different flows, so not reordered
    assert (tally.received, tally.duplicated, tally.reordered, tally.strayed) == (4, 0, 0, 0)
    tally.add(arrivals((6, 0, 1), (4, 0, 1), (6, 0, 1), (8, 0, 3), (10, 0, 3), (9, 1, 1)))
    assert (tally.received, tally.duplicated, tally.reordered, tally.strayed) == (9, 1, 1, 2)
    assert tally.lost(0, 12) == [5, 7, 11]
    assert tally.lost(5, 7) == [5]
    assert tally.lost(200_000, 200_002) == [200_000, 200_001]


@settings(deadline=None)
@given(st.permutations(range(12)), st.integers(1, 4))
def test_reordering_is_counted_per_flow(order: list[int], flows: int) -> None:
    tally = FlowTally()
    tally.add(Arrival(number, number % flows, b"", 0, 0) for number in order)
    late = 0
    for position, number in enumerate(order):
        late += any(before > number and (before - number) % flows == 0 for before in order[:position])
    assert (tally.reordered, tally.duplicated, tally.lost(0, 12)) == (late, 0, [])
