"""oneswitchd over several switches and one Open vSwitch bridge do the same; see docs/oracle.md."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from tests.oracle.compare import Comparison, DifferenceError
from tests.oracle.machine import Model, step
from tests.oracle.replay import outcome, shrunk
from tests.oracle.steps import Script

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
_STEPS = 40
_FOUND = Path(os.environ.get("ORACLE_FOUND", "target/oracle-found"))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_differed(comparison: Comparison, path: Path) -> None:
    found = outcome(comparison, Script(comparison.script.switches, Script.read(path).steps))
    assert found is None, f"{path.name}: {found}"


@pytest.mark.timeout(120)
def test_no_difference_in_a_short_run(comparison: Comparison) -> None:
    _explore(comparison, steps=800, start=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_difference_in_a_long_run(comparison: Comparison) -> None:
    _explore(
        comparison, steps=int(os.environ.get("ORACLE_STEPS", "10000")), start=int(os.environ.get("ORACLE_SEED", "2"))
    )


def _explore(comparison: Comparison, steps: int, start: int) -> None:
    """Draw and play runs until there were so many steps."""
    comparison.steps = 0
    number = start * 1000
    while comparison.steps < steps:
        _runs(comparison, number)
        number += 1
    print(f"{comparison.steps} steps over {comparison.script.switches} switches without a difference")


def _runs(comparison: Comparison, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # `shrunk` knows scripts, and is faster than shrinking what was drawn
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        verbosity=Verbosity.quiet,
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        comparison.reset()
        model = Model()
        try:
            for _ in range(_STEPS):
                comparison.play(data.draw(step(model)))
            comparison.finish()
        except DifferenceError as difference:
            raise _FoundError(difference) from difference

    try:
        run()
    except _FoundError as found:
        pytest.fail(_report(comparison, found.difference, number), pytrace=False)


class _FoundError(BaseException):
    """Passes through hypothesis, which would play the run again at once, and wonder if it does not fail again."""

    def __init__(self, difference: DifferenceError) -> None:
        super().__init__(difference)
        self.difference = difference


def _report(comparison: Comparison, difference: DifferenceError, number: int) -> str:
    """Shrink, write a script, and say where it is."""
    script = comparison.script
    short = shrunk(comparison, script)
    again = outcome(comparison, short)
    if again is None:
        short, again = script, difference
        again.add_note("It did not happen again when the same steps were played once more.")
    short.note = str(again)
    path = _FOUND / f"{script.switches}-switches-{number}.json"
    short.write(path)
    return f"{again}\nPlay it again: python -m tests.oracle.replay {path}"
