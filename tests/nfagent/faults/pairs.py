"""All pairs of faults of a scenario, without those that cannot have a new outcome.

python -m tests.nfagent.faults.pairs [SCENARIO ...] [--jobs N] [--check N] [--results DIRECTORY]

A pair is skipped if an equal one was run: a second fault of the same kind at an equal moment. Two moments are equal if
their external states are (`state.moment`: the store's rows, all processes, all switches, scheduled events), and if the
runs without the second fault continue equally, point by point, with equal external states.

This suffices because an agent's next action depends on the external state and on its memory. A crash clears the
memory, so the external state alone decides. For every other fault, memories cannot be compared directly, but relevant
differences lead to different actions later, which are compared. Only differences that show after the second fault
escape. They are rare, since recovery reads the store (as it must after a crash), but they make the pruning an argument
rather than a proof: ``--check`` runs a random sample of the omitted pairs and compares each with its representative.

`state.moment` omits random names, times within a second, texts of reasons, durations in reports, and ended migrations.
It includes permanent losses, since the verdict depends on them.

Results are written after every few runs; a second call continues where the first one ended.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.nfagent.faults import scenarios
from tests.nfagent.faults.ahead import ahead
from tests.nfagent.faults.points import Fault, Point, name
from tests.nfagent.faults.run import Lab, Result, lab

_RESULTS = Path("build/faults")
_CHUNK = 200
_PROGRESS_S = 30.0

Key = tuple[str, int, bool]


@dataclass
class Plan:
    """The pairs of a scenario to run.

    Attributes:
        pairs: number of all pairs.
        distinct: names of the representative pairs.
        left_out: names of some omitted pairs, each with its representative, which may have only one fault.
    """

    pairs: int = 0
    distinct: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Tally:
    """The results of a scenario.

    Attributes:
        plan: digest of the representative pairs in order.
        run: number of pairs run, from the first one.
        bad: names of pairs with violations, and these.
    """

    scenario: str
    plan: str
    pairs: int
    distinct: int
    run: int = 0
    bad: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.scenario}: {self.pairs} pairs, {self.distinct} distinct, {self.run} run, {len(self.bad)} bad,"
            f" {self.seconds:.0f} s"
        )


def planned(laboratory: Lab, scenario: str, sample: int = 0, seed: int = 0) -> Plan:
    """Find the pairs that stand for all of a scenario, by running it with every single fault.

    Args:
        laboratory: where it is run.
        scenario: which.
        sample: how many of the others are kept.
        seed: of the choice.
    """
    plan, known, chance = Plan(), dict[Key, str](), random.Random(seed)
    alone = laboratory.run(scenario, is_tracing=True)
    for key, second in _seconds(alone, 0, is_lost=False):
        known.setdefault(key, name(scenario, [second]))
    for first in [fault for point in alone.points for fault in point.faults()]:
        result = laboratory.run(scenario, first, is_tracing=True)
        for key, second in _seconds(result, first.index + 1, is_lost=first.kind.startswith("lost-")):
            plan.pairs += 1
            found = name(scenario, [first, second])
            if key not in known:
                known[key] = found
                plan.distinct.append(found)
            elif sample:
                _keep(plan, (found, known[key]), sample, chance)
    random.Random(scenario).shuffle(plan.distinct)  # an interrupted call has run a fair sample
    return plan


def _seconds(result: Result, begin: int, *, is_lost: bool) -> Iterator[tuple[Key, Fault]]:
    """Return every fault from a point on, with its key."""
    points, moments = result.points[begin:], result.moments[begin:]
    for point, moment, to_come in zip(points, moments, ahead(points, moments), strict=True):
        for fault in point.faults():
            yield (_kind(point, fault), hash(moment) if fault.kind == "crash" else to_come, is_lost), fault


def _kind(point: Point, fault: Fault) -> str:
    """Return a fault's kind; for pure queries, failing before and after are the same kind."""
    only_asks = point.border == "launch" and point.what.startswith("find ")
    return "refuse" if fault.kind == "lose" and only_asks else fault.kind


