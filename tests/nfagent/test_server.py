"""The agent on an emulated server: real switches, oneswitchd, and network functions in the lab's slots."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.agent import AgentProcess
from lab.agent_events import AgentEvent, AgentEvents
from lab.control_plane import Oneswitchd
from lab.programs import environment
from lab.server import Lab
from lab.spec import LabSpec
from nfagent.control import Control
from tests.nfagent.world import processes_of, wait_until

pytestmark = pytest.mark.namespaces

PATH = "/api/v1/instances"
HUNG_AFTER_S = 4.0
STILL = {"name": "still", "command": ["sleep", "100000"], "ports": [1, 1]}


class Deployment:
    """A server, oneswitchd and an agent."""

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, agent: AgentProcess) -> None:
        self.lab, self.oneswitchd, self.agent, self.client = lab, oneswitchd, agent, agent.client

    def create(self, **order: Any) -> dict[str, Any]:
        """Create an instance and wait until it is active."""
        answer = self.client.post(PATH, json=order)
        assert answer.status_code == 202, answer.text
        return self.wait(answer.json()["id"])

    def wait(self, instance: str) -> dict[str, Any]:
        """Wait until an instance is active; return it as seen then: it may move a moment later."""
        seen: dict[str, Any] = {}

        def is_settled() -> bool:
            seen.clear()
            seen.update(self.client.get(f"{PATH}/{instance}").json())
            return seen["status"] in ("active", "error")

        wait_until(is_settled)
        assert seen["status"] == "active", seen["reason"]
        return seen

    def delete(self, instance: str) -> None:
        """Delete an instance and wait for its end."""
        assert self.client.delete(f"{PATH}/{instance}").status_code == 202
        wait_until(lambda: self.client.get(f"{PATH}/{instance}").status_code == 404)

    def home(self, number: int) -> tuple[str, str] | None:
        """Return the home of a virtual port."""
        ports = self.oneswitchd.client.ports()
        return next(((each.switch, each.interface) for each in ports if each.number == number), None)

    def add_flow(self, flow: str) -> None:
        """Add a rule to the one switch."""
        command = ["ovs-ofctl", "-O", "OpenFlow13", "add-flow", self.oneswitchd.management, flow]
        variables = environment() | {"OVS_RUNDIR": str(self.lab.directory)}
        subprocess.run(command, check=True, timeout=30, env=variables)


@pytest.fixture(scope="module")
def deployment(module_lab_dir: Path) -> Iterator[Deployment]:
    spec = LabSpec.demo(static_arp=True).with_slots(1)
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        settings = {"kind": [STILL], "recovery": {"hung_after_s": HUNG_AFTER_S}}
        with AgentProcess(lab, module_lab_dir / "agent", settings) as agent:
            yield Deployment(lab, oneswitchd, agent)


def test_an_nf_gets_packets_by_its_virtual_port(deployment: Deployment) -> None:
    made = deployment.create(name="mirror", kind="forward", ports=1)
    number, mac = made["ports"][0]["number"], made["ports"][0]["mac"]
    assert deployment.home(number) == ("hypervisor", "nf1")
    control = Control(deployment.agent.runtime / f"{made['id']}.hypervisor.sock")
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


def test_a_port_follows_its_instance(deployment: Deployment) -> None:
    made = deployment.create(name="still", kind="still")
    number = made["ports"][0]["number"]
    answer = deployment.client.post("/api/v1/migrations", json={"instance": "still", "target": "snic0"})
    assert answer.status_code == 202, answer.text
    wait_until(lambda: deployment.home(number) == ("snic0", "nf1"))
    assert deployment.wait(made["id"])["placement"]["location"] == "snic0"
    servers = deployment.client.get("/api/v1/servers").json()["servers"]
    assert servers[0]["oneswitchd"] == "up"
    switches = {each["name"]: each for each in deployment.client.get("/api/v1/switches").json()["switches"]}
    assert (switches["snic0"]["virt"]["state"], switches["snic0"]["link"]) == ("up", "up")
    assert [slot["taken"] for slot in switches["snic0"]["slots"]] == [made["id"]]
    deployment.delete(made["id"])


def test_a_killed_agent_adopts_its_instances_and_restores_a_lost_port(deployment: Deployment) -> None:
    made = deployment.create(name="still", kind="still", pin="snic0")
    number, processes = made["ports"][0]["number"], processes_of(made["id"])
    assert processes
    deployment.agent.kill()
    deployment.oneswitchd.client.delete_port(number, force=True)
    deployment.agent.start()
    wait_until(lambda: deployment.home(number) == ("snic0", "nf1"))
    assert processes_of(made["id"]) == processes
    deployment.delete(made["id"])


def test_a_starting_agent_restores_ports_that_a_switch_lost(deployment: Deployment) -> None:
    made = deployment.create(name="still", kind="still", pin="snic0")
    number, processes = made["ports"][0]["number"], processes_of(made["id"])
    deployment.agent.kill()
    for name in (f"virt-{number}", f"edge-{number}", "nf1"):
        _vsctl(deployment, 1, "del-port", name)
    assert deployment.home(number) == ("snic0", "nf1")  # so no process reports them missing
    deployment.agent.start()
    wait_until(lambda: f"virt-{number}" in _ports(deployment, 1))
    wait_until(lambda: "nf1" in _vsctl(deployment, 1, "list-ports", "edge").split())
    assert deployment.home(number) == ("snic0", "nf1")
    assert processes_of(made["id"]) == processes
    deployment.delete(made["id"])


def test_a_hung_nf_is_shown_everywhere_and_replaced(deployment: Deployment) -> None:
    made = deployment.create(name="hangs", kind="forward", ports=1)
    (process,) = processes_of(made["id"])
    pid = made["placement"]["pid"]
    metric = f'nfagent_instance_unresponsive{{instance="hangs",project="{made["project"]}"}} '
    with AgentEvents(deployment.client) as events:
        os.kill(pid, signal.SIGSTOP)
        assert events.wait(lambda: [each for each in events.all("process.silent") if each.subject == made["id"]], 60)
        (fault,) = deployment.client.get("/api/v1/faults").json()["faults"]
        assert (fault["name"], fault["gravity"]) == ("hangs", "critical")
        assert metric + "1" in deployment.client.get("/metrics").text
        assert "does not answer" in deployment.client.get("/dashboard").text
        assert events.wait(lambda: processes_of(made["id"]) not in ([], [process]), 60)
    again = deployment.wait(made["id"])
    assert Control(deployment.agent.runtime / f"{made['id']}.hypervisor.sock").ask("status")["ports"]
    assert again["placement"]["pid"] != pid
    assert deployment.client.get("/api/v1/faults").json()["faults"] == []
    deployment.delete(made["id"])


def test_clients_can_wait_for_events_of_the_agent(deployment: Deployment) -> None:
    told: list[AgentEvent] = []
    with AgentEvents(deployment.client, told.append) as events:
        made = deployment.client.post(PATH, json={"name": "told", "kind": "still"}).json()["id"]
        active = events.wait(lambda: [e for e in events.all("process.active") if e.subject == made], 30)
        assert active is not None
        assert [event.subject for event in events.all("instance.created")][-1] == made
        assert events.wait(lambda: None, 0.01) is None
        deployment.delete(made)
        assert events.wait(lambda: [e for e in events.all("instance.deleted") if e.subject == made], 30)
    assert [event.id for event in told] == sorted({event.id for event in told})


def test_closing_the_agent_ends_its_instances(deployment: Deployment, directory: Path) -> None:
    kind = {"name": "still", "command": ["sleep", "100000"]}
    with AgentProcess(deployment.lab, directory, {"kind": [kind]}) as agent:
        made = agent.client.post(PATH, json={"name": "still", "kind": "still"}).json()["id"]
        wait_until(lambda: agent.client.get(f"{PATH}/{made}").json()["status"] == "active")
        assert processes_of(made)
    assert processes_of(made) == []


def _ports(deployment: Deployment, switch: int = 0) -> str:
    return _vsctl(deployment, switch, "list-ports", "virt")


def _vsctl(deployment: Deployment, switch: int, *words: str) -> str:
    command = ["ovs-vsctl", f"--db={deployment.lab.state.switches[switch].ovsdb}", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30, env=environment()).stdout


def test_the_wrapper_of_a_stopped_function_continues_with_it(deployment: Deployment) -> None:
    """It stops with its child, and would not notice later that the child ends."""
    made = deployment.create(name="paused", kind="forward", ports=1)
    own = made["placement"]["pid"]
    wrapper = int(_stat(own)[1])
    os.kill(own, signal.SIGSTOP)
    wait_until(lambda: _stat(wrapper)[0] == "T")
    os.kill(own, signal.SIGCONT)
    wait_until(lambda: _stat(wrapper)[0] != "T")


def _stat(pid: int) -> list[str]:
    """Return a process's state, its parent's id, and so on (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
