"""Plans and refusals in words: everything that clients read about a decision."""

from dataclasses import replace
from typing import Any

import pytest

from nfagent.decide.demand import Costs, Moment
from nfagent.decide.latest import Latest
from nfagent.decide.problem import ProblemMaker
from nfagent.decide.situation import APART, Situation
from nfagent.decide.words import Words, _why
from nfagent.errors import UnavailableError
from nfagent.model import Decision
from placement import Plan, Problem, robust, solve
from placement.errors import InfeasibleError
from placement.schema import to_json
from tests.nfagent.decide.test_situation import FAR, HUB, NIC, chain, instance, taken, view

REASON, WAITS = "it was asked", "that has to wait"
TRAFFIC = Moment(
    {("port:2", "large"): 900, ("large", "port:1"): 900, ("port:2", "small"): 100, ("small", "port:1"): 100},
    {"id-large": 1800, "id-small": 200, "id-pinned": 10},
    {"id-large": 3600, "id-small": 400},
)


def now() -> Situation:
    apart = {APART: "ha"}
    return taken(
        view(instance("large", labels=apart)),
        view(instance("small", labels=apart)),
        view(instance("idle"), NIC),
        view(instance("pinned", pin=FAR), NIC),
        view(instance("begun"), phase="starting"),
        chains=(chain("near", "port:1", "id-small", "port:2", latency_us=20),),
        down=(FAR,),
    )


def planned(situation: Situation, moment: Moment = TRAFFIC) -> tuple[Problem, Plan]:
    problem = ProblemMaker(situation, Costs(), 10).problem(moment)
    return problem, solve(problem, situation.current())


def limit(name: str, used: int, allowed: int) -> dict[str, Any]:
    return {"limit": name, "used": used, "allowed": allowed}


def other(location: str, cost: int, *blocked: dict[str, Any]) -> dict[str, Any]:
    return {"location": location, "host_cost": cost, "blocked_by": list(blocked)}


def test_a_plan_is_explained() -> None:
    situation = now()
    problem, plan = planned(situation)
    said = Words(situation).explanation(plan, problem, TRAFFIC, REASON, WAITS)
    said.pop("functions")
    assert said == {
        "feasible": True,
        "reason": REASON,
        "host_millicores": 3600,
        "bound_millicores": 3600,
        "proven": True,
        "binding": [limit("cores of snic0", 800, 4000)],
        "limits": [
            limit("pcie up of snic0", 1000, 10_000),
            limit("pcie down of snic0", 0, 10_000),
            limit("pcie up of snic1", 0, 5000),
            limit("pcie down of snic1", 0, 5000),
            limit("cores of the host", 3600, 64_000),
            limit("slots of the host", 0, 2),
            limit("two-wire slots of the host", 0, 1),
            limit("memory of the host", 512, 4096),
            limit("cores of snic0", 800, 4000),
            limit("slots of snic0", 0, 3),
            limit("two-wire slots of snic0", 0, 2),
            limit("cores of snic1", 0, 2000),
            limit("slots of snic1", 0, 1),
            limit("two-wire slots of snic1", 0, 0),
            limit("latency of chain near", 10, 20),
            limit("apart large and small on snic0", 1, 1),
        ],
    }
    locations = {"id-large": HUB, "id-small": NIC, "id-idle": NIC, "id-pinned": FAR, "id-begun": HUB}
    assert Words(situation).locations(plan) == locations
    gone = replace(situation, functions=(*situation.functions, replace(situation.functions[0], name="new")))
    assert Words(gone).locations(plan) == locations


def function(name: str, at: str, text: str, mbps: int, uses: dict[str, int], *others: Any, why: Any = None) -> Any:
    return {
        "name": name,
        "location": at,
        "text": f"{name} {text}",
        "fixed": why,
        "unfit": {},
        "traffic_mbps": mbps,
        "millicores": uses,
        "runner_up": others[0] if others else None,
        "alternatives": list(others),
    }


