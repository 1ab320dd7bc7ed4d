"""Impossible bounds and labels of tenants: they affect their own project only."""

from pathlib import Path

import pytest

from nfagent.decide.situation import APART, Function, Situation
from nfagent.decide.wishes import Wishes, least_crossings
from nfagent.model import Chain
from nfagent.store import Store, chains
from tests.nfagent.decide.conftest import Make
from tests.nfagent.decide.world import HYPERVISOR, NIC, VM, WIRE


def test_an_impossible_bound_affects_its_own_project_only(other: Make) -> None:
    world = other(window=4)
    lb = world.create("lb", mbps=300.0)
    world.chain("hopeless", f"port:{VM}", f"port:{WIRE}", latency_us=1)
    world.chain("fine", f"port:{VM}", "lb", f"port:{WIRE}", latency_us=10)
    world.seconds(12)
    assert world.where("lb") == NIC
    assert world.events("placement.infeasible") == []
    (told,) = world.events("chain.unkept")
    assert (told["name"], set(told)) == ("hopeless", {"id", "name", "reason"})
    assert not any(word in told["reason"] for word in (HYPERVISOR, NIC, "10"))
    assert world.decider.left_out() == {told["id"]: told["reason"]}
    explanation = world.decider.proposal().explanation
    assert explanation["feasible"] is True
    (left_out,) = explanation["left_out"]
    assert left_out["reason"] == "its hops take at least 10 us, but its bound is 1 us"
    assert (left_out["project"], left_out["name"]) == ("acme", "hopeless")
    assert lb.id in world.decider.proposal().plan


def test_of_conflicting_bounds_the_newest_is_dropped(other: Make) -> None:
    # Each alone is possible: the sNIC has room for one of the two.
    world = other(cores=60)
    world.create("one", mbps=10.0)
    world.create("two", mbps=10.0)
    world.chain("first", f"port:{WIRE}", "one", latency_us=1)
    world.chain("second", f"port:{WIRE}", "two", latency_us=1)
    world.chain("third", f"port:{VM}", "two", latency_us=1)
    with world.store.change() as change:
        for age, name in enumerate(("third", "second", "first")):
            change.db.execute("UPDATE chain SET created = ?, project = ? WHERE name = ?", (-age, name, name))
            change.event("test", name, None, {})
    world.second(urgent=True)
    assert [each["name"] for each in world.decider.proposal().explanation["left_out"]] == ["second"]
    # The obstacle is gone: the bound is tried again and reported.
    with world.store.change() as change:
        first = next(each for each in chains.page(change.db, None, None, None) if each.name == "first")
        chains.remove(change, first)
        chains.remove(change, next(each for each in chains.page(change.db, None, None, None) if each.name == "third"))
    world.seconds(40)
    assert [each["name"] for each in world.events("chain.kept")] == ["second"]
    assert world.decider.left_out() == {}


def test_many_impossible_bounds_of_a_project_are_dropped_together(tmp_path: Path) -> None:
    asked: list[Situation] = []
    store = Store(tmp_path)
    wishes = Wishes(store, 10)
    one = Chain("fine", "fine", "acme", ("a", "b"), 10, 1000.0)
    bad = tuple(Chain(f"{number}", f"{number}", "evil", ("a", "b"), 10, float(number)) for number in range(100))
    functions = tuple(function(name) for name in ("a", "b"))
    now = Situation((HYPERVISOR, NIC), {}, functions, {}, {}, {}, (one, *bad), (), frozenset())

    def is_possible(situation: Situation) -> bool:
        asked.append(situation)
        return not any(chain.project == "evil" for chain in situation.chains)

    relaxed = wishes.relax(now, is_possible)
    assert relaxed is not None
    assert [chain.id for chain in relaxed.chains] == ["fine"]
    # The third impossible one drops all others: a hundred are not examined one by one.
    assert len(asked) < 25
    assert wishes.relax(now, lambda _: False) is None
    store.close()


def function(name: str) -> Function:
    """Return a function that may run anywhere."""
    return Function(name, name, "lb", 1, 1, HYPERVISOR, (HYPERVISOR, NIC), 1, None)


@pytest.mark.parametrize(
    ("hops", "least"),
    [
        (("port:1", "port:2"), 1),
        (("port:1", "a", "port:2"), 1),
        (("port:2", "a", "port:2"), 0),
        (("port:2", "port:1", "a", "port:2"), 2),
        (("port:2", "port:3"), 2),
        (("a", "b", "a"), 0),
    ],
)
def test_a_chain_counts_the_links_it_must_cross(hops: tuple[str, ...], least: int) -> None:
    fixed = {"port:1": HYPERVISOR, "port:2": NIC, "port:3": "snic1"}
    functions = (function("a"), function("b"))
    situation = Situation((HYPERVISOR, NIC, "snic1"), {}, functions, fixed, {}, {}, (), (), frozenset())
    assert least_crossings(situation, Chain("c", "c", "acme", hops, 1, 0.0)) == least


def test_equal_chain_names_of_two_projects_are_distinguished(other: Make) -> None:
    world = other()
    world.create("near", mbps=10.0)
    for bound in (20, 30):
        world.chain("same", f"port:{VM}", "near", f"port:{WIRE}", latency_us=bound)
        with world.store.change() as change:
            change.db.execute("UPDATE chain SET project = 'p20' WHERE latency_us = 20")
            change.event("test", "same", None, {})
    world.second()
    limits = {each["limit"] for each in world.decider.proposal().explanation["limits"]}
    assert {"latency of chain p20/same", "latency of chain acme/same"} <= limits


def test_impossible_anti_affinity_blocks_no_other_instance(other: Make) -> None:
    # The hypervisor has room for neither instance, and the server has one sNIC.
    world = other(host_cores=20, window=4)
    for name in ("one", "two"):
        world.create(name, mbps=12.0, labels={APART: "x"})
    world.seconds(8)
    assert world.decider.proposal().explanation["feasible"] is True
    (told,) = world.events("apart.unkept")
    assert told["name"] == "x"
    assert world.events("placement.infeasible") == []
