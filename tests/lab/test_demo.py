"""``make demo`` succeeds repeatedly as an ordinary user."""

import json

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(600)]

CODE = "import sys; sys.argv = ['uno-lab', 'demo', '--json']; from lab.cli import main; main()"
ROUNDS = 10


def check_that_it_holds(run_as_user) -> None:
    done = run_as_user(CODE, timeout=500)
    if "is not installed" in done.stderr:
        pytest.skip(f"that user may not run this project's programs: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["holds"]
    figures = told["figures"]
    assert figures["requests"] > 1000
    assert figures["packets"] > 1000
    names = ("failed", "lost_in_moves", "duplicated", "reordered", "flaps")
    assert [figures[name] for name in names] == [0, 0, 0, 0, 0]
    assert len(figures["freeze_us"]) == figures["moves"] == 1
    assert figures["outage_s"] is not None


def test_the_demo_succeeds(run_as_user) -> None:
    check_that_it_holds(run_as_user)


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_the_demo_succeeds_repeatedly(run_as_user) -> None:
    for _ in range(ROUNDS):
        check_that_it_holds(run_as_user)
