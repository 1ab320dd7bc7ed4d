"""The oracle sees every fault that `oneswitch/core/src/mutants.rs` seeds; see docs/oracle.md, "Mutants"."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.compare import Comparison
from tests.oracle.hunt import hunt
from tests.oracle.mutants import NAMES, script_of
from tests.oracle.replay import outcome
from tests.oracle.steps import Script

_ROOT = Path(__file__).resolve().parents[2]
_STEPS = 20_000


@pytest.fixture(scope="module")
def binary() -> Path:
    """oneswitchd with all mutants, one of which its environment chooses.

    Built as `cargo test` builds oneswitchd, so that all that is compiled is shared but two crates: the test target adds
    the features that tests' dependencies ask for.
    """
    cargo = shutil.which("cargo", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert cargo is not None, "cargo is not on PATH"
    command = [cargo, "build", "--locked", "--quiet", "--workspace", "--features", "oneswitchd/mutants"]
    command += ["--bin", "oneswitchd", "--test", "building", "--message-format", "json"]
    built = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    programs = [each["executable"] for each in messages if each.get("target", {}).get("name") == "oneswitchd"]
    # The next build without mutants would replace it.
    copy = Path(programs[-1]).parents[1] / "mutants/oneswitchd"
    copy.parent.mkdir(exist_ok=True)
    copy.unlink(missing_ok=True)
    shutil.copy2(programs[-1], copy)
    return copy


@pytest.fixture(scope="module", params=[2, 3], ids=lambda switches: f"{switches}-switches")
def mutants(request: pytest.FixtureRequest, binary: Path) -> Iterator[Comparison]:
    with Comparison(request.param, binary, "") as comparison:
        yield comparison


def test_every_mutant_has_a_script() -> None:
    assert {path.stem for path in script_of("x").parent.glob("*.json")} == set(NAMES)


@pytest.mark.timeout(600)  # nothing may be compiled yet
def test_their_scripts_kill_them_and_nothing_else(mutants: Comparison) -> None:
    scripts = {name: Script.read(script_of(name)) for name in NAMES}
    mine = {name: script for name, script in scripts.items() if script.switches == mutants.script.switches}
    mutants.mutant = None
    wrong = [f"{name}, without it: {found}" for name, script in mine.items() if (found := outcome(mutants, script))]
    for name, script in mine.items():
        mutants.mutant = name
        if outcome(mutants, script) is None:
            wrong.append(f"{name} survives")
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_random_runs_find_them(mutants: Comparison) -> None:
    survivors = []
    for name in NAMES:
        if Script.read(script_of(name)).switches != mutants.script.switches:
            continue
        mutants.mutant = name
        found = hunt(mutants, _STEPS, int(os.environ.get("ORACLE_SEED", "1")))
        print(f"{name}: {found.steps} steps, {found.seconds:.1f} s" if found else f"{name}: survives {mutants.steps}")
        survivors += [] if found else [name]
    assert not survivors
