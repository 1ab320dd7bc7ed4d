"""Time to a proven optimum over n, graph family and regime, per backend, compared with PuLP + CBC on Algorithm 1.

Times are wall seconds of one whole ``solve`` (validation, equations, search, certificate data), for Algorithm 1 of
building and solving its model. An instance that a backend does not prove in time counts with the time used. Last line:
JSON. ``backends``: per backend and n median_s, worst_s (also of CPU), proven, certified, of; ``peer``: the same for
Algorithm 1; n27 ... n2000 for the default backend; ``targets``: whether each is met; ``wrong``: answers that differ
from each other; ``load`` of the machine.
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from placement import Problem, solve
from placement.errors import BackendError, DeadlineError
from placement.studies.algorithm1 import algorithm1
from placement.studies.changes import changes
from placement.studies.workloads import FAMILIES, REGIMES, chains, limited, several

TARGETS = {100: (0.005, 0.05), 500: (0.025, 1.0), 2000: (0.5, 2.5)}
QUICK_2000 = (("chains", "loose"), ("chains", "cores"))
BACKENDS = ("auto", "lagcut", "highs", "cbc", "algorithm1")


@dataclass
class Times:
    """One backend's times at one n."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    proven: int = 0
    certified: int = 0

    def row(self) -> dict[str, float | int]:
        return {
            "median_s": round(statistics.median(self.seconds), 5),
            "worst_s": round(max(self.seconds), 5),
            "median_cpu_s": round(statistics.median(self.cpu), 5),
            "worst_cpu_s": round(max(self.cpu), 5),
            "proven": self.proven,
            "certified": self.certified,
            "of": len(self.seconds),
        }


Run = Callable[[Problem, float], tuple[int | None, bool, bool]]
"""Host cost, whether it is proven, and whether a certificate proves it."""


def _ours(backend: str) -> Run:
    def run(problem: Problem, seconds: float) -> tuple[int | None, bool, bool]:
        plan = solve(problem, deadline=seconds, backend=backend)
        return plan.host_cost, plan.proven, plan.certified

    return run


def _peer(problem: Problem, seconds: float) -> tuple[int | None, bool, bool]:
    answer = algorithm1(problem, seconds)
    return answer.host, answer.proven, False


def _cpu() -> float:
    """Return the CPU seconds of this process and its children: on a busy machine wall time says little."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller n, fewer backends, done within 50 s")
    parser.add_argument("--seeds", type=int, default=1, help="instances per family and regime")
    arguments = parser.parse_args()
    sizes = (27, 100, 500, 2000) if arguments.quick else (27, 100, 500, 1000, 2000)
    limit = 0.8 if arguments.quick else 3.0
    backends = ("auto", "algorithm1") if arguments.quick else BACKENDS
    found: dict[str, dict[int, Times]] = defaultdict(lambda: defaultdict(Times))
    wrong = 0
    for n in sizes:
        for family in FAMILIES:
            for regime in REGIMES:
                if arguments.quick and n == 2000 and (family, regime) not in QUICK_2000:
                    continue
                for seed in range(arguments.seeds):
                    problem = limited(FAMILIES[family](n, seed), regime, seed)
                    wrong += _instance(problem, f"{n} {family} {regime}", backends, limit, found, n)
    _report(found, wrong, arguments.quick)


def _instance(
    problem: Problem,
    name: str,
    backends: tuple[str, ...],
    limit: float,
    found: dict[str, dict[int, Times]],
    n: int,
) -> int:
    """Run all backends on one problem; tell whether two of them proved different optima."""
    optima: set[int | None] = set()
    line = []
    for backend in backends:
        run = _peer if backend == "algorithm1" else _ours(backend)
        spent, started = _cpu(), time.perf_counter()
        try:
            value, proven, certified = run(problem, limit)
        except (BackendError, DeadlineError):
            value, proven, certified = None, False, False
        seconds = time.perf_counter() - started
        times = found[backend][n]
        times.seconds.append(seconds)
        times.cpu.append(_cpu() - spent)
        times.proven += proven
        times.certified += certified
        if proven:
            optima.add(value)
        line.append(f"{backend} {seconds * 1000:8.1f} ms{' ' if proven else '?'}")
    print(f"{name:22} {'  '.join(line)}{'  DIFFERENT OPTIMA' if len(optima) > 1 else ''}", flush=True)
    return int(len(optima) > 1)


def _report(found: dict[str, dict[int, Times]], wrong: int, quick: bool) -> None:
    rows = {backend: {f"n{n}": times.row() for n, times in sizes.items()} for backend, sizes in found.items()}
    default = rows["auto"]
    targets = {}
    for n, (median, worst) in TARGETS.items():
        row = default.get(f"n{n}")
        if row is not None:
            met = row["median_s"] <= median and row["worst_s"] <= worst and row["proven"] == row["of"]
            targets[f"n{n}"] = {"median_s": median, "worst_s": worst, "met": met}
    result: dict[str, object] = {"backends": {b: r for b, r in rows.items() if b != "algorithm1"}}
    result |= {"peer": rows["algorithm1"], **default, "wrong": wrong, "load": [round(x, 1) for x in os.getloadavg()]}
    targets["gap_0.1%_n500"] = _gap()
    result["moves"] = _moves(6 if quick else 100)
    if not quick:
        targets["K4_n100"], targets["K4_n250"] = _several(100, 2.0), _several(250, 20.0)
    result["targets"] = targets
    print(json.dumps(result))


def _gap() -> dict[str, object]:
    """Measure the time to 0.1 % at n = 500."""
    seconds, cpu = [], []
    for family in FAMILIES:
        problem = limited(FAMILIES[family](500, 0), "hard", 0)
        spent, started = time.process_time(), time.perf_counter()
        solve(problem, gap=0.001)
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - spent)
    return {
        "median_s": round(statistics.median(seconds), 5),
        "worst_s": round(max(seconds), 5),
        "median_cpu_s": round(statistics.median(cpu), 5),
        "worst_cpu_s": round(max(cpu), 5),
        "met": max(seconds) <= 0.01,
    }


def _moves(count: int) -> dict[str, float]:
    """Count moves after a change of traffic: from scratch, and from the current placement."""
    seen = changes(count)
    scratch, calm = sum(c.from_scratch for c in seen), sum(c.calm for c in seen)
    return {
        "instances": len(seen),
        "from_scratch": scratch,
        "calm": calm,
        "ratio": round(scratch / max(1, calm), 2),
        "worst_host": round(max(c.host for c in seen), 5),
    }


def _several(nodes: int, seconds: float) -> dict[str, object]:
    """Four sNICs."""
    problem = several(limited(chains(nodes, 0), "loose", 0), 4, 0)
    started = time.perf_counter()
    try:
        plan = solve(problem, deadline=seconds * 1.5)
        proven, bound = plan.proven, plan.bound
    except DeadlineError:
        proven, bound = False, None
    taken = time.perf_counter() - started
    return {"seconds": round(taken, 3), "proven": proven, "bound": bound, "met": proven and taken <= seconds}
