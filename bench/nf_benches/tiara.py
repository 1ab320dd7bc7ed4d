"""Tiara's table and engines (nfs/tiara) at full scale, beside the paper's figures: docs/tiara.md.

`not_inserted_pct`: flows of 10M that find no place in 32M slots, by shape. `beyond_not_inserted_pct`: in the same
memory and with as many reads per lookup as 16M x 2, but each column has a hash of its own and entries move;
`beyond_ns_ratio`: CPU time of an insertion there over that in 16M x 2. `engine_ns_per_op`: an insertion by an engine in
the full 16M x 2. `engine_scaling`: two engines over one. `cps_us`: CPU time of a connection at the load balancer: SYN
and four more packets, its insertion and deletion. `aging_*`: 10M active flows with a period of a minute.
`eviction_hit_share`: packets of Zipf(1) that hit in a table as full as that, with eviction. `flood_lost_pct`: hits that
established flows lose while nine of ten packets are SYNs. `figures`: all series.

Times are CPU times of the working threads. tiara_models.py has the arithmetic of the paper.
"""

import argparse
import json
import subprocess
from typing import Any

from nf_benches import building
from nf_benches import tiara_models as models

Result = dict[str, Any]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer operations and shapes: done in 50 s")
    options = parser.parse_args()
    program = building.build_example("nf-tiara", "tiara")
    output = subprocess.run(
        [program, *(["quick"] if options.quick else [])], check=True, stdout=subprocess.PIPE, text=True
    )
    measured = json.loads(output.stdout.splitlines()[-1])
    result = summary(measured)
    report(result)
    print(json.dumps(result))


def summary(measured: Result) -> Result:
    fills = {row["shape"]: row for row in measured["fills"]}
    chained, skewed = fills["16Mx2"], fills["16Mx2 skewed"]
    aging, flood = measured["aging"], measured["flood"]
    return {
        "not_inserted_pct": {shape: fills[shape]["not_inserted_pct"] for shape in ("32Mx1", "16Mx2", "8Mx4")},
        "beyond_not_inserted_pct": skewed["not_inserted_pct"],
        "beyond_ns_ratio": round(skewed["churn"]["insert_ns"] / chained["churn"]["insert_ns"], 2),
        "engine_ns_per_op": chained["churn"]["insert_ns"],
        "engine_scaling": measured["engines"][1]["speedup"],
        "cps_us": round(measured["connections"]["smux_ns"] / 1e3, 3),
        "aging_signals_per_s": aging["most_signals_in_a_second"],
        "aging_core_pct": aging["core_share_pct"],
        "eviction_hit_share": measured["eviction"]["hit_share"],
        "flood_lost_pct": flood[0]["lost_pct"],
        "figures": measured | computed(),
    }


def computed() -> Result:
    """Return the series that are not measured."""
    shares = models.overflow_share(models.FLOWS / models.SLOTS)
    sizes = [1 << exponent for exponent in range(15, 26)]
    return {
        "not_inserted_model_pct": {width: round(100 * share, 4) for width, share in shares.items()},
        "fig9": [
            {
                "width": width,
                "paper_gbps": paper,
                "model_gbps": round(models.throughput(width), 2),
                "lookups_m": round(models.lookup_rate(width) / 1e6, 1),
            }
            for width, paper in models.FIG9.items()
        ],
        "fig14": [
            {"width": width, "slots": sizes, "probability": [_collision(slots, width) for slots in sizes]}
            for width in (1, 2, 4, 8)
        ],
        "table1": [
            {"name": row.name, "efficiency": [round(value, 2) for value in models.efficiency(row)], "printed": printed}
            for row, printed in zip((models.SMUX, models.SILKROAD, models.TIARA), models.PRINTED.values(), strict=True)
        ],
        "gains": [round(gain, 2) for gain in models.gains()],
    }


def _collision(slots: int, width: int) -> float:
    """Return a probability of Figure 14, which has 32,768 entries."""
    return float(f"{models.collision_probability(32768, slots, width):.4g}")


def report(result: Result) -> None:
    series = result["figures"]
    for row in series["fills"]:
        churn = row["churn"]
        print(
            f"{row['shape']:>12}: {row['not_inserted_pct']:7.4f} % not inserted; insert {churn['insert_ns']} ns "
            f"({row['moves_per_insert']} moves), delete {churn['delete_ns']} ns, lookup {row['lookup_ns']} ns"
        )
    for row in series["engines"]:
        print(f"{row['engines']} engines: {row['mops']} M operations/s, {row['speedup']} x")
    for row in series["fig9"]:
        print(f"Figure 9, width {row['width']}: {row['model_gbps']} Gb/s by the model, {row['paper_gbps']} measured")
    for row in series["flood"]:
        print(f"flood, {row['policy']}: hits {row['alone']:.4f} -> {row['flooded']:.4f}")
