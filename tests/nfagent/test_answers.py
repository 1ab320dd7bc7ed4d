"""The complete answer of each path of ``/api/v1``."""

import json
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from nfagent.api.discretion import GENERIC
from nfagent.api.migrations import _await_end
from nfagent.clients import Client
from nfagent.measurement import Load, Rate
from nfagent.store import chains, database, instances, migrations, processes
from server.oneswitchd.answers import BridgeState, Controller, LinkState, Status, SwitchState
from tests.nfagent import samples
from tests.nfagent.api_world import AT, AT_ISO, OFFLOAD, OFFLOAD_SHOWN, V1, Api, measurement_of, problem
from tests.nfagent.test_told import LB, PLAIN, RUNNING
from tests.nfagent.world import TENANT_TOKEN

LB_SHOWN = {
    "id": "id-lb",
    "name": "lb",
    "project": "acme",
    "kind": "l4lb",
    "flavor": "small",
    "status": "active",
    "reason": "why",
    "config": {"vip": "10.0.0.1"},
    "config_state": "applied",
    "labels": {"a": "b"},
    "ports": [
        {"number": 1000, "name": "nf1000", "mac": "02:00:00:00:00:01"},
        {"number": 1007, "name": "nf1007", "mac": "02:00:00:00:00:02"},
    ],
    "created": "1970-01-01T00:00:05.000Z",
    "placement": {
        "location": "snic0",
        "slot": "s1",
        "pid": 13,
        "since": AT_ISO,
        "pin": "snic0",
        "target": "hypervisor",
    },
    "offload": None,
}
PLAIN_SHOWN = {
    "id": "id-plain",
    "name": "plain",
    "project": "other",
    "kind": "probe",
    "flavor": "large",
    "status": "building",
    "reason": None,
    "config": {},
    "config_state": "pending",
    "labels": {},
    "ports": [],
    "created": "1970-01-01T00:00:06.000Z",
    "placement": {"location": None, "slot": None, "pid": None, "since": None, "pin": None, "target": None},
    "offload": None,
}


def test_an_instance_has_all_its_members(api: Api) -> None:
    api.fill()
    assert api.get("/instances/id-lb") == api.get("/instances/acme/lb") == LB_SHOWN
    assert api.get("/instances/id-plain") == PLAIN_SHOWN
    assert api.get("/instances/lb", TENANT_TOKEN) == LB_SHOWN | {"placement": None, "reason": GENERIC}
    assert api.get("/instances") == {"instances": [LB_SHOWN, PLAIN_SHOWN], "next": None}
    assert api.get("/instances", limit=1) == {"instances": [LB_SHOWN], "next": "id-lb"}
    assert api.get("/instances", limit=1, marker="id-lb") == {"instances": [PLAIN_SHOWN], "next": None}
    assert api.get("/instances", limit=2)["next"] is None
    for query in ({"name": "lb"}, {"kind": "l4lb"}, {"flavor": "small"}, {"status": "active"}, {"project": "acme"}):
        assert api.get("/instances", **query)["instances"] == [LB_SHOWN]
    assert api.get("/instances", location="snic0")["instances"] == [LB_SHOWN]
    problem(api.ask("GET", "/instances/ghost"), 404, "instance-unknown", "Not Found", "unknown instance 'ghost'")
    with api.store.change() as change:
        (row,) = processes.of(change.db, "id-lb")
        processes.update(change, row, own_pid=None, phase="starting", slot=None)
    shown = api.get("/instances/id-lb")
    assert (shown["config_state"], shown["placement"]["pid"], shown["placement"]["slot"]) == ("pending", 11, None)


def test_an_instance_shows_what_the_switches_carry_for_it(api: Api) -> None:
    api.fill()
    api.monitor.measured = measurement_of("id-lb", Load(0.25, 300, Rate(8.0, 1000.0), 7, OFFLOAD))
    assert api.get("/instances/lb") == LB_SHOWN | {"offload": OFFLOAD_SHOWN}
    # The reason names the server's parts.
    assert api.get("/instances/lb", TENANT_TOKEN)["offload"] == OFFLOAD_SHOWN | {"why": None}
    assert api.get("/instances/id-plain")["offload"] is None
    api.monitor.measured = measurement_of("id-lb", Load(0.25, 300, Rate(8.0, 1000.0), 7))
    assert api.get("/instances/lb")["offload"] is None


