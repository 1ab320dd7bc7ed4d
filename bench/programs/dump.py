"""A dump of all flows through oneswitchd over two Open vSwitch, compared with the same dump from one Open vSwitch."""

import argparse
import json
import statistics
import time
from dataclasses import dataclass

from lab.control_plane import Oneswitchd
from lab.server import Lab
from lab.spec import LabSpec
from programs.flowmods import PORTS, cpu_s
from programs.openflow import OpenFlowClient, add_flow


@dataclass(frozen=True)
class Sample:
    """Seconds of a dump directly and through oneswitchd, and seconds of oneswitchd's CPU time."""

    direct_s: float
    proxy_s: float
    proxy_cpu_s: float


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--flows", type=int, default=60_000)
    arguments = parser.parse_args()
    repetitions = 5 if arguments.quick else 15
    single, server = LabSpec.star(snics=0, substrate="dummy"), LabSpec.demo(substrate="dummy")
    with Lab(single).start() as one, Lab(server).start() as two, Oneswitchd(two.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        direct = one.state.switches[0].virt
        matching, others = (
            measure(direct, oneswitchd, arguments.flows, repetitions, matches_in_port=matches)
            for matches in (True, False)
        )
    print(json.dumps(report(arguments.flows, matching, others)))


def measure(
    direct: str, oneswitchd: Oneswitchd, flows: int, repetitions: int, *, matches_in_port: bool
) -> list[Sample]:
    """Dump the same rules from both, in turns."""
    ports = [1 + number % PORTS for number in range(flows)]
    messages = b"".join(add_flow(n, port, port if matches_in_port else None) for n, port in enumerate(ports))
    with OpenFlowClient(direct) as first, OpenFlowClient(oneswitchd.management) as second:
        for client in (first, second):
            client.delete_all()
            client.send(messages)
            client.barrier()
        samples = []
        for _ in range(repetitions):
            direct_s = seconds(first, flows)
            before = cpu_s(oneswitchd.pid)
            proxy_s = seconds(second, flows)
            samples.append(Sample(direct_s, proxy_s, cpu_s(oneswitchd.pid) - before))
    return samples


def seconds(client: OpenFlowClient, flows: int) -> float:
    """Measure the duration of a dump.

    Raises:
        ValueError: the number of rules differs from ``flows``.
    """
    start = time.perf_counter()
    found = client.count_flows()
    spent = time.perf_counter() - start
    if found != flows:
        raise ValueError(f"the dump has {found} flows, not {flows}")
    return spent


def report(flows: int, matching: list[Sample], others: list[Sample]) -> dict[str, float | int | str]:
    """Return medians. Rules that match in_port are on one switch each; the others on both, their counters added."""

    def figures(samples: list[Sample]) -> dict[str, float]:
        return {
            "direct_s": round(statistics.median(s.direct_s for s in samples), 3),
            "proxy_s": round(statistics.median(s.proxy_s for s in samples), 3),
            "ratio": round(statistics.median(s.proxy_s / s.direct_s for s in samples), 2),
            "proxy_cpu_s": round(statistics.mean(s.proxy_cpu_s for s in samples), 3),
        }

    replicated = {f"replicated_{name}": value for name, value in figures(others).items()}
    note = "ratio: duration relative to direct; replicated: rules that do not match in_port, on both switches"
    return {"flows": flows, **figures(matching), **replicated, "note": note}
