"""Decisions on simulated traffic: only moves that pay, in order, without flapping."""

import queue
from typing import Any

import pytest

from nfagent.decide.demand import Costs, level_above
from nfagent.decide.outages import STEADY_S, Outages
from nfagent.decide.situation import APART
from nfagent.errors import ConflictError, UnavailableError
from nfagent.measurement import Coefficient
from nfagent.store import decisions, instances, migrations
from placement import PlacementError
from placement.errors import InfeasibleError
from tests.nfagent.decide.conftest import Make
from tests.nfagent.decide.world import HYPERVISOR, NIC, DecideWorld, noise, sine, square

LACKS = "snic0 lacks /etc/prads/tcp-syn.fp"

# ---- moves that pay


def test_rising_traffic_moves_an_nf_once_and_falling_traffic_does_not_move_it_back(world: DecideWorld) -> None:
    world.create("lb", mbps=0.0)
    assert world.seconds(15) == []
    world.traffic["lb"] = 300.0
    assert world.seconds(15) == [("lb", HYPERVISOR, NIC)]
    world.traffic["lb"] = 0.0
    assert world.seconds(40) == []
    assert world.where("lb") == NIC


def test_a_small_saving_is_not_worth_a_move(world: DecideWorld) -> None:
    world.create("lb", mbps=10.0)  # 20 millicores: 200 in ten periods
    assert world.seconds(40) == []


def test_a_move_that_loses_state_must_save_more(world: DecideWorld) -> None:
    world.create("opaque", mbps=50.0, kind="still")  # 100 millicores; five times the price
    world.create("movable", mbps=100.0)
    assert world.seconds(15) == [("movable", HYPERVISOR, NIC)]
    world.traffic["opaque"] = 400.0
    assert world.seconds(15) == [("opaque", HYPERVISOR, NIC)]


def test_the_snic_gets_the_instances_that_save_most(other: Make) -> None:
    world = other(cores=1700)
    for name, mbps in (("small", 100.0), ("large", 350.0), ("middle", 200.0)):
        world.create(name, mbps=mbps)
    world.seconds(20)
    assert {name: world.where(name) for name in ("small", "middle", "large")} == {
        "small": HYPERVISOR,
        "middle": HYPERVISOR,
        "large": NIC,
    }
    why = world.decider.why(world.instance("middle"))
    assert "cores of snic0 would be" in why["text"]
    assert why["runner_up"]["location"] == NIC
    assert why["runner_up"]["blocked_by"][0]["limit"] == "cores of snic0"


# ---- calm


@pytest.mark.parametrize("period", [2, 5, 10])
@pytest.mark.parametrize("shape", [square, sine])
def test_periodic_traffic_moves_nothing_after_warm_up(world: DecideWorld, shape, period: int) -> None:
    for number in range(6):
        world.create(f"lb{number}")
    waves = {f"lb{number}": shape(20.0, 300.0 + 50 * number, period) for number in range(6)}
    world.seconds(40, lambda now: {name: wave(now + int(name[2:])) for name, wave in waves.items()})
    late = world.seconds(60, lambda now: {name: wave(now + int(name[2:])) for name, wave in waves.items()})
    assert late == []


@pytest.mark.parametrize(("part", "most", "each"), [(0.2, 4, 1), (0.4, 12, 3)])
def test_noise_moves_each_nf_a_few_times_at_most(world: DecideWorld, part: float, most: int, each: int) -> None:
    for number in range(8):
        world.create(f"lb{number}")
    waves = {f"lb{number}": noise(150.0 + 20 * number, part, number) for number in range(8)}
    world.seconds(30, lambda now: {name: wave(now) for name, wave in waves.items()})
    late = world.seconds(120, lambda now: {name: wave(now) for name, wave in waves.items()})
    assert len(late) <= most, late  # in twelve windows; eight NFs
    assert all(sum(name == move[0] for move in late) <= each for name in waves)


def test_a_single_burst_moves_nothing_back_and_forth(world: DecideWorld) -> None:
    world.create("lb", mbps=5.0)
    world.seconds(15)
    moves = world.seconds(60, lambda now: {"lb": 400.0 if now == 10 else 5.0})
    assert moves in ([], [("lb", HYPERVISOR, NIC)])