def test_instances_are_created_and_changed(api: Api) -> None:
    answer = api.ask("POST", "/instances", json={"name": "new", "kind": "toy", "ports": 1, "pin": "snic0"})
    made = answer.json
    assert (answer.status_code, answer.headers["Location"]) == (202, f"{V1}/instances/{made['id']}")
    assert made | {"id": "", "created": "", "ports": []} == {
        "id": "",
        "name": "new",
        "project": "ops",
        "kind": "toy",
        "flavor": "small",
        "status": "building",
        "reason": None,
        "config": {},
        "config_state": "pending",
        "labels": {},
        "ports": [],
        "created": "",
        "placement": {"location": None, "slot": None, "pid": None, "since": None, "pin": "snic0", "target": None},
        "offload": None,
    }
    assert [port["number"] for port in made["ports"]] == [1000]
    path = f"/instances/{made['id']}"
    change = {"name": "uno", "config": {"n": 1}, "labels": {"x": "y"}, "pin": None}
    changed = api.ask("PATCH", path, json=change)
    assert changed.status_code == 200
    expected = made | {"name": "uno", "config": {"n": 1}, "labels": {"x": "y"}}
    expected["placement"] = made["placement"] | {"pin": None}
    assert changed.json == api.get(path) == expected
    deleted = api.ask("DELETE", path)
    assert (deleted.status_code, deleted.json) == (202, expected | {"status": "deleting"})
    nothing = "nothing to change; give at least one of config, name, labels, pin"
    null = "cannot be null; omit it to keep its value"
    for body, text in (
        ({}, nothing),
        ({"name": None}, f"name {null}"),
        ({"config": None}, f"config {null}"),
        ({"pin": "moon"}, "unknown location 'moon'; expected one of hypervisor, snic0"),
    ):
        refused = api.ask("PATCH", path, json=body)
        assert refused.status_code == 422
        assert text in refused.json["detail"]


def test_a_page_holds_at_most_four_megabytes(api: Api) -> None:
    sizes = [4 << 20, 10, (4 << 20) - 60, 30, 30]
    with api.store.change() as change:
        for number, size in enumerate(sizes):
            config = {"x": "y" * (size - len('{"x": ""}'))}
            assert len(json.dumps(config)) == max(size, 9)
            instances.add(change, samples.instance(f"n{number}", id=f"id-{number}", config=config))

    def page(**query: Any) -> tuple[list[str], str | None]:
        found = api.get("/instances", **query)
        return [each["name"] for each in found["instances"]], found["next"]

    assert page() == (["n0"], "id-0")
    assert page(marker="id-0") == (["n1", "n2", "n3"], "id-3")  # 4 MiB less 20 bytes
    assert page(marker="id-3") == (["n4"], None)
    with api.store.change() as change:
        instances.configure(change, "id-0", {"x": "y" * (4 << 20)})
    assert page() == (["n0"], "id-0")  # an instance that exceeds the limit gets its own page


def test_only_administrators_see_locations(api: Api) -> None:
    api.fill()
    for path, what in (
        ("/servers", "the server"),
        ("/switches", "the switches"),
        ("/switches/snic0", "the switches"),
        ("/migrations", "migrations"),
        ("/migrations/1", "migrations"),
        ("/load", "load"),
        ("/faults", "faults"),
        ("/placement", "placement"),
        ("/placement/proposal", "placement"),
        ("/placement/decisions", "placement"),
        ("/placement/decisions/1", "placement"),
        ("/placement/why/lb", "placement"),
    ):
        detail = f"{what} requires the role reader, operator or admin; 'acme' is a tenant"
        problem(api.ask("GET", path, token=TENANT_TOKEN), 403, "administrators-only", "Forbidden", detail)
    detail = "placement requires the role reader, operator or admin; 'acme' is a tenant"
    asked = api.ask("POST", "/placement/dry-run", token=TENANT_TOKEN, json={})
    problem(asked, 403, "administrators-only", "Forbidden", detail)


