"""Situations: possible locations, reasons against others, and the resulting placement problem."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.config import QuotaConfig
from nfagent.decide.demand import Costs, Levels, Moment, peak
from nfagent.decide.problem import SLOTS, WIDE_SLOTS, ProblemMaker, choice
from nfagent.decide.situation import APART, Function, Group, Situation, fits, situation
from nfagent.decide.wishes import Wish, wishes_of, without
from nfagent.measurement import Coefficient, Load, Measurement, Rate
from nfagent.model import Chain, Flavor, Instance, Kind, Migration, View
from nfagent.monitor.layout import Layout
from placement import HOST, NF, Demand, Mode, Nic, Port, Problem
from placement import Chain as PlacedChain
from placement.model import CORES, MEMORY
from tests.nfagent import samples

HUB, NIC, FAR = "hypervisor", "snic0", "snic1"
CAPACITY = {
    HUB: Capacity(64_000, 4096, None, 1.0, {"s0": 1, "s1": 2}),
    NIC: Capacity(4000, None, 10_000, 2.0, {"n0": 1, "n1": 2, "n2": 2}),
    FAR: Capacity(2000, None, 5000, 4.0, {"f0": 1}),
}
CATALOG = Catalog(
    {"lb": Kind("lb", "", True, (0, 2), ("x",)), "still": Kind("still", "", False, (0, 2), ("x",))},
    {"small": Flavor("small", 1, 256)},
    tuple(CAPACITY),
    tuple(range(1000, 2000)),
    QuotaConfig(),
    b"abc",
)
LAYOUT = Layout({}, home={1: HUB, 2: NIC, 3: "unknown", 1000: HUB}, executor={1: NIC, 2: NIC, 3: "unknown", 1000: HUB})


def instance(name: str, **fields: Any) -> Instance:
    return samples.instance(name, **({"id": f"id-{name}", "kind": "lb", "created": 10.0} | fields))


def view(of: Instance, location: str | None = HUB, migration: Migration | None = None, **columns: Any) -> View:
    running = None if location is None else samples.running(of, location, **({"phase": "active"} | columns))
    return View(of, "active", running, migration)


def moving(of: Instance, target: str) -> Migration:
    return Migration(7, of.id, of.project, HUB, target, "state", "prepare", 0.0)


def taken(
    *views: View,
    chains: tuple[Chain, ...] = (),
    down: tuple[str, ...] = (),
    lacking: Mapping[str, str] | None = None,
    **held: str,
) -> Situation:
    def lacks(_: Instance, location: str) -> str | None:
        return (lacking or {}).get(location)

    reasons = {f"id-{name}": why for name, why in held.items()}
    return situation(views, chains, CATALOG, CAPACITY, LAYOUT, frozenset(down), reasons, lacks)


def function(name: str, *, at: str = HUB, allowed: tuple[str, ...] = (HUB, NIC, FAR), **fields: Any) -> Function:
    values: dict[str, Any] = {"kind": "lb", "ports": 0, "memory_mb": 256, "state_cost": 1, "fixed": None}
    return Function(instance=f"id-{name}", name=name, location=at, allowed=allowed, **(values | fields))


def test_an_instance_may_run_wherever_a_slot_fits() -> None:
    ports = (samples.port(1000), samples.port(1001))
    now = taken(
        view(instance("plain")),
        view(instance("narrow", ports=ports[:1], kind="still")),
        view(instance("wide", ports=ports, flavor="gone"), NIC),
    )
    assert now == Situation(
        locations=(HUB, NIC, FAR),
        capacity=CAPACITY,
        functions=(
            function("plain"),
            function("narrow", ports=1, kind="still", state_cost=5),
            function("wide", at=NIC, allowed=(HUB, NIC), ports=2, memory_mb=0),
        ),
        fixed={"port:1": HUB, "port:2": NIC, "switch:snic0": NIC},
        vertices={1: "port:1", 2: "port:2", 1000: "wide", 1001: "wide"},
        detours={1: "switch:snic0"},
        chains=(),
        apart=(),
        down=frozenset(),
    )
    assert now.current() == {"plain": 0, "narrow": 0, "wide": 1}
    assert now.function("id-wide") == now.functions[2]
    assert now.function("id-ghost") is None


def fixed(of: Instance, why: str, *, at: str = HUB, **fields: Any) -> Function:
    return function(of.name, at=at, allowed=(at,), fixed=why, **fields)


PINNED, AIMED = instance("it", pin=NIC), instance("it", target=NIC)


@pytest.mark.parametrize(
    ("found", "at", "why"),
    [
        (view(PINNED, NIC), NIC, "it is pinned to snic0"),
        (view(PINNED, HUB), NIC, "it is pinned to snic0, where it is about to move"),
        (view(instance("it"), migration=moving(instance("it"), NIC)), NIC, "it is moving to snic0"),
        (view(instance("it"), phase="starting"), HUB, "it is starting"),
        (view(AIMED, HUB), NIC, "it is wanted at snic0 and about to move there"),
        (view(instance("it", kind="gone")), HUB, "agent.toml no longer has the kind 'gone'"),
    ],
)
def test_an_immovable_instance_states_the_reason(found: View, at: str, why: str) -> None:
    kind = found.instance.kind
    assert taken(found).functions == (
        fixed(found.instance, why, at=at, kind=kind, state_cost=1 if kind == "lb" else 5),
    )


def test_failed_instances_and_those_at_dead_locations_stay() -> None:
    it = instance("it")
    down = "hypervisor is down; the plan waits until it is back or the instance has been recovered elsewhere"
    assert taken(view(it), down=(HUB,)).functions == (fixed(it, down),)
    assert taken(view(it), it="it failed").functions == (fixed(it, "it failed"),)
    assert taken(view(it), down=(NIC,)).functions == (function("it", allowed=(HUB, FAR)),)
    nowhere = "no other location is up and has a slot for it"
    assert taken(view(it), down=(NIC, FAR)).functions == (fixed(it, nowhere),)
    three = instance("it", ports=tuple(samples.port(1000 + number) for number in range(3)))
    assert taken(view(three, NIC)).functions == (fixed(three, nowhere, at=NIC, ports=3),)


def test_an_instance_that_does_not_run_is_not_placed() -> None:
    it = instance("it")
    elsewhere = view(it, "moon")
    for none in (view(it, None), view(it, phase="error"), view(instance("it", present=False)), elsewhere):
        now = taken(none)
        assert (now.functions, now.vertices) == ((), {1: "port:1", 2: "port:2", 1000: "port:1000"})
        assert now.fixed["port:1000"] == HUB


def test_equal_names_of_two_projects_are_distinguished() -> None:
    names = [each.name for each in taken(view(instance("a")), view(instance("a", id="2", project="p"))).functions]
    assert names == ["acme/a", "p/a"]


def chain(name: str, *hops: str, latency_us: int | None = 9, **fields: Any) -> Chain:
    values = {"project": "acme"} | fields
    return replace(samples.chain(name, hops), id=f"id-{name}", latency_us=latency_us, created=5.0, **values)


def test_chains_with_a_bound_and_all_hops_are_kept() -> None:
    near = chain("near", "port:1", "id-it", "port:2")
    now = taken(
        view(instance("it")),
        chains=(
            near,
            chain("free", "port:1", "id-it", latency_us=None),
            chain("lost", "port:1", "id-ghost"),
            chain("unknown", "port:3", "id-it"),
            chain("twice", "port:1", "port:2"),
            chain("twice", "port:2", "port:1", project="p"),
        ),
    )
    assert now.chains == (
        replace(near, hops=("port:1", "it", "port:2")),
        replace(chain("twice", "port:1", "port:2"), name="acme/twice"),
        replace(chain("twice", "port:2", "port:1", project="p"), name="p/twice"),
    )


def ha(name: str, **fields: Any) -> Instance:
    return instance(name, labels={APART: "ha"}, **fields)


def test_a_group_has_one_project_and_one_label() -> None:
    now = taken(
        view(ha("a", created=1.0)),
        view(ha("b", created=3.0)),
        view(ha("c", created=2.0)),
        view(ha("other", project="p")),
        view(instance("d", labels={APART: "else"})),
        view(instance("e")),
    )
    (group,) = now.apart
    assert group == Group("acme", "ha", 3.0, (("a", "b"), ("a", "c"), ("b", "c")))
    assert group.key == "apart:acme:ha"


def test_pins_to_one_location_override_a_group() -> None:
    pinned = [view(ha(name, pin=NIC), NIC) for name in ("a", "b")]
    assert taken(*pinned).apart == ()
    assert taken(*pinned, view(ha("c"))).apart == (Group("acme", "ha", 10.0, (("a", "c"), ("b", "c"))),)
    assert taken(pinned[0], view(ha("c", pin=HUB))).apart == (Group("acme", "ha", 10.0, (("a", "c"),)),)


def test_a_situation_is_narrowed_to_a_question() -> None:
    now = taken(
        view(ha("a", ports=(samples.port(1000),))),
        view(ha("b", ports=(samples.port(1001),))),
        view(ha("c")),
        chains=(chain("ab", "id-a", "id-b"), chain("a", "port:1", "id-a")),
    )
    asked = now.narrowed({"id-a": NIC}, ["id-b"])
    why = "it is hypothetically pinned to snic0"
    assert asked == replace(
        now,
        functions=(replace(now.functions[0], allowed=(NIC,), fixed=why), now.functions[2]),
        vertices={1: "port:1", 2: "port:2", 1000: "a"},
        chains=(replace(chain("a", "port:1", "id-a"), hops=("port:1", "a")),),
        apart=(replace(now.apart[0], pairs=(("a", "c"),)),),
    )
    assert now.narrowed({}, []) == now


def test_a_slot_with_enough_free_interfaces_fits() -> None:
    hub = CAPACITY[HUB]
    assert [fits(hub, count) for count in range(4)] == [True, True, True, False]
    assert fits(hub, 2, {"s0"})
    assert not fits(hub, 2, {"s1"})
    assert fits(hub, 1, {"s1"})
    assert not fits(hub, 1, {"s0", "s1"})
    assert fits(hub, 0, {"s0", "s1"})


# ---- wishes


def test_wishes_are_listed_by_age_and_left_out_by_key() -> None:
    now = taken(
        view(ha("a", created=7.0)),
        view(ha("b", created=4.0)),
        chains=(chain("late", "id-a", "id-b"), replace(chain("early", "id-b", "id-a"), created=1.0)),
    )
    early, late = Wish("id-early", "chain", "acme", "early", 1.0), Wish("id-late", "chain", "acme", "late", 5.0)
    group = Wish("apart:acme:ha", "apart", "acme", "ha", 7.0)
    assert wishes_of(now) == [early, late, group]
    assert wishes_of(without(now, ["id-late"])) == [early, group]
    assert wishes_of(without(now, {"apart:acme:ha": "why", "id-early": "why"})) == [late]
    assert without(now, []) == now


# ---- the problem


def test_a_situation_with_traffic_becomes_a_placement_problem() -> None:
    now = taken(
        view(ha("a", ports=(samples.port(1000),))),
        view(ha("b", ports=(samples.port(1001), samples.port(1002))), NIC),
        view(instance("c", pin=FAR), FAR),
        chains=(chain("near", "port:1", "id-a"),),
    )
    maker = ProblemMaker(now, Costs(), 3)
    traffic = Moment(
        {("port:1", "a"): 5, ("b", "port:2"): 7, ("a", "ghost"): 1, ("ghost", "a"): 1, ("a", "port:1"): 2},
        {"id-a": 10, "id-b": 20},
        {"id-a": 100, "id-b": 300},
    )
    problem = maker.problem(traffic)
    wide = {SLOTS: 1, WIDE_SLOTS: 1}
    assert problem == Problem(
        nfs=(
            NF(
                "a",
                (
                    Mode(HOST, {CORES: 100, SLOTS: 1, MEMORY: 256}),
                    Mode(1, {CORES: 200, SLOTS: 1}),
                    Mode(2, {CORES: 400, SLOTS: 1}),
                ),
                1,
            ),
            NF("b", (Mode(HOST, {CORES: 150, **wide, MEMORY: 256}), Mode(1, {CORES: 300, **wide})), 1),
            NF("c", (Mode(2, {CORES: 0}),), 1),
        ),
        vms=("port:1",),
        ports=(Port("port:2", 1), Port("switch:snic0", 1)),
        demands=(Demand("a", "port:1", 2), Demand("b", "port:2", 7), Demand("port:1", "a", 5)),
        nics=(
            Nic({CORES: 4000, SLOTS: 3, WIDE_SLOTS: 2}, up=10_000, down=10_000),
            Nic({CORES: 2000, SLOTS: 1, WIDE_SLOTS: 0}, up=5000, down=5000),
        ),
        host={CORES: 64_000, SLOTS: 2, WIDE_SLOTS: 1, MEMORY: 4096},
        chains=(PlacedChain("near", ("port:1", "a"), 9),),
        apart=(("a", "b"),),
        crossing_us=3,
    )
    same, empty = maker.problems([traffic, Moment(), traffic])[0::2], Moment()
    assert same == [problem, problem]
    assert same[0] is same[1]
    assert maker.problems([empty])[0].demands == ()
    assert choice(problem, {"a": 2, "b": 1, "c": 2}) == {"a": 2, "b": 1, "c": 0}
    assert choice(problem, {"a": 0, "b": 0, "c": 1}) is None
    assert choice(problem, {"a": 0, "b": 0}) is None


# ---- measurements


def test_the_peak_of_several_samples_is_their_maximum() -> None:
    one = Moment({("a", "b"): 1, ("b", "a"): 9}, {"a": 5}, {"a": 1, "b": 2})
    other = Moment({("a", "b"): 3}, {"a": 4, "b": 1}, {"a": 1, "b": 0})
    assert peak([one, other]) == Moment({("a", "b"): 3, ("b", "a"): 9}, {"a": 5, "b": 1}, {"a": 1, "b": 2})
    assert peak([]) == Moment()


def measured(matrix: dict[tuple[int, int], float], loads: dict[str, tuple[float, int]]) -> Measurement:
    rates = {pair: Rate(mbps, 0.0) for pair, mbps in matrix.items()}
    instances = {name: Load(0.0, cores, Rate(mbps, 0.0), None) for name, (mbps, cores) in loads.items()}
    return Measurement(0.0, 1.0, rates, 0.0, instances, {}, {})


def test_traffic_passes_the_switch_that_executes_the_pipeline() -> None:
    it = instance("it", ports=(samples.port(1000), samples.port(1001)))
    now = taken(view(it))
    levels = Levels()
    moment = levels.moment(
        now,
        measured(
            {(1, 1000): 3.0, (1, 2): 4.0, (1000, 2): 0.4, (2, 1001): 0.5, (9, 2): 5.0, (1, 9): 5.0, (1000, 1001): 8.0},
            {"id-it": (10.5, 5), "id-idle": (0.49, 4)},
        ),
    )
    assert moment == Moment(
        {("port:1", "switch:snic0"): 7, ("switch:snic0", "it"): 3, ("switch:snic0", "port:2"): 4, ("port:2", "it"): 1},
        {"id-it": 11},
        {"id-it": 5},
    )


def test_a_level_changes_only_when_the_measurement_leaves_its_band() -> None:
    now, levels = taken(view(instance("it"))), Levels()
    seen = []
    for mbps in (100.0, 109.0, 82.0, 81.74, 110.0, 109.5, 0.4, 82.0, 9.0, 9.1):
        moment = levels.moment(now, measured({(2, 1): mbps}, {"id-it": (mbps, round(mbps))}))
        seen.append(moment.demands.get(("port:2", "port:1"), 0))
        assert moment.traffic.get("id-it", 0) == seen[-1]
    assert seen == [109, 109, 109, 90, 120, 120, 0, 90, 9, 10]
    levels.moment(now, measured({}, {}))  # unmeasured instances are forgotten
    assert levels.moment(now, measured({(2, 1): 7.0}, {})).demands == {("port:2", "port:1"): 7}


def test_costs_are_learnt_per_kind_and_class() -> None:
    costs, hub, nic, far = Costs(), CAPACITY[HUB], CAPACITY[NIC], CAPACITY[FAR]
    assert [costs.millicores("lb", hub, there, 100, 50) for there in (hub, nic, far)] == [50, 100, 200]
    assert [costs.millicores("lb", far, there, 100, 50) for there in (hub, nic, far)] == [13, 25, 50]
    assert costs.learn([Coefficient("lb", "host", 0.5, 100, 0.0), Coefficient("lb", "nic", 3.0, 100, 0.0)])
    assert [costs.millicores("lb", hub, there, 101, 1) for there in (hub, nic, far)] == [51, 303, 303]
    assert [costs.millicores("lb", nic, there, 0, 60) for there in (hub, nic, far)] == [10, 60, 120]
    assert costs.millicores("dpi", hub, nic, 100, 50) == 100  # another kind
    assert not costs.learn([])
    assert not costs.learn([Coefficient("lb", "host", 0.45, 100, 0.0)])  # a tenth, not more
    assert costs.learn([Coefficient("lb", "host", 0.44, 100, 0.0)])
    assert costs.millicores("lb", hub, hub, 100, 1) == 44
    assert costs.learn([Coefficient("lb", "host", 0.44, 1, 0.0)])  # no longer trusted


def test_a_location_that_lacks_what_an_instance_needs_is_excluded_with_the_reason() -> None:
    why = {NIC: "snic0 lacks /etc/prads/tcp-syn.fp"}
    now = taken(view(instance("one")), lacking=why)
    assert now.functions == (function("one", allowed=(HUB, FAR), unfit=why),)
    everywhere = {place: f"{place} lacks it" for place in CAPACITY}
    alone = taken(view(instance("one"), FAR), lacking=everywhere)
    fixed = "no other location is up and has a slot for it; hypervisor lacks it; snic0 lacks it"
    assert alone.functions == (function("one", at=FAR, allowed=(FAR,), unfit=everywhere, fixed=fixed),)
