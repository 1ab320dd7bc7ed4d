"""The state machines of migrations and reconciler under every single fault and pairs of faults."""

from collections.abc import Iterable, Iterator

import pytest

from tests.nfagent.faults import explore, pairs, scenarios
from tests.nfagent.faults.run import Lab, Result, lab

_SHOWN = 20
_EVERY_DAY = [
    name for name in scenarios.ALL if name not in ("memfd-home", "copy", "remote", "pin")
]  # the others resemble these
_SAMPLE = 0.0002  # fraction of the pairs, every day
_SEED = 12
_FOUND = [
    "delete:5.lose+6.lost-hub",  # without a process, the reason for the pending deletion was missing
    "configure:1.refuse+2.refuse",  # the reason of a refusal could not be stored and was never reported
    "configure:1.refuse+3.refuse",  # another reason replaced it for good
    "start:7.lost-nic+25.refuse",  # a process that could not be ended ran next to its successor
    "memfd:2.lost-nic+22.refuse",  # the same during a migration
    "memfd-home:60.lost-nic+64.refuse",
    "copy:26.down-nic+32.crash",  # a row said "stopping", its process ran, and the old one was thawed
    "remote:31.down-nic+33.refuse",  # a location was back; its process ran on but counted as ended
    "memfd:0.refuse+4.refuse",  # the migration restarted after a rollback, and its report kept the rollback
]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("faults")) as made:
        yield made


def _check(results: Iterable[Result]) -> None:
    """Replay one with ``python -m tests.nfagent.faults.explore NAME``."""
    runs, bad = 0, list[str]()
    for result in results:
        runs += 1
        bad += [f"{result.name}: {each}" for each in result.violations[:1]]
    assert runs > 0
    assert not bad, f"{len(bad)} of {runs} runs:\n" + "\n".join(bad[:_SHOWN])


@pytest.mark.parametrize("scenario", scenarios.ALL)
def test_a_faultless_run_is_correct(laboratory: Lab, scenario: str) -> None:
    result = laboratory.run(scenario)
    _check([result])
    assert result.outcomes == scenarios.ALL[scenario].outcomes


@pytest.mark.parametrize(
    "scenario", [name if name in _EVERY_DAY else pytest.param(name, marks=pytest.mark.soak) for name in scenarios.ALL]
)
def test_every_fault_is_recovered_from(laboratory: Lab, scenario: str) -> None:
    _check(explore.singles(laboratory, scenario))


@pytest.mark.parametrize("scenario", scenarios.ALL)
def test_sampled_pairs_of_faults_are_recovered_from(laboratory: Lab, scenario: str) -> None:
    _check([laboratory.run(scenario), *explore.pairs(laboratory, scenario, _SAMPLE, _SEED)])


@pytest.mark.parametrize("name", _FOUND)
def test_runs_that_failed_once_recover(laboratory: Lab, name: str) -> None:
    _check([laboratory.replay(name)])


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("scenario", scenarios.ALL)
def test_every_pair_of_faults_is_recovered_from(laboratory: Lab, scenario: str) -> None:
    _check(pairs.distinct(laboratory, scenario))