def test_kinds_flavors_and_ports_follow_the_configuration(api: Api) -> None:
    kinds = api.get("/kinds", TENANT_TOKEN)["kinds"]
    toy = {
        "name": "toy",
        "summary": "speaks the control protocol, has a number as its state",
        "movable": True,
        "ports": [0, 2],
    }
    assert toy in kinds
    assert api.get("/kinds/toy") == toy
    assert api.get("/kinds/wired") == {"name": "wired", "summary": "", "movable": False, "ports": [1, 1]}
    flavors = api.get("/flavors", TENANT_TOKEN)["flavors"]
    assert flavors[0] == api.get("/flavors/small") == {"name": "small", "workers": 1, "memory_mb": 256}
    assert [each["name"] for each in flavors] == ["small", "medium", "large"]
    problem(api.ask("GET", "/kinds/x"), 404, "kind-unknown", "Not Found", "unknown kind 'x'")
    problem(api.ask("GET", "/flavors/x"), 404, "flavor-unknown", "Not Found", "unknown flavor 'x'")
    api.fill()
    ports = [port | {"instance": "id-lb"} for port in LB_SHOWN["ports"]]
    with api.store.change() as change:
        first = samples.instance("first", id="id-first", project="other", ports=(samples.port(3),))
        instances.add(change, first)
    others = [{"number": 3, "name": "nf3", "mac": "02:00:00:00:00:03", "instance": "id-first"}]
    assert api.get("/ports") == {"ports": others + ports}
    assert api.get("/ports", TENANT_TOKEN) == {"ports": ports}


def test_the_server_and_its_switches_are_shown_without_and_with_oneswitchd(api: Api) -> None:
    api.fill()
    directory = re.escape(str(api.store._path.parent.parent))
    (server,) = api.get("/servers")["servers"]
    assert re.fullmatch(rf"unix:{directory}/no-oneswitchd.sock", server.pop("api"))
    assert server == {
        "datapath_id": "00000000000000a1",
        "oneswitchd": "down",
        "reason": "nothing listens",
        "version": None,
        "controllers": 0,
        "switches": ["hypervisor", "snic0"],
    }
    hub, nic = api.get("/switches")["switches"]
    assert hub.pop("virt")["target"].endswith("/virt.mgmt")
    assert hub.pop("edge")["target"].endswith("/edge.mgmt")
    slot = {"name": "s0", "wires": [{"edge": "vf0", "inside": "lo"}], "taken": None}
    assert hub == {"name": "hypervisor", "hub": True, "machine": "local", "link": None, "slots": [slot]}
    unknown = {"state": "unknown", "last_error": None}
    taken = [{"name": "s1", "wires": [{"edge": "pf0vf0", "inside": "lo"}], "taken": "id-lb"}]
    expected = {
        "name": "snic0",
        "hub": False,
        "machine": "local",
        "link": "unknown",
        "slots": taken,
        "virt": {"target": "tcp:127.0.0.1:1"} | unknown,
        "edge": {"target": "tcp:127.0.0.1:2"} | unknown,
    }
    assert nic == api.get("/switches/snic0") == expected
    virt, edge = (BridgeState(target=name, state=name, last_error=name) for name in ("up", "down"))
    for state, shown in (("up", "up"), ("no-carrier", "down")):
        link = LinkState(hypervisor="pcie-snic0", local="pf0hpf", state=state)
        controllers = tuple(Controller(id=1, target="x", state=each) for each in ("connected", "backoff", "connected"))
        api.found = Status(
            version="7",
            datapath_id="1",
            switches=(SwitchState(name="snic0", virt=virt, edge=edge, link=link),),
            controllers=controllers,
        )
        told = {"virt": dict.fromkeys(("target", "state", "last_error"), "up")}
        told |= {"edge": dict.fromkeys(("target", "state", "last_error"), "down"), "link": shown}
        assert api.get("/switches/snic0") == expected | told
        assert api.get("/switches/hypervisor")["virt"]["state"] == "unknown"
    (server,) = api.get("/servers")["servers"]
    assert [server[name] for name in ("oneswitchd", "reason", "version", "controllers")] == ["up", None, "7", 2]
    problem(api.ask("GET", "/switches/x"), 404, "switch-unknown", "Not Found", "unknown switch 'x'")


