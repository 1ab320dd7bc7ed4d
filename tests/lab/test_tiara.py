"""``uno-lab tiara`` loses nothing but the connections of the servers that fail, as an ordinary user."""

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]

EVENTS = [
    "the T-NIC is killed", "the T-NIC is back", "the T-NIC hangs",
    "smux0 is killed", "smux0 is back, without its state", "smux1 hangs",
    "web1 is removed", "web2 hangs", "web3 is killed",
]  # fmt: skip
LIMIT_S = 180


def test_other_parts_notice_nothing_of_a_failure(story_as_user) -> None:
    figures = story_as_user("tiara", "--format=json", timeout=LIMIT_S)["figures"]
    assert [event["name"] for event in figures["events"]] == EVENTS
    assert [event["lost"] for event in figures["events"]] == [0] * len(EVENTS)
    assert figures["lost"] == 0
    assert [event["failed"] for event in figures["events"][:6]] == [0] * 6
    assert figures["fast_share"] >= 0.9
    assert figures["flooded_share"] >= 0.99
    assert figures["evicted"] >= 4
    assert figures["requests"] > 500
