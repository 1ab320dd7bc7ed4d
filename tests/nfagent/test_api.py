"""``/api/v1`` over HTTP, above all its refusals."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.nfagent.world import OTHER_TOKEN, TENANT_TOKEN, World

V1 = "/api/v1"


def refused(answer: httpx.Response, status: int, code: str, *words: str) -> dict[str, Any]:
    """Check that an answer is this problem and that its detail has these words."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, "about:blank")
    assert body["title"]
    for word in words:
        assert word in body["detail"]
    return body


def test_an_instance_is_created_shown_changed_and_deleted(world: World) -> None:
    answer = world.operator.post(f"{V1}/instances", json={"name": "one", "kind": "toy", "labels": {"a": "b"}})
    assert answer.status_code == 202
    made = answer.json()
    assert answer.headers["location"] == f"{V1}/instances/{made['id']}"
    assert (made["status"], made["labels"], made["config_state"]) == ("building", {"a": "b"}, "pending")
    shown = world.wait_status(made, "active")
    assert shown["config_state"] == "applied"
    assert shown["placement"]["location"] == "hypervisor"
    assert world.show("one") == shown
    answer = world.operator.patch(f"{V1}/instances/one", json={"config": {"n": 2}, "name": "uno"})
    assert (answer.status_code, answer.json()["config"], answer.json()["name"]) == (200, {"n": 2}, "uno")
    world.wait(lambda: world.show(made)["config_state"] == "applied")
    for _ in range(2):
        answer = world.operator.delete(f"{V1}/instances/{made['id']}")
        if answer.status_code == 404:
            break  # it may be deleted by now
        assert (answer.status_code, answer.json()["status"]) == (202, "deleting")
    world.wait(lambda: world.operator.get(f"{V1}/instances/{made['id']}").status_code == 404)
    refused(world.operator.delete(f"{V1}/instances/{made['id']}"), 404, "instance-unknown", made["id"])


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"name": "x"}, "kind", "required"),
        ({"kind": "sleeper"}, "name", "required"),
        ({"name": 7, "kind": "sleeper"}, "name", "string"),
        ({"name": "", "kind": "sleeper"}, "name", "pattern"),
        ({"name": "a b", "kind": "sleeper"}, "name", "pattern"),
        ({"name": "x" * 64, "kind": "sleeper"}, "name", "pattern"),
        ({"name": "x", "kind": ["sleeper"]}, "kind", "string"),
        ({"name": "x", "kind": "sleeper", "config": []}, "config", "dictionary"),
        ({"name": "x", "kind": "sleeper", "config": "a"}, "config", "dictionary"),
        ({"name": "x", "kind": "sleeper", "ports": "1"}, "ports", "integer"),
        ({"name": "x", "kind": "sleeper", "ports": -1}, "ports", "greater"),
        ({"name": "x", "kind": "sleeper", "ports": True}, "ports", "integer"),
        ({"name": "x", "kind": "sleeper", "labels": {"a": 1}}, "labels.a", "string"),
        ({"name": "x", "kind": "sleeper", "color": "red"}, "color", "Extra"),
        ([], "_schema", "dictionary"),
        ("x", "_schema", "dictionary"),
    ],
)
def test_wrong_types_name_the_field(world: World, body: object, field: str, words: str) -> None:
    problem = refused(world.tenant.post(f"{V1}/instances", json=body), 422, "invalid", field, words)
    assert [each["field"] for each in problem["errors"]] == [field]


def test_unknown_names_are_refused(world: World) -> None:
    tenant = world.tenant
    order = {"name": "x", "kind": "none-such"}
    problem = refused(tenant.post(f"{V1}/instances", json=order), 422, "kind-unknown", "none-such", "sleeper")
    assert problem["errors"][0]["field"] == "kind"
    order = {"name": "x", "kind": "sleeper", "flavor": "huge"}
    refused(tenant.post(f"{V1}/instances", json=order), 422, "flavor-unknown", "huge", "small")
    refused(tenant.get(f"{V1}/kinds/none-such"), 404, "kind-unknown", "none-such")
    refused(tenant.get(f"{V1}/flavors/huge"), 404, "flavor-unknown", "huge")
    refused(tenant.get(f"{V1}/instances/ghost"), 404, "instance-unknown", "ghost")
    refused(tenant.patch(f"{V1}/instances/ghost", json={"config": {}}), 404, "instance-unknown", "ghost")
    refused(tenant.get(f"{V1}/chains/ghost"), 404, "chain-unknown", "ghost")
    refused(world.admin.get(f"{V1}/migrations/77"), 404, "migration-unknown", "77")
    refused(world.admin.get(f"{V1}/migrations/{10**30}"), 404, "migration-unknown")
    refused(world.admin.get(f"{V1}/switches/ghost"), 404, "switch-unknown", "ghost")
    refused(tenant.get("/api/v1/nothing"), 404, "path-unknown", "/api/v1/nothing")
    refused(tenant.get("/nothing"), 404, "path-unknown")
    answer = tenant.delete(f"{V1}/kinds")
    refused(answer, 405, "method-not-allowed", "DELETE")
    assert "GET" in answer.headers["allow"]


