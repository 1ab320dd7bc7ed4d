"""Reports detect every kind of fault."""

import struct

import pytest

from lab.frames import DATA, END, SIZE_MAX, SIZE_MIN, Endpoint, FrameMaker, Mark, read_mark
from lab.tally import StreamReport, Tally

MS = 1_000_000
A = Endpoint("02:00:00:00:00:01", "10.0.0.1")
B = Endpoint("02:00:00:00:00:02", "10.0.0.2")


def tally_of(*numbers: int) -> Tally:
    tally = Tally()
    for at, number in enumerate(numbers):
        tally.arrived(number, at * MS, at * MS, "eth0")
    return tally


def test_gaps_name_the_missing_frames_and_their_times() -> None:
    tally = Tally()
    for number, at_s in ((0, 1), (4, 5), (2, 6), (8, 9), (6, 10), (7, 10), (5, 10)):
        tally.arrived(number, at_s * 1_000_000_000, at_s * 1_000_000_000, "eth0")
    report = tally.report(sent=12)
    assert report.holes == [(2, 5.0)]
    assert StreamReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("numbers", "sent", "lost", "duplicated", "reordered"),
    [
        ((0, 1, 2, 3), 4, 0, 0, 0),
        ((0, 1, 3), 4, 1, 0, 0),
        ((1, 2, 3), 4, 1, 0, 0),
        ((0, 1, 2), 4, 1, 0, 0),
        ((), 4, 4, 0, 0),
        ((0, 1, 1, 2, 3, 1), 4, 0, 2, 0),
        ((0, 2, 1, 3), 4, 0, 0, 1),
        ((3, 0, 1, 2), 4, 0, 0, 3),
        ((0, 10_000), 10_001, 9_999, 0, 0),
    ],
)
def test_frames_are_counted(numbers: tuple[int, ...], sent: int, lost: int, duplicated: int, reordered: int) -> None:
    report = tally_of(*numbers).report(sent)
    assert (report.lost, report.duplicated, report.reordered) == (lost, duplicated, reordered)


def test_gaps_and_delays_are_measured() -> None:
    tally = Tally()
    for number, sent_ms, at_ms in ((0, 0, 1), (1, 1, 2), (1, 1, 40), (2, 2, 52), (3, 53, 53)):
        tally.arrived(number, sent_ms * MS, at_ms * MS, "eth0" if at_ms < 50 else "eth1")
    report = tally.report(4)
    assert report.longest_gap_ms == 50  # the duplicate at 40 ms does not count as service
    assert report.delay_max_ms == 50
    assert report.by_interface == {"eth0": 3, "eth1": 2}


def test_an_unknown_number_of_sent_frames_is_not_zero_loss() -> None:
    report = tally_of(0, 1).report(None)
    assert report.lost is None
    assert report.with_sender(sent=5, longest_pause_ms=1.0).lost == 3
    assert StreamReport.from_json(report.to_json()) == report


def checksum_is_right(data: bytes) -> bool:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


@pytest.mark.parametrize("size", [SIZE_MIN, SIZE_MIN + 1, 128, SIZE_MAX])
@pytest.mark.parametrize(("number", "sent_ns", "kind"), [(0, 0, DATA), (2**40, 2**63 - 1, DATA), (65535, 1, END)])
@pytest.mark.parametrize("flows", [1, 10_000, 65536])
def test_frames_are_valid_and_read_back(size: int, number: int, sent_ns: int, kind: int, flows: int) -> None:
    frame = bytes(FrameMaker(A, B, 7, size, flows).make(number, sent_ns, kind))
    assert int.from_bytes(frame[34:36], "big") == (A.port + number % flows) % 65536
    assert len(frame) == size
    assert frame[:14].hex() == "0200000000020200000000010800"
    assert checksum_is_right(frame[14:34])
    pseudo_header = frame[26:34] + struct.pack(">HH", 17, size - 34)
    assert checksum_is_right(pseudo_header + frame[34:])
    assert read_mark(frame) == Mark(kind, 7, number, sent_ns)


def test_foreign_frames_are_ignored() -> None:
    frame = FrameMaker(A, B, 7, 128).make(1, 1)
    assert read_mark(frame[:60]) is None
    frame[42] ^= 1
    assert read_mark(frame) is None


@pytest.mark.parametrize("size", [SIZE_MIN - 1, SIZE_MAX + 1])
def test_impossible_frame_sizes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"frame size {size}"):
        FrameMaker(A, B, 1, size)