def hop_of(**members: Any) -> dict[str, Any]:
    """Return a hop without an instance, with these members."""
    of_instance = dict.fromkeys(("port", "instance", "name", "kind", "status", "reason"))
    cost = {"location": None, "crossings": None, "latency_us": None, "millicores": None, "mbps": None}
    return of_instance | {"ports": [], "owned": False, "cost": cost} | members


def test_a_chain_has_all_its_members(api: Api) -> None:
    api.fill()
    order = {"name": "c", "hops": [{"port": 1}, {"instance": "acme/lb"}, {"port": 2}], "latency_us": 9}
    answer = api.ask("POST", "/chains", json=order)
    made = answer.json
    lb = {"instance": "id-lb", "name": "lb", "kind": LB.kind, "status": "active", "reason": RUNNING.reason}
    lb |= {"ports": [{"number": port.number, "name": port.name, "mac": port.mac} for port in LB.ports]}
    unknown = hop_of()["cost"] | {"crossings": 0, "latency_us": 0}
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/chains/{made['id']}"
    assert made | {"id": "", "created": ""} == {
        "id": "",
        "name": "c",
        "project": "ops",
        "status": "active",
        "hops": [
            hop_of(port=1, cost=unknown),
            hop_of(**lb, cost=hop_of()["cost"] | {"location": RUNNING.location}),
            hop_of(port=2),
        ],
        "latency_us": 9,
        "unkept": None,
        "cost": {"crossings": None, "latency_us": None, "millicores": 0},
        "created": "",
    }
    api.decider.unkept = {made["id"]: "it cannot be"}
    unkept = made | {"unkept": "it cannot be"}
    assert api.get(f"/chains/{made['id']}") == api.get("/chains/c") == unkept
    with api.store.change() as change:
        chains.add(change, replace(samples.chain("d", ("port:1", "id-lb")), id="id-d", created=AT))
    other = api.get("/chains/id-d")
    assert other["created"] == AT_ISO
    assert api.get("/chains") == {"chains": [unkept, other], "next": None}
    assert api.get("/chains", limit=1) == {"chains": [unkept], "next": made["id"]}
    assert api.get("/chains", limit=1, marker=made["id"]) == {"chains": [other], "next": None}
    theirs = api.get("/chains/d", TENANT_TOKEN)
    assert (theirs["cost"], [hop["cost"] for hop in theirs["hops"]]) == (None, [None, None])
    problem(
        *(api.ask("POST", "/chains", json=order | {"name": "e", "hops": [{"port": 1}, {"instance": "port:1"}]}), 422),
        *("instance-unknown", "Unprocessable Entity", "unknown instance 'port:1'"),
        ("hops.1", "unknown instance 'port:1'"),
    )
    deleted = api.ask("DELETE", f"/chains/{made['id']}")
    assert (deleted.status_code, deleted.json) == (202, unkept | {"status": "deleting"})
    problem(
        *(api.ask("GET", f"/chains/{made['id']}"), 404, "chain-unknown", "Not Found"),
        f"unknown chain '{made['id']}'",
    )


