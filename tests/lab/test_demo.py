"""``make demo`` succeeds repeatedly as an ordinary user."""

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(600)]

ROUNDS = 10


def check_that_it_holds(story_as_user) -> None:
    figures = story_as_user("demo", "--json", timeout=500)["figures"]
    assert figures["requests"] > 1000
    assert figures["packets"] > 1000
    names = ("failed", "lost_in_moves", "duplicated", "reordered", "flaps")
    assert [figures[name] for name in names] == [0, 0, 0, 0, 0]
    assert len(figures["freeze_us"]) == figures["moves"] == 1
    assert figures["outage_s"] is not None


def test_the_demo_succeeds(story_as_user) -> None:
    check_that_it_holds(story_as_user)


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_the_demo_succeeds_repeatedly(story_as_user) -> None:
    for _ in range(ROUNDS):
        check_that_it_holds(story_as_user)