def test_a_name_is_unique_within_a_project(world: World) -> None:
    first = world.tenant.post(f"{V1}/instances", json={"name": "same", "kind": "sleeper"}).json()
    answer = world.tenant.post(f"{V1}/instances", json={"name": "same", "kind": "sleeper"})
    refused(answer, 409, "name-taken", "same", first["id"])
    other = world.with_token(OTHER_TOKEN)
    assert other.post(f"{V1}/instances", json={"name": "same", "kind": "sleeper"}).status_code == 202
    second = world.tenant.post(f"{V1}/instances", json={"name": "second", "kind": "sleeper"}).json()
    answer = world.tenant.patch(f"{V1}/instances/{second['id']}", json={"name": "same"})
    refused(answer, 409, "name-taken", "same")
    # Each project sees its own instance under the name, and the other's under none.
    assert world.tenant.get(f"{V1}/instances/same").json()["id"] == first["id"]
    refused(other.get(f"{V1}/instances/{first['id']}"), 404, "instance-unknown")
    refused(other.delete(f"{V1}/instances/{first['id']}"), 404, "instance-unknown")
    assert [each["name"] for each in other.get(f"{V1}/instances").json()["instances"]] == ["same"]


def test_administrators_can_name_instances_of_other_projects(world: World) -> None:
    def deploy(token: str, name: str) -> str:
        order = {"name": name, "kind": "sleeper"}
        return world.with_token(token).post(f"{V1}/instances", json=order).json()["id"]

    def show(client: httpx.Client, reference: str) -> httpx.Response:
        return client.get(f"{V1}/instances/{quote(reference, safe='')}")

    mine, theirs, only = deploy(TENANT_TOKEN, "both"), deploy(OTHER_TOKEN, "both"), deploy(OTHER_TOKEN, "alone")
    assert show(world.admin, "alone").json()["id"] == only
    refused(show(world.admin, "both"), 409, "name-ambiguous", "acme/both", "other/both")
    assert show(world.admin, "other/both").json()["id"] == theirs
    assert show(world.tenant, "acme/both").json()["id"] == show(world.tenant, "both").json()["id"] == mine
    for reference in ("other/both", "alone", "other/alone"):
        refused(show(world.tenant, reference), 404, "instance-unknown", reference)
    renamed = world.admin.patch(f"{V1}/instances/other/alone", json={"name": "renamed"})
    assert (renamed.status_code, renamed.json()["name"]) == (200, "renamed")
    assert world.admin.get(f"{V1}/migrations", params={"instance": "renamed"}).json()["migrations"] == []
    chain = {"name": "across", "hops": [{"instance": "renamed"}, {"instance": "acme/both"}]}
    hops = world.admin.post(f"{V1}/chains", json=chain).json()
    assert [hop["instance"] for hop in hops["hops"]] == [only, mine]
    refused(
        world.admin.post(f"{V1}/chains", json=chain | {"name": "c", "hops": [{"instance": "both"}] * 2}),
        422,
        "name-ambiguous",
    )
    world.wait_status({"id": only}, "active")
    refused(
        world.admin.post(f"{V1}/migrations", json={"instance": "other/renamed", "target": "moon"}),
        422,
        "location-unknown",
    )
    for pins, without in (({"renamed": "snic0"}, [only]), ({"renamed": "snic0", only: "hypervisor"}, [])):
        asked = {"pins": pins, "without": without}
        refused(world.admin.post(f"{V1}/placement/dry-run", json=asked), 422, "contradiction", "twice")
    assert world.admin.delete(f"{V1}/chains/{hops['id']}").status_code == 202