def test_a_migration_has_all_its_members(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.fill()
    with api.store.change() as change:
        instances.pin(change, "id-lb", None)
    with monkeypatch.context() as patch:
        patch.setattr(migrations.time, "time", lambda: AT)
        with api.store.change() as change:
            ended = migrations.request(change, PLAIN, "snic0", "hypervisor", "restart")
            ended = migrations.step(change, ended, "prepare", {"n": 1})
            migrations.end(change, ended, "failed", "why", {"n": 2})
    first = {
        "epoch": 1,
        "instance": "id-plain",
        "project": "other",
        "source": "snic0",
        "target": "hypervisor",
        "mode": "restart",
        "step": "prepare",
        "requested": AT_ISO,
        "started": AT_ISO,
        "ended": AT_ISO,
        "outcome": "failed",
        "reason": "why",
        "report": {"n": 2},
    }
    assert api.get("/migrations/1") == first
    with api.store.change() as change:
        change.db.execute("UPDATE instance SET kind = 'toy'")
        change.event("test", "x", None, {})
    answer = api.ask("POST", "/migrations", json={"instance": "acme/lb", "target": "hypervisor"})
    second = answer.json
    assert (answer.status_code, second["source"], second["target"], second["mode"]) == (
        202,
        "snic0",
        "hypervisor",
        "state",
    )
    assert (second["started"], second["ended"], second["outcome"]) == (None, None, None)
    assert api.get("/migrations") == {"migrations": [second, first], "next": None}
    assert api.get("/migrations", limit=1) == {"migrations": [second], "next": 2}
    assert api.get("/migrations", limit=1, marker=2) == {"migrations": [first], "next": None}
    assert api.get("/migrations", outcome="none")["migrations"] == [second]
    assert api.get("/migrations", instance="other/plain")["migrations"] == [first]
    assert api.get("/migrations", instance="gone")["migrations"] == []
    with api.store.change() as change:
        instances.remove(change, PLAIN)
    assert api.get("/migrations", instance="id-plain")["migrations"] == [first]
    for epoch in (3, 2**63 - 1, 2**63):
        detail = f"unknown migration epoch {epoch}"
        problem(api.ask("GET", f"/migrations/{epoch}"), 404, "migration-unknown", "Not Found", detail)


def test_a_migration_is_shown_at_its_end(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.fill()
    with api.store.change() as change:
        moving = migrations.request(change, LB, "snic0", "hypervisor", "state")
    assert api.get("/migrations/1", wait_s=0.01)["outcome"] is None
    waits, waiting, wait = list[bool](), threading.Event(), api.store.wait

    def observed(*given: Any) -> bool:
        waiting.set()
        waits.append(wait(*given))
        return waits[-1]

    # Only the event of the end is to wake it.
    monkeypatch.setattr("nfagent.api.migrations._LOOK_S", 60.0)
    monkeypatch.setattr(api.store, "wait", observed)
    shown: list[Any] = []
    client = threading.Thread(target=lambda: shown.append(api.get("/migrations/1", wait_s=60)), daemon=True)
    client.start()
    assert waiting.wait(30)
    assert api.streams._taken == 1
    with api.store.change() as change:
        moving = migrations.step(change, moving, "prepare")
    with api.store.change() as change:
        migrations.end(change, moving, "done", None, {})
    client.join(30)
    assert [each["outcome"] for each in shown] == ["done"]
    assert waits == [True]
    assert api.streams._taken == 0


def test_clients_that_wait_for_migrations_are_limited(api: Api) -> None:
    api.fill()
    with api.store.change() as change:
        migrations.request(change, LB, "snic0", "hypervisor", "state")
    admin = Client("acme", admin=True)
    for _ in range(3):
        api.streams.take(admin)
    detail = "the limit of 3 clients is reached ([api] streams)"
    refused = api.ask("GET", "/migrations/1", query_string={"wait_s": 1})
    problem(refused, 503, "too-many-streams", "Service Unavailable", detail)
    assert api.get("/migrations/1")["outcome"] is None


def test_a_wait_for_a_migration_ends_with_the_agent_or_the_clients_rights(api: Api) -> None:
    api.fill()
    with api.store.change() as change:
        migrations.request(change, LB, "snic0", "hypervisor", "state")
    assert _await_end(api.store, 1, 60, lambda: False) == migrations.find(api.store.read, 1)
    api.store.end_waits()
    assert api.get("/migrations/1", wait_s=60)["outcome"] is None


def test_a_fault_has_all_its_members(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.fill()
    with monkeypatch.context() as patch:
        patch.setattr(database.time, "time", lambda: AT)
        with api.store.change() as change:
            change.event("location.up", "hypervisor", None, {})
            change.event("location.down", "snic0", None, {"reason": "old"})
            change.event("location.down", "snic0", None, {"reason": "no link"})
            change.event("other.up", "snic0", None, {})
    location = {
        "gravity": "critical",
        "about": "location",
        "id": "snic0",
        "name": "snic0",
        "project": None,
        "since": AT_ISO,
        "text": "it is down: no link",
    }
    instance = {
        "gravity": "warning",
        "about": "instance",
        "id": "id-lb",
        "name": "lb",
        "project": "acme",
        "since": AT_ISO,
        "text": "it runs, but why",
    }
    idle = instance | {
        "id": "id-plain",
        "name": "plain",
        "project": "other",
        "text": "it does not run",
        "since": "1970-01-01T00:00:06.000Z",
    }
    assert api.get("/faults") == {"faults": [location, instance, idle]}
