"""kill -9 of the agent at random points: in the end, exactly the accepted instances run, once each."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.nfagent.world import ADMIN_TOKEN, processes_of, wait_until, write_files

ROOT = Path(__file__).resolve().parents[2]
PATH = "/api/v1/instances"
CHAINS = "/api/v1/chains"
KINDS = (("sleeper", 0), ("toy", 0), ("wired", 1), ("family", 0))


class Victim:
    """An agent that is killed and restarted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = write_files(directory)
        self.ports = directory / "ports.json"
        self.start()

    def start(self) -> None:
        """Start it; return when it serves."""
        command = [sys.executable, "-m", "tests.nfagent.crashing", str(self.path), str(self.ports)]
        with (self.directory / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        assert address, (self.directory / "agent.log").read_text()[-2000:]
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        self.client = httpx.Client(
            base_url="http://" + address.removeprefix("tcp:"), headers=headers, trust_env=False, timeout=30
        )

    def end(self, with_signal: signal.Signals) -> None:
        """End it with a signal."""
        self.process.send_signal(with_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=30)
        self.client.close()


class Model:
    """The accepted requests, and those whose answer a kill prevented.

    Attributes:
        chains: by name; ``members`` are the names of the instances in each chain that was ever requested.
    """

    def __init__(self) -> None:
        self.wanted: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.unsure: set[str] = set()
        self.chains: dict[str, dict[str, Any]] = {}
        self.members: dict[str, list[str]] = {}

    def act(self, client: httpx.Client, chance: random.Random, number: int) -> None:
        """Send a random request."""
        if chance.random() < 0.3:
            self._act_on_chains(client, chance, f"c{number}")
        else:
            self._act_on_instances(client, chance, number)

    def _act_on_chains(self, client: httpx.Client, chance: random.Random, name: str) -> None:
        sure = sorted(set(self.chains) - self.unsure)
        if sure and chance.random() < 0.5:
            name = chance.choice(sure)
            self.unsure.add(name)
            answer = client.delete(f"{CHAINS}/{name}")
            assert answer.status_code == 202, answer.text
            self.gone |= {hop["instance"] for hop in self.chains.pop(name)["hops"]}
        else:
            self.members[name] = [f"{name}-{kind}" for kind in ("sleeper", "toy", "family")]
            self.unsure.add(name)
            hops = [{"function": {"name": each, "kind": each.partition("-")[2]}} for each in self.members[name]]
            answer = client.post(CHAINS, json={"name": name, "hops": hops})
            if answer.status_code != 403:  # the quota of chains
                assert answer.status_code == 202, answer.text
                self.chains[name] = answer.json()
        self.unsure.discard(name)

    def _act_on_instances(self, client: httpx.Client, chance: random.Random, number: int) -> None:
        sure = sorted(set(self.wanted) - self.unsure)
        if sure and chance.random() < 0.35:
            name = chance.choice(sure)
            self.unsure.add(name)
            answer = client.delete(f"{PATH}/{self.wanted[name]['id']}")
            assert answer.status_code == 202, answer.text
            self.unsure.discard(name)
            self.gone.add(self.wanted.pop(name)["id"])
        elif sure and chance.random() < 0.35:
            name = chance.choice(sure)
            answer = client.patch(f"{PATH}/{self.wanted[name]['id']}", json={"config": {"n": number}})
            assert answer.status_code == 200, answer.text
            self.wanted[name] = answer.json()
        else:
            name, (kind, ports) = f"nf{number}", chance.choice(KINDS)
            self.unsure.add(name)
            answer = client.post(PATH, json={"name": name, "kind": kind, "ports": ports})
            if answer.status_code != 409:  # no free port
                assert answer.status_code == 202, answer.text
                self.wanted[name] = answer.json()
            self.unsure.discard(name)


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_accepted_instances_run_once_after_kill_9_at_random_points(directory: Path, seed: int) -> None:
    chance, model, victim = random.Random(seed), Model(), Victim(directory)
    started: set[str] = set()
    try:
        for crash in range(4):
            killer = threading.Timer(0.05 + chance.random() * 0.8, victim.process.send_signal, [signal.SIGKILL])
            killer.start()
            try:
                with contextlib.suppress(httpx.TransportError):
                    for step in range(40):
                        model.act(victim.client, chance, crash * 100 + step)
            finally:
                killer.join()
            victim.end(signal.SIGKILL)
            victim.start()
            started |= {each["id"] for each in _listed(victim)}
        _settle(victim, model)
        _check(victim, model, started)
    finally:
        victim.end(signal.SIGKILL)
        victim.start()
        for each in _chains(victim):
            victim.client.delete(f"{CHAINS}/{each['id']}")
        for each in _listed(victim):
            victim.client.delete(f"{PATH}/{each['id']}")
        wait_until(lambda: not _listed(victim))
        victim.end(signal.SIGTERM)
    assert [name for name in started if processes_of(name)] == []
    assert list((directory / "run").iterdir()) == []


def _listed(victim: Victim) -> list[dict[str, Any]]:
    return victim.client.get(PATH, params={"limit": 1000}).json()["instances"]


def _chains(victim: Victim) -> list[dict[str, Any]]:
    return victim.client.get(CHAINS, params={"limit": 1000}).json()["chains"]


def _settle(victim: Victim, model: Model) -> None:
    def settled() -> bool:
        listed = _listed(victim)
        waiting = [each for each in listed if not _is_settled(each, listed)]
        waiting += [each for each in _chains(victim) if each["status"] == "deleting"]
        return not waiting and not model.gone & {each["id"] for each in listed}

    wait_until(settled)


def _is_settled(instance: dict[str, Any], listed: list[dict[str, Any]]) -> bool:
    if instance["kind"] == "wired" and instance["status"] == "error":
        # If the slot was freed by a deletion, the next attempt of this instance takes it.
        is_taken = any(each["kind"] == "wired" and each["status"] == "active" for each in listed)
        return is_taken and "no free slot" in instance["reason"]
    return instance["status"] == "active" and instance["config_state"] == "applied"


def _check_chains(victim: Victim, model: Model, listed: dict[str, dict[str, Any]]) -> None:
    """Check that each chain is there with all of its instances, or with none."""
    chains = {each["name"]: each for each in _chains(victim)}
    assert set(model.chains) - model.unsure <= set(chains) <= set(model.chains) | model.unsure
    for name, members in model.members.items():
        there = [listed.pop(each)["id"] for each in members if each in listed]
        assert there == ([hop["instance"] for hop in chains[name]["hops"]] if name in chains else []), name
    assert {each["status"] for each in chains.values()} <= {"active"}


def _check(victim: Victim, model: Model, started: set[str]) -> None:
    listed = {each["name"]: each for each in _listed(victim)}
    everybody = list(listed.values())
    _check_chains(victim, model, listed)
    # Everything accepted and not deleted; besides, only requests that a kill interrupted.
    assert set(model.wanted) - model.unsure <= set(listed) <= set(model.wanted) | model.unsure
    for name, wanted in model.wanted.items():
        if name in listed and name not in model.unsure:
            assert listed[name]["id"] == wanted["id"]
            assert listed[name]["ports"] == wanted["ports"]
    for each in everybody:
        expected = [each["placement"]["pid"]] if each["status"] == "active" else []
        assert processes_of(each["id"]) == expected, each["name"]
    living = {each["id"] for each in everybody}
    assert [instance for instance in started - living if processes_of(instance)] == []
    homes = json.loads(victim.ports.read_text()) if victim.ports.exists() else {}
    serving = [each for each in everybody if each["status"] == "active"]
    assert set(homes) == {str(port["number"]) for each in serving for port in each["ports"]}
    slots = [each["placement"]["slot"] for each in serving if each["placement"]["slot"]]
    assert len(slots) == len(set(slots))
