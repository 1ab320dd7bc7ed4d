"""Placements of 10,000 servers whose traffic follows a demand matrix of SNDlib, on Dask. Last line: JSON.

The same fleet is solved three times: by a local cluster; by two workers that were started as processes of their own;
and by such workers one of which is killed when a third of the servers is done. Tells whether the results are the same
file.

cpu_ms: of a server, in the thread that solves it; all_cpu_ms: a server's share of all CPU time of the first run, with
Dask and the start of its processes. host_cores: of the whole fleet; alone_host_cores: without sNICs.
"""

import argparse
import io
import json
import os
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pyarrow.parquet as parquet
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[2]))

from placement.fleet.cluster import Told, cluster, solve_fleet
from placement.fleet.servers import Effort, Server, Solved
from placement.fleet.tables import plans
from placement.studies.fleet import fleet
from tests.placement.dask_processes import scheduler, workers

EFFORT = Effort(60.0, "lagcut")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 servers, done within 50 s")
    parser.add_argument("--network", default="germany50", help="a network of SNDlib in topohub")
    options = parser.parse_args()
    count = 1_000 if options.quick else 10_000
    document = (resources.files("topohub") / f"data/sndlib/{options.network}.json").read_text()
    servers = fleet(document, count)
    spent, started = _cpu(), time.perf_counter()
    with cluster() as client:
        local = solve_fleet(client, servers, EFFORT, _bar("local cluster", count))
    seconds, spent = time.perf_counter() - started, _cpu() - spent
    apart, _ = _apart(servers, kill=False)
    survived, killed_at = _apart(servers, kill=True)
    result = _result(local) | {
        "all_cpu_ms": round(1000 * spent / count, 3),
        "seconds": round(seconds, 1),
        "same_on_two_processes": _file(local) == _file(apart),
        "same_after_a_kill": _file(local) == _file(survived),
        "killed_at": killed_at,
        "bytes": len(_file(local)),
        "load": round(os.getloadavg()[0], 1),
    }
    print(f"{count} servers: {result['cpu_ms']} ms of CPU per server, {result['all_cpu_ms']} ms with Dask")
    print(json.dumps(result))


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _bar(text: str, total: int) -> Told:
    """Show progress on stderr, in steps of a batch."""
    steps = iter(track(range(total), text, transient=True, disable=not sys.stderr.isatty()))
    seen = 0

    def told(done: int, _: int) -> None:
        nonlocal seen
        for _step in range(done - seen):
            next(steps, None)
        seen = done

    return told


def _apart(servers: Sequence[Server], kill: bool) -> tuple[list[Solved], int]:
    """Solve on two processes; kill one if asked, and return after how many servers."""
    killed = 0
    bar = _bar("two workers, one killed" if kill else "two workers", len(servers))
    with scheduler() as address, workers(address, 2) as running, cluster(address) as client:
        client.wait_for_workers(2, timeout=120)

        def told(done: int, total: int) -> None:
            nonlocal killed
            bar(done, total)
            if kill and not killed and done >= total / 3:
                running[0].kill()
                killed = done

        return solve_fleet(client, servers, EFFORT, told), killed


def _file(solved: Sequence[Solved]) -> bytes:
    written = io.BytesIO()
    parquet.write_table(plans([each.row for each in solved]), written)
    return written.getvalue()


def _result(solved: Sequence[Solved]) -> dict[str, object]:
    spent = sorted(1000 * each.cpu_seconds for each in solved)
    rows = [each.row for each in solved]
    return {
        "servers": len(rows),
        "verdicts": dict(Counter(row.verdict for row in rows)),
        "certified": sum(row.certified for row in rows),
        "nfs": sum(row.nfs for row in rows),
        "on_snics": sum(row.on_snics for row in rows),
        "host_cores": sum(row.host_cost or 0 for row in rows) // 1000,
        "alone_host_cores": sum(row.host_alone or 0 for row in rows) // 1000,
        "cpu_ms": round(statistics.fmean(spent), 3),
        "median_cpu_ms": round(statistics.median(spent), 3),
        "p99_cpu_ms": round(spent[len(spent) * 99 // 100], 3),
        "worst_cpu_ms": round(spent[-1], 3),
    }
