"""A dump of all flows through oneswitchd over two Open vSwitch, compared with the same dump from one Open vSwitch.

``relay_...``: the same through a bare relay (relay.c), which passes on the dump of one Open vSwitch and, for
``replicated_...``, waits for that of another one, too, and drops it: what dumping both costs without merging.
"""

import argparse
import json
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from lab.control_plane import Oneswitchd
from lab.processes import cpu_s
from lab.server import Lab
from lab.spec import LabSpec
from programs.flowmods import PORTS, Ways
from programs.openflow import OpenFlowClient, add_flow
from programs.relay import Relay


@dataclass(frozen=True)
class Sample:
    """Seconds of a dump directly, through the relay and through oneswitchd, and seconds of oneswitchd's CPU time."""

    direct_s: float
    relay_s: float
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
    with ExitStack() as stack:
        labs = tuple(stack.enter_context(Lab(spec).start()) for spec in (single, server, server))
        one, two, relayed = labs
        oneswitchd = stack.enter_context(Oneswitchd(two.server_toml))
        virts = [switch.virt for switch in relayed.state.switches]
        oneswitchd.wait_up()
        direct, samples = one.state.switches[0].virt, []
        for matches, targets in ((True, virts[:1]), (False, virts)):
            with Relay(*targets) as relay:
                ways = Ways(direct, relay.target, oneswitchd, labs)
                samples.append(measure(ways, arguments.flows, repetitions, matches_in_port=matches))
    print(json.dumps(report(arguments.flows, *samples)))


def measure(ways: Ways, flows: int, repetitions: int, *, matches_in_port: bool) -> list[Sample]:
    """Dump the same rules on all ways, in turns."""
    ports = [1 + number % PORTS for number in range(flows)]
    messages = b"".join(add_flow(n, port, port if matches_in_port else None) for n, port in enumerate(ports))
    with ExitStack() as stack:
        clients = [stack.enter_context(OpenFlowClient(target)) for target in ways.targets()]
        for client in clients:
            client.delete_all()
            client.send(messages)
            client.barrier()
        ways.wait_idle()
        samples = []
        for _ in range(repetitions):
            direct_s, relay_s = (seconds(client, flows) for client in clients[:2])
            before = cpu_s(ways.oneswitchd.pid)
            proxy_s = seconds(clients[2], flows)
            samples.append(Sample(direct_s, relay_s, proxy_s, cpu_s(ways.oneswitchd.pid) - before))
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

    def relayed(samples: list[Sample]) -> float:
        return round(statistics.median(s.relay_s / s.direct_s for s in samples), 2)

    replicated = {f"replicated_{name}": value for name, value in figures(others).items()}
    relay = {"relay_ratio": relayed(matching), "relay_replicated_ratio": relayed(others)}
    note = "ratio: duration relative to direct; replicated: rules that do not match in_port, on both switches"
    return {"flows": flows, **figures(matching), **replicated, **relay, "note": note}
