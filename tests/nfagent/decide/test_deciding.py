"""When the decider decides and writes, and how it reports that it cannot."""

import queue
import time
from dataclasses import replace
from typing import Any

import pytest

from nfagent.decide.situation import APART
from nfagent.errors import ConflictError, UnavailableError
from nfagent.measurement import Coefficient
from nfagent.model import Event
from nfagent.store import decisions, events, instances
from placement import PlacementError
from tests.nfagent.decide.conftest import Make
from tests.nfagent.decide.world import HYPERVISOR, NIC, DecideWorld


def decided(world: DecideWorld, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the times at which a plan is requested from now on."""
    asked: list[float] = []
    decide = world.decider._decide

    def note(*arguments: Any) -> None:
        asked.append(world.now)
        decide(*arguments)

    monkeypatch.setattr(world.decider, "_decide", note)
    return asked


def test_a_complete_sample_or_a_change_triggers_a_decision(other: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = other(window=30)  # samples of three seconds
    asked = decided(world, monkeypatch)
    world.create("lb", mbps=1.0)
    world.seconds(7)
    assert asked == [1, 4, 7]
    world.second(urgent=True)
    assert asked[3:] == [8]
    world.create("new")
    world.second()
    assert asked[4:] == [9]
    world.second()
    assert asked[5:] == [10]  # the sample continued meanwhile
    world.monitor.learnt = [Coefficient("lb", "host", 0.5, 100, 0.0)]
    world.second()
    assert asked[6:] == [11]
    world.capacity[HYPERVISOR].slots.clear()
    world.monitor.measured = None
    world.decider.step(urgent=True)
    world.silent = True
    world.second(urgent=True)
    assert asked[7:] == []
    world.silent = False
    world.second(urgent=True)
    assert asked[7:] == [13]


def test_a_measurement_counts_once(other: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = other(window=20)
    asked = decided(world, monkeypatch)
    world.create("lb", mbps=1.0)
    world.second()
    for _ in range(5):
        world.decider.step()
    assert asked == [1]
    world.second()
    world.second()
    assert asked == [1, 3]


def test_a_broken_limit_triggers_a_decision_immediately(other: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = other(window=30, cores=1000)
    world.create("lb", NIC, mbps=10.0)
    world.second()
    asked = decided(world, monkeypatch)
    world.traffic["lb"] = 300.0
    world.second()
    assert asked == [2]
    assert world.where("lb") == HYPERVISOR
    assert world.decisions()[-1].explanation["reason"] == "a limit would break"


def test_an_infeasible_problem_is_retried_after_five_seconds_or_a_change(
    other: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = other(cores=10, host_cores=10)
    asked = decided(world, monkeypatch)
    world.create("lb", mbps=100.0)
    world.seconds(12)
    assert asked == [1, 6, 11]
    assert len(world.events("placement.infeasible")) == 1
    world.create("new")
    world.second()
    assert asked[3:] == [13]


def test_a_failed_optimisation_is_retried_after_five_seconds(
    world: DecideWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise PlacementError("there was no time for sNIC 1")

    world.create("lb", mbps=10.0)
    asked = decided(world, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(world.decider._window, "decide", fail)
        world.seconds(12)
    assert asked == [1, 6, 11]
    said = world.decider.proposal()
    assert (said.id, said.problem, said.plan) == (0, {}, {world.instance("lb").id: HYPERVISOR})
    assert said.explanation == {"feasible": None, "reason": "there was no time for snic0"}
    assert world.decider.why(world.instance("lb"))["text"] == "lb stays at hypervisor: there was no time for snic0"
    assert len([each for each in caplog.records if "there was no time" in each.getMessage()]) == 1
    assert world.decisions() == []
    world.seconds(5)
    assert world.decider.proposal().explanation["feasible"] is True


def test_the_outcome_of_a_decision_is_stored_five_seconds_later(world: DecideWorld) -> None:
    world.create("lb", mbps=300.0)
    while not world.moves:
        world.second()
    (order,) = [each for each in world.decisions() if each.moves]
    world.second()  # the decider notices that the move is done
    seen = []
    for _ in range(6):
        world.second()
        found = decisions.find(world.store.read, order.id)
        assert found is not None
        seen.append(found.outcome)
    assert seen == [None, None, None, None, "done", "done"]
    report = world.decisions()[1].report
    assert (report["host_millicores_before"], report["host_millicores_after"], len(report["moves"])) == (600, 0, 1)
    assert set(report) == {"host_millicores_before", "host_millicores_after", "moves"}


def test_a_partial_window_is_given_as_the_reason_for_no_moves(world: DecideWorld) -> None:
    lb = world.create("lb", mbps=300.0)
    world.seconds(3)
    waits = "10 periods of traffic must be seen before anything moves for a gain"
    text = world.decider.why(lb)["text"]
    assert text == f"lb is on hypervisor: snic0 would save the hypervisor 603 millicores, but {waits}"
    proposal = world.make_decider(enabled=False)
    proposal.step()
    assert proposal.proposal().explanation["reason"] == "only a proposal: [decide] enabled is false"
    assert proposal.proposal().plan == {lb.id: NIC}
    assert proposal.proposal().moves == (lb.id,)


def test_errors_name_the_missing_input(other: Make) -> None:
    world = other(slots=1)
    world.silent = True
    lb = world.create("lb", ports=0)
    for ask in (world.decider.proposal, lambda: world.decider.why(lb)):
        with pytest.raises(UnavailableError, match=r"^no decision yet: no measurement so far$") as told:
            ask()
        assert told.value.code == "no-decision"
    expected = "^no decision is possible yet: oneswitchd does not answer$"
    with pytest.raises(UnavailableError, match=expected) as told:
        world.decider.dry_run({}, [])
    assert told.value.code == "no-decision"
    world.silent = False
    world.second()
    late = replace(lb, id="late-id", name="late")
    with world.store.change() as change:
        instances.add(change, late)
    for named, pins in (("no-such-id", {"no-such-id": NIC}), ("'late'", {late.id: NIC})):
        with pytest.raises(ConflictError, match=f"^instance {named} is not running, so no plan covers it$") as refused:
            world.decider.dry_run(pins, [])
        assert refused.value.code == "instance-not-active"


def test_a_dry_run_names_the_violated_limits(other: Make) -> None:
    world = other(cores=100)
    lb = world.create("lb", mbps=300.0)
    world.second()
    told = world.decider.dry_run({lb.id: NIC}, [])
    assert (told.id, told.plan, told.moves, told.outcome) == (0, {lb.id: HYPERVISOR}, (), None)
    assert told.explanation["conflict"] == ["cores of snic0", "pin of lb"]
    assert told.explanation["current"] == {lb.id: HYPERVISOR}
    assert told.explanation["reason"].startswith(
        "no placement satisfies all limits; in conflict: cores of snic0, pin of lb;"
    )
    answer = world.decider.dry_run({}, [])
    assert answer.explanation["reason"] == "hypothetical; nothing is carried out"


def test_anti_affine_instances_start_apart_except_on_the_hypervisor(other: Make) -> None:
    world = other(slots=2)
    first = world.create("first", labels={APART: "ha"})
    assert world.decider.place(first) == HYPERVISOR  # even next to another instance of the group
    world.create("more")
    rival = world.create("rival", NIC, labels={APART: "ha"})
    with pytest.raises(
        UnavailableError, match=r"^no location is up and has a free slot with 1 interface\(s\)$"
    ) as refused:
        world.decider.place(first)
    assert refused.value.code == "no-room"
    assert world.decider.place(world.instance("more")) == NIC  # it lacks the label
    for labels in ({APART: "else"}, {"other": "ha"}):
        assert world.decider.place(replace(first, labels=labels)) == NIC
    assert world.decider.place(replace(first, project="other")) == NIC
    world.down = frozenset([NIC])
    world.second()
    with pytest.raises(UnavailableError):
        world.decider.place(replace(rival, labels={}))


def test_a_new_conflict_of_limits_is_reported_again(other: Make) -> None:
    world = other(cores=400, host_cores=400)
    world.create("lb", mbps=900.0)
    world.seconds(12)
    (told,) = world.events("placement.infeasible")
    assert told["current"] == {world.instance("lb").id: HYPERVISOR}
    world.pin("lb", HYPERVISOR)
    world.seconds(12)
    assert [each["conflict"] for each in world.events("placement.infeasible")] == [
        ["cores of the host", "cores of snic0"],
        ["cores of the host", "pin of lb"],
    ]
    said = world.decider.proposal()
    assert said.explanation == world.events("placement.infeasible")[1]
    assert said.explanation["reason"].startswith("no placement satisfies all limits; in conflict: ")
    assert [(each.subject, each.project) for each in told_of(world, "placement.infeasible")] == [
        ("placement", None),
        ("placement", None),
    ]


def told_of(world: DecideWorld, kind: str) -> list[Event]:
    return [each for each in events.after(world.store.read, 0, 10**6, None) if each.type == kind]


# ---- the thread


@pytest.mark.parametrize(
    ("kind", "is_urgent"),
    [
        ("instance.created", True),
        ("instance.deleted", True),
        ("instance.pinned", True),
        ("instance.described", True),
        ("process.active", True),
        ("process.gone", True),
        ("migration.ended", True),
        ("location.down", True),
        ("migration.step", False),
        ("process.starting", False),
        ("placement.decided", False),
    ],
)
def test_exactly_the_relevant_events_trigger_a_decision(world: DecideWorld, kind: str, is_urgent: bool) -> None:
    before = world.store.last_event
    with world.store.change() as change:
        for each in ("coefficient.learnt", kind):
            change.event(each, "it", None, {})
    assert world.decider._await(before, time.monotonic()) == (is_urgent, before + 2)
    assert world.decider._await(before + 2, time.monotonic()) == (False, before + 2)


def test_stopping_the_decider_ends_its_wait(world: DecideWorld) -> None:
    world.decider.start()
    before = world.store.last_event
    world.decider.stop()
    assert world.decider._thread.daemon  # a process that forgets to stop it ends nevertheless
    assert not world.decider._thread.is_alive()
    assert world.decider._await(before, time.monotonic() + 3600) == (False, before)


def test_an_error_in_one_decision_does_not_end_the_thread(world: DecideWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def step(*, urgent: bool) -> None:
        stepped.put(urgent)
        raise RuntimeError("broken")

    monkeypatch.setattr("nfagent.decide.decider._SPACING_S", 0.0)
    decider = world.make_decider(period_s=1000.0)
    monkeypatch.setattr(decider, "step", step)
    decider.start()
    try:
        assert stepped.get(timeout=20) is False
        for _ in range(2):
            world.create(f"lb{stepped.qsize()}{world.store.last_event}")
            assert stepped.get(timeout=20) is True
    finally:
        decider.stop()