def test_each_function_explains_its_location() -> None:
    situation = now()
    problem, plan = planned(situation)
    full, apart = limit("cores of snic0", 8000, 4000), limit("apart large and small on snic0", 2, 1)
    pinned = "it is pinned to snic1, where it is about to move"
    assert Words(situation).explanation(plan, problem, TRAFFIC, REASON, WAITS)["functions"] == {
        "id-begun": function("begun", HUB, "stays at hypervisor: it is starting", 0, {HUB: 0}, why="it is starting"),
        "id-idle": function(
            *("idle", NIC, "is on snic0: it has no measured traffic, so a move would save nothing", 0),
            *({HUB: 0, NIC: 0}, other(HUB, 0)),
        ),
        "id-large": function(
            "large",
            HUB,
            "is on hypervisor: snic0 would save the hypervisor 3600 millicores, but cores of snic0 would be 8000 of"
            " 4000 and apart large and small on snic0 would be 2 of 1",
            1800,
            {HUB: 3600, NIC: 7200},
            other(NIC, -3600, full, apart),
        ),
        "id-pinned": function("pinned", FAR, f"stays at snic1: {pinned}", 10, {FAR: 0}, why=pinned),
        "id-small": function(
            "small",
            NIC,
            "would move from hypervisor to snic0: hypervisor would cost the hypervisor 400 millicores more",
            200,
            {HUB: 400, NIC: 800},
            other(HUB, 400),
        ),
    }


def test_a_plan_for_several_samples_reports_the_worst_use_of_each_limit() -> None:
    situation = taken(view(instance("one")), view(instance("two"), FAR))
    moments = [
        Moment({}, {"id-one": 1000, "id-two": 1}, {"id-one": one, "id-two": two})
        for one, two in ((1500, 1), (2500, 2), (3001, 1))
    ]
    problem = robust(ProblemMaker(situation, Costs(), 10).problems(moments))
    plan = solve(problem, situation.current())
    said = Words(situation).explanation(plan, problem, moments[0], REASON, WAITS)
    assert (said["host_millicores"], said["bound_millicores"]) == (2334, 2334)
    assert said["functions"]["id-one"]["alternatives"] == [
        other(NIC, -2334, limit("cores of snic0", 6002, 4000)),
        other(FAR, -2334, limit("cores of snic1", 12_005, 2000)),
    ]
    assert said["limits"][-3:] == [
        limit("cores of snic1", 1, 2000),
        limit("slots of snic1", 0, 1),
        limit("two-wire slots of snic1", 0, 0),
    ]
    assert len(said["limits"]) == 14
    unproven = replace(plan, stages=(replace(plan.stages[0], certificate=None, bound=None, proven=False),))
    told = Words(situation).explanation(unproven, problem, moments[0], REASON, WAITS)
    assert (told["bound_millicores"], told["proven"]) == (None, False)
    # Without a proof, limits that prevent a saving count as binding.
    assert told["binding"] == [limit("cores of snic0", 6002, 4000), limit("cores of snic1", 12_005, 2000)]
    narrower = replace(problem, host={"cores": 1})
    assert Words(situation).explanation(plan, narrower, moments[0], REASON, WAITS)["binding"] == told["binding"]


def test_a_function_that_would_save_and_fits_waits() -> None:
    situation = taken(view(instance("one")))
    moment = Moment({}, {"id-one": 100}, {"id-one": 200})
    problem = ProblemMaker(situation, Costs(), 10).problem(moment)
    stays = replace(solve(problem, situation.current()), placement={"one": 0})
    said = Words(situation).explanation(stays, problem, moment, REASON, WAITS)["functions"]["id-one"]
    text = "is on hypervisor: snic0 would save the hypervisor 200 millicores, but that has to wait"
    assert said["text"] == f"one {text}"
    nowhere = replace(situation, functions=(replace(situation.functions[0], allowed=(HUB,)),))
    alone = ProblemMaker(nowhere, Costs(), 10).problem(moment)
    said = Words(nowhere).explanation(stays, alone, moment, REASON, WAITS)["functions"]["id-one"]
    assert said["text"] == "one is on hypervisor: this is its only possible location"
    for quiet in (Moment({}, {"id-one": 1}), Moment({}, {}, {"id-one": 1})):
        said = Words(situation).explanation(stays, problem, quiet, REASON, WAITS)["functions"]["id-one"]
        assert said["text"] == f"one {text}"
    said = Words(situation).explanation(stays, problem, Moment(), REASON, WAITS)["functions"]["id-one"]
    begins = "is on hypervisor, where instances start: it has no measured traffic, so a move would save nothing"
    assert said["text"] == f"one {begins}"


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([other(NIC, 0, limit("slots of snic0", 3, 2)), other(FAR, -5)], "slots of snic0 would be 3 of 2"),
        ([other(FAR, -5), other(NIC, 7)], "snic0 would cost the hypervisor 7 millicores more"),
        ([other(NIC, 0)], "the plan as a whole needs this move"),
        ([other(FAR, 0)], "it may not run at snic0"),
    ],
)
def test_a_function_that_would_move_says_why_it_cannot_stay(others: list[Any], why: str) -> None:
    assert _why(NIC, others) == why


