"""SIGKILL or SIGSTOP any process at any moment of a migration: flows survive, and the report is correct."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nfagent.model import Migration, Outcome
from tests.nfagent.kill_plans import STEPS, VICTIMS, Plan
from tests.nfagent.killed_world import Seen
from tests.nfagent.killing import carry_out, mistimed, run, unfit

SEED = int(os.environ.get("MIGRATION_SEED", "1"))
FIRST = int(os.environ.get("MIGRATION_FIRST", "0"))


def faults(count: int, *, timed: bool) -> list[dict[str, Any]]:
    """Run ``count`` faults, starting at number FIRST; append each verdict to the file MIGRATION_LOG if that is set."""
    verdicts = []
    log = os.environ.get("MIGRATION_LOG")
    for verdict in run(SEED, FIRST, count, timed=timed):
        verdicts.append(verdict)
        if log:
            with Path(log).open("a") as file:
                file.write(json.dumps(verdict) + "\n")
    return verdicts


def ended(outcome: Outcome, **report: Any) -> Migration:
    return Migration(1, "i", "p", "hypervisor", "snic0", "state", "done", 0.0, outcome=outcome, report=report)


CLEAN = {"flows": True, "lost": 0, "duplicated": 0, "reordered": 0, "strayed": 0}
LOST = {"lost_state": {"why": "", "flows": 3, "instances": []}}


@pytest.mark.parametrize(
    ("victim", "mode", "killed_at", "seen", "report", "wrong"),
    [
        ("agent", "memfd", "flip", {}, {}, ""),
        ("source ovs-vswitchd", "memfd", "flip", {"lost": 9}, {}, ""),
        ("source ovsdb-server", "memfd", "flip", {"lost": 9}, {}, ""),  # ovs-vswitchd does not forward without it
        ("oneswitchd", "memfd", "flip", {"lost": 9}, {}, "9 packets lost"),
        ("agent", "memfd", "flip", {"lost": 1}, {}, "1 packets lost"),
        ("old", "memfd", "flip", {"lost": 9}, {}, ""),
        ("new", "memfd", "prepare", {"lost": 9}, {}, "9 packets lost"),
        ("new", "memfd", "COMMIT", {"lost": 9}, {}, ""),
        ("new", "memfd", None, {"lost": 9}, {}, "9 packets lost"),
        ("new", "memfd", "ended", {"lost": 9, "strayed": 9}, {}, ""),
        ("agent", "memfd", "ended", {"lost": 9}, {}, "9 packets lost"),
        ("old", "memfd", "drain", {"duplicated": 2}, {}, "2 packets duplicated"),
        ("new", "copy", "drain", {"reordered": 2}, LOST, "2 packets reordered"),
        ("old", "memfd", "freeze", {"flows": False}, {}, "no packet"),
        ("new", "memfd", "drain", {"strayed": 3}, LOST, "another backend"),
        ("new", "copy", "drain", {"strayed": 3}, {}, "says of no lost state"),
        ("new", "copy", "drain", {"strayed": 3}, LOST, ""),
        ("new", "copy", "prepare", {"strayed": 3}, LOST, "another backend"),
        ("new", "copy", "freeze", {"lost": 9}, LOST, ""),
        ("new", "copy", "freeze", {"lost": 9}, {}, "9 packets lost"),
        ("new", "memfd", "freeze", {"lost": 9}, LOST, "9 packets lost"),
        ("oneswitchd", "copy", "drain", {"strayed": 3}, LOST, "another backend"),
        ("old", "memfd", "prepare", {"strayed": 3}, LOST, ""),
    ],
)
def test_every_violation_after_a_kill_is_reported(
    victim: str, mode: str, killed_at: str | None, seen: dict[str, Any], report: dict[str, Any], wrong: str
) -> None:
    plan = Plan(0, victim, "kill", None, "flip", 0.0, mode)
    found = unfit(plan, killed_at, ended("done", **report), CLEAN | seen)
    assert len(found) == bool(wrong)
    assert wrong in "".join(found)


@pytest.mark.parametrize(
    ("seen_s", "reported_s", "is_true"),
    [
        ((0.0, 0.0, 0.0), 0.002, True),
        ((0.0, 0.0, 0.0), 0.2, False),
        ((3.0, 3.0, 0.0), 3.2, True),
        ((3.0, 3.0, 0.0), 3.5, False),
        ((3.0, 3.0, 0.0), 2.7, True),
        ((3.0, 3.0, 0.0), 2.0, False),
        ((3.0, 3.0, 0.0), 0.002, False),
        ((0.1, 0.3, 0.0), 0.2, True),
        ((3.0, 3.0, 0.3), 3.9, True),
    ],
)
def test_a_reported_outage_must_match_the_packets(
    seen_s: tuple[float, float, float], reported_s: float, is_true: bool
) -> None:
    plan = Plan(0, "target ovs-vswitchd", "kill", 3.0, "flip", 0.0, "memfd")
    found = mistimed(plan, ended("done", outage_us=round(reported_s * 1e6)), Seen(*seen_s))
    assert [not found, "outage" in "".join(found)] == [is_true, not is_true]


def test_pauses_of_sender_and_machine_are_not_counted_as_outage() -> None:
    def at(arrived: float, sent: float, number: int) -> tuple[float, float, int]:
        return arrived, sent, number

    arrivals = [
        at(0.0, 0.0, 0),
        at(0.25, 0.25, 1),
        at(1.0, 1.0, 2),
        at(2.0, 1.002, 3),
        at(3.0, 2.9, 4),
        at(4.0, 3.9, 6),
    ]
    seen = Seen.of([*arrivals, at(9.0, 9.0, 7), at(9.5, 9.5, 8)], 0.9, 4.0)
    # Number 3 was delayed by a second; before 4 the sender was silent; 5 was lost. The pause until 9 is later.
    assert (round(seen.least_s, 3), round(seen.most_s, 3)) == (0.998 + 1.0, 3.0 + 0.1)
    assert seen.noise_s == 0.5


def test_plans_are_reproducible_and_cover_every_victim_and_step() -> None:
    plans = [Plan.of(1, number) for number in range(1000)]
    assert plans == [Plan.of(1, number) for number in range(1000)] != [Plan.of(2, number) for number in range(1000)]
    assert {(plan.victim, plan.step) for plan in plans} == {(victim, step) for victim in VICTIMS for step in STEPS}
    assert {plan.mode for plan in plans} == {"memfd", "copy"}
    assert {plan.how for plan in plans} == {"kill", "stop"}
    assert {plan.for_s for plan in plans if plan.how == "stop" and plan.victim != "agent"} == {0.1, 5.0, None}


@pytest.mark.namespaces
@pytest.mark.timeout(900)
def test_flows_survive_kills_and_stops_at_any_moment() -> None:
    verdicts = faults(20, timed=False)  # outages cannot be measured on a busy machine
    assert [verdict for verdict in verdicts if verdict["wrong"]] == []
    assert {verdict["how"] for verdict in verdicts} == {"kill", "stop"}
    assert {verdict["outcome"] for verdict in verdicts} == {"done", "rolled-back"}


def test_the_plans_of_switches_cover_each_step_on_each_side() -> None:
    plans = Plan.of_switches()
    assert len(plans) == 2 * len(STEPS)
    assert {(plan.victim, plan.step) for plan in plans} == {
        (f"{side} ovs-vswitchd", step) for side in ("source", "target") for step in STEPS
    }


@pytest.mark.namespaces
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_vswitchd_killed_at_each_step_on_each_side_loses_no_flow() -> None:
    verdicts = list(carry_out(Plan.of_switches(), timed=False))
    assert [verdict for verdict in verdicts if verdict["wrong"]] == []


@pytest.mark.namespaces
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_flows_survive_thousands_of_kills_and_stops() -> None:
    """Repeat MIGRATION_KILLS times; `MIGRATION_FIRST=N` continues an earlier run or repeats a fault."""
    kills = int(os.environ.get("MIGRATION_KILLS", "1000"))
    wrong = [verdict for verdict in faults(kills, timed=True) if verdict["wrong"]]
    assert wrong == [], f"{len(wrong)} faults had wrong results"
