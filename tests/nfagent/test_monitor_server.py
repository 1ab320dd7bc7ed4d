"""Measuring and deciding on an emulated server: the monitor reports known traffic."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.agent import AgentProcess
from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from lab.traffic import Stream
from nfagent.monitor.layout import Layout
from nfagent.monitor.matrix import Snapshot, Traffic, attribute, port_rates
from nfagent.monitor.switches import SwitchProbe, local_control
from server.config import ServerConfig
from tests.nfagent.test_server import Deployment
from tests.nfagent.world import wait_until

pytestmark = pytest.mark.namespaces

VM1, VM2, NF1, OUT1 = 1, 2, 3, 4
SENT = {("vm1", "out1"): 700, ("out1", "vm1"): 500, ("nf1", "vm2"): 400, ("vm1", "vm2"): 200}
NUMBERS = {"vm1": VM1, "vm2": VM2, "nf1": NF1, "out1": OUT1}
_BUSY = """
import time
while True:
    end = time.process_time() + 0.005
    while time.process_time() < end:
        pass
    time.sleep(0.005)
"""
BUSY = {"name": "busy", "command": [sys.executable, "-c", _BUSY]}


@pytest.fixture(scope="module")
def deployment(module_lab_dir: Path) -> Iterator[Deployment]:
    settings = {"kind": [BUSY], "monitor": {"period_s": 0.1}, "decide": {"period_s": 0.1, "window": 60}}
    spec = LabSpec.demo(static_arp=True).with_slots(1)
    with Lab(spec).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        with AgentProcess(lab, module_lab_dir / "agent", settings, cores={"snic0": 4.0}) as agent:
            made = Deployment(lab, oneswitchd, agent)
            for source, target in SENT:
                match = f"in_port={NUMBERS[source]},dl_dst={lab.host(target).mac}"
                made.add_flow(f"priority=10,{match},actions=output:{NUMBERS[target]}")
            yield made


class Look:
    """The counts between two samples."""

    def __init__(self, deployment: Deployment) -> None:
        self._server = ServerConfig.load(Path(deployment.lab.server_toml))
        self._ports = deployment.oneswitchd.client.ports
        self._probes = {each.name: SwitchProbe(local_control(each.control or "")) for each in self._server.switch}
        for name in self._probes:
            deployment.lab.switch(name).appctl("revalidator/purge")  # recreate cached flows
        self._before = self._all()
        self.matrix: Counter[tuple[int, int]] = Counter()
        self.left: Counter[int] = Counter()

    def again(self) -> None:
        """Count since the last sample: between ports, and out of each port by its interface's counters."""
        before, after = self._before, self._all()
        layout = Layout.of(self._server, self._ports())
        for name, now in after.items():
            traffic = Traffic()
            attribute(traffic, layout, name, before[name], now)
            seconds = now.flows_at - before[name].flows_at
            self.matrix.update({pair: round(rate.pps * seconds) for pair, rate in traffic.matrix().items()})
            rates, seconds = port_rates(before[name], now), now.counters_at - before[name].counters_at
            local = layout.switches[name].local
            self.left.update(
                {port: round(rates[each].tx.pps * seconds) for each, port in local.items() if each in rates}
            )
        self._before = after

    def close(self) -> None:
        for probe in self._probes.values():
            probe.close()

    def _all(self) -> dict[str, Snapshot]:
        return {name: probe.look() for name, probe in self._probes.items()}


@pytest.mark.parametrize("executor", ["home", "snic0"])
def test_the_matrix_equals_the_sent_traffic(deployment: Deployment, executor: str) -> None:
    deployment.oneswitchd.client.change_executor(VM1, executor, "done", None)
    with contextlib.closing(Look(deployment)) as look:
        for number, ((source, target), count) in enumerate(SENT.items(), 1):
            with Stream(deployment.lab, source, target, rate=1000.0, count=count, number=number) as stream:
                report = stream.wait()
            assert (report.sent, report.lost) == (count, 0)
            look.again()  # a flow idle for 10 s is forgotten
    for (source, target), count in SENT.items():
        found = look.matrix[NUMBERS[source], NUMBERS[target]]
        assert count <= found <= count + 20, look.matrix  # a stream ends with a few marker frames
    for port in NUMBERS.values():
        assert sum(packets for (_, target), packets in look.matrix.items() if target == port) == look.left[port]
    deployment.oneswitchd.client.change_executor(VM1, "home", "done", None)


def test_moving_the_busiest_instance_relieves_the_host(deployment: Deployment) -> None:
    made = deployment.create(name="busy", kind="busy")
    client = deployment.client

    def decisions() -> list[dict[str, Any]]:
        return client.get("/api/v1/placement/decisions").json()["decisions"]

    wait_until(lambda: deployment.wait(made["id"])["placement"]["location"] == "snic0")
    why = client.get("/api/v1/placement/why/busy").json()
    assert why["location"] == "snic0"
    assert why["why"]["runner_up"]["location"] == "hypervisor"
    wait_until(lambda: any(each["moves"] and each["outcome"] for each in decisions()))
    moved = next(each for each in decisions() if each["moves"])
    assert (moved["moves"], moved["outcome"]) == ([made["id"]], "done")
    assert moved["report"]["host_millicores_after"] < moved["report"]["host_millicores_before"]
    load = client.get("/api/v1/load").json()
    assert load["locations"]["snic0"]["millicores"] > 0
    assert load["instances"][made["id"]]["millicores"] > 0
    assert len(client.get("/api/v1/migrations").json()["migrations"]) == 1
    deployment.delete(made["id"])
