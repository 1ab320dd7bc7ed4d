"""A load balancer that moves between host and smart NIC under traffic, by REST, over real switches: the packets' view.

Per number of flows and mode: `freeze` is the time in which no instance processes packets, by the migration's report;
`added` is the latency of packets sent between the request of a move and its end, less that of packets sent between
moves, median against median and p99 against p99, at the rate with the largest difference; lost, duplicated, reordered
and strayed (to another backend) are counts of packets over all rates. Pauses between moves are as long as the moves:
they are the control, at both locations, in the same minutes. `copy` is the same with the state copied as over a PCIe
link of 10 Gb/s, not handed over as memory. UNO reports +40 to 50 ms on average.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from lab.agent import AgentProcess
from lab.balancer import Balancer, balancer_spec
from lab.control_plane import Oneswitchd
from lab.directory import ENVIRONMENT
from lab.flow_stream import FlowStream
from lab.flow_tally import Arrival, FlowTally
from lab.function import Function
from lab.server import Lab
from server.toml_dump import dump_document

SIZES = {"1k": 1_000, "100k": 100_000, "1M": 1_000_000}
RATES = (1_000, 5_000, 10_000)
LINK_MBPS = 10_000
MODES: dict[str, dict[str, Any]] = {"memfd": {}, "copy": {"migrate": {"mode": "copy", "rate_mbps": LINK_MBPS}}}
STAY = {"decide": {"enabled": False}}  # nothing else moves it
MOVES = {"1k": 40, "100k": 30, "1M": 15}  # at each rate and in each mode
QUICK = {"1k": 12, "100k": 4}
PLACES = ("snic0", "hypervisor")
_AFTER_S = 0.2  # a move's clean-up does not belong to the control
_PAUSE_S = 0.3
_STRAGGLERS_S = 0.3


@dataclass
class Moves:
    """Moves of one size, in one mode, at one rate."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    during: list[int] = field(default_factory=list)
    between: list[int] = field(default_factory=list)
    sent: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    strayed: int = 0

    def added_ms(self, share: float) -> float:
        """Return the added latency during a move at this percentile, in ms."""
        return (percentile(self.during, share) - percentile(self.between, share)) / 1e6


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1k and 100k flows at 1,000 packets/s, few moves: 50 s")
    arguments = parser.parse_args()
    plan, rates = (QUICK, RATES[:1]) if arguments.quick else (MOVES, RATES)
    report: dict[str, Any] = {"load_average": os.getloadavg()[0], "rates": rates}
    for size, moves in plan.items():
        by_mode = measure(SIZES[size], moves, rates)
        report[size] = summary(by_mode["memfd"]) | {"copy": summary(by_mode["copy"])}
    print(json.dumps(report))


def measure(flows: int, moves: int, rates: Sequence[int]) -> dict[str, dict[int, Moves]]:
    """Move one load balancer this many times in each mode at each rate."""
    with tempfile.TemporaryDirectory(prefix="um-", dir="/tmp") as path:
        os.environ[ENVIRONMENT] = path
        directory = Path(path)
        with Lab(balancer_spec()).start() as lab, Oneswitchd(lab.server_toml) as oneswitchd:
            oneswitchd.wait_up()
            with AgentProcess(lab, directory / "agent", STAY) as agent:
                balancer = Balancer(lab, oneswitchd, agent, flows)
                with balancer.traffic(directory) as stream:
                    tally = FlowTally()
                    stream.fill()
                    stream.settle(_STRAGGLERS_S, 10.0)
                    tally.add(stream.arrivals())
                    found: dict[str, dict[int, Moves]] = {}
                    for mode in MODES:
                        use(agent, mode)
                        found[mode] = {rate: at_rate(balancer, stream, tally, rate, moves) for rate in rates}
                    stream.stop()
                    return found


def use(agent: AgentProcess, mode: str) -> None:
    """Set the agent's migration mode."""
    document = tomllib.loads(agent.config.read_text())
    document.pop("migrate", None)
    agent.stop()
    agent.config.write_text(dump_document(document | MODES[mode]))
    agent.start()


