"""CPU time per packet of the load balancer's step, parse to rewrite, on packets in memory.

`hot_ns`: 1,000 connections. `m1_ns`: a million. `first_ns`: first packets of new connections, up to a million of them.
`flood_ns`: SYNs beyond the half-open limit beside 100,000 connections, which must keep their backends. `by_flows`: the
    parts of the step, and the copy into the batch, which is subtracted. All features are on; the packets use IPIP and
    Maglev, with counters.
"""

import json
import subprocess
import sys

from nf_benches import building

#: #: Katran on the machine on which the targets were set, as an XDP program: ns per packet (not measured in this run).
KATRAN = {"hot_ns": 112, "m1_ns": 443, "first_ns": 415, "flood_ns": 109}


def main() -> None:
    program = building.build_example("nf-l4lb", "l4lb_step")
    output = subprocess.run([program, *sys.argv[1:]], check=True, capture_output=True, text=True)
    result = json.loads(output.stdout.splitlines()[-1])
    for row in result["by_flows"]:
        print(
            "{flows:>8} flows: {step_ns} ns = parse {parse_ns} + lookup {lookup_ns} + rewrite {rewrite_ns}".format(
                **row
            )
        )
    print(f"first packet {result['first_ns']} ns, flood {result['flood_ns']} ns; Katran as XDP, elsewhere: {KATRAN}")
    print(json.dumps(result))
