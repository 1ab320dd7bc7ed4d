"""A load balancer that moves between two runtimes under 10,000 packets/s, up to 1,000,000 flows: packets' view.

Per size: the same traffic without moves (the peer), moves that hand the state's memory over, and moves that copy it
over a link of 10 Gb/s ("copy"). `freeze` is the time in which no instance processes packets; they wait in a ring. See
nfs/l4lb/examples/migration.rs.
"""

import argparse
import json
import os
import subprocess
import sys

from nf_benches import building

PACKETS_PER_S = 10_000
LINK_MBPS = 10_000
# Moves per size: the tail of 100 moves is the second worst one.
MOVES = {1_000: 200, 100_000: 100, 1_000_000: 30}
QUICK_MOVES = {1_000: 40, 100_000: 20, 1_000_000: 4}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer moves: done in 50 s")
    arguments = parser.parse_args()
    print("... building", file=sys.stderr)
    program = building.build_example("nf-l4lb", "migration")
    report: dict[str, object] = {
        "load_average": os.getloadavg()[0],
        "packets_per_s": PACKETS_PER_S,
        "link_mbps": LINK_MBPS,
    }
    for flows, moves in (QUICK_MOVES if arguments.quick else MOVES).items():
        without = run(program, flows, "none", moves // 2)
        shared = run(program, flows, "memfd", moves)
        copied = run(program, flows, "copy", moves)
        kept = ("latency_p50_ms", "latency_p99_ms", "longest_gap_ms", "sent", "lost")
        report[str(flows)] = shared | {"copy": copied, "without": {key: without[key] for key in kept}}
        print(f"... {flows} flows: {report[str(flows)]}", file=sys.stderr)
    print(json.dumps(report))


def run(program: str, flows: int, mode: str, moves: int) -> dict[str, float]:
    """Return the figures of one run."""
    rate = LINK_MBPS if mode == "copy" else 0
    command = [program, str(flows), mode, str(moves), str(PACKETS_PER_S), str(rate)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return json.loads(done.stdout)
