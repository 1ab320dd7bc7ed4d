"""The oracle sees every fault that `tests/oracle/mutants/*.patch` makes; see docs/oracle.md, "Mutants"."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.compare import Comparison
from tests.oracle.hunt import hunt
from tests.oracle.mutants import NAMES, Builder, apply, builder, keeps_state, script_of
from tests.oracle.replay import outcome
from tests.oracle.steps import Script

_ROOT = Path(__file__).resolve().parents[2]
_STEPS = 20_000
_SCRIPTS = {name: Script.read(script_of(name)) for name in NAMES if script_of(name).exists()}
_BY_HAND = "By hand."
"""The note of scripts that were written; random runs may not find their mutants."""


def server_of(name: str) -> tuple[int, str, bool]:
    """Return a mutant's server: its number of switches, its default executor, and whether ports share state."""
    return _SCRIPTS[name].switches, _SCRIPTS[name].executor, keeps_state(name)


@pytest.fixture(scope="module")
def built() -> Iterator[Builder]:
    with builder() as each:
        yield each


@pytest.fixture(
    scope="module",
    params=sorted({server_of(name) for name in _SCRIPTS}),
    ids=lambda server: f"{server[0]}-switches-{server[1]}{'-stateful' * server[2]}",
)
def mutants(request: pytest.FixtureRequest, built: Builder) -> Iterator[Comparison]:
    switches, executor, stateful = request.param
    with Comparison(switches, built.build(), executor=executor, stateful=stateful) as comparison:
        yield comparison


def scripts(mutants: Comparison) -> dict[str, Script]:
    """Return the scripts for a server."""
    server = mutants.script.switches, mutants.script.executor, mutants.stateful
    return {name: script for name, script in _SCRIPTS.items() if server_of(name) == server}


def test_every_mutant_has_a_script() -> None:
    assert {path.stem for path in script_of("x").parent.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_patch_applies(name: str) -> None:
    apply(name, _ROOT, "--check")


@pytest.mark.soak
@pytest.mark.timeout(7200)  # one build per mutant
def test_each_script_kills_its_mutant_only(mutants: Comparison, built: Builder) -> None:
    mine = scripts(mutants)
    mutants.mutant = None
    wrong = [f"{name}, without it: {found}" for name, script in mine.items() if (found := outcome(mutants, script))]
    for name, script in mine.items():
        try:
            mutants.mutant = built.build(name)
        except subprocess.CalledProcessError:
            wrong.append(f"{name} does not compile")
            continue
        if outcome(mutants, script) is None:
            wrong.append(f"{name} survives")
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_random_runs_find_every_mutant(mutants: Comparison, built: Builder) -> None:
    survivors = []
    for name, script in scripts(mutants).items():
        if script.note == _BY_HAND:
            continue
        mutants.mutant = built.build(name)
        found = hunt(mutants, _STEPS, int(os.environ.get("ORACLE_SEED", "1")))
        print(f"{name}: {found.steps} steps, {found.seconds:.1f} s" if found else f"{name}: survives {mutants.steps}")
        survivors += [] if found else [name]
    assert not survivors
