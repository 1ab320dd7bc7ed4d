"""Chains with their instances, in one request: accepted whole or refused whole, and deleted whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nfagent.chain_costs import Surroundings, crossings, hops, status
from nfagent.measurement import Load, Measurement, Rate
from nfagent.model import Chain, View
from tests.nfagent import samples
from tests.nfagent.test_api import refused
from tests.nfagent.world import OTHER_TOKEN, World

CHAINS, INSTANCES = "/api/v1/chains", "/api/v1/instances"


def function(name: str, kind: str = "sleeper", **members: Any) -> dict[str, Any]:
    return {"function": {"name": name, "kind": kind, **members}}


@pytest.fixture
def tight_world(directory: Path) -> Iterator[World]:
    made = World(directory, instances=4)
    yield made
    made.close()


def names(client: httpx.Client) -> list[str]:
    return [each["name"] for each in client.get(INSTANCES).json()["instances"]]


def test_a_chain_is_deployed_by_one_request_and_deleted_as_one(world: World) -> None:
    sent = [{"port": 1001}, function("fw", "toy", ports=2, labels={"a": "b"}), function("lb", ports=0), {"port": 2}]
    answer = world.tenant.post(CHAINS, json={"name": "web", "hops": sent, "latency_us": 50})
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert (made["status"], made["cost"]) == ("building", None)
    assert [hop["name"] for hop in made["hops"]] == [None, "fw", "lb", None]
    assert [hop["owned"] for hop in made["hops"]] == [False, True, True, False]
    assert [len(hop["ports"]) for hop in made["hops"]] == [0, 2, 0, 0]
    assert world.show(made["hops"][1]["instance"])["labels"] == {"a": "b"}
    refused(world.tenant.post(CHAINS, json={"name": "web", "hops": sent}), 409, "name-taken", "'web' already exists")
    refused(world.with_token(OTHER_TOKEN).get(f"{CHAINS}/web"), 404, "chain-unknown")
    refused(world.with_token(OTHER_TOKEN).delete(f"{CHAINS}/acme/web"), 404, "chain-unknown")
    ids = [made["hops"][1]["instance"], made["hops"][2]["instance"]]
    world.wait(lambda: world.admin.get(f"{CHAINS}/acme/web").json()["status"] != "building")
    refused(world.tenant.delete(f"{INSTANCES}/lb"), 409, "instance-in-chain", "'web'")
    last = world.agent._store.last_event
    gone = world.admin.delete(f"{CHAINS}/web").json()
    assert (gone["id"], gone["status"]) == (made["id"], "deleting")
    again = world.tenant.delete(f"{CHAINS}/{made['id']}")
    assert again.status_code == 404 or again.json()["status"] == "deleting"
    world.wait(lambda: world.tenant.get(f"{CHAINS}/{made['id']}").status_code == 404)
    assert [world.operator.get(f"{INSTANCES}/{each}").status_code for each in ids] == [404, 404]
    told = world.agent._store.read.execute("SELECT type, subject FROM event WHERE id > ?", (last,)).fetchall()
    of_chain = [(row["type"], row["subject"]) for row in told if row["subject"] in (made["id"], *ids)]
    of_chain = [each for each in of_chain if not each[0].startswith("process.")]  # `lb` may only just start
    assert of_chain[:3] == [("chain.deleting", made["id"]), *(("instance.deleting", each) for each in ids)]
    assert of_chain[-1] == ("chain.deleted", made["id"])


def test_one_function_that_is_refused_refuses_the_chain(tight_world: World) -> None:
    world = tight_world
    taken = world.tenant.post(INSTANCES, json={"name": "taken", "kind": "sleeper"}).json()
    good = function("good")
    last = world.agent._store.last_event
    for bad, code, words, field, why in (
        (function("bad", "unheard"), 422, "'bad': unknown kind 'unheard'", "hops.1.function.kind", "kind-unknown"),
        (function("bad", flavor="giant"), 422, "unknown flavor", "hops.1.function.flavor", "flavor-unknown"),
        (function("bad", ports=1), 422, "a sleeper has 0 port(s)", "hops.1.function.ports", "ports-unfit"),
        (function("good"), 422, "2 instances of the chain are named 'good'", "hops.0.function.name", "name-twice"),
        ({"instance": "ghost"}, 422, "unknown instance 'ghost'", "hops.1", "instance-unknown"),
        (function("b d"), 422, "pattern", "hops.1.function.name", "invalid"),
        ({"port": 1, "function": good["function"]}, 422, "a hop is an instance, a port or a function", None, "invalid"),
        (function("bad", pin="snic0"), 403, "pinning", None, "administrators-only"),
        (function("bad", "reader", config={"log": {"path": "/etc/x"}}), 422, "", None, None),
        (function("taken"), 409, taken["id"], None, "name-taken"),
    ):
        answer = world.tenant.post(CHAINS, json={"name": "web", "hops": [good, bad]})
        assert answer.status_code == code, answer.text
        problem = answer.json() if why is None else refused(answer, code, why, words)
        if field is not None:
            assert problem["errors"][0]["field"] == field
    four = [function(f"nf{number}") for number in range(4)]
    answer = world.tenant.post(CHAINS, json={"name": "web", "hops": four})
    refused(answer, 403, "quota-exceeded", "has 1 of at most 4 instances; 4 more were requested")
    ports = [function(f"nf{number}", "toy", ports=2) for number in range(3)]
    answer = world.tenant.post(CHAINS, json={"name": "web", "hops": ports})
    refused(answer, 409, "ports-exhausted", "'nf0', 'nf1', 'nf2' needs 6 port(s)")
    assert names(world.tenant) == ["taken"]
    assert world.tenant.get(CHAINS).json()["chains"] == []
    told = world.agent._store.read.execute("SELECT type FROM event WHERE id > ?", (last,)).fetchall()
    assert [row["type"] for row in told if row["type"].startswith(("chain.", "instance."))] == []


def test_a_function_in_two_chains_holds_the_first(world: World) -> None:
    first = world.operator.post(CHAINS, json={"name": "one", "hops": [{"port": 1}, function("both")]}).json()
    second = world.operator.post(CHAINS, json={"name": "two", "hops": [{"port": 1}, {"instance": "both"}]}).json()
    refused(world.operator.delete(f"{CHAINS}/one"), 409, "instance-in-chain", "'both'", "'two'")
    assert world.operator.delete(f"{CHAINS}/{second['id']}").status_code == 202
    assert world.operator.delete(f"{CHAINS}/{first['id']}").json()["status"] == "deleting"
    world.wait(lambda: world.operator.get(f"{CHAINS}/{first['id']}").status_code == 404)


# ---- costs


def placed(name: str, location: str, *ports: int) -> View:
    instance = samples.instance(name, id=f"id-{name}", ports=tuple(samples.port(number) for number in ports))
    return View(instance, "active", samples.running(instance, location, phase="active"), None)


def test_each_hop_has_its_links_latency_cpu_and_traffic() -> None:
    views = {"id-fw": placed("fw", "snic0", 1000, 1001), "id-lb": placed("lb", "snic1", 1002)}
    matrix = {(1, 1000): Rate(7.0, 1.0), (1000, 1): Rate(2.0, 1.0), (1001, 1002): Rate(5.0, 1.0), (9, 1): Rate(3.0, 1)}
    load = Load(0.5, 250, Rate(9.0, 1.0), None)
    measured = Measurement(1.0, 1.0, matrix, 0.0, {"id-fw": load}, {}, {})
    chain = samples.chain("web", ("port:1", "id-fw", "id-lb", "port:9"))
    found = hops(chain, Surroundings(views, {1: "hypervisor"}, "hypervisor", 10, measured))
    shown = [(hop.location, hop.crossings, hop.latency_us, hop.millicores, hop.mbps) for hop in found]
    assert shown == [
        ("hypervisor", 0, 0, None, None),
        ("snic0", 1, 10, 250, 9.0),
        ("snic1", 2, 20, None, 5.0),
        (None, None, None, None, 0.0),
    ]
    assert [hop.port for hop in found] == [1, None, None, 9]


@pytest.mark.parametrize(
    ("here", "there", "links"), [("h", "h", 0), ("a", "a", 0), ("h", "a", 1), ("a", "h", 1), ("a", "b", 2)]
)
def test_traffic_between_two_snics_crosses_two_links(here: str, there: str, links: int) -> None:
    assert crossings(here, there, "h") == links


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("active", "active"), "active"),
        (("active", "migrating"), "migrating"),
        (("building", "migrating"), "building"),
        (("building", "error"), "error"),
    ],
)
def test_a_chain_has_the_worst_status_of_its_instances(states: tuple[Any, Any], expected: str) -> None:
    views = {f"id-{state}": View(samples.instance(state), state, None, None) for state in states}
    chain: Chain = samples.chain("web", ("port:1", *views))
    assert status(chain, hops(chain, Surroundings(views, {}, "h", 10, None))) == expected
