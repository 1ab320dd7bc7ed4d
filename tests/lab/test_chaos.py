"""``uno-lab chaos`` breaks a server under traffic; each outage is shown, and ends."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.chaos.faults import KINDS, Fault, draw
from lab.chaos.tally import Outcome, Tally
from lab.directory import ENVIRONMENT

_FAULTS = int(os.environ.get("CHAOS_FAULTS", "200"))
_SEED = int(os.environ.get("CHAOS_SEED", "1"))
FAULT = Fault("kill", "lb1", 1.0)
SHOWN = {"dashboard": 1.0, "metric": 2.0, "faults": 3.0}


def _play(directory: Path, faults: int, seed: int) -> dict[str, Any]:
    code = f"from lab.cli import app; app(['chaos', '--faults={faults}', '--seed={seed}', '--format=json'])"
    variables = os.environ | {ENVIRONMENT: f"{directory}/labs"}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.namespaces
def test_a_series_of_faults_is_told(directory: Path) -> None:
    seed = next(seed for seed in itertools.count() if _killed(seed) == ["lb1", "nfagent"])
    played = _play(directory, 2, seed)
    assert played["holds"]
    assert [each["fault"]["part"] for each in played["faults"]] == ["lb1", "nfagent"]
    assert 0 < played["answered"] <= played["sent"]


@pytest.mark.soak
@pytest.mark.namespaces
@pytest.mark.timeout(12 * 3600)
def test_each_outage_is_shown_and_ends(directory: Path) -> None:
    assert _play(directory, _FAULTS, _SEED)["holds"]


def _killed(seed: int) -> list[str]:
    return [fault.part for fault in itertools.islice(draw(seed), 2) if fault.kind == "kill"]


def test_a_seed_draws_the_same_faults_again_and_all_kinds() -> None:
    first, again = (list(itertools.islice(draw(7), 300)) for _ in range(2))
    assert first == again
    assert {(fault.kind, fault.part) for fault in first} == set(KINDS)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(FAULT, 0.1, 1.0), "served all the time"),
        (Outcome(FAULT, 4.0, 1.0), "out for 4.0 s"),
        (Outcome(FAULT, 9.0, 1.0, SHOWN), "out for 9.0 s"),
    ],
)
def test_an_outage_that_is_shown_and_ends_holds(outcome: Outcome, words: str) -> None:
    assert outcome.holds
    assert str(outcome).endswith(words)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(FAULT, None, 1.0, SHOWN), "no request was answered any more"),
        (Outcome(FAULT, 17.0, 1.0, SHOWN), "out for 17.0 s"),
        (Outcome(FAULT, 9.0, 1.0, SHOWN | {"metric": 5.1}), "not shown within 5 s by metric"),
        (Outcome(FAULT, 9.0, 1.0, {"metric": 1.0}), "by dashboard, faults"),
        (Outcome(FAULT, 0.1, 1.0, calm=False), "the dashboard still knows a fault"),
    ],
)
def test_a_silent_or_endless_outage_does_not_hold(outcome: Outcome, words: str) -> None:
    tally = Tally(1, [Outcome(FAULT, 0.1, 1.0), outcome])
    assert not outcome.holds
    assert not tally.holds
    assert words in str(outcome)
