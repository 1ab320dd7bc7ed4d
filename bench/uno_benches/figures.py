"""UNO's figures 2, 8, 9, 10, 11, 14, 15 and 16 in emulation. Last line: JSON with the points of each.

Figures 2 and 8 count and measure real Open vSwitch; 9 counts the bytes of real ESP packets; 10 and 14 send packets
through real functions on cores that a CPU quota slows by UNO's ratios, which needs root; 11 is the functions' CPU time
in memory by watts; 15 and 16 run the optimiser. ``fig14_queues`` simulates the same deployments at UNO's rates.
Figure 13 is `bench/asset_moves --pcie`. Assumptions are in constants.toml; docs/figures.md judges it all.
"""

import argparse
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from placement.studies.fig16 import curve
from uno_benches import functions, round_trips, switches

CONSTANTS = Path(__file__).with_name("constants.toml")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer packets and rules: done in 50 s, after the build")
    options = parser.parse_args()
    constants = tomllib.loads(CONSTANTS.read_text())
    filtered = (1_024, 16_384) if options.quick else (4_096, switches.RULES)
    measured = functions.costs()
    trips = round_trips.measure(constants, *((1.5, 1) if options.quick else (6.0, 3)))
    figures = {
        "fig2": chains(constants),
        "fig8": [switches.filtering(part, *filtered, 2) for part in (0.0, 0.5, 1.0)],
        "fig9": functions.pcie_bytes(),
        "fig10": round_trips.cores(trips, constants),
        "fig11": functions.energy(measured, constants),
        "fig14": trips,
        "fig14_queues": functions.latency(measured, constants),
        "fig16": [vars(point) for point in curve()],
    }
    result = {"figures": figures, "measured": measured, "orderings": orderings(figures), "load": os.getloadavg()[0]}
    for name, holds in result["orderings"].items():
        print(f"{name}: the paper's ordering {'holds' if holds else 'does NOT hold'}")
    print(json.dumps(result))


def chains(constants: functions.Constants) -> list[dict[str, Any]]:
    """Count crossings of chains; the throughput is what PCIe and the line leave, the latency counts crossings alone."""
    pcie, rows = constants["pcie"], []
    for nfs in range(4):
        for offload in (False, True):
            crossed = switches.crossings(nfs, offload)
            gbps = min(pcie["line_gbps"], pcie["gbps"] / crossed)
            rows.append(
                {
                    "nfs": nfs,
                    "offload": offload,
                    "crossings": crossed,
                    "gbps": gbps,
                    "pcie_us": crossed * pcie["crossing_us"],
                }
            )
    return rows


def orderings(figures: dict[str, Any]) -> dict[str, bool]:
    """Tell for each figure whether the alternatives come in the paper's order."""
    with_nfs = {(row["nfs"], row["offload"]): row for row in figures["fig2"]}
    cpu = [row["cpu_s"] for row in figures["fig8"]]
    crossed = {row["way"]: row["bytes"] for row in figures["fig9"]}
    trip = {row["way"]: row["round_trip_us"] for row in figures["fig14"]}
    curves = figures["fig16"]
    return {
        "fig2": all(with_nfs[n, True]["gbps"] < with_nfs[n, False]["gbps"] for n in (2, 3)),
        "fig8": cpu[0] > cpu[1] > cpu[2],
        "fig9": crossed["sNIC"] < crossed["x86, AES-NI"] < crossed["x86, QAT"] / 2,
        "fig10": all(row["uno_host"] < row["host_only"] < row["uno_snic"] for row in figures["fig10"]),
        "fig11": all(row["ratio"] > 1 for row in figures["fig11"]),
        "fig14": trip["UNO full"] > max(trip["switch offload"], trip["standalone host"], trip["UNO partial"]),
        "fig16": [row["host"] for row in curves] == sorted((row["host"] for row in curves), reverse=True),
    }
