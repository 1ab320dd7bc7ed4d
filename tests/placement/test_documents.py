"""Complete documents of problems, plans and explanations."""

import copy
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest

from placement import HOST, NF, Chain, Demand, Mode, Nic, Port, Problem, Sample, from_graph, solve, to_graph
from placement.damper import Damper, Settings, _joined, _tightened
from placement.errors import InfeasibleError, ProblemError, SchemaError
from placement.explain import Alternative, Reason, Why, explain
from placement.model import CORES, MEMORY, robust
from placement.schema import from_json, plan_to_json, to_json

PROBLEM = Problem(
    nfs=(
        NF("a", (Mode(HOST, {CORES: 1000, MEMORY: 5}, 3, "plain"), Mode(1, {CORES: 2000})), 4),
        NF("b", (Mode(HOST, {CORES: 300}), Mode(1, {CORES: 600}), Mode(2, {CORES: 500}))),
    ),
    vms=("vm",),
    ports=(Port("eth0"), Port("eth1", 2)),
    demands=(Demand("eth0", "a", 7), Demand("a", "vm", 5), Demand("b", "eth1", 3)),
    nics=(Nic({CORES: 1500, MEMORY: 9}, shared=100), Nic({CORES: 400}, up=50, down=60)),
    host={CORES: 5000},
    chains=(Chain("c", ("eth0", "a"), 20), Chain("free", ("a", "vm"))),
    apart=(("a", "b"),),
    crossing_us=10,
    weights={CORES: 2, MEMORY: 1},
    window=(Sample((Demand("eth0", "a", 8),), {"b": ({CORES: 1}, {CORES: 2}, {CORES: 3})}),),
)
DOCUMENT: dict[str, Any] = {
    "nfs": [
        {
            "name": "a",
            "modes": [
                {"location": 0, "use": {"cores": 1000, "memory": 5}, "latency_us": 3, "name": "plain"},
                {"location": 1, "use": {"cores": 2000}, "latency_us": 0, "name": ""},
            ],
            "state_cost": 4,
        },
        {
            "name": "b",
            "modes": [
                {"location": 0, "use": {"cores": 300}, "latency_us": 0, "name": ""},
                {"location": 1, "use": {"cores": 600}, "latency_us": 0, "name": ""},
                {"location": 2, "use": {"cores": 500}, "latency_us": 0, "name": ""},
            ],
            "state_cost": 1,
        },
    ],
    "vms": ["vm"],
    "ports": [{"name": "eth0", "nic": 1}, {"name": "eth1", "nic": 2}],
    "demands": [
        {"source": "eth0", "target": "a", "mbps": 7},
        {"source": "a", "target": "vm", "mbps": 5},
        {"source": "b", "target": "eth1", "mbps": 3},
    ],
    "nics": [
        {"capacity": {"cores": 1500, "memory": 9}, "shared": 100},
        {"capacity": {"cores": 400}, "up": 50, "down": 60},
    ],
    "host": {"cores": 5000},
    "chains": [{"name": "c", "path": ["eth0", "a"], "limit_us": 20}, {"name": "free", "path": ["a", "vm"]}],
    "apart": [["a", "b"]],
    "crossing_us": 10,
    "weights": {"cores": 2, "memory": 1},
    "window": [
        {
            "demands": [{"source": "eth0", "target": "a", "mbps": 8}],
            "use": {"b": [{"cores": 1}, {"cores": 2}, {"cores": 3}]},
        }
    ],
}


