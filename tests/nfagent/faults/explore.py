"""Runs of a scenario with every fault or pair of faults, and a command to replay one.

python -m tests.nfagent.faults.explore [SCENARIO | NAME-OF-A-RUN] [--pairs SAMPLE] [--seed N]

Without --pairs every single fault; SAMPLE is a fraction.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.nfagent.faults import scenarios
from tests.nfagent.faults.run import Lab, Result, lab


def singles(laboratory: Lab, scenario: str) -> Iterator[Result]:
    """Run every fault at every point of a faultless run."""
    for point in laboratory.run(scenario).points:
        for fault in point.faults():
            yield laboratory.run(scenario, fault)


def pairs(laboratory: Lab, scenario: str, sample: float, seed: int) -> Iterator[Result]:
    """Run every second fault at every later point of a run with a first one; a fraction of all pairs."""
    chance = random.Random(f"{scenario} {seed}")
    for point in laboratory.run(scenario).points:
        for first in point.faults():
            if sample < 1 and chance.random() >= sample**0.5:
                continue
            for later in laboratory.run(scenario, first).points[point.index + 1 :]:
                for second in later.faults():
                    if sample >= 1 or chance.random() < sample**0.5:
                        yield laboratory.run(scenario, first, second)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", nargs="*", default=list(scenarios.ALL))
    parser.add_argument("--pairs", type=float)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, lab(Path(directory)) as laboratory:
        if ":" in options.what[0]:
            return _replay(laboratory, options.what[0])
        return sum(_explore(laboratory, each, options.pairs, options.seed) for each in options.what)


def _replay(laboratory: Lab, text: str) -> int:
    result = laboratory.replay(text)
    for point in result.points:
        print(point.index, point.border, point.what, f"({point.functions} functions, {point.keepers} keepers)")
    print(f"{result.name}: {result.steps} steps, {result.seconds:.1f} s")
    print("\n".join(result.violations) or "nothing is wrong")
    return len(result.violations)


def _explore(laboratory: Lab, scenario: str, sample: float | None, seed: int) -> int:
    began, runs, bad = time.process_time(), 0, 0
    kinds: Counter[str] = Counter()
    for result in singles(laboratory, scenario) if sample is None else pairs(laboratory, scenario, sample, seed):
        runs += 1
        if result.violations:
            bad += 1
            kinds[result.violations[0].partition(";")[0]] += 1
            print(f"{result.name}: {result.violations[0]}")
    took = time.process_time() - began
    print(
        f"{scenario}: {runs} runs, {bad} bad, {took:.1f} s: {1000 * took / max(runs, 1):.1f} ms each", file=sys.stderr
    )
    for kind, number in kinds.most_common():
        print(f"    {number} {kind}", file=sys.stderr)
    return bad


if __name__ == "__main__":
    raise SystemExit(main())
