"""HNLB's figures 4 to 8, util+, and heavy flows in a table of 8,000 matches: see docs/hnlb.md.

`figures`: CPU time per packet of the load balancer's step (mode nat) on packets in memory, with the number of the
    backend in the packet (`mark_ns`), with this project's connection table (`table_ns`), and with the number found in
    an ordinary hash table (`hash_ns`): chains, Jenkins' hash, no prefetch. `throughput_ratio`: HNLB's over SLB's, the
    copy of the packet included.
`util_idle`, `util_max`, `util_r2`: util+ of HNLB's loop over ten queues without load, at the highest load without
    loss, and the least share of its variance that a line explains (64-byte packets); `util_r2_one_queue`: of SLB's
    loop over one queue. Turns are measured; time is simulated, with trains of 32 packets (`_random`: single packets).
`hit_share_of_best`, `churn_pct_per_s`: a million flows of Zipf's distribution at 1,000,000 packets/s, ten seconds
    after other flows have become the heavy ones, and replaced rules before that. Time is simulated.
"""

import json
import subprocess
import sys
from typing import Any

from nf_benches import building

#: HNLB's throughput over SLB's in the paper, section V: Fig. 4; Fig. 5 for 8,000 connections, and its text for 1,000.
PAPER = {1: 13 / 12, 1000: 13 / 10, 8000: 1.5}


def run(package: str, example: str) -> dict[str, Any]:
    program = building.build_example(package, example)
    output = subprocess.run([program, *sys.argv[1:]], check=True, capture_output=True, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def least(curves: list[dict[str, Any]], variant: str, key: str) -> float:
    return round(min(curve[key] for curve in curves if curve["variant"] == variant), 4)


def main() -> None:
    figures = run("nf-l4lb", "hnlb")
    heavy = run("nf-flow-director", "zipf")
    for row in figures["fig5"]:
        paper = PAPER.get(row["connections"])
        row["paper_ratio"] = paper and round(paper, 2)
        print(
            "{connections:>6} connections: mark {mark_ns} ns, our table {table_ns} ns, hash table {hash_ns} ns; "
            "HNLB/SLB {throughput_ratio}, in the paper {paper_ratio}".format(**row)
        )
    loops = figures["fig7"]
    ours = [curve["util_plus"] for curve in loops if curve["variant"] == "mark"]
    result = {
        "util_idle": max(curve[0] for curve in ours),
        "util_max": round(min(curve[-1] for curve in ours), 4),
        "util_r2": least(loops, "mark", "r2"),
        "util_r2_random": least(loops, "mark", "r2_random"),
        "util_r2_one_queue": least(loops, "hash", "r2"),
        "hit_share_of_best": round(heavy["hit_share_of_best"], 4),
        "hit_share_stationary": round(heavy["hit_share_stationary"], 4),
        "churn_pct_per_s": round(heavy["churn_pct_per_s"], 3),
        "figures": figures | {"shift": heavy["shift"]},
    }
    print({key: value for key, value in result.items() if key != "figures"})
    print(json.dumps(result))
