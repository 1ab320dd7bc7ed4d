"""Network functions move between host and smart NIC with their state, on real switches under traffic."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from lab.traffic import Stream
from nfagent.control import Control
from tests.nfagent.test_server import PATH, Deployment
from tests.nfagent.world import processes_of, wait_until

pytestmark = pytest.mark.namespaces

MIGRATIONS = "/api/v1/migrations"
SLOT = {"hypervisor": "hypervisor.nf1", "snic0": "snic0.nf1"}


@pytest.fixture(scope="module")
def deployment(module_lab_dir: Path) -> Iterator[Deployment]:
    spec = LabSpec.demo(static_arp=True).with_slots(1, interfaces=2)
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        with AgentProcess(lab, module_lab_dir / "agent") as agent:
            yield Deployment(lab, oneswitchd, agent)


def migrate(deployment: Deployment, instance: str) -> dict[str, Any]:
    """Migrate to the other side; return the ended migration."""
    answer = deployment.client.post(MIGRATIONS, json={"instance": instance})
    assert answer.status_code == 202, answer.text
    path = f"{MIGRATIONS}/{answer.json()['epoch']}"
    wait_until(lambda: deployment.client.get(path).json()["ended"] is not None)
    return deployment.client.get(path).json()


@pytest.mark.parametrize("ports", [1, 2])
def test_no_packet_is_lost_duplicated_or_reordered(deployment: Deployment, ports: int) -> None:
    made = deployment.create(name=f"mover{ports}", kind="forward", ports=ports)
    first, last = made["ports"][0], made["ports"][-1]
    deployment.add_flow(f"in_port=1,actions=mod_dl_dst:{first['mac']},output:{first['number']}")
    deployment.add_flow(f"in_port={last['number']},actions=mod_dl_dst:{deployment.lab.host('out1').mac},output:4")
    with Stream(deployment.lab, "vm1", "out1", rate=1000) as stream:
        ended = [migrate(deployment, made["name"]) for _ in range(2)]
        report = stream.stop()
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0), report
    assert report.received > 0
    for migration, (source, target) in zip(ended, (("hypervisor", "snic0"), ("snic0", "hypervisor")), strict=True):
        assert (migration["source"], migration["target"]) == (source, target)
        assert (migration["outcome"], migration["reason"]) == ("done", None)
        told = migration["report"]
        assert (told["mode"], told["lost_state"], told["flows"]) == ("memfd", None, 1)
        assert told["relayed"] > 0
        assert 0 < told["freeze_us"] < sum(step["us"] for step in told["steps"])
    shown = deployment.wait(made["id"])
    assert (shown["placement"]["location"], shown["placement"]["slot"]) == ("hypervisor", SLOT["hypervisor"])
    assert processes_of(made["id"]) == [os.getsid(shown["placement"]["pid"])]
    # The flow table moved too: one flow counted every packet of the stream.
    control = Control(deployment.agent.runtime / f"{made['id']}.hypervisor.sock")
    assert control.ask("counters")["flows"] == 1
    # A migration is reported as ended before its keeper ends.
    wait_until(lambda: list(deployment.agent.runtime.glob("keeper.*")) == [])
    deployment.delete(made["id"])


def test_instances_of_a_dead_smart_nic_return_to_the_host(deployment: Deployment) -> None:
    made = deployment.create(name="survivor", kind="forward", ports=1)
    number, mac = made["ports"][0]["number"], made["ports"][0]["mac"]
    deployment.add_flow(f"in_port=1,actions=mod_dl_dst:{mac},output:{number}")
    deployment.add_flow(f"in_port={number},actions=mod_dl_dst:{deployment.lab.host('vm2').mac},output:2")
    assert migrate(deployment, "survivor")["outcome"] == "done"
    snic = deployment.lab.switch("snic0")
    with Stream(deployment.lab, "vm1", "vm2", rate=500) as stream:
        snic.power_off()
        wait_until(lambda: deployment.client.get(f"{PATH}/survivor").json()["placement"]["location"] == "hypervisor")
        shown = deployment.wait(made["id"])
        assert deployment.home(number) == ("hypervisor", "nf1a")
        control = Control(deployment.agent.runtime / f"{made['id']}.hypervisor.sock")
        wait_until(lambda: control.ask("status")["packets_out"] > 100)
        snic.power_on()
        deployment.oneswitchd.wait_up()
        report = stream.stop()
    assert (report.duplicated, report.reordered) == (0, 0)
    assert processes_of(made["id"]) == [os.getsid(shown["placement"]["pid"])]
    newest = deployment.client.get(MIGRATIONS).json()["migrations"][0]
    assert (newest["mode"], newest["outcome"], newest["target"]) == ("restart", "done", "hypervisor")
    assert newest["report"]["lost_state"]["instances"] == [made["id"]]
    assert deployment.client.get(f"{PATH}/survivor").json()["placement"]["location"] == "hypervisor"
    deployment.delete(made["id"])
