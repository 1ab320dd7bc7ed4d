"""The agent on an emulated server: real switches, oneswitchd, and ``nf`` in a network namespace."""

import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.programs import environment
from lab.server import Lab, enter_command
from lab.spec import LabSpec
from nfagent.agent import Agent
from nfagent.config import AgentConfig
from nfagent.control import Control
from tests.nfagent.world import processes_of, wait_until

pytestmark = pytest.mark.lab

PATH = "/api/v1/instances"
_AGENT = """
server = "{server}"
state = "{directory}/state"
runtime = "{directory}/run"
[api]
listen = ["unix:{directory}/nfagent.sock"]
[[kind]]
name = "still"
command = ["sleep", "100000"]
ports = [1, 1]
[[location]]
switch = "hypervisor"
slot = [{{ name = "a", wires = [{{ edge = "vm2", inside = "eth0" }}], enter = {enter} }}]
[[location]]
switch = "snic0"
slot = [{{ name = "b", wires = [{{ edge = "pf0vf0", inside = "eth1" }}], enter = {enter} }}]
"""


class Deployment:
    """A server, oneswitchd and an agent."""

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, directory: Path) -> None:
        self.lab, self.oneswitchd = lab, oneswitchd
        enter, _ = enter_command(lab.state, "vm2")
        text = _AGENT.format(server=lab.server_toml, directory=directory, enter=enter)
        config = AgentConfig.parse(text)
        self.runtime = directory / "run"
        self.agent = Agent(config, config.load_server(directory / "agent.toml"))
        transport = httpx.HTTPTransport(uds=str(directory / "nfagent.sock"))
        self.client = httpx.Client(transport=transport, base_url="http://nfagent", timeout=60)

    def create(self, **order: Any) -> dict[str, Any]:
        """Create an instance and wait until it is active."""
        answer = self.client.post(PATH, json=order)
        assert answer.status_code == 202, answer.text
        return self.wait(answer.json()["id"])

    def wait(self, instance: str) -> dict[str, Any]:
        """Wait until an instance is active."""

        def shown() -> dict[str, Any]:
            return self.client.get(f"{PATH}/{instance}").json()

        wait_until(lambda: shown()["status"] in ("active", "error"))
        assert shown()["status"] == "active", shown()["reason"]
        return shown()

    def delete(self, instance: str) -> None:
        """Delete an instance and wait until it is gone."""
        assert self.client.delete(f"{PATH}/{instance}").status_code == 202
        wait_until(lambda: self.client.get(f"{PATH}/{instance}").status_code == 404)

    def home(self, number: int) -> tuple[str, str] | None:
        """Where a virtual port is."""
        ports = self.oneswitchd.client.ports()
        return next(((each.switch, each.interface) for each in ports if each.number == number), None)

    def add_flow(self, flow: str) -> None:
        """A rule for the one switch."""
        command = ["ovs-ofctl", "-O", "OpenFlow13", "add-flow", self.oneswitchd.management, flow]
        variables = environment() | {"OVS_RUNDIR": str(self.lab.directory)}
        subprocess.run(command, check=True, timeout=30, env=variables)


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    spec = LabSpec.demo(static_arp=True)
    # vm2's namespace is where NFs run: it has an interface on either switch, and no virtual port of its own.
    spec = dataclasses.replace(spec, ports=tuple(port for port in spec.ports if port.name != "vm2"))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ul-", dir="/tmp") as path:
        patch.setenv(ENVIRONMENT, path)
        (Path(path) / "agent").mkdir()
        with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
            oneswitchd.wait_up()
            made = Deployment(lab, oneswitchd, Path(path) / "agent")
            yield made
            made.client.close()
            made.agent.stop()


def test_an_nf_gets_packets_by_its_virtual_port(deployment: Deployment) -> None:
    kinds = {kind["name"] for kind in deployment.client.get("/api/v1/kinds").json()["kinds"]}
    if "forward" not in kinds:
        pytest.skip("no program nf; make build installs it")
    made = deployment.create(name="mirror", kind="forward", ports=1)
    number, mac = made["ports"][0]["number"], made["ports"][0]["mac"]
    assert deployment.home(number) == ("hypervisor", "vm2")
    control = Control(deployment.runtime / f"{made['id']}.hypervisor.sock")
    status = control.ask("status")
    assert [(port["name"], port["mac"]) for port in status["ports"]] == [("eth0", mac)]
    deployment.add_flow(f"in_port=1,actions=output:{number}")
    deployment.add_flow(f"in_port={number},actions=output:1")
    somebody = deployment.lab.host("out1").address.split("/")[0]
    deployment.lab.exec("vm1", ["ping", "-c3", "-i0.01", "-W1", somebody], check=False)
    wait_until(lambda: control.ask("status")["packets_in"] >= status["packets_in"] + 3)
    deployment.delete(made["id"])
    assert processes_of(made["id"]) == []
    assert number not in [port.number for port in deployment.oneswitchd.client.ports()]
    assert f"virt-{number}" not in _ports(deployment)


def test_a_port_goes_where_its_instance_goes(deployment: Deployment) -> None:
    made = deployment.create(name="still", kind="still")
    number = made["ports"][0]["number"]
    answer = deployment.client.post("/api/v1/migrations", json={"instance": "still", "target": "snic0"})
    assert answer.status_code == 202, answer.text
    wait_until(lambda: deployment.home(number) == ("snic0", "pf0vf0"))
    assert deployment.wait(made["id"])["placement"]["location"] == "snic0"
    deployment.oneswitchd.client.delete_port(number)  # what is lost comes back
    deployment.agent._reconciler.wake(made["id"])
    wait_until(lambda: deployment.home(number) == ("snic0", "pf0vf0"))
    servers = deployment.client.get("/api/v1/servers").json()["servers"]
    assert servers[0]["oneswitchd"] == "up"
    switches = {each["name"]: each for each in deployment.client.get("/api/v1/switches").json()["switches"]}
    assert (switches["snic0"]["virt"]["state"], switches["snic0"]["link"]) == ("up", "up")
    assert [slot["taken"] for slot in switches["snic0"]["slots"]] == [made["id"]]
    deployment.delete(made["id"])


def _ports(deployment: Deployment) -> str:
    command = ["ovs-vsctl", f"--db={deployment.lab.state.switches[0].ovsdb}", "list-ports", "virt"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30, env=environment()).stdout
