"""Runs every benchmark and compares its figures with those of the last release.

Each benchmark runs with ``--quick``, which takes some 20 minutes in all; ``--full`` runs them whole (hours),
``--quick`` only the few of `QUICK`. ``--runs 3`` takes medians: one run on a busy machine says little. The figures that
count are in suite/measures.toml. A regression is a figure that is worse by more than 10 %; times and sizes are compared
only with a release that was measured on the same kind of machine. The program exits with 1 if there is a regression, or
if a benchmark failed. ``--save 0.2.0`` keeps the results as those of a release, in bench/results.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.measures import Measure, load

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results"
NOT_BENCHMARKS = {"all", "draw"}
QUICK = ("rulecount", "l4lb", "dump")
_TIMEOUT_S = 6 * 3600.0


@dataclass(frozen=True)
class Row:
    """A figure, and what became of it.

    Attributes:
        now: the median of its runs.
        spread: the least and the largest of them.
        before: at the last release; None: not measured then, or on another kind of machine.
    """

    measure: Measure
    now: float
    spread: tuple[float, float]
    before: float | None

    @property
    def regressed(self) -> bool:
        """Whether it is worse than is tolerated."""
        return self.before is not None and self.measure.has_regressed(self.before, self.now)

    def told(self) -> dict[str, Any]:
        """Return it for JSON."""
        measure = self.measure
        return {
            "now": self.now,
            "spread": list(self.spread),
            "before": self.before,
            "worse_by": None if self.before is None else measure.change(self.before, self.now),
            "regressed": self.regressed,
            "aim": measure.aim,
            "better": measure.better,
            "met": measure.is_met(self.now),
        }


def main() -> None:
    """The command."""
    options = parsed(sys.argv[1:])
    names = options.names or (QUICK if options.quick else benchmarks())
    release, saved = last_release()
    found, failed = measured(names, options.runs, options.full, options.save)
    rows = compared(found, saved)
    print("\n".join(table(rows, release)), file=sys.stderr)
    lacking = unmeasured(found)
    if lacking:
        print(f"not measured: {', '.join(lacking)}; run these benchmarks to see why", file=sys.stderr)
    for name, why in failed.items():
        print(f"bench/{name} failed: {why}", file=sys.stderr)
    regressions = [f"{row.measure.benchmark} {row.measure.path}" for row in rows if row.regressed]
    print(json.dumps(summary(rows, release, regressions, failed, lacking)))
    sys.exit(1 if regressions or failed else 0)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="bench/all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks; default: all")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}: done in 50 s")
    size.add_argument("--full", action="store_true", help="each benchmark whole, without --quick: hours")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="runs of each; medians count")
    parser.add_argument("--save", metavar="RELEASE", help="keep the results as those of this release")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(benchmarks()):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(benchmarks())}")
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: expected at least 1")
    return options


def benchmarks() -> list[str]:
    """Return the names of all benchmarks."""
    files = (path for path in (ROOT / "bench").iterdir() if path.is_file() and os.access(path, os.X_OK))
    return sorted({path.name for path in files} - NOT_BENCHMARKS)


def measured(
    names: Sequence[str], runs: int, full: bool, release: str | None = None
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Run benchmarks; return the results by name, and why others have none.

    Saves the results of a release one by one: somebody may end a run of hours.
    """
    found: dict[str, list[Any]] = {}
    failed: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] bench/{name}", end=" ", flush=True, file=sys.stderr)
        begun = time.monotonic()
        try:
            found[name] = [run(name, full) for _ in range(runs)]
            if release:
                save(release, {name: found[name]})
        except (subprocess.SubprocessError, ValueError, IndexError, OSError) as error:
            failed[name] = str(error)
        said = "failed" if name in failed else "done"
        print(f"{said} in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return found, failed


def run(name: str, full: bool) -> dict[str, Any]:
    """Run a benchmark once; return its result.

    Raises:
        subprocess.SubprocessError: it failed.
        ValueError, IndexError: its last line is not JSON, or lacks a figure that counts.
    """
    command = [str(ROOT / "bench" / name), *([] if full else ["--quick"])]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise subprocess.SubprocessError(f"exit status {done.returncode}: {''.join(last)}")
    result = json.loads(done.stdout.splitlines()[-1])
    for measure in load():
        if measure.benchmark == name:
            require(measure, result)
    return result


def require(measure: Measure, result: dict[str, Any]) -> None:
    """Check that a result has a figure.

    Raises:
        ValueError: it has not.
    """
    try:
        measure.find(result)
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"its result lacks {measure.path}, a number, which suite/measures.toml lists") from None