def _keep(plan: Plan, pair: tuple[str, str], sample: int, chance: random.Random) -> None:
    """Sample the omitted pairs uniformly."""
    if len(plan.left_out) < sample:
        plan.left_out.append(pair)
    elif (place := chance.randrange(plan.pairs - len(plan.distinct))) < sample:
        plan.left_out[place] = pair


def distinct(laboratory: Lab, scenario: str) -> Iterator[Result]:
    """Run the representative pairs of a scenario."""
    return map(laboratory.replay, planned(laboratory, scenario).distinct)


# ---- the command


class _Worker:
    """The laboratory of a worker process."""

    stack = contextlib.ExitStack()  # until the process ends
    laboratory: Lab

    @classmethod
    def begin(cls, directory: str) -> None:
        cls.laboratory = cls.stack.enter_context(lab(Path(tempfile.mkdtemp(dir=directory))))

    @classmethod
    def run(cls, names: list[str]) -> dict[str, str]:
        """Run these pairs; return the failed ones."""
        results = [cls.laboratory.replay(each) for each in names]
        return {each.name: each.violations[0] for each in results if each.violations}


def _soak(directory: Path, scenario: str, results: Path, jobs: int) -> Tally:
    with lab(directory) as laboratory:
        plan = planned(laboratory, scenario)
    digest = hashlib.sha256("\n".join(plan.distinct).encode()).hexdigest()
    tally = Tally(scenario, digest, plan.pairs, len(plan.distinct))
    path = results / f"{scenario}.json"
    with contextlib.suppress(FileNotFoundError):
        before = Tally(**json.loads(path.read_text()))
        tally = before if before.plan == digest else tally
    chunks = [plan.distinct[at : at + _CHUNK] for at in range(tally.run, len(plan.distinct), _CHUNK)]
    began = told = time.monotonic()
    past = tally.seconds
    with multiprocessing.get_context("spawn").Pool(jobs, _Worker.begin, [str(directory)]) as pool:
        for chunk, bad in zip(chunks, pool.imap(_Worker.run, chunks), strict=True):
            tally.run += len(chunk)
            tally.bad |= bad
            tally.seconds = past + time.monotonic() - began
            path.write_text(json.dumps(asdict(tally), indent=1))
            for each, what in bad.items():
                print(f"{each}: {what}", flush=True)
            if time.monotonic() - told > _PROGRESS_S:
                told = time.monotonic()
                print(tally, file=sys.stderr, flush=True)
    path.write_text(json.dumps(asdict(tally), indent=1))
    return tally


def _check(directory: Path, scenario: str, sample: int, seed: int) -> int:
    """Run omitted pairs and their representatives; return how many differ."""
    same = others = 0
    with lab(directory) as laboratory:
        for left_out, known in planned(laboratory, scenario, sample, seed).left_out:
            found, stands = laboratory.replay(left_out), laboratory.replay(known)
            if bool(found.violations) != bool(stands.violations):
                others += 1
                print(f"{left_out} is not like {known}: {found.violations} and {stands.violations}", flush=True)
            same += found.outcomes[:1] == stands.outcomes[:1]
    print(
        f"{scenario}: of {sample} that were left out, {others} end otherwise; {same} with the same outcome", flush=True
    )
    return others


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("scenarios", nargs="*", default=list(scenarios.ALL), metavar="SCENARIO")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--check", type=int, default=0, help="instead, run this many of the omitted pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=_RESULTS)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        if options.check:
            return sum(_check(Path(directory), each, options.check, options.seed) for each in options.scenarios)
        tallies = [_soak(Path(directory), each, options.results, options.jobs) for each in options.scenarios]
    print(*tallies, sep="\n")
    sums = [sum(each) for each in zip(*((t.pairs, t.distinct, t.run, len(t.bad)) for t in tallies), strict=True)]
    print("in all: {} pairs, {} distinct, {} run, {} bad".format(*sums))
    return min(sums[-1], 1)


if __name__ == "__main__":
    raise SystemExit(main())
