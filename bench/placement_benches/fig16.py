"""UNO Fig. 15/16, compared with PuLP + CBC on Algorithm 1. Last line: JSON with arrays over T (Gbps).

host, snic: cores; pcie: Gbps; peer_host: Algorithm 1's host cores; seconds and peer_seconds: for the whole curve.
"""

import argparse
import json
import time

from placement.studies.algorithm1 import algorithm1
from placement.studies.fig16 import LIMITS, curve
from placement.studies.workloads import uno_ring


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="done within 50 s (as it always is)")
    parser.parse_args()
    started = time.perf_counter()
    points = curve()
    ours = time.perf_counter() - started
    started = time.perf_counter()
    peer = [algorithm1(uno_ring(limit * 1000)) for limit in LIMITS]
    theirs = time.perf_counter() - started
    result = {
        "T": [point.limit for point in points],
        "host": [point.host for point in points],
        "snic": [point.snic for point in points],
        "pcie": [point.pcie for point in points],
        "peer_host": [None if answer.host is None else answer.host / 1000 for answer in peer],
        "seconds": round(ours, 4),
        "peer_seconds": round(theirs, 4),
    }
    for row in zip(*(result[key] for key in ("T", "host", "snic", "pcie", "peer_host")), strict=True):
        print("T {:>4} Gbps: host {:>4g} cores, sNIC {:>4g} cores, PCIe {:>5g} Gbps; peer host {:>4g}".format(*row))
    print(json.dumps(result))
