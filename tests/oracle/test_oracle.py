"""oneswitchd over several switches behaves as one Open vSwitch bridge; see docs/oracle.md."""

import dataclasses
import os
from pathlib import Path

import pytest

from tests.oracle.compare import Comparison, DifferenceError
from tests.oracle.explore import explore
from tests.oracle.replay import outcome, shrunk
from tests.oracle.steps import Script

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
_FOUND = Path(os.environ.get("ORACLE_FOUND", "target/oracle-found"))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_scripts_of_earlier_differences_pass(comparison: Comparison, path: Path) -> None:
    script = Script.read(path)
    found = outcome(comparison, dataclasses.replace(comparison.script, steps=script.steps))
    assert found is None, f"{path.name}: {found}"


def test_a_short_run_shows_no_difference(comparison: Comparison) -> None:
    # Only the links differ from those of another server.
    _explore(comparison, steps=250 if "pcie" in comparison.links else 800, start=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_long_run_shows_no_difference(comparison: Comparison) -> None:
    _explore(
        comparison, steps=int(os.environ.get("ORACLE_STEPS", "10000")), start=int(os.environ.get("ORACLE_SEED", "2"))
    )


def _explore(comparison: Comparison, steps: int, start: int) -> None:
    difference = explore(comparison, steps, start)
    if difference is not None:
        pytest.fail(_report(comparison, difference), pytrace=False)
    where = f"{comparison.script.switches} switches, executed at {comparison.script.executor}"
    print(f"{comparison.steps} steps over {where}, without a difference\nDrawn: {comparison.tally}")


def _report(comparison: Comparison, difference: DifferenceError) -> str:
    """Shrink the run, write it as a script, and fail with its path."""
    steps, script = comparison.steps, comparison.script
    short = shrunk(comparison, script)
    again = outcome(comparison, short)
    if again is None:
        short, again = script, difference
        again.add_note("It did not happen again when the same steps were played once more.")
    short.note = str(again)
    path = _FOUND / f"{script.server}-step-{steps}.json"
    short.write(path)
    return f"{again}\nPlay it again: python -m tests.oracle.replay {path}"
