"""Scaling of the load balancer and its runtime with workers, on packets in memory.

Rows for 1, 2, 4, 8 and 16 workers, as far as the machine has cores, with 16,000 connections (`flows_16k`), a million
(`flows_1m`), and without the load balancer (`runtime`). `mpps`: millions of packets per second. `linear`: throughput
beside that of as many times one worker; 1 is linear. `machine_linear`: the same of workers that share nothing, each
with an instance of its own: the clock, caches and memory that they compete for. `ns`: CPU time per packet; `cpu_ratio`:
beside one worker's. `shared_cost`: CPU time beside that of the workers that share nothing, which tells what one table
and one instance cost, also on a busy machine.
"""

import json
import subprocess
import sys

from nf_benches import building


def main() -> None:
    program = building.build_example("nf-l4lb", "workers")
    output = subprocess.run([program, *sys.argv[1:]], check=True, capture_output=True, text=True)
    result = json.loads(output.stdout.splitlines()[-1])
    for name in ("flows_16k", "flows_1m", "runtime"):
        for row in result[name]:
            print(
                "{name:>9}, {workers:>2} workers: {mpps:7.1f} M packets/s, {ns:5.1f} ns; linear {linear:.2f} "
                "(sharing nothing: {machine_linear:.2f}), CPU time beside sharing nothing {shared_cost:.2f}".format(
                    name=name, **row
                )
            )
    result["shared_cost"] = result["flows_1m"][-1]["shared_cost"]
    print(json.dumps(result))