def test_a_problem_survives_json() -> None:
    assert to_json(PROBLEM) == DOCUMENT
    assert to_json(PROBLEM, {"a": 1}) == DOCUMENT | {"current": {"a": 1}}
    assert from_json(DOCUMENT) == (PROBLEM, None)
    assert from_json(DOCUMENT | {"current": {"a": 1}}) == (PROBLEM, {"a": 1})
    least = {"nfs": [{"name": "a", "modes": [{"location": 0, "use": {}}]}], "nics": []}
    assert from_json(least) == (Problem((NF("a", (Mode(0, {}),)),)), None)


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the document with another value at a path; ``None`` removes the key."""
    document = copy.deepcopy(DOCUMENT)
    *way, last = [int(each) if each.isdigit() else each for each in path.split(".")]
    at: Any = document
    for step in way:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("nfs", None, "problem lacks the required key 'nfs'"),
        ("nfs", {}, "problem.nfs is {}; expected a list"),
        ("nfs.0", 7, "problem.nfs[0] is 7; expected an object"),
        ("nfs.0.name", "", "problem.nfs[0].name is empty; expected a name"),
        ("nfs.0.name", 7, "problem.nfs[0].name is 7; expected a string"),
        ("nfs.1.state_cost", -1, "problem.nfs[1].state_cost is -1; expected 0 or more"),
        ("nfs.1.state_cost", 1.5, "problem.nfs[1].state_cost is 1.5; expected a whole number"),
        ("nfs.1.state_cost", True, "problem.nfs[1].state_cost is True; expected a whole number"),
        (
            "nfs.1.modes.0.use.cores",
            "x" * 80,
            f"problem.nfs[1].modes[0].use.cores is '{'x' * 59}; expected a whole number",
        ),
        ("ports.0.nic", 0, "problem.ports[0].nic is 0; expected 1 or more"),
        ("ports.0.speed", 1, "problem.ports[0] has the key 'speed'; expected one of name, nic"),
        ("apart.0", ["a"], "problem.apart[0] has 1 entries; expected 2"),
        ("apart.0", ["a", "b", "c"], "problem.apart[0] has 3 entries; expected 2"),
        ("demands.0.mbps", None, "problem.demands[0] lacks the required key 'mbps'"),
        ("window.0.demands", None, "problem.window[0] lacks the required key 'demands'"),
        ("window.0.use.b.0.cores", -1, "problem.window[0].use.b[0].cores is -1; expected 0 or more"),
    ],
)
def test_a_malformed_document_names_the_place(path: str, value: Any, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        from_json(changed(path, value))
    assert str(caught.value) == said


SMALL = Problem(
    (
        NF("a", (Mode(HOST, {CORES: 1000}), Mode(1, {CORES: 2000}, name="fast"))),
        NF("b", (Mode(HOST, {CORES: 300}), Mode(1, {CORES: 600}))),
        NF("c", (Mode(HOST, {CORES: 10}),)),
    ),
    ("vm",),
    (Port("eth0"),),
    (Demand("vm", "a", 7), Demand("eth0", "b", 2)),
    (Nic({CORES: 1500}, shared=50),),
)


def test_a_plan_has_all_its_members() -> None:
    plan = solve(SMALL, {"a": 0, "b": 0, "c": 0}, deadline=30)
    stages = [
        {"goal": "host", "value": 1010, "bound": 1010, "proven": True, "backend": plan.stages[0].backend},
        {"goal": "moves", "value": 1, "bound": 1, "proven": True, "backend": plan.stages[1].backend},
    ]
    written = {
        "placement": {"a": 0, "b": 1, "c": 0},
        "host_cost": 1010,
        "bound": 1010,
        "proven": True,
        "certified": True,
        "stages": stages,
        "moves": [{"nf": "b", "source": 0, "target": 1, "detour": False}],
    }
    assert plan_to_json(plan) == written
    assert plan_to_json(plan, explained=True) == written | {
        "binding": [{"limit": "cores of sNIC 1", "used": 600, "allowed": 1500}],
        "loads": [
            {"limit": "pcie shared of sNIC 1", "used": 0, "allowed": 50},
            {"limit": "cores of sNIC 1", "used": 600, "allowed": 1500},
        ],
        "why": {
            "a": "a is on the host: sNIC 1 would save 1000 there, but cores of sNIC 1 would be 2600 of 1500",
            "b": "b is on sNIC 1: the host would cost the host 300 more",
            "c": "c is on the host: it has no other mode",
        },
    }


def test_an_explanation_has_all_its_members() -> None:
    plan = solve(SMALL, deadline=30)
    full = (("cores of sNIC 1", 2600, 1500),)
    fast = Alternative(1, "fast", -1000, full, None)
    back = Alternative(HOST, "0", 300, (), None)
    why = explain(SMALL, plan.modes)
    text = "a is on the host: sNIC 1 would save 1000 there, but cores of sNIC 1 would be 2600 of 1500"
    loads = (("pcie shared of sNIC 1", 0, 50), ("cores of sNIC 1", 600, 1500))
    assert why == Why(
        {
            "a": Reason("a", HOST, text, fast, (fast,)),
            "b": Reason("b", 1, "b is on sNIC 1: the host would cost the host 300 more", back, (back,)),
            "c": Reason("c", HOST, "c is on the host: it has no other mode", None, ()),
        },
        (),
        loads,
    )
    assert str(why).splitlines()[0] == "binding: nothing"
    proven = explain(SMALL, plan.modes, plan.certificate)
    assert proven.binding == (("cores of sNIC 1", 600, 1500),)
    assert str(proven).splitlines() == [
        "binding: cores of sNIC 1 (600 of 1500)",
        *(each.text for each in why.reasons.values()),
    ]
    floors = {name: [each.at_least for each in reason.alternatives] for name, reason in proven.reasons.items()}
    assert floors["c"] == []
    assert all(floor is not None and floor >= 1010 for name in "ab" for floor in floors[name])
    stays = explain(SMALL, {"a": 0, "b": 0, "c": 0})
    waits = "b is on the host: sNIC 1 would save 300 there, which is less than the move is worth"
    assert stays.reasons["b"].text == waits
    assert [each.location for each in explain(PROBLEM, {"a": 0, "b": 0}).reasons["b"].alternatives] == [1, 2]


def test_a_problem_is_converted_to_a_graph_and_back() -> None:
    graph = to_graph(SMALL, {"a": 0, "b": 1, "c": 0})
    assert dict(graph.nodes(data=True)) == {
        **{
            nf.name: {"kind": "nf", "modes": nf.modes, "state_cost": 1, "location": int(nf.name == "b")}
            for nf in SMALL.nfs
        },
        "vm": {"kind": "vm", "location": 0},
        "eth0": {"kind": "port", "nic": 1, "location": 1},
    }
    assert list(graph.edges(data=True)) == [
        ("vm", "a", {"mbps": 7, "crosses": False}),
        ("eth0", "b", {"mbps": 2, "crosses": False}),
    ]
    again = from_graph(to_graph(SMALL), SMALL.nics, host={CORES: 5}, crossing_us=3)
    assert again == replace(SMALL, host={CORES: 5}, crossing_us=3, demands=again.demands)
    assert sorted(again.demands, key=str) == sorted(SMALL.demands, key=str)
    twice = replace(SMALL, demands=(Demand("vm", "a", 7), Demand("vm", "a", 5)))
    assert list(to_graph(twice).edges(data="mbps")) == [("vm", "a", 12)]


@pytest.mark.parametrize(
    ("node", "edge", "said"),
    [
        ({"kind": "x"}, None, "vertex 'v' has kind='x'; expected 'nf', 'vm' or 'port'"),
        ({}, None, "vertex 'v' has kind=None; expected 'nf', 'vm' or 'port'"),
        ({"kind": "nf", "modes": [5]}, None, "NF 'v' has the mode 5; expected a placement.Mode"),
        ({"kind": "vm"}, {}, "edge 'v' - 'w' has no 'mbps'; give it the traffic in whole Mbps"),
    ],
)
def test_a_malformed_graph_is_refused(node: dict[str, Any], edge: dict[str, Any] | None, said: str) -> None:
    graph = nx.DiGraph()
    graph.add_node("v", **node)
    if edge is not None:
        graph.add_node("w", kind="vm")
        graph.add_edge("v", "w", **edge)
    with pytest.raises(ProblemError) as caught:
        from_graph(graph, ())
    assert str(caught.value) == said
    undirected = nx.Graph()
    for nic in (Nic({}, up=1), Nic({}, down=2)):
        with pytest.raises(ProblemError) as caught:
            from_graph(undirected, (Nic({}, shared=1), nic))
        assert str(caught.value) == (
            f"the graph is undirected and sNIC 2 limits one direction (up={nic.up}, down={nic.down}); "
            "use a DiGraph, or the limit 'shared'"
        )


# ---- the damper's problems


def test_the_reserve_of_the_limits_is_kept_free() -> None:
    assert _tightened(PROBLEM, 0.0) is PROBLEM
    assert _tightened(PROBLEM, 0.1) == replace(
        PROBLEM, nics=(Nic({CORES: 1350, MEMORY: 9}, shared=90), Nic({CORES: 360}, up=45, down=54))
    )


def test_changing_limits_count_with_their_minimum() -> None:
    before = replace(PROBLEM, nics=(Nic({CORES: 2000}, shared=90), Nic({CORES: 300}, up=70)), window=())
    now = replace(PROBLEM, window=())
    joined = _joined([before, now])
    assert joined == replace(
        robust([before, now]),
        nics=(Nic({CORES: 1500, MEMORY: 9}, shared=90), Nic({CORES: 300}, up=50, down=60)),
    )


def test_a_resting_nf_is_pinned_in_place() -> None:
    damper = Damper(Settings(window=4), {"a": 1, "b": 2})
    pinned = damper._pinned(PROBLEM, {"b"})
    assert pinned == replace(
        PROBLEM,
        nfs=(PROBLEM.nfs[0], replace(PROBLEM.nfs[1], modes=PROBLEM.nfs[1].modes[2:])),
        window=(replace(PROBLEM.window[0], use={"b": ({CORES: 3},)}),),
    )
    assert damper._pinned(PROBLEM, set()) == PROBLEM
    assert Damper(Settings(window=4), {})._pinned(PROBLEM, {"a", "b"}) == PROBLEM


def test_a_move_that_costs_more_than_it_saves_does_not_pay() -> None:
    def unpaying(price: float, current: dict[str, int], window: int = 4) -> set[str]:
        return Damper(Settings(window=window, price=price), current)._unpaying(PROBLEM)

    here = {"a": 0, "b": 0}
    # On average of two moments a uses 2005 with its weights, b (600 + 2) / 2; a's state costs four times as much.
    assert unpaying(2004.9, here, 4) == {"b"}
    assert unpaying(2005.0, here, 4) == {"a", "b"}
    assert unpaying(1203.9, here, 4) == set()
    assert unpaying(1204.0, here, 4) == {"b"}
    assert unpaying(9999.0, {"a": 1, "b": 2}) == unpaying(9999.0, {}) == set()


def test_an_infeasible_sample_is_reported() -> None:
    damper = Damper(Settings(window=3, deadline=30), {"a": 0})
    one = Problem((NF("a", (Mode(HOST, {CORES: 10}),)),), host={CORES: 9})
    with pytest.raises(InfeasibleError) as caught:
        damper.step(one)
    assert caught.value.report.conflict == ("cores of the host",)
    assert damper.reason == "a limit would break"
    assert damper.current == {"a": 0}
