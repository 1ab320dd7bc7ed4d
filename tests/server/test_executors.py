"""Rules that run away from their port's home, on the userspace datapath with real packets."""

import dataclasses

import pytest

from lab.spec import LabSpec
from lab.traffic import Stream

ROUNDS = 6


@pytest.mark.namespaces
def test_executors_change_at_1000_packets_per_second_both_ways(start) -> None:
    with start(LabSpec.demo(static_arp=True)) as one:
        one.add_flows("in_port=2,actions=output:4", "in_port=4,actions=output:2")
        client = one.oneswitchd.client
        there = Stream(one.lab, "vm2", "out1", rate=1000, number=1)
        back = Stream(one.lab, "out1", "vm2", rate=1000, number=2)
        with there, back:
            for number in range(ROUNDS):
                for port in (2, 4):
                    client.change_executor(port, ("snic0", "hypervisor", "home")[number % 3], "done", 200)
            reports = there.stop(), back.stop()
    for report in reports:
        assert (report.sent or 0) > ROUNDS * 2 * 100
        assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0), report


@pytest.mark.namespaces
@pytest.mark.parametrize("executor", ["hypervisor", "snic0"])
def test_normal_connects_all_hosts_at_one_executor(start, executor: str) -> None:
    """Full-size frames pass too, although they are 4 bytes longer on the PCIe link."""
    with start(dataclasses.replace(LabSpec.demo(), executor=executor)) as one:
        one.add_flows("actions=NORMAL")
        hosts = {host.name: host.address.split("/")[0] for host in one.lab.state.hosts}
        for source in hosts:
            for target, address in hosts.items():
                if source != target:
                    one.lab.exec(source, ["ping", "-q", "-c", "1", "-w", "5", "-M", "do", "-s", "1472", address])
        assert one.oneswitchd.client.status().virtual.executors == (executor,)
