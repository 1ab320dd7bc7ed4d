"""The arithmetic of ``uno-lab tiara``, and the frames of its real servers."""

import random

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from lab.tiara.counting import HIT, MISS, SLOW, Event, Summary, kept_at, share_of_hits
from lab.tiara.server_nat import rewritten

MACS = bytes.fromhex("020000001001020000080011")


def test_failures_of_the_failed_server_are_not_lost_and_all_others_are() -> None:
    summary = Summary(sent=100, failed=9)
    summary.events = [Event("a", 50, 3, 4), Event("b", 40, 5, 2)]
    assert [event.lost for event in summary.events] == [0, 3]
    # 3 and 2 are explained; 3 of the second event and 1 outside of both are not.
    assert summary.lost == 4
    assert not summary.check().holds


def test_the_share_counts_what_came_between() -> None:
    before = {HIT: 10, MISS: 5, SLOW: 1}
    after = {HIT: 100, MISS: 10, SLOW: 6}
    assert share_of_hits(before, after) == 0.9
    assert share_of_hits(after, after) == 0
    assert share_of_hits(before, after | {MISS: 110}, syns=100) == 0.9


def test_kept_connections_are_rounded_up() -> None:
    assert kept_at({"a": 100, "b": 201}, 12) == {"a": 4, "b": 9}
    assert kept_at({}, 12) == {}


def test_answers_get_the_vips_source_and_right_checksums() -> None:
    rng = random.Random(1624)
    server, vip = (bytes([10, 8, 0, 11]), 8080), (bytes([192, 0, 2, 1]), 80)
    for _ in range(200):
        payload = Raw(rng.randbytes(rng.randrange(60)))
        tcp = {"dport": rng.randrange(1, 65536), "seq": rng.randrange(1 << 32), "flags": "A"}
        frame = Ether() / IP(src="10.8.0.11", dst="198.51.100.7", id=rng.randrange(65536)) / TCP(sport=8080, **tcp)
        expected = Ether(MACS + b"\x08\x00" + bytes(frame[IP] / payload))
        expected[IP].src, expected[TCP].sport = "192.0.2.1", 80
        del expected[IP].chksum, expected[TCP].chksum
        assert rewritten(bytes(frame / payload), server, vip, MACS) == bytes(expected)


def test_other_frames_are_left_alone() -> None:
    server, vip = (bytes([10, 8, 0, 11]), 8080), (bytes([192, 0, 2, 1]), 80)
    for other in (IP(src="10.8.0.12") / TCP(sport=8080), IP(src="10.8.0.11") / TCP(sport=81), Raw(b"short")):
        assert rewritten(bytes(Ether() / other), server, vip, MACS) is None
