"""Tenants never learn where their instances run, whatever fails there."""

from pathlib import Path

import pytest

from nfagent.api.discretion import GENERIC, Discretion
from nfagent.config import AgentConfig
from nfagent.model import Event
from nfagent.reasons import REFUSED
from tests.nfagent.test_events import following
from tests.nfagent.world import TENANT_TOKEN, World, write_files

REMOTE = """
[[location]]
switch = "snic9"
address = "192.0.2.9"
ssh = { host = "root@nic9.example", directory = "/run/elsewhere" }
slot = [{ name = "far.1", wires = [{ edge = "pf9vf9", inside = "eth9" }], netns = "/run/netns/far" }]
"""


@pytest.fixture
def discretion(directory: Path) -> Discretion:
    path = write_files(directory, more=REMOTE)
    server = (
        (directory / "server.toml").read_text()
        + """
[[switch]]
name = "snic9"
virt = "tcp:192.0.2.7:1"
edge = "tcp:192.0.2.7:2"
link = { hypervisor = "pcie-snic9", local = "pf9hpf" }
"""
    )
    (directory / "server.toml").write_text(server)
    config = AgentConfig.load(path)
    return Discretion(config, config.load_server(path))


@pytest.mark.parametrize(
    "reason",
    [
        "no free slot with 1 interface(s) at hypervisor: of 1 slots 1 have this many, all taken",
        "snic9 (ssh root@nic9.example) cannot be reached: ssh: connect to host 192.0.2.9 port 22: No route to host",
        "port 1000 (nf1000) on pf9vf9 of snic9: snic9 is cut off",
        "it is pinned to snic9, which is down",
        "it was not ready after 30 s: /run/x.snic9.sock: no answer to status; it said: pf9vf9",
    ],
)
def test_only_administrators_read_reasons_that_name_locations(discretion: Discretion, reason: str) -> None:
    assert discretion.reason(reason, admin=True) == reason
    assert discretion.reason(reason, admin=False) == GENERIC
    assert discretion.reason(None, admin=False) is None


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (f"{REFUSED}: vips[0]: unknown key (configuration)", f"{REFUSED}: vips[0]: unknown key (configuration)"),
        ("its process ended with exit status 2; it said: no key 'vip'", "its process ended; it said: no key 'vip'"),
        ("its process ended; it said nothing", "its process ended; it said nothing"),
        (
            "x.snic9: it ended at once by SIGSEGV; it said: eth9: down / one",
            "its process ended; it said: ...: down / one",
        ),
        (
            "its process ended; it said: /run/elsewhere/x.SNIC9.json, root@nic9.example, nic9.example, far.1",
            "its process ended; it said: .../x.....json, ..., ..., ...",
        ),
        ("its process ended; it said: eth90 pf9vf9x asnic9", "its process ended; it said: eth90 pf9vf9x asnic9"),
    ],
)
def test_a_tenant_reads_the_output_of_its_function(discretion: Discretion, reason: str, told: str) -> None:
    assert discretion.reason(reason, admin=False) == told
    event = Event(1, 0.0, "process.error", "x", "acme", {"id": "x", "reason": reason})
    assert discretion.event(event, admin=False)["reason"] == told
    assert discretion.event(event, admin=True)["reason"] == reason


def test_a_tenant_does_not_learn_which_location_is_full(own_world: World) -> None:
    tenant, path = own_world.tenant, "/api/v1/instances"
    for name in ("one", "two", "three"):
        assert tenant.post(path, json={"name": name, "kind": "wired"}).status_code == 202
    own_world.wait(lambda: tenant.get(path, params={"status": "error"}).json()["instances"] != [])
    (failed,) = tenant.get(path, params={"status": "error"}).json()["instances"]
    assert failed["reason"] == GENERIC
    assert tenant.get(f"/v2.1/servers/{failed['id']}").json()["server"]["fault"]["message"] == GENERIC
    shown = own_world.show(failed)
    assert "no free slot" in shown["reason"]
    with following(tenant, params={"after": 0, "subject": failed["id"]}) as follower:
        (*_, (_, _, told)) = follower.until("process.error")
    assert told["data"]["reason"] == GENERIC
    with following(own_world.admin, params={"after": 0, "subject": failed["id"]}) as follower:
        (*_, (_, _, told)) = follower.until("process.error")
    assert "no free slot" in told["data"]["reason"]
    everything = [
        tenant.get(each).text for each in (path, f"{path}/{failed['id']}", "/api/v1/ports", "/v2.1/servers/detail")
    ]
    assert not any(word in text for word in ("hypervisor", "snic0", "slot") for text in everything)
    assert TENANT_TOKEN not in str(everything)