def at_rate(function: Function, stream: FlowStream, tally: FlowTally, pps: int, moves: int) -> Moves:
    """Move to and fro, with pauses of the same length."""
    result = Moves()
    first = stream.set_rate(pps)
    before = tally.duplicated, tally.reordered, tally.strayed
    spans: list[tuple[int, int]] = []
    quiet: list[tuple[int, int]] = []
    time.sleep(_PAUSE_S)
    for _ in range(moves):
        target = PLACES[function.show()["placement"]["location"] == PLACES[0]]
        start = time.time_ns()
        ended = function.await_end(function.ask(target))
        if ended["outcome"] != "done":
            raise SystemExit(f"a migration ended as {ended['outcome']}: {ended['reason']}")
        end = int(datetime.fromisoformat(ended["ended"]).timestamp() * 1e9)
        spans.append((start, end))
        result.reports.append(ended["report"])
        result.seconds.append((end - start) / 1e9)
        time.sleep(_AFTER_S)
        function.await_active()
        calm = time.time_ns()
        time.sleep(max(_PAUSE_S, result.seconds[-1]))
        quiet.append((calm, time.time_ns()))
    last = stream.set_rate(0)
    stream.settle(_STRAGGLERS_S, 10.0)
    arrivals = list(stream.arrivals())
    tally.add(arrivals)
    result.during, result.between = delays(arrivals, spans), delays(arrivals, quiet)
    result.sent, result.lost = last - first, len(tally.lost(first, last))
    after = tally.duplicated, tally.reordered, tally.strayed
    result.duplicated, result.reordered, result.strayed = map(int.__sub__, after, before)
    print(f"... {function.name}, {pps} packets/s: {json.dumps(figures([result]))}", file=sys.stderr)
    return result


def delays(arrivals: Sequence[Arrival], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the delays of the packets sent in one of the spans, in ns."""
    ordered = sorted((each.sent_ns, each.delay_ns) for each in arrivals)
    found: list[int] = []
    for start, end in spans:
        found += [delay for _, delay in ordered[bisect_left(ordered, (start,)) : bisect_left(ordered, (end,))]]
    return found


def summary(rates: dict[int, Moves]) -> dict[str, Any]:
    """Combine all rates, and list each."""
    return figures(list(rates.values())) | {str(rate): figures([moves]) for rate, moves in rates.items()}


def figures(runs: Sequence[Moves]) -> dict[str, Any]:
    """Return the figures of these runs."""
    reports = [report for run in runs for report in run.reports]
    freeze = [report["freeze_us"] / 1e3 for report in reports]
    return {
        "moves": len(reports),
        "move_p50_ms": rounded(percentile([each * 1e3 for run in runs for each in run.seconds], 0.5)),
        "freeze_p50_ms": rounded(percentile(freeze, 0.5)),
        "freeze_p99_ms": rounded(percentile(freeze, 0.99)),
        "added_p50_ms": rounded(max(run.added_ms(0.5) for run in runs)),
        "added_p99_ms": rounded(max(run.added_ms(0.99) for run in runs)),
        "added_mean_ms": rounded(max(mean(run.during) - mean(run.between) for run in runs) / 1e6),
        "longest_ms": rounded(max(max(run.during) for run in runs) / 1e6),
        "control_p50_ms": rounded(max(percentile(run.between, 0.5) for run in runs) / 1e6),
        "control_p99_ms": rounded(max(percentile(run.between, 0.99) for run in runs) / 1e6),
        "control_longest_ms": rounded(max(max(run.between) for run in runs) / 1e6),
        "sent": sum(run.sent for run in runs),
        "lost": sum(run.lost for run in runs),
        "duplicated": sum(run.duplicated for run in runs),
        "reordered": sum(run.reordered for run in runs),
        "strayed": sum(run.strayed for run in runs),
        "relayed": sum(report["relayed"] for report in reports),
        "state_bytes": max(report["state_bytes"] for report in reports),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def mean(values: Sequence[float]) -> float:
    """Their average."""
    return sum(values) / len(values)


def rounded(value: float) -> float:
    """To microseconds."""
    return round(value, 3)