def all_releases() -> dict[str, Any]:
    """Return the saved results by release, oldest first."""
    files = sorted(RESULTS.glob("*.json"), key=lambda path: [int(part) for part in path.stem.split(".")])
    return {path.stem: json.loads(path.read_text()) for path in files}


def last_release() -> tuple[str | None, dict[str, Any] | None]:
    """Return the newest release that has results, and these."""
    return next(reversed(all_releases().items()), (None, None))


def compared(found: dict[str, list[Any]], saved: dict[str, Any] | None) -> list[Row]:
    """Return the figures that count, beside those of a release."""
    rows: list[Row] = []
    for measure in load():
        values = [value for value in map(measure.find, found.get(measure.benchmark, [])) if value is not None]
        if values:
            now = round(statistics.median(values), 6)  # the mean of two is not exact
            rows.append(Row(measure, now, (min(values), max(values)), before(measure, saved)))
    return rows


def unmeasured(found: dict[str, list[Any]]) -> list[str]:
    """Return the figures that no run of their benchmark has measured, as without a peer."""
    return [
        f"{measure.benchmark} {measure.path}"
        for measure in load()
        if measure.benchmark in found and all(measure.find(result) is None for result in found[measure.benchmark])
    ]


def before(measure: Measure, saved: dict[str, Any] | None) -> float | None:
    """Return a release's figure, if it can be compared with one of this machine."""
    if saved is None or (measure.absolute and saved["machine"] != machine()):
        return None
    return saved["figures"].get(measure.benchmark, {}).get(measure.path)


def table(rows: Iterable[Row], release: str | None) -> list[str]:
    """Return the figures as lines of text; the regressions are marked."""
    lines = [f"{'benchmark':12} {'figure':28} {'now':>10} {release or '-':>10} {'worse by':>9} {'aim':>8}"]
    for row in rows:
        told = row.told()
        by = "" if told["worse_by"] is None else f"{told['worse_by']:+.0%}"
        aim = "" if row.measure.aim is None else f"{row.measure.aim:g}{'' if told['met'] else ' !'}"
        was = "" if row.before is None else f"{row.before:g}"
        mark = "  REGRESSED" if row.regressed else ""
        lines.append(
            f"{row.measure.benchmark:12} {row.measure.path:28} {row.now:>10g} {was:>10} {by:>9} {aim:>8}{mark}"
        )
    return [*lines, "!: the aim is missed"]


def summary(
    rows: Sequence[Row], release: str | None, regressions: list[str], failed: dict[str, str], lacking: list[str]
) -> dict[str, Any]:
    """Return everything for JSON."""
    figures: dict[str, dict[str, Any]] = {}
    for row in rows:
        figures.setdefault(row.measure.benchmark, {})[row.measure.path] = row.told()
    missed = [f"{row.measure.benchmark} {row.measure.path}" for row in rows if row.measure.is_met(row.now) is False]
    return {
        "figures": figures,
        "release": release,
        "regressions": regressions,
        "missed": missed,
        "failed": failed,
        "unmeasured": lacking,
        "machine": machine(),
        "load_average": os.getloadavg()[0],
    }


def save(release: str, found: dict[str, list[Any]]) -> None:
    """Keep the results of a release; figures of benchmarks that did not run now stay as they are."""
    path = RESULTS / f"{release}.json"
    kept = json.loads(path.read_text())["figures"] if path.exists() else {}
    for row in compared(found, None):
        kept.setdefault(row.measure.benchmark, {})[row.measure.path] = row.now
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "figures": kept}, indent=1, sort_keys=True) + "\n")


def machine() -> str:
    """Return what kind of machine this is: its processors."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} x {model}"
