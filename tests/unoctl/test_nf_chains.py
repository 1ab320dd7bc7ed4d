"""``unoctl nf chain`` with an agent in this process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nfagent.world import World
from tests.unoctl.test_nf import _printed, nf
from unoctl.nf import views

CHAIN = """
latency_us = 60
[[hops]]
port = 1001
[[hops]]
function = { name = "first", kind = "toy", ports = 2, with = "first.json" }
[[hops]]
function = { name = "second", kind = "sleeper" }
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("nf"))
    yield made
    made.close()


def test_a_chain_is_deployed_shown_listed_and_deleted(world: World, tmp_path: Path) -> None:
    file = tmp_path / "chain.toml"
    file.write_text(CHAIN.replace("ports = 2", "ports = 0"))
    (tmp_path / "first.json").write_text('{"value": 7}')
    made = nf(world, "chain", "deploy", "web", str(file), "--latency-us", "70", "--format=json")
    assert made.exit_code == 0, made.stderr
    shown = json.loads(made.stdout)
    assert (shown["status"], shown["latency_us"]) == ("active", 70)
    assert world.show("first")["config"] == {"value": 7}
    assert "port 1001 -> first -> second" in nf(world, "chain", "list").stdout
    assert "second" in nf(world, "chain", "show", "web").stdout
    assert "70 us" in nf(world, "chain", "show", "web").stdout
    gone = nf(world, "chain", "delete", "web")
    assert (gone.exit_code, gone.stdout) == (0, "")
    assert "chain-unknown" in nf(world, "chain", "show", "web").stderr
    assert "instance-unknown" in nf(world, "show", "first").stderr


def test_a_chain_whose_function_fails_is_reported(world: World, tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    hops = [{"port": 1}, {"function": {"name": "bad", "kind": "broken"}}]
    file.write_text(json.dumps({"hops": hops}))
    made = nf(world, "chain", "deploy", "bad", str(file))
    assert made.exit_code == 1
    assert "error" in made.stdout
    assert nf(world, "chain", "delete", "bad", "--no-wait").exit_code == 0
    world.wait(lambda: "bad" not in nf(world, "chain", "list").stdout)


def test_a_file_that_contradicts_itself_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "chain.toml").write_text('[[hops]]\nfunction = { with = "x", config = {} }\n')
    said = nf(world, "chain", "deploy", "bad", str(tmp_path / "chain.toml"))
    assert (said.exit_code, "both `with` and `config`" in said.stderr) == (2, True)


def test_each_hop_shows_its_cost() -> None:
    port = {"port": 1, "instance": None, "name": None, "kind": None, "status": None, "reason": None, "ports": []}
    cost = {"location": "snic0", "crossings": 1, "latency_us": 10, "millicores": 250, "mbps": 9.04}
    fw: dict[str, Any] = port | {"port": None, "instance": "id", "name": "fw", "kind": "firewall", "status": "active"}
    fw["ports"] = [{"name": "nf1000"}, {"name": "nf1001"}]
    total = {"crossings": 1, "latency_us": 10, "millicores": 250}
    chain = {"id": "id-c", "name": "web", "project": "acme", "status": "active", "latency_us": 60, "unkept": None}
    chain |= {"cost": total, "hops": [port | {"cost": None}, fw | {"cost": cost}]}
    lines = _printed(views.chain(chain)).splitlines()
    assert lines[:2] == ["web (id-c), project acme: active", "1 PCIe links, 10 us of at most 60 us, 250 millicores"]
    assert lines[-1].split() == [
        "fw",
        "firewall",
        "active",
        "snic0",
        "nf1000+nf1001",
        *["1", "10", "us", "250", "9.0", "-"],
    ]
    secret = chain | {"cost": None, "unkept": "it cannot be", "hops": [fw | {"cost": None}]}
    lines = _printed(views.chain(secret)).splitlines()
    assert lines[1] == "the bound is ignored: it cannot be"
    assert "snic0" not in "".join(lines)
