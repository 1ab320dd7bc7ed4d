"""CPU time per packet of the IPsec gateway's step, frame to frame, on packets in memory, beside the bare library.

`ratio_64`, `ratio_1400`: throughput for IP packets of 64 and 1,400 bytes, protected and opened, over that of the
library, which only encrypts and decrypts the same bytes. `protect_ns_...`, `open_ns_...`, `bare_seal_ns_...`,
`bare_open_ns_...`: the parts. AES-256-GCM with extended sequence numbers, one tunnel, one core.
`bare_open_separate_ns_...`, `ratio_same_calls_...`: the same with the library's call that the gateway decrypts by.
`fill_ns_...`: copying a frame into a batch, which is not part of the ratio. Each figure is the median over seven
processes, because the stack lies elsewhere in each, which decides over 5 ns per packet; `ratio_64_least`,
`ratio_64_most`: the lowest and the highest ratio of a process. `libipsec_speedup`: see ipsec_peers.py;
`secgw_speedup_64`, `secgw_speedup_1400`: see ipsec_secgw.py.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # its peers are set up as the tests do

from nf_benches import building, ipsec_peers, ipsec_secgw

_PROCESSES = 7


def main() -> None:
    """The command."""
    program = building.build_example("nf-ipsec", "throughput")
    runs = [_run(program) for _ in range(_PROCESSES)]
    result = {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
    ratios = [run["ratio_64"] for run in runs]
    result |= {"ratio_64_least": min(ratios), "ratio_64_most": max(ratios)}
    result |= ipsec_secgw.compare(result)
    result |= ipsec_peers.compare()
    print(json.dumps(result | {"load_average": os.getloadavg()[0]}))


def _run(program: str) -> dict[str, float]:
    output = subprocess.run([program, *sys.argv[1:]], check=True, capture_output=True, text=True)
    return json.loads(output.stdout.splitlines()[-1])
