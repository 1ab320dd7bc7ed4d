"""The damper under four traffic patterns, compared with naive re-solving, UNO's 10 % threshold, and EWMA.

180 epochs, one of lag (--quick: 60 of noise, less time for each proof). Last line: JSON per traffic with moves,
overloaded, host_vs_static (host cost over that of the best placement known in hindsight to satisfy every epoch),
late_moves (after the first window), most_moved (of one NF), and the same per peer under "peers".
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict

from placement.damper import Settings
from placement.studies.traffic import TRAFFICS, Policy, PolicyRun, busy_server, damped, ewma, naive, run, threshold


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less time for each proof, done within 50 s")
    quick = parser.parse_args().quick
    epochs, window, static = 180, 30, 1.0 if quick else 20.0
    settings = Settings(window=window, deadline=0.03 if quick else 0.2)
    problem = busy_server()
    policies: dict[str, Callable[[], Policy]] = {
        "damper": lambda: damped(settings, problem),
        "naive": naive,
        "threshold": threshold,
        "ewma": ewma,
    }
    started = time.perf_counter()
    result: dict[str, object] = {}
    for traffic, made in TRAFFICS.items():
        found = {}
        for name, policy in policies.items():
            outcome = run(
                problem, made(problem), policy(), 60 if quick and traffic == "noise" else epochs, window, static
            )
            found[name] = _row(outcome)
            print(f"{traffic:10} {name:10} moves {outcome.moves:4} overloaded {outcome.overloaded:4}", end=" ")
            print(f"host/static {outcome.host_vs_static:.3f} most moved {outcome.most_moved}")
        result[traffic] = found.pop("damper") | {"peers": found}
    result["epochs"], result["window"] = epochs, window
    result["seconds"] = round(time.perf_counter() - started, 1)
    print(json.dumps(result))


def _row(outcome: PolicyRun) -> dict[str, float]:
    return asdict(outcome) | {"host_vs_static": round(outcome.host_vs_static, 4)}
