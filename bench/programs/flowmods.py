"""Flow-mods through oneswitchd to two Open vSwitch, compared with the same sender at one Open vSwitch.

Pipelined additions; one deletion of all rules; and additions by ``ovs-ofctl add-flows``, which waits for each rule.
Rules match four in_ports in turns, so that one switch gets two rules, and then the other; ``one_switch_...``: all match
the same one, so that one switch gets all, as directly; ``replicated_...``: they match none, so that both get all.
``relay_...``: the same through a bare relay (relay.c), to one Open vSwitch or, for ``replicated_...``, to two, which
have the bridges of oneswitchd's: what any process between a controller and the same switches costs on these cores.
Before each way, the program waits until all switches are idle; otherwise a way would pay for freeing the rules of the
previous one.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from lab.control_plane import Oneswitchd
from lab.ovs import VSWITCHD
from lab.processes import cpu_s
from lab.server import Lab
from lab.spec import LabSpec
from programs.openflow import OpenFlowClient, add_flow
from programs.relay import Relay

PORTS = 4
# An ``ovs-ofctl`` that waits longer than this for its flows hangs.
OFCTL_LIMIT_S = 120
# The processes are idle if together they use less than this share of a core for IDLE_S.
IDLE_SHARE, IDLE_S, IDLE_LIMIT_S = 0.1, 0.05, 2.0


@dataclass(frozen=True)
class Sample:
    """Rules per second directly, through the relay and through oneswitchd, and oneswitchd's CPU time per rule in us.

    ``delete_``: milliseconds until the flow-mod that deletes all rules is confirmed, and oneswitchd's CPU time.
    """

    direct_per_s: float
    relay_per_s: float
    proxy_per_s: float
    proxy_cpu_us: float
    delete_direct_ms: float
    delete_proxy_ms: float
    delete_proxy_cpu_ms: float

    @property
    def ratio(self) -> float:
        """Return the rate through oneswitchd relative to direct."""
        return self.proxy_per_s / self.direct_per_s

    @property
    def relay_ratio(self) -> float:
        """Return the rate through the relay relative to direct."""
        return self.relay_per_s / self.direct_per_s

    @property
    def delete_ratio(self) -> float:
        """Return the duration of the deletion through oneswitchd relative to direct."""
        return self.delete_proxy_ms / self.delete_direct_ms


@dataclass(frozen=True)
class OneByOne:
    """Microseconds per rule of ``ovs-ofctl add-flows``, and oneswitchd's CPU time for them."""

    direct_us: float
    relay_us: float
    proxy_us: float
    proxy_cpu_us: float

    @property
    def ratio(self) -> float:
        """Return the duration per rule through oneswitchd relative to direct."""
        return self.proxy_us / self.direct_us

    @property
    def relay_ratio(self) -> float:
        """Return the duration per rule through the relay relative to direct."""
        return self.relay_us / self.direct_us


@dataclass(frozen=True)
class Ways:
    """Ways to switches: directly to one, through a relay, and through oneswitchd; and the labs of all switches."""

    direct: str
    relay: str
    oneswitchd: Oneswitchd
    labs: tuple[Lab, ...]

    def targets(self) -> tuple[str, str, str]:
        """Return where controllers connect."""
        return self.direct, self.relay, self.oneswitchd.management

    def wait_idle(self) -> None:
        """Wait until the switches and oneswitchd are idle; warn if they still work after `IDLE_LIMIT_S`."""
        switches = [switch.processes[VSWITCHD] for lab in self.labs for switch in lab.state.switches]
        pids = (*switches, self.oneswitchd.pid)
        before = 0.0
        deadline = time.monotonic() + IDLE_LIMIT_S
        while (now := sum(cpu_s(pid) for pid in pids)) - before > IDLE_SHARE * IDLE_S:
            if time.monotonic() > deadline:
                print(f"... the switches still work after {IDLE_LIMIT_S:g} s", file=sys.stderr)
                return
            before = now
            time.sleep(IDLE_S)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--rules", type=int, default=60_000)
    parser.add_argument("--one-by-one", type=int, default=5_000, help="rules that ovs-ofctl adds per repetition")
    arguments = parser.parse_args()
    repetitions = 3 if arguments.quick else 9
    single, server = LabSpec.star(snics=0, substrate="dummy"), LabSpec.demo(substrate="dummy")
    with ExitStack() as stack:
        labs = tuple(stack.enter_context(Lab(spec).start()) for spec in (single, server, server))
        one, two, relayed = labs
        oneswitchd = stack.enter_context(Oneswitchd(two.server_toml))
        virts = [switch.virt for switch in relayed.state.switches]
        relay, relay_to_both = (stack.enter_context(Relay(*targets)) for targets in (virts[:1], virts))
        oneswitchd.wait_up()
        direct = one.state.switches[0].virt
        by_port, by_both = (Ways(direct, each.target, oneswitchd, labs) for each in (relay, relay_to_both))
        matching = [measure(by_port, arguments.rules, matches_in_port=True) for _ in range(repetitions)]
        others = [measure(by_both, arguments.rules, matches_in_port=False) for _ in range(repetitions)]
        waiting = arguments.one_by_one
        figures = report(arguments.rules, matching, others) | {"one_by_one_rules": waiting}
        for prefix, ways, in_ports in (
            ("one_by_one_", by_port, range(1, PORTS + 1)),
            ("one_switch_one_by_one_", by_port, (1,)),
            ("replicated_one_by_one_", by_both, ()),
        ):
            figures |= report_one_by_one(prefix, [one_by_one(ways, waiting, in_ports) for _ in range(repetitions)])
    print(json.dumps(figures))


