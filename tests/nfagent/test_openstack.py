"""The Compute API: its versions and errors, and the stock ``openstack`` command against it."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.nfagent.world import OTHER_TOKEN, TENANT_TOKEN, World

OPENSTACK = Path(__file__).resolve().parents[2] / ".venv/openstack/bin/openstack"
ROOT = "/v2.1"


def microversion(version: str) -> dict[str, str]:
    return {"OpenStack-API-Version": f"compute {version}"}


def fault(answer: httpx.Response, status: int, name: str, *words: str) -> None:
    """Check that an answer is such a Nova error."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == [name]
    assert body[name]["code"] == status
    for word in words:
        assert word in body[name]["message"]


def order(**members: Any) -> dict[str, Any]:
    server = {"name": "s", "imageRef": "sleeper", "flavorRef": "small", "networks": "none"} | members
    return {"server": server}


def test_versions_are_listed(world: World) -> None:
    anybody = world.with_token("")
    for path in (ROOT, f"{ROOT}/"):
        version = anybody.get(path).json()["version"]
        assert (version["id"], version["min_version"], version["version"]) == ("v2.1", "2.1", "2.73")
        assert version["links"][0]["href"] == f"{world.url}{ROOT}/"
    for headers, expected in (
        ({}, "2.1"),
        (microversion("2.47"), "2.47"),
        (microversion("latest"), "2.73"),
        ({"X-OpenStack-Nova-API-Version": "2.60"}, "2.60"),
        ({"OpenStack-API-Version": "volume 3.1, compute 2.5"}, "2.5"),
        ({"OpenStack-API-Version": "volume 3.1"}, "2.1"),
    ):
        answer = world.tenant.get(f"{ROOT}/servers", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["openstack-api-version"] == f"compute {expected}"
        assert answer.headers["x-openstack-nova-api-version"] == expected
    for wrong in ("2.74", "2.0", "3.1", "1.99"):
        answer = world.tenant.get(f"{ROOT}/servers", headers=microversion(wrong))
        fault(answer, 406, "computeFault", f"Version {wrong} is not supported", "2.1", "2.73")
    for wrong in ("x", "2", "2.", "2.1.1"):
        fault(world.tenant.get(f"{ROOT}/servers", headers=microversion(wrong)), 400, "badRequest", wrong)


def test_errors_use_the_format_of_nova(world: World) -> None:
    tenant = world.tenant
    assert world.with_token("wrong-token-0123456789").get(f"{ROOT}/servers").json()["error"]["code"] == 401
    fault(tenant.get(f"{ROOT}/servers/ghost"), 404, "itemNotFound", "ghost")
    fault(tenant.get(f"{ROOT}/flavors/ghost"), 404, "itemNotFound", "ghost")
    fault(tenant.get(f"{ROOT}/images/ghost"), 404, "itemNotFound", "ghost")
    fault(tenant.get(f"{ROOT}/ghosts"), 404, "itemNotFound")
    fault(tenant.delete(f"{ROOT}/flavors"), 405, "badMethod")
    as_json = {"Content-Type": "application/json"}
    fault(tenant.post(f"{ROOT}/servers", content=b"{", headers=as_json), 400, "badRequest")
    large = b'{"server": "' + b"x" * (2 << 20)
    fault(tenant.post(f"{ROOT}/servers", content=large, headers=as_json), 413, "overLimit")
    for wrong, words in (
        ({"server": {}}, "server.name"),
        (order(name=7), "server.name"),
        (order(imageRef="ghost"), "ghost"),
        (order(flavorRef="ghost"), "ghost"),
        (order(networks=[{"uuid": "x"}]), "networks"),
        (order(max_count=2), "max_count"),
        (order(user_data="!"), "user_data"),
        (order(user_data=base64.b64encode(b"[[").decode()), "user_data"),
        (order(security_groups=[{"name": "x"}]), "security_groups"),
        (order(availability_zone="moon"), "moon"),
        (order(personality=[]), "personality"),
    ):
        fault(tenant.post(f"{ROOT}/servers", json=wrong), 400, "badRequest", words)
    fault(tenant.post(f"{ROOT}/servers", json=order(availability_zone="nova:snic0")), 403, "forbidden")
    fault(tenant.get(f"{ROOT}/os-hypervisors/detail"), 403, "forbidden")
    fault(tenant.get(f"{ROOT}/servers", params={"limit": "x"}), 400, "badRequest", "limit")
    fault(tenant.get(f"{ROOT}/servers", params={"marker": "ghost"}), 400, "badRequest", "ghost")


def test_a_tenant_creates_shows_and_deletes_a_server(world: World) -> None:
    tenant = world.tenant
    config = base64.b64encode(b'vip = "10.0.0.1"\n').decode()
    wanted = order(name="web", imageRef="toy", user_data=config, metadata={"tier": "front"})
    answer = tenant.post(f"{ROOT}/servers", json=wanted, headers=microversion("2.52"))
    assert answer.status_code == 202, answer.text
    server = answer.json()["server"]["id"]
    assert answer.headers["location"] == f"{world.url}{ROOT}/servers/{server}"
    fault(tenant.post(f"{ROOT}/servers", json=order(name="web")), 409, "conflictingRequest", "web")
    assert tenant.get(f"/api/v1/instances/{server}").json()["config"] == {"vip": "10.0.0.1"}
    world.wait(lambda: tenant.get(f"{ROOT}/servers/{server}").json()["server"]["status"] == "ACTIVE")
    old = tenant.get(f"{ROOT}/servers/{server}").json()["server"]
    new = tenant.get(f"{ROOT}/servers/{server}", headers=microversion("2.73")).json()["server"]
    assert (old["flavor"]["id"], new["flavor"]["original_name"], new["flavor"]["vcpus"]) == ("small", "small", 1)
    assert "locked" not in old
    assert (new["locked"], new["tags"], new["metadata"]) == (False, [], {"tier": "front"})
    # Placement is hidden: no word about it, and no member differs between locations.
    assert not any(key.startswith("OS-EXT-SRV-ATTR") for key in new)
    assert "hypervisor" not in json.dumps(new)
    fault(tenant.post(f"{ROOT}/servers/{server}/action", json={"migrate": None}), 403, "forbidden")
    for length in ({}, {"length": "-1"}, {"length": 5}):
        said = tenant.post(f"{ROOT}/servers/{server}/action", json={"os-getConsoleOutput": length})
        assert (said.status_code, said.json()) == (200, {"output": ""})
    seen = world.admin.get(f"{ROOT}/servers/{server}", headers=microversion("2.73")).json()["server"]
    assert (seen["OS-EXT-SRV-ATTR:host"], seen["hostId"]) == ("hypervisor", new["hostId"])
    assert world.admin.post(f"{ROOT}/servers/{server}/action", json={"migrate": None}).status_code == 202
    path = f"{ROOT}/servers/{server}"
    world.wait(lambda: world.admin.get(path).json()["server"]["OS-EXT-SRV-ATTR:host"] == "snic0")
    fault(world.admin.post(f"{ROOT}/servers/{server}/action", json={"reboot": {}}), 400, "badRequest", "reboot")
    assert [each["name"] for each in tenant.get(f"{ROOT}/servers").json()["servers"]] == ["web"]
    assert world.admin.get(f"{ROOT}/servers").json()["servers"] == []
    everybody = world.admin.get(f"{ROOT}/servers/detail", params={"all_tenants": "1"}).json()["servers"]
    assert [each["tenant_id"] for each in everybody if each["name"] == "web"] == ["acme"]
    for delete in range(2):
        answer = tenant.delete(f"{ROOT}/servers/{server}")
        assert answer.status_code == 204 or (delete and answer.status_code == 404)
    world.wait(lambda: tenant.get(f"{ROOT}/servers/{server}").status_code == 404)
    fault(tenant.delete(f"{ROOT}/servers/{server}"), 404, "itemNotFound", server)


def test_lists_are_paged_by_links(world: World) -> None:
    names = [f"linked{number}" for number in range(5)]
    for name in names:
        assert world.admin.post(f"{ROOT}/servers", json=order(name=name)).status_code == 202
    url, got = f"{ROOT}/servers?limit=2&name=linked", []
    while url:
        page = world.admin.get(url).json()
        got += [server["name"] for server in page["servers"]]
        url = page["servers_links"][0]["href"] if "servers_links" in page else ""
    assert got == names[::-1]
    for limit in (1, 1000):
        exact = world.admin.get(f"{ROOT}/servers", params={"name": "^linked0$", "limit": limit}).json()["servers"]
        assert [server["name"] for server in exact] == ["linked0"]


def test_labels_of_a_server_are_its_metadata(world: World) -> None:
    made = world.tenant.post(f"{ROOT}/servers", json=order(name="labelled", metadata={"tier": "front"})).json()
    path = f"{ROOT}/servers/{made['server']['id']}"
    both = {"tier": "front", "owner": "ann"}
    assert world.tenant.post(f"{path}/metadata", json={"metadata": {"owner": "ann"}}).json() == {"metadata": both}
    assert world.tenant.delete(f"{path}/metadata/tier").status_code == 204
    fault(world.tenant.delete(f"{path}/metadata/tier"), 404, "itemNotFound", "tier")
    assert world.tenant.put(path, json={"server": {"description": "of Ann"}}).status_code == 200
    labels = {"owner": "ann", "description": "of Ann"}
    assert world.tenant.get(f"{path}/metadata").json() == {"metadata": labels}
    fault(world.tenant.post(f"{path}/metadata", json={"metadata": {"a": 1}}), 400, "badRequest", "metadata.a")


def test_addresses_are_those_of_the_configuration(world: World) -> None:
    config = {
        "interfaces": [{"addresses": ["10.0.0.2/24", "fd00::2/64"]}],
        "vips": [{"address": "192.0.2.1"}, {"address": "192.0.2.1"}, {"address": "wrong"}],
    }
    path = f"{ROOT}/servers/{world.create('addressed', 'toy', config=config, ports=1)['id']}"
    shown = world.operator.get(path).json()["server"]["addresses"]["virtual"]
    found = [(each["addr"], each["version"], each["OS-EXT-IPS:type"]) for each in shown]
    assert found == [("10.0.0.2", 4, "fixed"), ("fd00::2", 6, "fixed"), ("192.0.2.1", 4, "floating")]
    (interface,) = world.operator.get(f"{path}/os-interface").json()["interfaceAttachments"]
    assert interface["mac_addr"] == shown[0]["OS-EXT-IPS-MAC:mac_addr"]
    assert interface["fixed_ips"] == [{"ip_address": "10.0.0.2"}, {"ip_address": "fd00::2"}]


def test_a_resize_restarts_the_server_and_waits_for_its_owner(world: World) -> None:
    tenant = world.tenant
    path = f"{ROOT}/servers/{tenant.post(f'{ROOT}/servers', json=order(name='grows')).json()['server']['id']}"

    def status() -> str:
        shown = tenant.get(path, headers=microversion("2.47")).json()["server"]
        return f"{shown['status']} {shown['flavor']['original_name']} {shown['flavor']['vcpus']}"

    def act(action: str, wanted: dict[str, Any] | None = None) -> httpx.Response:
        return tenant.post(f"{path}/action", json={action: wanted})

    world.wait(lambda: status() == "ACTIVE small 1")
    pid = world.show("acme/grows")["placement"]["pid"]
    fault(act("confirmResize"), 409, "conflictingRequest", "grows", "no resize")
    fault(act("resize", {"flavorRef": "small"}), 400, "badRequest", "has the flavor small")
    fault(act("resize", {"flavorRef": "huge"}), 400, "badRequest", "huge", "medium")
    assert act("resize", {"flavorRef": "large"}).status_code == 202
    world.wait(lambda: status() == "VERIFY_RESIZE large 4")
    assert world.show("acme/grows")["placement"]["pid"] != pid
    fault(act("resize", {"flavorRef": "medium"}), 409, "conflictingRequest", "resized from small")
    assert act("revertResize").status_code == 202
    world.wait(lambda: status() == "ACTIVE small 1")
    assert act("resize", {"flavorRef": "medium"}).status_code == 202
    world.wait(lambda: status() == "VERIFY_RESIZE medium 2")
    assert act("confirmResize").status_code == 204
    assert status() == "ACTIVE medium 2"
    events = tenant.get(f"{path}/os-instance-actions").json()["instanceActions"]
    assert {each["action"] for each in events} == {"create", "resize"}
    tenant.delete(path)


def test_locations_quotas_and_limits_are_shown(world: World) -> None:
    tenant, admin = world.tenant, world.admin
    # Servers that earlier tests have deleted count until they are gone.
    world.wait(lambda: '"deleting"' not in tenant.get("/api/v1/instances").text)
    detail = tenant.get(f"{ROOT}/os-quota-sets/acme/detail").json()["quota_set"]
    made = tenant.post(f"{ROOT}/servers", json=order(name="counted", flavorRef="medium"))
    assert made.status_code == 202
    after = tenant.get(f"{ROOT}/os-quota-sets/acme/detail").json()["quota_set"]
    workers = admin.get("/api/v1/flavors/medium").json()["workers"]
    assert after["instances"]["in_use"] - detail["instances"]["in_use"] == 1
    assert after["cores"]["in_use"] - detail["cores"]["in_use"] == workers
    absolute = tenant.get(f"{ROOT}/limits").json()["limits"]["absolute"]
    assert absolute["maxTotalInstances"] == after["instances"]["limit"]
    assert absolute["totalCoresUsed"] == after["cores"]["in_use"]
    for path in ("os-quota-sets/other", "limits?tenant_id=other", "projects/other"):
        fault(tenant.get(f"{ROOT}/{path}"), 403, "forbidden", "other")
        assert admin.get(f"{ROOT}/{path}").status_code == 200
    for path in ("os-hypervisors/1", "os-services", "os-aggregates", "os-availability-zone/detail"):
        fault(tenant.get(f"{ROOT}/{path}"), 403, "forbidden")
    assert tenant.get(f"{ROOT}/os-availability-zone").json()["availabilityZoneInfo"][0]["hosts"] is None
    shown = admin.get(f"{ROOT}/os-hypervisors/2").json()["hypervisor"]
    assert (shown["hypervisor_hostname"], shown["id"]) == ("snic0", 2)
    assert shown == admin.get(f"{ROOT}/os-hypervisors/snic0").json()["hypervisor"]
    fault(admin.get(f"{ROOT}/os-hypervisors/moon"), 404, "itemNotFound", "moon")
    hosts = [each["host"] for each in admin.get(f"{ROOT}/os-services?host=snic0").json()["services"]]
    assert hosts == ["snic0"]
    assert admin.get(f"{ROOT}/os-services?binary=nova-scheduler").json()["services"] == []


needs_openstack = pytest.mark.skipif(
    not OPENSTACK.exists(), reason="openstack is not in .venv/openstack; tools/prepare test installs it"
)


def openstack(world: World, *arguments: str, token: str = "", status: int = 0) -> Any:
    """Run the stock command; return its JSON output, or its error if it should fail."""
    url = f"{world.url}{ROOT}"
    options = ["--os-auth-type", "none", "--os-endpoint", url, "--os-identity-api-version", "3"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    if token:
        # Without an identity service, the command would mistake the endpoint for one of another version.
        clouds = world.directory / "clouds.yaml"
        auth = f"auth_type: admin_token, auth: {{endpoint: '{url}', token: {token}}}"
        identity = f"identity_api_version: '3', identity_endpoint_override: '{url}'"
        clouds.write_text(f"clouds: {{nfagent: {{{auth}, {identity}}}}}\n")
        options, environment["OS_CLIENT_CONFIG_FILE"] = ["--os-cloud", "nfagent"], str(clouds)
    command = [str(OPENSTACK), *options, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    if status:
        return done.stderr
    return json.loads(done.stdout) if "json" in arguments else done.stdout


@needs_openstack
def test_the_stock_command_works(directory: Path) -> None:
    world, as_json = World(directory, anonymous="admin"), ("-f", "json")
    try:
        assert {each["Name"] for each in openstack(world, "flavor", "list", *as_json)} == {"small", "medium", "large"}
        assert {"toy", "sleeper"} <= {each["Name"] for each in openstack(world, "image", "list", *as_json)}
        create = ("server", "create", "--image", "sleeper", "--flavor", "small", "--nic", "none", "--wait")
        assert [each["Name"] for each in openstack(world, "network", "list", *as_json)] == ["virtual"]
        made = openstack(world, *create, "--property", "tier=front", "stock", *as_json)
        assert (made["status"], made["properties"]) == ("ACTIVE", {"tier": "front"})
        listed = openstack(world, "server", "list", *as_json)
        assert [(each["ID"], each["Image"], each["Flavor"]) for each in listed] == [(made["id"], "sleeper", "small")]
        openstack(world, "server", "migrate", "stock")
        world.wait(lambda: world.show(made)["placement"]["location"] == "snic0")
        world.wait_status(made, "active")
        shown = openstack(world, "server", "show", "stock", *as_json)
        assert (shown["id"], shown["OS-EXT-SRV-ATTR:host"]) == (made["id"], "snic0")
        openstack(world, "server", "delete", "--wait", "stock")
        assert "No Server found for stock" in openstack(world, "server", "show", "stock", status=1)
    finally:
        world.close()


@needs_openstack
def test_the_stock_command_works_with_a_token(world: World) -> None:
    create = ("server", "create", "--image", "sleeper", "--flavor", "small", "--nic", "none", "mine", "-f", "json")
    made = openstack(world, *create, token=TENANT_TOKEN)
    assert made["OS-EXT-SRV-ATTR:host"] is None
    assert world.show(made["id"])["project"] == "acme"
    listed = openstack(world, "server", "list", "-f", "json", token=TENANT_TOKEN)
    assert made["id"] in [each["ID"] for each in listed]
    assert openstack(world, "server", "list", "-f", "json", token=OTHER_TOKEN) == []
    assert "403" in openstack(world, "server", "migrate", "mine", token=TENANT_TOKEN, status=1)
    assert "401" in openstack(world, "server", "list", token="wrong-token-0123456789", status=1)


@needs_openstack
@pytest.mark.soak
def test_the_stock_command_shows_limits_and_resizes(directory: Path) -> None:
    world, as_json = World(directory, anonymous="admin"), ("-f", "json")
    try:
        (listed, _) = openstack(world, "hypervisor", "list", *as_json)
        shown = openstack(world, "hypervisor", "show", "hypervisor", *as_json)
        assert (shown["hypervisor_hostname"], shown["id"]) == ("hypervisor", str(listed["ID"]))
        services = openstack(world, "compute", "service", "list", *as_json)
        assert [each["Host"] for each in services] == ["hypervisor", "snic0"]
        assert openstack(world, "availability", "zone", "list", "--compute", *as_json)[0]["Zone Name"] == "nova"
        quotas = openstack(world, "quota", "show", "--compute", "acme", *as_json)
        assert {each["Resource"]: each["Limit"] for each in quotas}["instances"] == 250
        usage = openstack(world, "quota", "show", "--compute", "--usage", "acme", *as_json)
        assert {each["Resource"]: each["In Use"] for each in usage}["instances"] == 0
        limits = openstack(world, "limits", "show", "--absolute", *as_json)
        assert {each["Name"]: each["Value"] for each in limits}["instances"] == 250
        create = ("server", "create", "--image", "toy", "--flavor", "small", "--nic", "none", "--wait", "labelled")
        openstack(world, *create)
        openstack(world, "server", "set", "--property", "tier=front", "labelled")
        assert openstack(world, "server", "show", "labelled", *as_json)["properties"] == {"tier": "front"}
        openstack(world, "server", "unset", "--property", "tier", "labelled")
        assert openstack(world, "server", "show", "labelled", *as_json)["properties"] == {}
        said = openstack(world, "server", "create", "--image", "loud", *create[4:-1], "said", *as_json)
        world.wait(lambda: "one\ntwo" in openstack(world, "console", "log", "show", said["id"]))
        openstack(world, "server", "resize", "--flavor", "medium", "--wait", "labelled")
        resized = openstack(world, "server", "show", "labelled", *as_json)
        assert (resized["status"], resized["flavor"]["original_name"]) == ("VERIFY_RESIZE", "medium")
        openstack(world, "server", "resize", "revert", "labelled")
        world.wait(lambda: world.show("labelled")["status"] == "active")
        openstack(world, "server", "resize", "--flavor", "large", "--wait", "labelled")
        openstack(world, "server", "resize", "confirm", "labelled")
        resized = openstack(world, "server", "show", "labelled", *as_json)
        assert (resized["status"], resized["flavor"]["original_name"]) == ("ACTIVE", "large")
    finally:
        world.close()