def test_sentences_name_switches_instead_of_numbers() -> None:
    words = Words(taken())
    assert words.say("cores of sNIC 1 and of sNIC 2, not of sNIC 3 or XsNIC 1") == (
        "cores of snic0 and of snic1, not of sNIC 3 or XsNIC 1"
    )


def refused(situation: Situation, moment: Moment) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        planned(situation, moment)
    return caught.value


def test_an_infeasible_problem_names_the_limits_to_raise() -> None:
    situation = taken(view(instance("one", pin=NIC), NIC))
    report = refused(situation, Moment({("port:2", "port:1"): 10_001}, {"id-one": 9}, {"id-one": 1})).report
    said = Words(situation).infeasible(report, {"id-one": NIC})
    assert said.pop("least")[0] == {
        "what": "pcie",
        "by": 1,
        "limits": [{"limit": "pcie up of snic0", "needed": 10_001}],
    }
    assert said == {
        "feasible": False,
        "reason": "no placement satisfies all limits; in conflict: pcie up of snic0;"
        " possible with pcie + 1 (pcie up of snic0 to 10001);"
        " pcie up of snic0 is 10000, and at least 10001 Mbps cross it",
        "conflict": ["pcie up of snic0"],
        "cuts": [
            {
                "limit": "pcie up of snic0",
                "allowed": 10_000,
                "mbps": 10_001,
                "demands": [{"from": "port:2", "to": "port:1", "mbps": 10_001}],
            }
        ],
        "current": {"id-one": NIC},
    }


# ---- the newest plan


def test_the_newest_plan_is_a_decision() -> None:
    situation = now()
    problem, plan = planned(situation)
    latest = Latest(situation, TRAFFIC, plan, REASON, left_out=[{"id": "x"}], identity=7, at=5.0)
    waits = "the gain does not pay for the move"
    explanation = Words(situation).explanation(plan, problem, TRAFFIC, REASON, waits) | {"left_out": [{"id": "x"}]}
    said = latest.decision()
    assert said == Decision(
        id=7,
        decided=5.0,
        problem=to_json(problem, situation.current()),
        plan=Words(situation).locations(plan),
        explanation=explanation,
        moves=("id-small",),
        outcome=None,
    )
    assert latest.explanation() is said.explanation
    assert latest.decision().problem is said.problem
    wider = replace(problem, crossing_us=11)
    assert Latest(situation, TRAFFIC, plan, REASON, wider).decision().problem["crossing_us"] == 11


def test_the_newest_plan_explains_every_instance() -> None:
    situation = now()
    _, plan = planned(situation)
    latest = Latest(situation, TRAFFIC, plan, REASON, identity=7)
    said = latest.explanation()
    assert latest.why(instance("small")) == {
        **said["functions"]["id-small"],
        "reason": REASON,
        "feasible": True,
        "binding": [limit("cores of snic0", 800, 4000)],
        "decision": 7,
    }
    with pytest.raises(UnavailableError, match=r"^no decision about instance 'new' yet$") as caught:
        latest.why(instance("new"))
    assert caught.value.code == "no-decision"


@pytest.mark.parametrize("refusal", [None, {"feasible": False, "reason": "full", "conflict": ["cores"]}])
def test_without_a_plan_every_instance_stays(refusal: dict[str, Any] | None) -> None:
    situation = taken(view(instance("one"), NIC))
    latest = Latest(situation, TRAFFIC, None, REASON, refusal=refusal, at=5.0)
    explanation = refusal or {"feasible": None, "reason": REASON}
    assert latest.decision() == Decision(0, 5.0, {}, {"id-one": NIC}, explanation, (), None)
    assert latest.why(instance("one")) == {
        "name": "one",
        "location": NIC,
        "text": f"one stays at snic0: {REASON}",
        "reason": explanation["reason"],
        "feasible": explanation["feasible"],
        "binding": [],
    }
