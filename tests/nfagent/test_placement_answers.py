"""The complete answers of ``/api/v1/placement`` and ``/api/v1/load``."""

from typing import Any

import pytest

from nfagent.measurement import Coefficient, LinkUse, Load, LocationUse, Measurement, Rate
from nfagent.store import decisions
from tests.nfagent.api_world import AT, AT_ISO, OFFLOAD, OFFLOAD_SHOWN, Api, problem

SHOWN_DECISION = {
    "id": 0,
    "decided": AT_ISO,
    "plan": {"id-lb": "snic0"},
    "explanation": {"feasible": True},
    "moves": ["id-lb"],
    "outcome": None,
    "ended": None,
    "report": {},
}


def test_placement_shows_actual_locations_and_decisions(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.fill()
    lb = {"instance": "id-lb", "name": "lb", "project": "acme", "location": "snic0", "pin": "snic0"}
    plain = {"instance": "id-plain", "name": "plain", "project": "other", "location": None, "pin": None, "target": None}
    assert api.get("/placement") == {"placement": [lb | {"target": "hypervisor"}, plain]}
    assert api.get("/placement/proposal") == SHOWN_DECISION
    why = {"instance": "id-lb", "location": "snic0", "why": {"text": "lb is there"}}
    assert api.get("/placement/why/acme/lb") == why
    assert api.get("/placement/why/id-plain") == {
        "instance": "id-plain",
        "location": None,
        "why": {"text": "plain is there"},
    }
    with monkeypatch.context() as patch:
        patch.setattr(decisions.time, "time", lambda: AT)
        with api.store.change() as change:
            for _ in range(2):
                decisions.add(change, {"p": 1}, {"id-lb": "snic0"}, {"feasible": True}, ("id-lb",))
            decisions.end(change, 2, "done", {"n": 1})
    first = SHOWN_DECISION | {"id": 1}
    second = SHOWN_DECISION | {"id": 2, "outcome": "done", "ended": AT_ISO, "report": {"n": 1}}
    assert api.get("/placement/decisions") == {"decisions": [second, first], "next": None}
    assert api.get("/placement/decisions", limit=1) == {"decisions": [second], "next": 2}
    assert api.get("/placement/decisions", limit=1, marker=2) == {"decisions": [first], "next": None}
    assert api.get("/placement/decisions/2") == {"decision": second, "problem": {"p": 1}}
    for number in (3, 2**63 - 1, 2**63):
        detail = f"decision {number} does not exist or is no longer kept"
        problem(api.ask("GET", f"/placement/decisions/{number}"), 404, "decision-unknown", "Not Found", detail)


def test_a_dry_run_names_instances_as_clients_do(api: Api) -> None:
    api.fill()

    def ask(pins: dict[str, str], without: list[str]) -> Any:
        return api.ask("POST", "/placement/dry-run", json={"pins": pins, "without": without})

    asked = {"pins": {"id-lb": "snic0"}, "without": ["id-plain"]}
    assert ask({"acme/lb": "snic0", "id-lb": "snic0"}, ["plain"]).json == SHOWN_DECISION | {"explanation": asked}
    assert api.ask("POST", "/placement/dry-run", json={}).json["explanation"] == {"pins": {}, "without": []}
    unprocessable = (422, "contradiction", "Unprocessable Entity")
    twice = "instance 'lb' is given twice, with different locations"
    problem(ask({"lb": "snic0"}, ["lb"]), *unprocessable, twice, ("pins.lb", twice))
    problem(ask({"id-lb": "hypervisor", "lb": "snic0"}, []), *unprocessable, twice, ("pins.lb", twice))
    unknown = "unknown instance 'ghost'"
    for pins, without, field in (({"ghost": "snic0"}, [], "pins"), ({}, ["ghost"], "without")):
        problem(ask(pins, without), 422, "instance-unknown", "Unprocessable Entity", unknown, (field, unknown))
    moon = "unknown location 'moon'; expected one of hypervisor, snic0"
    problem(ask({"lb": "moon"}, []), 422, "location-unknown", "Unprocessable Entity", moon, ("pins.lb", moon))


def test_learnt_costs_are_shown_by_kind_and_class(api: Api) -> None:
    api.monitor.learnt = [Coefficient("assets", "host", 0.5, 300, 0.1), Coefficient("assets", "nic", 1.5, 9, 0.2)]
    host = {"kind": "assets", "location_class": "host", "millicores_per_mbps": 0.5, "samples": 300, "deviation": 0.1}
    nic = host | {"location_class": "nic", "millicores_per_mbps": 1.5, "samples": 9, "deviation": 0.2}
    assert api.get("/placement/costs") == {"costs": [host | {"trusted": True}, nic | {"trusted": False}]}


def test_the_load_has_all_its_members(api: Api) -> None:
    detail = "no measurement yet"
    problem(api.ask("GET", "/load"), 503, "no-measurement", "Service Unavailable", detail)
    rate, shown = Rate(8.0, 1000.0), {"mbps": 8.0, "pps": 1000.0}
    api.monitor.measured = Measurement(
        at=AT,
        window_s=2.0,
        matrix={(2, 1): rate, (1, 1000): rate},
        error=0.01,
        instances={"i": Load(0.25, 300, rate, 7, OFFLOAD), "j": Load(0.0, 0, rate, None)},
        links={"snic0": LinkUse(to_nic=rate, to_host=rate, capacity_mbps=10_000)},
        locations={"hypervisor": LocationUse(300, 4000)},
    )
    assert api.get("/load") == {
        "at": AT_ISO,
        "window_s": 2.0,
        "matrix": [{"from": 1, "to": 1000, **shown}, {"from": 2, "to": 1, **shown}],
        "error": 0.01,
        "instances": {
            "i": {
                "utilisation": 0.25,
                "millicores": 300,
                "traffic": shown,
                "flows": 7,
                "offload": OFFLOAD_SHOWN | {"traffic": shown},
            },
            "j": {"utilisation": 0.0, "millicores": 0, "traffic": shown, "flows": None, "offload": None},
        },
        "links": {"snic0": {"to_nic": shown, "to_host": shown, "capacity_mbps": 10_000}},
        "locations": {"hypervisor": {"millicores": 300, "capacity_millicores": 4000}},
    }
