"""Requests that do not fit into one message."""

import struct
from collections.abc import Iterator

import pytest

from tests.oracle import openflow as of
from tests.oracle.compare import Comparison
from tests.oracle.conftest import binary
from tests.oracle.peer import ask, frame
from tests.oracle.test_openflow14 import without_identity

_MORE, _ONE_MESSAGE = 1, 0xFFFF


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with Comparison(2, binary()) as comparison:
        yield comparison


def features(flags: int, body: bytes, version: int) -> bytes:
    """Return a request for features of tables, which may change them."""
    return frame(of.MULTIPART_REQUEST, struct.pack("!HH4x", of.TABLE_FEATURES, flags) + body, version)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("change", [b"", b"\xff"], ids=["as they are", "another table"])
def test_a_change_of_all_tables_is_answered_as_by_one_bridge(
    comparison: Comparison, version: int, change: bytes
) -> None:
    told = ask(comparison.targets[1], features(0, b"", version), version=version)
    bodies = [bytes.fromhex(message)[16:] for message in told]
    assert sum(map(len, bodies)) > _ONE_MESSAGE
    bodies[-1] = bodies[-1][:2] + change + bodies[-1][2 + len(change) :]
    last = len(bodies) - 1
    request = b"".join(features(_MORE if number < last else 0, body, version) for number, body in enumerate(bodies))
    ours, reference = (
        without_identity(ask(target, request, version=version), version) for target in comparison.targets
    )
    assert ours == reference
