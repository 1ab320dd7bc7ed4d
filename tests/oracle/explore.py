"""Random runs until the two worlds differ."""

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from server.names import HOME
from tests.oracle.compare import Comparison, DifferenceError
from tests.oracle.draws.model import Model
from tests.oracle.machine import begin, step

_RUN = 40
"""Steps of a run; it then ends with deleting everything."""


def explore(comparison: Comparison, steps: int, start: int) -> DifferenceError | None:
    """Draw and play runs until a number of steps.

    Args:
        comparison: its `steps` are counted from zero, its `script` is the last run.
        steps: minimum number of steps.
        start: selects the runs.

    Returns:
        The first difference.
    """
    comparison.steps = 0
    number = start * 1000
    while comparison.steps < steps:
        difference = _runs(comparison, number)
        if difference is not None:
            return difference
        number += 1
    return None


def _runs(comparison: Comparison, number: int) -> DifferenceError | None:
    found: list[DifferenceError] = []

    @seed(number)
    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # `shrunk` works on scripts and is faster than hypothesis' own shrinking
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        verbosity=Verbosity.quiet,
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        comparison.reset()
        model = Model(comparison.stateful, comparison.stateful and comparison.script.executor == HOME)
        try:
            for each in data.draw(begin(model)):
                comparison.play(each)
            for _ in range(_RUN):
                comparison.play(data.draw(step(model)))
            comparison.finish()
        except DifferenceError as difference:
            found.append(difference)
            raise _FoundError from difference

    try:
        run()
    except (_FoundError, HypothesisException):
        if not found:
            raise
    return found[0] if found else None


class _FoundError(BaseException):
    """Passes through hypothesis, which would otherwise replay the run at once.

    hypothesis may still report inconsistent runs: not every difference shows each time.
    """