def test_tenants_do_not_see_placement(world: World) -> None:
    made = world.tenant.post(f"{V1}/instances", json={"name": "hidden", "kind": "sleeper"}).json()
    assert made["placement"] is None
    assert world.wait_status(made, "active")["placement"]["location"] == "hypervisor"
    tenant = world.tenant
    assert "hypervisor" not in tenant.get(f"{V1}/instances/hidden").text
    for path in ("servers", "switches", "switches/snic0", "migrations", "placement", "placement/why/hidden"):
        refused(tenant.get(f"{V1}/{path}"), 403, "administrators-only", "acme")
    refused(tenant.post(f"{V1}/migrations", json={"instance": "hidden"}), 403, "administrators-only")
    refused(tenant.patch(f"{V1}/instances/hidden", json={"pin": "snic0"}), 403, "administrators-only")
    order = {"name": "pinned", "kind": "sleeper", "pin": "snic0"}
    refused(tenant.post(f"{V1}/instances", json=order), 403, "administrators-only")
    refused(tenant.get(f"{V1}/instances", params={"location": "snic0"}), 403, "administrators-only")
    assert tenant.get(f"{V1}/instances", params={"project": "other"}).json()["instances"] == []


def test_tenants_cannot_remove_a_pin(world: World) -> None:
    made = world.tenant.post(f"{V1}/instances", json={"name": "held", "kind": "sleeper"}).json()
    world.wait_status(made, "active")
    pinned = {"pin": "hypervisor"}
    assert world.admin.patch(f"{V1}/instances/acme/held", json=pinned).json()["placement"]["pin"] == "hypervisor"
    refused(world.tenant.patch(f"{V1}/instances/held", json={"pin": None}), 403, "administrators-only")
    assert world.admin.get(f"{V1}/instances/acme/held").json()["placement"]["pin"] == "hypervisor"


@pytest.mark.parametrize("depth", [300, 900])
def test_a_configuration_that_is_nested_too_deeply_is_refused(world: World, depth: int) -> None:
    config: dict[str, Any] = {}
    for _ in range(depth):
        config = {"deeper": config}
    order = {"name": "deep", "kind": "sleeper", "config": config}
    refused(world.operator.post(f"{V1}/instances", json=order), 422, "invalid", "nested")
    flat = world.create(f"flat-{depth}")
    refused(world.operator.patch(f"{V1}/instances/{flat['id']}", json={"config": config}), 422, "invalid", "nested")
    assert world.operator.get(f"{V1}/instances").status_code == 200


def test_quotas_and_ports_are_limited(directory: Path) -> None:
    world = World(directory, instances=3)
    try:
        # 1000 to 1003; server.toml has 1001.
        made = [world.create(f"p{number}", "toy", ports=1) for number in range(2)]
        assert [each["ports"][0]["number"] for each in made] == [1000, 1002]
        assert made[0]["ports"][0]["mac"].endswith("03:e8")
        assert len({port["mac"] for each in made for port in each["ports"]}) == 2
        answer = world.operator.post(f"{V1}/instances", json={"name": "p2", "kind": "toy", "ports": 2})
        refused(answer, 409, "ports-exhausted", "p2", "2 port(s)")
        answer = world.operator.post(f"{V1}/instances", json={"name": "p2", "kind": "sleeper", "ports": 1})
        refused(answer, 422, "ports-unfit", "sleeper", "0 port(s)")
        world.create("p2")
        answer = world.operator.post(f"{V1}/instances", json={"name": "p3", "kind": "sleeper"})
        refused(answer, 403, "quota-exceeded", "default", "3 instances")
        assert world.tenant.post(f"{V1}/instances", json={"name": "p3", "kind": "sleeper"}).status_code == 202
        listed = world.operator.get(f"{V1}/ports").json()["ports"]
        assert [(port["number"], port["instance"]) for port in listed] == [(1000, made[0]["id"]), (1002, made[1]["id"])]
        assert world.tenant.get(f"{V1}/ports").json()["ports"] == []
    finally:
        world.close()


def test_malformed_queries_of_lists_are_refused(world: World) -> None:
    made = world.admin.post(f"{V1}/instances", json={"name": "page", "kind": "sleeper"}).json()
    problem = refused(world.admin.get(f"{V1}/instances", params={"marker": "ghost"}), 422, "marker-unknown", "ghost")
    assert problem["errors"][0]["field"] == "marker"
    for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"status": "fine"}, {"colour": "red"}):
        refused(world.admin.get(f"{V1}/instances", params=wrong), 422, "invalid", *wrong)
    problem = refused(world.admin.get(f"{V1}/migrations?limit=4&limit=5"), 422, "invalid", "limit: given 2 times")
    assert problem["errors"][0]["field"] == "limit"
    # A marker reveals nothing about instances of other projects.
    refused(world.tenant.get(f"{V1}/instances", params={"marker": made["id"]}), 422, "marker-unknown")


