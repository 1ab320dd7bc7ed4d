"""A firewall with two ports, deployed by nfagent: a real connection that it has decided bypasses it in the switch."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.agent import AgentProcess
from lab.balancer import BACKENDS, CLIENTS
from lab.control_plane import Oneswitchd
from lab.function import Function, ofctl
from lab.server import Lab
from lab.spec import LabSpec
from nfagent.control import Control
from tests.nfagent.world import wait_until

pytestmark = pytest.mark.namespaces

PORT = 5000
SHARE = 0.9
_SERVER = f"""
import socket
listening = socket.create_server(("0.0.0.0", {PORT}))
print("listens", flush=True)
connection, _ = listening.accept()
while data := connection.recv(4096):
    connection.sendall(data)
"""
_CLIENT = f"""
import select, socket, sys
connection = socket.create_connection((sys.argv[1], {PORT}), timeout=30)
count = 0
while not select.select([sys.stdin], [], [], 0.002)[0]:
    connection.sendall(b"x" * 64)
    assert connection.recv(64, socket.MSG_WAITALL) == b"x" * 64
    count += 1
    if count % 50 == 0:
        print(count, flush=True)
connection.close()
print(count)
"""
RULE: dict[str, Any] = {"name": "echo", "protocols": ["tcp"], "ports": [PORT], "action": "allow"}
CONFIG: dict[str, Any] = {
    "flows": 1024,
    "inspection": {"memory_mib": 1},
    "offload": {"heavy_packets_per_s": 10.0},
    "rules": [RULE],
}


@dataclass
class World:
    """A firewall, and a client whose connection passes it."""

    lab: Lab
    agent: AgentProcess
    oneswitchd: Oneswitchd
    firewall: Function
    client: subprocess.Popen[str]

    def ask(self, word: str) -> dict[str, Any]:
        place = self.firewall.show()["placement"]["location"]
        return Control(self.agent.runtime / f"{self.firewall.id}.{place}.sock").ask(word)

    def offload(self) -> dict[str, Any]:
        return self.ask("status")["offload"]

    def await_bypass(self) -> None:
        wait_until(lambda: self.offload()["flows"] == 2 and self.offload()["share"] >= SHARE)

    def rounds(self) -> int:
        """Return the number of answers that the client has got, after some more."""
        assert self.client.stdout
        line = self.client.stdout.readline()
        assert line, "the client has ended"
        return int(line)

    def arrived(self) -> int:
        """Return the number of packets that the server has received."""
        text = self.lab.exec(BACKENDS, ["cat", "/proc/net/dev"]).stdout
        (line,) = (line for line in text.splitlines() if line.strip().startswith("eth0:"))
        return int(line.split()[2])

    def counted(self) -> int:
        return self.ask("firewall.rules")["rules"][0]["packets"]


@pytest.fixture
def world(lab_dir: Path) -> Iterator[World]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with Lab(LabSpec.demo(static_arp=True).with_slots(1, 2)).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        with AgentProcess(lab, lab_dir / "agent", {"decide": {"enabled": False}}) as agent:
            firewall = Function(agent, {"name": "fw", "kind": "firewall", "ports": 2, "config": CONFIG})
            front, behind = (port["number"] for port in firewall.ports)
            number = {port.name: port.number for port in lab.state.ports}
            ways = {number[CLIENTS]: front, front: number[CLIENTS], number[BACKENDS]: behind, behind: number[BACKENDS]}
            for source, destination in ways.items():
                ofctl(lab, oneswitchd, "add-flow", f"in_port={source},actions=output:{destination}")
            firewall.await_active()
            with lab.popen(BACKENDS, [sys.executable, "-c", _SERVER], **pipes) as server:
                assert server.stdout
                assert server.stdout.readline()
                address = lab.host(BACKENDS).address.partition("/")[0]
                with lab.popen(CLIENTS, [sys.executable, "-c", _CLIENT, address], **pipes) as client:
                    try:
                        yield World(lab, agent, oneswitchd, firewall, client)
                    finally:
                        client.kill()
                        server.kill()


def test_a_connection_bypasses_the_firewall_until_it_ends(world: World) -> None:
    world.await_bypass()
    for target in ("snic0", "hypervisor"):
        world.firewall.move(target)
        world.await_bypass()
    assert world.client.stdin
    world.client.stdin.write("end\n")
    world.client.stdin.close()
    assert world.client.wait(30) == 0
    assert world.client.stdout
    rounds = int(world.client.stdout.read().split()[-1])
    wait_until(lambda: world.offload()["flows"] == 0)
    wait_until(lambda: all(port.flows == 0 for port in world.oneswitchd.client.status().offload))
    # A packet each way for each round, and the handshake and end; acknowledgements may travel alone. The last counts of
    # the switch come a moment later.
    wait_until(lambda: world.counted() >= 2 * rounds + 6)
    assert world.counted() <= 4 * rounds + 20


def test_a_new_configuration_holds_for_offloaded_connections_when_it_is_answered(world: World) -> None:
    world.await_bypass()
    world.firewall.reconfigure({"rules": [RULE | {"action": "drop"}]})
    arrived, counted = world.arrived(), world.counted()
    # The client sends again, to the firewall or to a rule that drops.
    wait_until(lambda: world.counted() > counted)
    assert world.arrived() == arrived
    world.firewall.reconfigure({"rules": [RULE]})
    last = world.rounds()
    wait_until(lambda: world.rounds() > last)
    world.await_bypass()
