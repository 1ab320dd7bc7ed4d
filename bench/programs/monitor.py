"""The cost of measuring: CPU time of a sample, in the agent and in the switches, with many cached flows.

The comparison is with port counters alone, which do not tell who sends to whom. ``missing_packets``: sent packets that
are not in the matrix. Every rule has its own UDP port, so that every source port creates a cached flow.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lab.control_plane import Oneswitchd
from lab.programs import environment
from lab.server import Lab
from lab.spec import LabSpec
from nfagent.monitor.instance_load import cpu_time_ns
from nfagent.monitor.layout import Layout
from nfagent.monitor.matrix import Snapshot, Traffic, attribute
from nfagent.monitor.port_counters import parse_show
from nfagent.monitor.switches import SwitchProbe, local_control
from server.config import ServerConfig

_SEND = """
import socket, time
for port in range({first}, {first} + {count}):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as each:
        each.bind(("", port))
        for _ in range({each}):
            each.sendto(b"x" * 100, ("{address}", 9))
    if port % 10 == 0:
        time.sleep(0.002)  # Open vSwitch's socket holds some hundred packets
"""
_FIRST = 20_000
_EACH = 3
T = TypeVar("T")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--flows", type=int, default=1000, help="on each switch")
    options = parser.parse_args()
    with Lab(LabSpec.demo(static_arp=True)).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        _add_rules(lab, oneswitchd, options.flows)
        server = ServerConfig.load(Path(lab.server_toml))
        probes = {each.name: SwitchProbe(local_control(each.control)) for each in server.switch if each.control}
        layout = Layout.of(server, oneswitchd.client.ports())
        samples = [_sample(lab, probes, layout, options.flows) for _ in range(6 if options.quick else 30)]
    figures = {name: round(statistics.median(each[name] for each in samples), 2) for name in samples[0]}
    ratio = round(figures["agent_cpu_ms"] / max(figures["counters_agent_cpu_ms"], 0.01), 2)
    print(json.dumps(figures | {"ratio": ratio, "samples": len(samples), "load": os.getloadavg()[0]}))


def _add_rules(lab: Lab, oneswitchd: Oneswitchd, count: int) -> None:
    ports = range(_FIRST, _FIRST + count)
    rules = "".join(f"priority=10,in_port=1,udp,tp_src={port},actions=output:4\n" for port in ports)
    variables = environment() | {"OVS_RUNDIR": str(lab.directory)}
    command = ["ovs-ofctl", "-O", "OpenFlow13", "add-flows", oneswitchd.management, "-"]
    subprocess.run(command, input=rules, text=True, check=True, timeout=60, env=variables)


def _sample(lab: Lab, probes: dict[str, SwitchProbe], layout: Layout, count: int) -> dict[str, float]:
    before = _look(probes)
    address = lab.host("out1").ip
    script = _SEND.format(first=_FIRST, count=count, each=_EACH, address=address)
    lab.exec("vm1", ["python3", "-c", script], timeout_s=60)
    switches = [switch.processes["ovs-vswitchd"] for switch in lab.state.switches]
    whole, after = _timed(switches, lambda: _look(probes))
    traffic = Traffic()
    begun = time.process_time()
    for name, snapshot in after.items():
        attribute(traffic, layout, name, before[name], snapshot)
    attributed = (time.process_time() - begun) * 1000
    for probe in probes.values():
        probe.ask("dpctl/show", "-s")
    counters, _ = _timed(switches, lambda: [parse_show(probe.ask("dpctl/show", "-s")[0]) for probe in probes.values()])
    seconds = after["hypervisor"].flows_at - before["hypervisor"].flows_at
    found = traffic.matrix().get((1, 4))
    return {
        "flows": sum(len(each.flows) for each in after.values()),
        "missing_packets": _EACH * count - round(found.pps * seconds if found else 0.0),
        "agent_cpu_ms": whole[0] + attributed,
        "switches_cpu_ms": whole[1],
        "counters_agent_cpu_ms": counters[0],
        "counters_switches_cpu_ms": counters[1],
    }


def _timed(processes: list[int], work: Callable[[], T]) -> tuple[tuple[float, float], T]:
    """Measure the CPU time in ms of this process and of others during a call; return the call's result too."""
    own, theirs = time.process_time(), sum(cpu_time_ns(pid) or 0 for pid in processes)
    done = work()
    own, theirs = time.process_time() - own, sum(cpu_time_ns(pid) or 0 for pid in processes) - theirs
    return (own * 1000, theirs / 1e6), done


def _look(probes: dict[str, SwitchProbe]) -> dict[str, Snapshot]:
    return {name: probe.look() for name, probe in probes.items()}


if __name__ == "__main__":
    main()
