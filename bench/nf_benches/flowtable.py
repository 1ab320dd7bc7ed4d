"""The connection table (nfs/tables) compared with DPDK's rte_hash: lock-free, bulks of 32, 16-byte padded keys.

Two programs execute the same commands (listed in nfs/tables/examples/flowtable.rs) on the same keys in the same order.
They take turns, and each ratio is the median over neighbouring turns, so that other load hits both. Times are CPU times
of the working threads.

Without DPDK (Debian: libdpdk-dev) the figures that need it are null.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nf_benches import building

PEER_SOURCE = Path(__file__).with_name("flowtable.c")
PKG_CONFIG = ["pkg-config", "--cflags", "libdpdk"]
# No hugetlbfs; flowtable.c requests transparent huge pages, as the table does.
PEER_OPTIONS = ["--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "--log-level=error", "-m", "2000"]
# rte_hash rounds up to a power of two. For 1M this gives a load of 95 %, at which it is faster than with twice the
# memory.
SIZES = {"1m": (1_000_000, 1 << 20), "10m": (10_000_000, 11_111_112)}


class Side:
    """One of the two programs."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command: str) -> list[float]:
        """Send a command, wait for its end, and return its figures."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            if not line.startswith("EAL:"):
                return [float(word) for word in line.split()]
        raise SystemExit(f"{self.process.args} ended with {self.process.wait()} at {command!r}")

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns: done in 50 s")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    arguments = parser.parse_args()
    print("... building", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="flowtable-") as directory:
        table, peer = [building.build_example("nf-tables", "flowtable")], build_peer(Path(directory))
        figures: dict[str, object] = {"peer": "rte_hash" if peer else None, "load_average": os.getloadavg()[0]}
        for size in arguments.sizes:
            with started(table, peer) as sides:
                figures |= measure(size, sides, quick=arguments.quick)
    print(json.dumps(figures))


def build_peer(directory: Path) -> list[str] | None:
    """Return the command of the peer's side; if it cannot be built, None, and print why."""
    tools = all(map(shutil.which, ("cc", "pkg-config")))
    if not tools or subprocess.run(PKG_CONFIG, check=False, capture_output=True).returncode:
        print("... no DPDK, so no peer; get it with: apt-get install libdpdk-dev gcc pkg-config", file=sys.stderr)
        return None
    flags = subprocess.run(PKG_CONFIG, check=True, capture_output=True, text=True).stdout.split()
    program = str(directory / "peer")
    libraries = [f"-lrte_{name}" for name in ("eal", "hash", "ring", "rcu")]
    subprocess.run(["cc", "-O3", "-o", program, str(PEER_SOURCE), *flags, *libraries, "-lpthread"], check=True)
    # DPDK binds a thread to one core; the peer may use all, as our side may.
    cores = f"(0)@({','.join(str(core) for core in sorted(os.sched_getaffinity(0)))})"
    return [program, *PEER_OPTIONS, "--lcores", cores]


@contextmanager
def started(table: list[str], peer: list[str] | None) -> Iterator[list[Side]]:
    """Start our side and, if possible, the peer."""
    sides = [Side(command) for command in (table, peer) if command]
    try:
        yield sides
    finally:
        for side in sides:
            side.close()


def measure(size: str, sides: list[Side], *, quick: bool) -> dict[str, object]:
    """Measure all figures of one size."""
    keys, peer_entries = SIZES[size]
    small = size == "1m"
    turns, millis = (5 if small else 3, 70) if quick else (15, 300)
    fills = turns if small else (1 if quick else 3)
    sizes = [side.ask(f"keys {keys} {peer_entries}")[0] for side in sides]
    # The first one also allocates the memory.
    runs = {"insert1": take_turns(sides, fills + 1, "fill 1")[1:], "insert2": take_turns(sides, fills, "fill 2")}
    check_fill(runs["insert1"] + runs["insert2"], keys)
    runs |= {"lookup": [], "beside": []}
    lines = []
    for _ in range(turns):
        runs["lookup"] += take_turns(sides, 1, f"lookup 1 {millis}")
        lines.append(sides[0].ask(f"lines {millis}")[0])
        runs["beside"] += take_turns(sides, 1, f"beside {millis}")
    runs["lookup2"] = take_turns(sides, turns, f"lookup 2 {millis}")
    runs["mixed"] = take_turns(sides, turns, f"mixed {millis}")
    for name in ("lookup", "beside", "lookup2", "mixed"):
        check_found(runs[name])
    figures: dict[str, object] = {}
    for index, name in enumerate(["ours", "peer"][: len(sides)]):
        figures[f"{name}_bytes_per_flow"] = round(sizes[index] / keys, 2)
        for run, turns_of_run in runs.items():
            unit = "mops" if run.startswith("insert") else "ns"
            figures[f"{name}_{run}_{unit}"] = median(turn[index][0] for turn in turns_of_run)
        figures[f"{name}_writer_beside_mops"] = median(turn[index][3] for turn in runs["beside"])
        pairs = zip(runs["lookup"], runs["beside"], strict=True)
        figures[f"{name}_beside_writer_ratio"] = median(alone[index][0] / other[index][0] for alone, other in pairs)
    for run, turns_of_run in runs.items():
        inserts = run.startswith("insert")
        ratios = [turn[0][0] / turn[-1][0] if inserts else turn[-1][0] / turn[0][0] for turn in turns_of_run]
        figures[f"{run}_ratio"] = median(iter(ratios)) if len(sides) > 1 else None
    # A table whose keys have two buckets each cannot be faster than its lines.
    figures["lines_ns"] = median(iter(lines))
    over_lines = [[side[0] / line for side in turn] for turn, line in zip(runs["lookup"], lines, strict=True)]
    figures["ours_lookup_over_lines"] = median(turn[0] for turn in over_lines)
    figures["lookup_ratio_of_lines"] = median(turn[-1] for turn in over_lines) if len(sides) > 1 else None
    named = {f"{name}_{size}": value for name, value in figures.items()}
    if small:
        named |= {"insert2_ratio": figures["insert2_ratio"], "bytes_per_flow": figures["ours_bytes_per_flow"]}
        named["beside_writer_ratio"] = figures["ours_beside_writer_ratio"]
    return named


def take_turns(sides: list[Side], turns: int, command: str) -> list[list[list[float]]]:
    """Return the answers of each side, turn by turn."""
    return [[side.ask(command) for side in sides] for _ in range(turns)]


def median(numbers: Iterator[float]) -> float:
    """Return the median, rounded to its significant digits."""
    return round(statistics.median(numbers), 2)


def check_fill(turns: list[list[list[float]]], keys: int) -> None:
    """Check that every key has been inserted."""
    wrong = [answer for turn in turns for answer in turn if answer[1] != keys]
    if wrong:
        raise SystemExit(f"of {keys} keys, a table holds {wrong[0][1]:.0f}")


def check_found(turns: list[list[list[float]]]) -> None:
    """Check that every lookup of an unwritten key has found its value."""
    wrong = [answer for turn in turns for answer in turn if answer[1] != answer[2]]
    if wrong:
        raise SystemExit(f"of {wrong[0][2]:.0f} lookups, {wrong[0][1]:.0f} found their value")
