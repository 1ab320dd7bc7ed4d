"""Two matches are equal, or one covers or overlaps the other, exactly as in Open vSwitch's own tables.

A pair of matches A and B is tested in three tables. In the first both are added with one priority: one rule remains if
they are equal. In the second B is added, and A deleted non-strictly, limited to B's cookie: B is deleted if A covers
it. In the third B is added after A with CHECK_OVERLAP: it is refused if they overlap (and are not equal).
"""

import struct
from collections import Counter
from typing import Any

import pytest

from tests.codec.codec import Codec, code_of
from tests.codec.conftest import BRIDGE
from tests.codec.oxm import Generator
from tests.codec.wire import Connection, error_of, frame, xid_of
from tests.unoctl.dummy_ovs import DummySwitch

PAIRS = 2000
EQUAL, COVERS, OVERLAPS = 1, 2, 3
ADD, DELETE, CHECK_OVERLAP = 0, 3, 2
ANY = 0xFFFFFFFF
FLOW_MOD, MULTIPART_REQUEST, MULTIPART_REPLY = 14, 18, 19
OVERLAP_ERROR = (5, 3)


def match_of(oxm: bytes) -> bytes:
    length = 4 + len(oxm)
    return struct.pack("!HH", 1, length) + oxm + bytes(-length % 8)


def flow_mod(
    xid: int, oxm: bytes, table: int, command: int, priority: int, *, cookie: int = 0, flags: int = 0
) -> bytes:
    """A deletion reaches only rules with the cookie; 0 stands for any."""
    mask = 0xFFFFFFFFFFFFFFFF if command == DELETE and cookie else 0
    head = struct.pack("!QQBBHHHIIIHxx", cookie, mask, table, command, 0, 0, priority, ANY, ANY, ANY, flags)
    return frame(FLOW_MOD, xid, head + match_of(oxm))


def rules(codec: Codec, connection: Connection, table: int) -> list[dict[str, Any]]:
    request = struct.pack("!HH4xBxxxII4xQQ", 1, 0, table, ANY, ANY, 0, 0) + match_of(b"")
    found = []
    for answer in connection.ask(frame(MULTIPART_REQUEST, 1, request)):
        assert answer[1] == MULTIPART_REPLY
        found += codec.round_trip(answer)["body"]
    return found


@pytest.fixture(scope="module", autouse=True)
def mapped(switch: DummySwitch) -> None:
    switch.ofctl("add-tlv-map", BRIDGE, "{class=0xffff,type=0,len=4}->tun_metadata0")


@pytest.mark.parametrize("seed", range(3))
def test_matches_compare_as_in_open_vswitch(codec: Codec, connection: Connection, seed: int) -> None:
    generator = Generator(seed)
    pairs = []
    for _ in range(PAIRS):
        fields = generator.match()
        pairs.append((b"".join(fields), b"".join(generator.related(fields))))
    connection.ask(flow_mod(1, b"", 0xFF, DELETE, 0))
    refused: dict[int, tuple[int, ...]] = {}

    def say(*messages: bytes) -> None:
        for answer in connection.ask(*messages):
            error = error_of(answer)
            if error:
                refused[xid_of(answer)] = error

    for number, (a, b) in enumerate(pairs, start=1):
        xid = number << 4
        say(
            flow_mod(xid, a, EQUAL, ADD, number),
            flow_mod(xid + 1, b, EQUAL, ADD, number),
            flow_mod(xid + 2, b, COVERS, ADD, number, cookie=number),
            flow_mod(xid + 3, a, COVERS, DELETE, 0, cookie=number),
            flow_mod(xid + 4, a, OVERLAPS, ADD, number),
            flow_mod(xid + 5, b, OVERLAPS, ADD, number, flags=CHECK_OVERLAP),
        )
    left = Counter(rule["priority"] for rule in rules(codec, connection, EQUAL))
    uncovered = {rule["priority"] for rule in rules(codec, connection, COVERS)}
    seen = Counter()
    for number, (a, b) in enumerate(pairs, start=1):
        xid = number << 4
        ours = codec.relate(a, b)
        note = f"{a.hex()} {b.hex()}"
        first = refused.get(xid) or refused.get(xid + 1)
        if "refused" in ours or first:
            assert first, (note, ours)
            assert "refused" in ours, (note, first)
            assert first == code_of(ours["refused"]), note
            seen["refused"] += 1
            continue
        theirs = {
            "equal": left[number] == 1,
            "covers": number not in uncovered,
            "overlaps": refused.get(xid + 5) == OVERLAP_ERROR or left[number] == 1,
        }
        assert {key: ours[key] for key in theirs} == theirs, note
        seen.update(key for key, holds in theirs.items() if holds)
    # The pairs covered enough of each relation.
    assert seen["equal"] > PAIRS / 20
    assert PAIRS / 5 < seen["covers"] < PAIRS * 4 / 5
    assert PAIRS / 5 < seen["overlaps"] < PAIRS * 9 / 10
    assert seen["refused"] < PAIRS / 10
