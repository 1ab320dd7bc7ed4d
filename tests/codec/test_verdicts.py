"""Open vSwitch refuses every damaged request that the codec refuses, with the same error."""

import random
import struct
from collections import Counter

import pytest

from tests.codec.codec import Codec, code_of
from tests.codec.damage import damaged
from tests.codec.osken import written
from tests.codec.requests import messages
from tests.codec.wire import Connection, error_of, xid_of

DAMAGED = 4000
FLOW_MOD, GROUP_MOD, MULTIPART_REQUEST = 14, 15, 18
# Without requests that change the connection's rights, or that Open vSwitch does not answer.
KINDS = {9, 13, FLOW_MOD, GROUP_MOD, 16, 17, MULTIPART_REQUEST, 22, 29}


NICIRA = 0x2320
# The codec does not check the arguments of actions: of two faults in a message, Open vSwitch may report one of these
# first. BAD_SET_LEN is here because Open vSwitch reports it instead of BAD_SET_TYPE if the hash of an unknown field
# happens to equal that of a field with another length (nxm_field_by_header).
BAD_ARGUMENT, BAD_SET_TYPE, BAD_SET_LEN, BAD_SET_ARGUMENT = (2, 5), (2, 13), (2, 14), (2, 15)
ARGUMENTS = {BAD_ARGUMENT, BAD_SET_TYPE, BAD_SET_LEN, BAD_SET_ARGUMENT}
UNMAPPED_OPTION = (0xFFFF, NICIRA, 37)


def is_left_to_open_vswitch(error: tuple[int, ...] | None, message: bytes) -> bool:
    """Tell whether an error may concern something that the codec does not check.

    That is the content of Nicira's actions, other actions' arguments, and whether the switch maps a tunnel option.
    """
    return error in ARGUMENTS or error == UNMAPPED_OPTION or NICIRA.to_bytes(4, "big") in message


def is_piece(message: bytes) -> bool:
    """Tell whether Open vSwitch waits for another part before it checks a multipart request."""
    return message[1] == MULTIPART_REQUEST and message[11:12] != b"" and message[11] & 1 == 1


@pytest.mark.parametrize("seed", range(3))
def test_damaged_requests_get_the_error_of_open_vswitch(codec: Codec, connection: Connection, seed: int) -> None:
    chance = random.Random(seed)
    originals = [frame for frame in map(written, messages().values()) if frame[1] in KINDS]
    sent = {}
    for xid in range(1, DAMAGED + 1):
        original = chance.choice(originals)
        sent[xid] = damaged(original[:4] + struct.pack("!I", xid) + original[8:], chance)
    answers: dict[int, bytes] = {}
    batch = list(sent.values())
    for start in range(0, DAMAGED, 50):
        for answer in connection.ask(*batch[start : start + 50]):
            if error_of(answer):
                answers.setdefault(xid_of(answer), answer)
    seen: Counter[tuple[int, ...]] = Counter()
    tolerated = 0
    for xid, message in sent.items():
        ours = codec.decode(message)
        if "refused" not in ours or is_piece(message):
            continue
        note = f"{ours['refused']} {message.hex()}"
        assert xid in answers, note
        theirs = error_of(answers[xid])
        if theirs != code_of(ours["refused"]) and is_left_to_open_vswitch(theirs, message):
            tolerated += 1
            continue
        assert code_of(ours["refused"]) == theirs, note
        assert ours["answer"] == answers[xid].hex(), note
        seen[code_of(ours["refused"])] += 1
    assert seen.total() > DAMAGED / 10
    assert len(seen) > 20
    assert tolerated < seen.total() / 50
