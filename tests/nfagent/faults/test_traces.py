"""The agent's actions, word by word, in migrations with and without faults."""

from collections.abc import Iterator

import pytest

from tests.nfagent.faults import traces
from tests.nfagent.faults.run import Lab, lab


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("traces")) as made:
        yield made


@pytest.mark.parametrize("name", traces.RUNS)
def test_a_run_matches_its_trace(laboratory: Lab, name: str) -> None:
    """After an intended change, rewrite the traces with ``python -m tests.nfagent.faults.traces``."""
    assert traces.trace(laboratory, name).splitlines() == (traces.FILES / f"{name}.txt").read_text().splitlines()


def test_every_trace_has_a_run() -> None:
    assert {path.stem for path in traces.FILES.iterdir()} == set(traces.RUNS)


def test_a_location_where_no_start_succeeds_is_abandoned(laboratory: Lab) -> None:
    moved, none = (traces.trace(laboratory, name) for name in ("new-one-cannot-be-replaced", "nothing-can-be-started"))
    assert "'outcome': 'rolled-back', 'reason': 'requested by the test'" in moved
    assert "'outcome': 'failed', 'reason': 'requested by the test'" in none