def test_chains_are_created_listed_and_deleted(world: World) -> None:
    one, two = world.create("hop1"), world.create("hop2")
    order = {"name": "c", "hops": [{"port": 1}, {"instance": "hop1"}, {"instance": two["id"]}], "latency_us": 500}
    answer = world.operator.post(f"{V1}/chains", json=order)
    assert answer.status_code == 202, answer.text
    chain = answer.json()
    for each in (one, two):
        world.wait_status(each, "active")
    chain = world.operator.get(answer.headers["location"]).json()
    assert [hop["instance"] for hop in chain["hops"]] == [None, one["id"], two["id"]]
    refused(world.operator.post(f"{V1}/chains", json=order), 409, "name-taken", "'c'")
    refused(world.operator.delete(f"{V1}/instances/hop1"), 409, "instance-in-chain", "'c'")
    assert world.operator.get(f"{V1}/chains").json()["chains"] == [chain]
    assert world.tenant.get(f"{V1}/chains").json()["chains"] == []
    refused(world.tenant.get(f"{V1}/chains/{chain['id']}"), 404, "chain-unknown")
    for hops in ([{"port": 1}], [{}, {"port": 1}], [{"port": 1, "instance": "hop1"}, {"port": 2}], [{"port": 0}] * 2):
        refused(world.operator.post(f"{V1}/chains", json={"name": "d", "hops": hops}), 422, "invalid", "hops")
    for name in ("ghost", "port:ghost", "port:2"):
        order = {"name": "d", "hops": [{"port": 1}, {"instance": name}]}
        problem = refused(world.operator.post(f"{V1}/chains", json=order), 422, "instance-unknown", name)
        assert problem["errors"][0]["field"] == "hops.1"
    assert world.operator.get(f"{V1}/chains").json()["chains"] == [chain]
    assert world.operator.delete(f"{V1}/chains/{chain['id']}").json()["status"] == "deleting"
    refused(world.operator.delete(f"{V1}/chains/{chain['id']}"), 404, "chain-unknown")
    assert world.operator.delete(f"{V1}/instances/hop1").status_code == 202
    assert chain["unkept"] is None
    ports = [{"port": 1}, {"port": 2}]
    for number in range(3):
        assert world.tenant.post(f"{V1}/chains", json={"name": f"c{number}", "hops": ports}).status_code == 202
    refused(world.tenant.post(f"{V1}/chains", json={"name": "d", "hops": ports}), 403, "quota-exceeded", "3 chains")


def test_placement_is_unavailable_before_the_first_decision(world: World) -> None:
    world.create("undecided")
    for answer in (
        world.admin.get(f"{V1}/placement/proposal"),
        world.admin.get(f"{V1}/placement/why/{world.show('undecided')['id']}"),
        world.admin.post(f"{V1}/placement/dry-run", json={}),
    ):
        refused(answer, 503, "no-decision", "no decision")
    assert world.admin.get(f"{V1}/placement/decisions").json() == {"decisions": [], "next": None}
    refused(world.admin.get(f"{V1}/placement/decisions/7"), 404, "decision-unknown", "7")
    refused(world.tenant.get(f"{V1}/placement/decisions"), 403, "administrators-only", "placement")
    placed = world.admin.get(f"{V1}/placement").json()["placement"]
    assert "undecided" in [each["name"] for each in placed]


def test_impossible_migrations_are_refused(world: World) -> None:
    post = world.operator.post
    world.wait_status(world.create("mover"), "active")
    refused(post(f"{V1}/migrations", json={"instance": "ghost"}), 404, "instance-unknown", "ghost")
    order = {"instance": "mover", "target": "moon"}
    refused(post(f"{V1}/migrations", json=order), 422, "location-unknown", "moon")
    refused(post(f"{V1}/migrations", json={"instance": "mover", "target": "hypervisor"}), 409, "already-there", "mover")
    world.operator.patch(f"{V1}/instances/mover", json={"pin": "hypervisor"})
    refused(
        post(f"{V1}/migrations", json={"instance": "mover", "target": "snic0"}), 409, "instance-pinned", "hypervisor"
    )
    world.create("failing", "broken")
    world.wait(lambda: world.show("failing")["status"] == "error")
    refused(post(f"{V1}/migrations", json={"instance": "failing"}), 409, "instance-not-active", "failing")