# ---- limits


def test_an_overload_is_resolved_in_feasible_steps(other: Make) -> None:
    world = other(cores=1600)
    for number in range(4):
        world.create(f"lb{number}", NIC, mbps=90.0)
    world.seconds(15)
    assert world.moves == []
    world.traffic |= {f"lb{number}": 180.0 for number in range(4)}
    world.seconds(15)
    used = sum(4 * 180 for number in range(4) if world.where(f"lb{number}") == NIC)
    assert 0 < used <= 1600
    assert all(goal == HYPERVISOR for _, _, goal in world.moves)
    assert len({name for name, _, _ in world.moves}) == len(world.moves)


def test_the_order_of_a_swap_keeps_every_limit(other: Make) -> None:
    world = other(cores=1200, slots=4)
    world.create("was-large", NIC, mbps=200.0)
    world.create("gets-large", HYPERVISOR, mbps=10.0)
    world.seconds(12)
    world.traffic |= {"was-large": 20.0, "gets-large": 210.0}
    used = []
    for _ in range(40):
        world.second()
        used.append(sum(4 * world.traffic[name] for name in world.traffic if world.where(name) == NIC))
    assert max(used) <= 1200
    assert world.where("gets-large") == NIC


def test_an_infeasible_problem_is_reported_once_and_moves_nothing(other: Make) -> None:
    world = other(cores=400, host_cores=400)
    world.create("lb", mbps=50.0)
    world.seconds(12)
    world.traffic["lb"] = 900.0
    assert world.seconds(12) == []
    (told,) = world.events("placement.infeasible")
    assert told["feasible"] is False
    assert any("cores" in limit for limit in told["conflict"])
    assert {least["what"]: least["by"] for least in told["least"]}["cores of the host"] > 0
    assert world.decider.proposal().explanation["feasible"] is False
    assert world.decider.proposal().plan == {world.instance("lb").id: world.where("lb")}
    why = world.decider.why(world.instance("lb"))
    assert why["feasible"] is False
    world.traffic["lb"] = 50.0
    world.seconds(20)
    assert world.events("placement.feasible") == [{}]
    assert world.decider.proposal().explanation["feasible"] is True


