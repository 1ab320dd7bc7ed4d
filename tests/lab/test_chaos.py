"""``uno-lab chaos`` breaks a server under traffic; each outage is shown, and ends."""

import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.chaos.faults import KINDS, Fault, Round, draw
from lab.chaos.tally import Outcome, ShownOutage, Tally
from lab.chaos.watch import advice
from lab.directory import ENVIRONMENT
from tests.lab.conftest import Run
from tests.server.fake_rest import FakeOneswitchd

_FAULTS = int(os.environ.get("CHAOS_FAULTS", "2000"))
_SEED = int(os.environ.get("CHAOS_SEED", "1"))
_SIDE_BY_SIDE, _SERIES = 2, 100
_WITHOUT_ROOT = [kind for kind in KINDS if kind[1] != "disk"]
ROUND = Round((Fault("kill", "lb1", 1.0),))
LASTING = Round((Fault("hang", "snic0", 6.0), Fault("kill", "lb1", 1.0)))
SHOWN = {"dashboard": 1.0, "metric": 2.0, "faults": 3.0, "event": 4.0}
ADVICE = ("hypervisor virt: uno-lab start hypervisor",)


def _play(directory: Path, faults: int, seed: int) -> dict[str, Any]:
    code = f"from lab.cli import app; app(['chaos', '--faults={faults}', '--seed={seed}', '--format=json'])"
    variables = os.environ | {ENVIRONMENT: f"{directory}/{seed}"}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.namespaces
def test_a_series_of_faults_is_told(directory: Path) -> None:
    seed = next(seed for seed in itertools.count() if _killed(seed) == ["lb1", "nfagent"])
    played = _play(directory, 2, seed)
    assert played["holds"]
    assert [each["part"] for found in played["rounds"] for each in found["round"]["faults"]] == ["lb1", "nfagent"]
    assert 0 < played["answered"] <= played["sent"]


@pytest.mark.soak
def test_an_ordinary_user_plays_it_without_the_faults_of_disks(run_as_user: Run) -> None:
    done = run_as_user("from lab.cli import app; app(['chaos', '--faults=14', '--seed=5', '--format=json'])")
    assert done.returncode == 0, done.stdout + done.stderr
    played = json.loads(done.stdout)
    assert (played["faults"], len(played["left_out"])) == (14, 1)
    assert "the disk's faults are left out" in played["left_out"][0]


@pytest.mark.soak
@pytest.mark.root
@pytest.mark.timeout(12 * 3600)
def test_each_outage_is_shown_and_ends(directory: Path) -> None:
    series = -(-_FAULTS // _SERIES)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as workers:
        played = list(workers.map(lambda seed: _play(directory, _SERIES, seed), range(_SEED, _SEED + series)))
    assert all(each["holds"] and not each["left_out"] for each in played)


def _killed(seed: int) -> list[str]:
    """Return the parts that the first two faults kill, without root or with; they come one by one."""
    drawn = [list(itertools.islice(draw(seed, kinds), 2)) for kinds in (KINDS, _WITHOUT_ROOT)]
    parts = [
        [fault.part for found in rounds for fault in found.faults if fault.kind == "kill" and len(found.faults) == 1]
        for rounds in drawn
    ]
    return parts[0] if parts[0] == parts[1] else []


def test_a_seed_draws_the_same_faults_again_and_all_kinds() -> None:
    first, again = (list(itertools.islice(draw(7), 300)) for _ in range(2))
    assert first == again
    assert {(fault.kind, fault.part) for found in first for fault in found.faults} == set(KINDS)


def test_faults_of_a_round_are_of_independent_parts() -> None:
    for found in itertools.islice(draw(8), 300):
        spots = [fault.spot for fault in found.faults]
        assert 1 <= len(spots) == len(set(spots)) <= 3


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(ROUND, 1.0), "served all the time"),
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, 4.0, 3.0),)), "out for 4.0 s"),
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, 9.0, 8.0, SHOWN),)), "out for 9.0 s"),
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, 15.5, 14.5, SHOWN, ADVICE),)), "out for 15.5 s"),
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, 15.5, 14.5, SHOWN, told_s=16.0),)), "out for 15.5 s"),
        (Outcome(LASTING, 6.0, shown_s=SHOWN), "hang snic0 + kill lb1, mended after 6.0 s: served all the time"),
    ],
)
def test_an_outage_that_is_shown_and_ends_holds(outcome: Outcome, words: str) -> None:
    assert outcome.holds
    assert str(outcome).endswith(words)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, None, None, SHOWN, ADVICE),)), "no request was answered any more"),
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, 17.0, 16.0, SHOWN, ADVICE),)), "out for 17.0 s"),
        (Outcome(ROUND, 9.0, (ShownOutage(0.1, 17.0, 8.0, SHOWN),)), "out for 17.0 s; no person was told what to do"),
        (
            Outcome(ROUND, 9.0, (ShownOutage(0.1, 17.0, 8.0, SHOWN, told_s=16.0),)),
            "out for 17.0 s; no person was told what to do",
        ),
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, 9.0, 8.0, SHOWN | {"metric": 5.1}),)), "not shown within 5 s by metric"),
        (Outcome(ROUND, 1.0, (ShownOutage(0.1, 9.0, 8.0, {"metric": 1.0}),)), "by dashboard, faults, event"),
        (Outcome(LASTING, 6.0, shown_s=SHOWN | {"event": 5.2}), "served all the time; not shown within 5 s by event"),
        (Outcome(ROUND, 1.0, calm=False), "a fault is still shown"),
        (Outcome(ROUND, 1.0, troubles=("kill lb1 could not happen: x",)), "kill lb1 could not happen: x"),
    ],
)
def test_a_silent_or_endless_outage_does_not_hold(outcome: Outcome, words: str) -> None:
    tally = Tally(1, [Outcome(ROUND, 1.0), outcome])
    assert not outcome.holds
    assert not tally.holds
    assert words in str(outcome)


def test_a_person_is_told_what_doctor_says_about_this_agent(directory: Path) -> None:
    server, agent = directory / "server.toml", directory / "agent.toml"
    switch = f'[[switch]]\nname = "hv"\nvirt = "unix:{directory}/v"\nedge = "unix:{directory}/e"\n'
    server.write_text(f'[oneswitchd]\ndatapath_id = "{1:016x}"\napi = "unix:{directory}/a"\n{switch}')
    agent.write_text(f'[api]\nlisten = ["unix:{directory}/nfagent.sock"]\n')
    fault = {"gravity": "critical", "about": "disk", "name": "store", "since": "12:00", "text": "it is full"}
    with FakeOneswitchd(directory / "nfagent.sock") as fake:
        fake.overrides["GET /api/v1/servers"] = lambda _: (200, {"servers": [{"datapath_id": f"{1:016x}"}]})
        fake.overrides["GET /api/v1/faults"] = lambda _: (200, {"faults": [fault]})
        assert "store: free some space on the disk of nfagent's state directory" in advice(server, agent)
    assert "nfagent: start it: nfagent serve; deployed functions keep running meanwhile" in advice(server, agent)


def test_no_event_is_asked_of_a_disk_that_takes_none() -> None:
    shown = {name: at for name, at in SHOWN.items() if name != "event"}
    full = Round((*LASTING.faults, Fault("full", "disk", 1.0)))
    assert not Outcome(LASTING, 6.0, shown_s=shown).holds
    assert Outcome(replace(LASTING, faults=full.faults), 6.0, shown_s=shown).holds
