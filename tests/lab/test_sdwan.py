"""A chain of four functions between two sites: deployed by one request, over host and sNIC, and moved under traffic."""

import contextlib
import itertools
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab import Lab
from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd, OsKenController, find_installed, free_port
from lab.frames import Endpoint
from lab.function import Function
from lab.programs import find_example
from lab.sdwan import BOUND_US, FUNCTIONS, NAME, SITE_A, SITE_B, SNIC, TURNED, chain, sites_spec
from lab.signatures import own_signatures
from lab.spec import HYPERVISOR
from lab.traffic import Stream

pytestmark = pytest.mark.namespaces

CHAIN = f"/api/v1/chains/{NAME}"
PACKETS_PER_S = 500.0
_ALL = 0.99  # of the packets of a second, which switch and function count at slightly different times


class Sites:
    """The lab with the controller of the example."""

    def __init__(self, lab: Lab, oneswitchd: Oneswitchd, agent: AgentProcess, controller: OsKenController) -> None:
        self.lab, self.oneswitchd, self.agent, self.controller = lab, oneswitchd, agent, controller

    def show(self) -> dict[str, Any]:
        return self.agent.client.get(CHAIN).json()


@pytest.fixture
def sites(lab_dir: Path) -> Iterator[Sites]:
    port = free_port()
    with (
        Lab(sites_spec(4, controllers=(f"tcp:127.0.0.1:{port}",))).start() as lab,
        Oneswitchd(lab.server_toml) as oneswitchd,
        AgentProcess(lab, lab.directory / "nfagent", {"decide": {"enabled": False}}) as agent,
    ):
        settings = lab_dir / "chain.conf"
        settings.write_text(f"[DEFAULT]\nagent = {agent.address}\nchain = {NAME}\nturned = {TURNED}\n")
        options = ["--config-file", str(settings)]
        with OsKenController(find_example("sdwan_chain.py"), lab_dir, port, options) as controller:
            oneswitchd.wait_up(controllers=1)
            yield Sites(lab, oneswitchd, agent, controller)
            controller.require_running()


def _await_offload(sites: Sites, name: str, ends: Sequence[tuple[str, str, Endpoint]]) -> None:
    """Send packets both ways until the switch carries them past a function; the first of those may overtake.

    Args:
        sites: with the chain.
        name: of the function.
        ends: sender, receiver, and where the packets go.
    """
    client = sites.agent.client
    (found,) = [each["id"] for each in client.get("/api/v1/instances").json()["instances"] if each["name"] == name]
    with contextlib.ExitStack() as stack:
        for number, (sender, receiver, to) in enumerate(ends, 1):
            stack.enter_context(Stream(sites.lab, sender, receiver, rate=PACKETS_PER_S, to=to, number=number))
        while (client.get(f"/api/v1/instances/{found}").json()["offload"] or {"share": 0.0})["share"] < _ALL:
            time.sleep(0.05)


def moved(sites: Sites, name: str, target: str) -> dict[str, Any]:
    """Move a hop, and return the migration."""
    client = sites.agent.client
    epoch = client.post("/api/v1/migrations", json={"instance": name, "target": target}).json()["epoch"]
    while (shown := client.get(f"/api/v1/migrations/{epoch}").json())["outcome"] is None:
        time.sleep(0.01)
    return shown


def _check_trace(sites: Sites) -> None:
    """Follow a packet of site A through all functions to site B."""
    packet = (
        f"udp,dl_src={sites.lab.host(SITE_A).mac},nw_src={sites.lab.host(SITE_A).ip},nw_dst={sites.lab.host(SITE_B).ip}"
    )
    agent = f"unix:{sites.agent.config.with_name('nfagent.sock')}"
    command = [str(find_installed("unoctl")), "--config", str(sites.lab.server_toml), "--format=json", "trace"]
    command += [SITE_A, packet, "--through", "--agent", agent]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert [each["function"] for each in told["functions"]] == list(FUNCTIONS)
    (last,) = told["functions"][-1]["trace"]["exits"]
    assert last["name"] == SITE_B


@pytest.mark.timeout(120)
def test_a_chain_of_four_functions_is_deployed_at_once_and_moves_hop_by_hop_without_loss(sites: Sites) -> None:
    fillers = [
        Function(
            sites.agent, {"name": f"filler{number}", "kind": "forward", "ports": 2, "pin": HYPERVISOR, "config": {}}
        )
        for number in range(2)
    ]
    for each in fillers:
        each.await_active()
    while sites.agent.client.get("/api/v1/load").is_error:  # the first measurement tells where ports are
        time.sleep(0.02)
    order = chain(sites.lab, own_signatures(sites.lab.directory))
    begun = time.monotonic()
    answer = sites.agent.client.post("/api/v1/chains", json=order)
    assert answer.status_code == 202, answer.text
    while (shown := sites.show())["status"] == "building":
        time.sleep(0.01)
    active_s = time.monotonic() - begun
    sites.controller.wait_for_line("chain: wired ")
    wired_s = time.monotonic() - begun
    print(f"accepted whole; active after {active_s:.2f} s, wired after {wired_s:.2f} s")
    assert shown["status"] == "active", shown
    places = [hop["cost"]["location"] for hop in shown["hops"]]
    assert places == [SNIC, SNIC, SNIC, HYPERVISOR, HYPERVISOR, HYPERVISOR]
    assert (shown["cost"]["crossings"], shown["cost"]["latency_us"]) == (1, BOUND_US)
    for each in fillers:
        sites.agent.client.delete(f"/api/v1/instances/{each.id}")
    _check_trace(sites)
    gateways = {hop["name"]: hop["ports"][0]["mac"] for hop in shown["hops"] if hop["kind"] == "ipsec"}
    there = Endpoint(gateways["gateway-a"], sites.lab.host(SITE_B).ip)
    back = Endpoint(gateways["gateway-b"], sites.lab.host(SITE_A).ip)
    _await_offload(sites, FUNCTIONS[0], [(SITE_A, SITE_B, there), (SITE_B, SITE_A, back)])
    with (
        Stream(sites.lab, SITE_A, SITE_B, rate=PACKETS_PER_S, to=there, number=1) as one,
        Stream(sites.lab, SITE_B, SITE_A, rate=PACKETS_PER_S, to=back, number=2) as other,
    ):
        other_side = {SNIC: HYPERVISOR, HYPERVISOR: SNIC}
        moves = [moved(sites, name, other_side[place]) for name, place in zip(FUNCTIONS, places[1:], strict=False)]
        reports = one.stop(), other.stop()
    assert [move["outcome"] for move in moves] == ["done"] * len(FUNCTIONS), moves
    assert sites.show()["cost"]["crossings"] == 3
    for report in reports:
        assert report.sent
        assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0), report
    assert sites.agent.client.delete(CHAIN).json()["status"] == "deleting"
    for _ in itertools.count():
        if sites.agent.client.get(CHAIN).status_code == 404:
            break
        time.sleep(0.02)
    assert sites.agent.client.get("/api/v1/instances").json()["instances"] == []