def measure(ways: Ways, rules: int, *, matches_in_port: bool) -> Sample:
    """Send the same messages on all ways, one after the other."""
    numbers = range(rules)
    ports = [1 + number % PORTS for number in numbers]
    messages = b"".join(
        add_flow(n, port, port if matches_in_port else None) for n, port in zip(numbers, ports, strict=True)
    )
    pid = ways.oneswitchd.pid
    with ExitStack() as stack:
        one, relay, two = (stack.enter_context(OpenFlowClient(target)) for target in ways.targets())
        ways.wait_idle()
        direct_s = install(one, messages)
        delete_direct_s = delete(one)
        ways.wait_idle()
        relay_s = install(relay, messages)
        delete(relay)
        ways.wait_idle()
        before = cpu_s(pid)
        proxy_s = install(two, messages)
        between = cpu_s(pid)
        delete_proxy_s = delete(two)
        after = cpu_s(pid)
    return Sample(
        rules / direct_s,
        rules / relay_s,
        rules / proxy_s,
        1e6 * (between - before) / rules,
        1e3 * delete_direct_s,
        1e3 * delete_proxy_s,
        1e3 * (after - between),
    )


def install(client: OpenFlowClient, messages: bytes) -> float:
    """Measure the seconds until the switch confirms all messages."""
    client.delete_all()
    client.barrier()
    start = time.perf_counter()
    client.send(messages)
    client.barrier()
    return time.perf_counter() - start


def delete(client: OpenFlowClient) -> float:
    """Measure the seconds until the switch confirms that no rules remain."""
    start = time.perf_counter()
    client.delete_all()
    client.barrier()
    return time.perf_counter() - start


def one_by_one(ways: Ways, rules: int, in_ports: Sequence[int]) -> OneByOne:
    """Send the same rules on all ways, each added when the last one is confirmed; they match these ports in turns."""
    lines = []
    for number in range(rules):
        match = f"in_port={in_ports[number % len(in_ports)]}," if in_ports else ""
        lines.append(f"priority=10,{match}ip,metadata={number},actions=output:{1 + number % PORTS}\n")
    with tempfile.NamedTemporaryFile("w", suffix=".flows") as file:
        file.writelines(lines)
        file.flush()
        direct, relay, proxy = ways.targets()
        ways.wait_idle()
        direct_s = ofctl("add-flows", direct, file.name)
        ways.wait_idle()
        relay_s = ofctl("add-flows", relay, file.name)
        ways.wait_idle()
        before = cpu_s(ways.oneswitchd.pid)
        proxy_s = ofctl("add-flows", proxy, file.name)
        spent = cpu_s(ways.oneswitchd.pid) - before
    for target in ways.targets():
        ofctl("del-flows", target)
    return OneByOne(*(1e6 * seconds / rules for seconds in (direct_s, relay_s, proxy_s, spent)))


def ofctl(*arguments: str) -> float:
    """Run ``ovs-ofctl`` and measure its seconds."""
    # subprocess's own timeout polls every 50 ms, which is too coarse.
    limited = ["timeout", str(OFCTL_LIMIT_S), "ovs-ofctl", "-O", "OpenFlow13", *arguments]
    start = time.perf_counter()
    subprocess.run(limited, check=True)
    return time.perf_counter() - start


def median(values: list[float]) -> float:
    """Return the median, rounded."""
    return round(statistics.median(values), 3)


def report_one_by_one(prefix: str, samples: list[OneByOne]) -> dict[str, float]:
    """Return medians of ``ovs-ofctl``'s time per rule."""
    return {
        f"{prefix}direct_us": median([s.direct_us for s in samples]),
        f"{prefix}proxy_us": median([s.proxy_us for s in samples]),
        f"{prefix}ratio": median([s.ratio for s in samples]),
        f"relay_{prefix}ratio": median([s.relay_ratio for s in samples]),
        f"{prefix}proxy_cpu_us": median([s.proxy_cpu_us for s in samples]),
    }


def report(rules: int, matching: list[Sample], others: list[Sample]) -> dict[str, float | int | str]:
    """Return medians. Rules that match in_port go to one switch each; the others to both."""
    figures: dict[str, float | int | str] = {}
    for prefix, samples in (("", matching), ("replicated_", others)):
        figures[f"{prefix}delete_direct_ms"] = median([s.delete_direct_ms for s in samples])
        figures[f"{prefix}delete_proxy_ms"] = median([s.delete_proxy_ms for s in samples])
        figures[f"{prefix}delete_ratio"] = median([s.delete_ratio for s in samples])
        figures[f"{prefix}delete_proxy_cpu_ms"] = median([s.delete_proxy_cpu_ms for s in samples])
    return figures | {
        "rules": rules,
        "direct_per_s": median([s.direct_per_s for s in matching]),
        "proxy_per_s": median([s.proxy_per_s for s in matching]),
        "ratio": median([s.ratio for s in matching]),
        "relay_ratio": median([s.relay_ratio for s in matching]),
        "proxy_cpu_us_per_rule": median([s.proxy_cpu_us for s in matching]),
        "replicated_direct_per_s": median([s.direct_per_s for s in others]),
        "replicated_proxy_per_s": median([s.proxy_per_s for s in others]),
        "replicated_ratio": median([s.ratio for s in others]),
        "relay_replicated_ratio": median([s.relay_ratio for s in others]),
        "replicated_proxy_cpu_us_per_rule": median([s.proxy_cpu_us for s in others]),
        "note": "replicated: rules that do not match in_port, installed on both switches",
    }