def test_a_failure_of_the_optimiser_is_not_reported_as_infeasible(
    world: DecideWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain() -> Any:
        raise PlacementError("there was no time")

    def fail(*_: Any) -> Any:
        raise InfeasibleError(explain)  # finding the conflicting limits takes longer than detecting the conflict

    world.create("lb", mbps=10.0)
    world.seconds(2)
    with monkeypatch.context() as patch:
        patch.setattr(world.decider._window, "decide", fail)
        patch.setattr("nfagent.decide.decider.solve", fail)
        world.second(urgent=True)
        with pytest.raises(UnavailableError, match="there was no time"):
            world.decider.dry_run({}, [])
    assert world.decider.proposal().explanation == {"feasible": None, "reason": "there was no time"}
    world.seconds(10)
    assert world.decider.proposal().explanation["feasible"] is True
    assert world.events("placement.feasible") == []


def test_an_error_of_the_optimiser_is_reported_in_rest_and_retried(
    world: DecideWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise TypeError("minimise() takes other arguments")

    world.create("lb", mbps=10.0)
    with monkeypatch.context() as patch:
        patch.setattr(world.decider._window, "decide", fail)
        world.seconds(20)
        said = world.decider.proposal().explanation
        assert said["feasible"] is None
        assert "minimise() takes other arguments" in said["reason"]
        assert len([each for each in caplog.records if each.exc_info]) == 1
    world.seconds(10)
    assert world.decider.proposal().explanation["feasible"] is True


def test_a_location_without_a_free_slot_takes_no_more(other: Make) -> None:
    world = other(slots=2)
    for number in range(2):
        world.create(f"idle{number}", NIC, pin=NIC)
    world.create("busy", mbps=300.0)
    assert world.seconds(15) == []
    assert "slots of snic0" in world.decider.why(world.instance("busy"))["text"]
    world.delete("idle0")
    assert world.seconds(15) == [("busy", HYPERVISOR, NIC)]


# ---- instances that must not move


def test_pins_override_the_optimiser(world: DecideWorld) -> None:
    world.create("pinned", mbps=500.0, pin=HYPERVISOR)
    world.create("free", mbps=100.0)
    assert world.seconds(15) == [("free", HYPERVISOR, NIC)]
    why = world.decider.why(world.instance("pinned"))
    assert why["text"] == "pinned stays at hypervisor: it is pinned to hypervisor"
    world.pin("pinned", None)
    assert world.seconds(15) == [("pinned", HYPERVISOR, NIC)]
    world.pin("free", HYPERVISOR)
    assert world.seconds(15) == [("free", NIC, HYPERVISOR)]  # by the reconciler, not the decider
    assert all(
        "free" not in (move["name"] for move in each.report["moves"]) for each in world.decisions()[2:] if each.report
    )


def test_nothing_is_ordered_while_a_migration_is_open(world: DecideWorld) -> None:
    world.stuck.add("slow")
    world.create("slow", mbps=300.0)
    world.seconds(12)
    (order,) = world.events("placement.decided")[1:]
    world.create("next", mbps=300.0)
    assert world.seconds(20) == []
    assert world.events("placement.decided")[1:] == [order]
    assert len(world.decider._window._block) == 1  # regardless of the duration
    world.stuck.clear()
    assert world.seconds(20) == [("slow", HYPERVISOR, NIC), ("next", HYPERVISOR, NIC)]


def test_a_failed_migration_is_not_retried_immediately(world: DecideWorld) -> None:
    world.refusing.add("lb")
    world.create("lb", mbps=500.0)
    assert world.seconds(60) == []
    journal = migrations.page(world.store.read, world.instance("lb").id, None, 100, None)
    assert len(journal) == 1
    assert world.instance("lb").target == HYPERVISOR
    assert "failed; it stays until" in world.decider.why(world.instance("lb"))["text"]
    (decision,) = [each for each in world.decisions() if each.moves]
    assert decision.outcome == "rolled-back"
    assert decision.report["moves"][0]["reason"] == "it was refused"
    world.decider = world.make_decider()  # a restart keeps the setback
    assert world.seconds(30) == []
    assert len(migrations.page(world.store.read, world.instance("lb").id, None, 100, None)) == 1


def test_an_instance_moved_by_an_operator_stays_for_a_while(world: DecideWorld) -> None:
    world.create("lb", mbps=300.0)
    world.seconds(15)
    with world.store.change() as change:
        instances.aim(change, world.instance("lb").id, HYPERVISOR)
    world.reconcile()
    assert world.moves[-1] == ("lb", NIC, HYPERVISOR)
    assert world.seconds(5) == []
    assert world.seconds(20) == [("lb", HYPERVISOR, NIC)]


def test_a_location_that_is_down_receives_no_instances(world: DecideWorld) -> None:
    world.down = frozenset([NIC])
    world.create("lb", mbps=300.0)
    world.create("there", NIC, mbps=300.0)
    assert world.seconds(15) == []
    assert "snic0 is down" in world.decider.why(world.instance("there"))["text"]
    assert world.decider.why(world.instance("lb"))["fixed"] == "no other location is up and has a slot for it"
    world.down = frozenset()
    world.silent = True  # no move is possible
    assert world.seconds(15) == []
    world.silent = False
    assert world.seconds(15) == [("lb", HYPERVISOR, NIC)]


def test_anti_affine_instances_do_not_share_an_snic(world: DecideWorld) -> None:
    for number in range(2):
        world.create(f"lb{number}", mbps=200.0 + 50 * number, labels={APART: "ha"})
    world.create("third", mbps=100.0, project="other", labels={APART: "ha"})  # labels of another tenant do not count
    world.seconds(20)
    assert sorted(name for name, _, _ in world.moves) == ["lb1", "third"]


def test_instances_that_must_be_apart_do_not_stop_the_others(world: DecideWorld) -> None:
    for name in ("one", "two"):
        world.create(name, NIC, mbps=12.0, labels={APART: "ha"})
    world.create("busy", mbps=300.0, project="other")
    world.seconds(15)
    assert {world.where("one"), world.where("two")} == {HYPERVISOR, NIC}
    assert ("busy", HYPERVISOR, NIC) in world.moves


def test_requests_of_clients_do_not_shorten_the_window(other: Make) -> None:
    world = other(window=30)
    world.create("lb", mbps=300.0)
    for _ in range(20):
        world.second(urgent=True)
    assert world.moves == []
    world.seconds(12)
    assert world.where("lb") == NIC


def test_a_placement_keeps_the_latency_bound_of_a_chain(other: Make) -> None:
    world = other()
    world.decider = world.make_decider(crossing_us=10)
    world.create("near", mbps=300.0)
    world.chain("fast", "port:1", "near", "port:1", latency_us=15)
    assert world.seconds(15) == []
    assert "latency of chain fast" in world.decider.why(world.instance("near"))["text"]


# ---- new instances


def test_a_new_instance_starts_on_the_hypervisor_with_a_reason(world: DecideWorld) -> None:
    made = world.create("new")
    assert world.decider.place(made) == HYPERVISOR
    with pytest.raises(UnavailableError, match="no decision"):
        world.decider.why(made)
    world.second()
    assert "it has no measured traffic" in world.decider.why(made)["text"]


def test_a_new_instance_starts_at_a_location_with_room(other: Make) -> None:
    world = other(slots=2)
    for number in range(2):
        world.create(f"lb{number}")
    made = world.instance("lb0")
    assert world.decider.place(made) == NIC
    for number in range(2, 4):
        world.create(f"lb{number}", NIC)
    with pytest.raises(UnavailableError, match="free slot"):
        world.decider.place(made)


# ---- stored decisions and queries


def test_a_decision_is_stored_with_its_outcome(world: DecideWorld) -> None:
    made = world.create("lb", mbps=300.0)
    world.seconds(20)
    first, moved = world.decisions()
    assert (first.outcome, first.moves) == ("unchanged", ())
    assert (moved.outcome, moved.moves, moved.plan) == ("done", (made.id,), {made.id: NIC})
    (move,) = moved.report["moves"]
    assert (move["source"], move["target"], move["outcome"], move["epoch"]) == (HYPERVISOR, NIC, "done", 1)
    assert (moved.report["host_millicores_before"], moved.report["host_millicores_after"]) == (600, 0)
    assert moved.problem["nfs"][0]["name"] == "lb"
    assert moved.problem["current"] == {"lb": 0}
    assert "saves" in moved.explanation["reason"]
    why = moved.explanation["functions"][made.id]
    assert (why["location"], why["runner_up"]["location"]) == (NIC, HYPERVISOR)
    assert 600 <= why["traffic_mbps"] < 610  # a level, from the wire and to the VM
    assert world.events("placement.decided")[1] == {"decision": moved.id, "moves": [made.id]}
    assert world.events("placement.ended")[-1]["outcome"] == "done"


def test_decisions_of_an_earlier_agent_are_closed(world: DecideWorld) -> None:
    world.stuck.add("lb")
    world.create("lb", mbps=500.0)
    world.seconds(12)
    assert decisions.unfinished(world.store.read)
    world.decider = world.make_decider()
    world.decider.start()
    world.decider.stop()
    assert decisions.unfinished(world.store.read) == []
    assert [each.outcome for each in world.decisions() if each.moves] == ["interrupted"]


def test_the_thread_decides_every_period(world: DecideWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped: queue.SimpleQueue[bool] = queue.SimpleQueue()
    monkeypatch.setattr("nfagent.decide.decider._SPACING_S", 0.0)
    decider = world.make_decider(period_s=0.1)
    monkeypatch.setattr(decider, "step", lambda *, urgent: stepped.put(urgent))
    decider.start()
    try:
        assert [stepped.get(timeout=20) for _ in range(3)] == [False, False, False]
    finally:
        decider.stop()


def test_nothing_moves_to_or_starts_at_a_location_that_lacks_what_it_needs(world: DecideWorld) -> None:
    world.fitness.lacking[NIC] = LACKS
    lb = world.create("lb", mbps=300.0)
    assert world.seconds(25) == []
    why = world.decider.why(lb)
    assert (why["unfit"], why["alternatives"]) == ({NIC: LACKS}, [])
    assert why["text"] == f"lb stays at hypervisor: no other location is up and has a slot for it; {LACKS}"
    with pytest.raises(ConflictError, match=f"instance 'lb' cannot run at snic0: {LACKS}"):
        world.decider.dry_run({lb.id: NIC}, [])
    world.fitness.lacking = {HYPERVISOR: "hypervisor lacks it"}
    assert world.decider.place(lb) == NIC
    assert world.seconds(15) == [("lb", HYPERVISOR, NIC)]
    world.fitness.lacking[NIC] = LACKS
    with pytest.raises(UnavailableError, match=f"hypervisor lacks it; {LACKS}"):
        world.decider.place(lb)


def test_a_dry_run_changes_nothing(world: DecideWorld) -> None:
    lb = world.create("lb", mbps=300.0)
    big = world.create("big", mbps=600.0)
    world.decider = world.make_decider(enabled=False)
    assert world.seconds(15) == []
    assert world.decider.proposal().plan == {lb.id: NIC, big.id: NIC}
    answer = world.decider.dry_run({big.id: HYPERVISOR}, [lb.id])
    assert answer.plan == {big.id: HYPERVISOR}
    why = f"it is hypothetically pinned to {HYPERVISOR}"
    assert answer.explanation["functions"][big.id]["text"] == f"big stays at {HYPERVISOR}: {why}"
    would = world.decider.dry_run({lb.id: NIC}, [])
    assert lb.id in would.moves
    moved = would.explanation["functions"][lb.id]["text"]
    assert moved == f"lb would move from {HYPERVISOR} to {NIC}: it is hypothetically pinned to {NIC}"
    with pytest.raises(ConflictError, match="is not running"):
        world.decider.dry_run({"no-such-id": NIC}, [])
    assert world.decider.dry_run({}, []).plan == {lb.id: NIC, big.id: NIC}
    world.traffic["big"] = 9000.0
    world.second()
    impossible = world.decider.dry_run({big.id: NIC}, [])
    assert impossible.explanation["feasible"] is False
    assert "cores of snic0" in impossible.explanation["conflict"]
    assert len(world.decisions()) == 1


# ---- parts


@pytest.mark.parametrize(
    ("value", "level"), [(0.2, 1), (10.0, 10), (10.1, 11), (11.0, 11), (100.0, 109), (1000.0, 1068)]
)
def test_levels_are_rounded_up(value: float, level: int) -> None:
    assert level_above(value) == level


def test_costs_follow_the_learnt_coefficients(world: DecideWorld) -> None:
    costs, host, nic = Costs(), world.capacity[HYPERVISOR], world.capacity[NIC]
    assert costs.millicores("lb", host, nic, 100, 50) == 100  # before learning: the measurement, scaled
    assert costs.millicores("lb", host, host, 100, 50) == 50
    assert costs.learn([Coefficient("lb", "host", 0.5, 100, 0.0)])
    assert costs.millicores("lb", host, host, 100, 9999) == 50  # after learning: proportional to the traffic
    assert costs.millicores("lb", host, nic, 100, 50) == 100
    assert costs.learn([Coefficient("lb", "nic", 3.0, 100, 0.0)])
    assert costs.millicores("lb", host, nic, 100, 50) == 300
    assert not costs.learn([Coefficient("lb", "nic", 3.1, 200, 0.0)])


def test_a_location_counts_as_down_for_a_while_after_it_recovers() -> None:
    now, cut_off = 0.0, set[str]()
    outages = Outages([HYPERVISOR, NIC], cut_off.__contains__, lambda: now)
    assert outages() == frozenset()
    cut_off.add(NIC)
    assert outages() == frozenset([NIC])
    cut_off.clear()
    now = STEADY_S - 0.1
    assert outages() == frozenset([NIC])
    now += 0.2
    assert outages() == frozenset()
