"""Pipelined flow-mods through oneswitchd to two Open vSwitch, beside the same sender directly to one Open vSwitch."""

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from programs.openflow import OpenFlowClient, add_flow

PORTS = 4


@dataclass(frozen=True)
class Sample:
    """Rules per second directly and through oneswitchd, and oneswitchd's CPU time per rule in microseconds."""

    direct_per_s: float
    proxy_per_s: float
    proxy_cpu_us: float

    @property
    def ratio(self) -> float:
        """Through oneswitchd over directly."""
        return self.proxy_per_s / self.direct_per_s


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--rules", type=int, default=60_000)
    arguments = parser.parse_args()
    repetitions = 3 if arguments.quick else 9
    single, server = LabSpec.star(snics=0, substrate="dummy"), LabSpec.demo(substrate="dummy")
    with Lab(single).start() as one, Lab(server).start() as two, Oneswitchd(two.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        direct = one.state.switches[0].virt
        matching = [measure(direct, oneswitchd, arguments.rules, matches_in_port=True) for _ in range(repetitions)]
        others = [measure(direct, oneswitchd, arguments.rules, matches_in_port=False) for _ in range(repetitions)]
    print(json.dumps(report(arguments.rules, matching, others)))


def measure(direct: str, oneswitchd: Oneswitchd, rules: int, *, matches_in_port: bool) -> Sample:
    """The same messages to both, one after the other."""
    numbers = range(rules)
    ports = [1 + number % PORTS for number in numbers]
    messages = b"".join(
        add_flow(n, port, port if matches_in_port else None) for n, port in zip(numbers, ports, strict=True)
    )
    direct_s = install(direct, messages)
    before = cpu_s(oneswitchd.pid)
    proxy_s = install(oneswitchd.management, messages)
    spent = cpu_s(oneswitchd.pid) - before
    return Sample(rules / direct_s, rules / proxy_s, 1e6 * spent / rules)


def install(target: str, messages: bytes) -> float:
    """Seconds until the switch confirms all messages; the rules are removed afterwards."""
    with OpenFlowClient(target) as client:
        client.delete_all()
        start = time.perf_counter()
        client.send(messages)
        client.barrier()
        seconds = time.perf_counter() - start
        client.delete_all()
    return seconds


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, in seconds (proc(5), fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(rules: int, matching: list[Sample], others: list[Sample]) -> dict[str, float | int | str]:
    """Medians. Rules that match in_port go to one switch each; the others to both."""

    def median(values: list[float]) -> float:
        return round(statistics.median(values), 3)

    return {
        "rules": rules,
        "direct_per_s": median([s.direct_per_s for s in matching]),
        "proxy_per_s": median([s.proxy_per_s for s in matching]),
        "ratio": median([s.ratio for s in matching]),
        "proxy_cpu_us_per_rule": median([s.proxy_cpu_us for s in matching]),
        "replicated_direct_per_s": median([s.direct_per_s for s in others]),
        "replicated_proxy_per_s": median([s.proxy_per_s for s in others]),
        "replicated_ratio": median([s.ratio for s in others]),
        "replicated_proxy_cpu_us_per_rule": median([s.proxy_cpu_us for s in others]),
        "note": "replicated: rules that do not match in_port, installed on both switches",
    }
