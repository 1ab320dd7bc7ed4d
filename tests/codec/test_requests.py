"""Messages of os-ken are decoded with the same meaning, and encoded again to the same bytes."""

import pytest

from tests.codec.codec import Codec
from tests.codec.osken import XID, assert_same, written
from tests.codec.requests import messages

MESSAGES = messages()
BAD_ACTION_TYPE = (2, 0)
# Open vSwitch lacks these actions.
UNSUPPORTED = {f"flow-action_{name}" for name in ("push_pbb", "pop_pbb", "copy_ttl_out", "copy_ttl_in")}


@pytest.mark.parametrize("name", MESSAGES)
def test_requests_of_os_ken_round_trip(codec: Codec, name: str) -> None:
    message = MESSAGES[name]
    frame = written(message)
    if name in UNSUPPORTED:
        assert (codec.decode(frame)["refused"]["type"], codec.decode(frame)["refused"]["code"]) == BAD_ACTION_TYPE
        return
    fields = codec.round_trip(frame)
    assert codec.decode(frame)["xid"] == XID
    if "versions" in fields:  # os-ken writes no bitmap: all versions up to the header's
        fields = {} if fields == {"versions": 0b11110} else fields
    assert_same(fields, message)
