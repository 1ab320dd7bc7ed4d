"""Fleets on Dask: results depend on the problems only, not on order, cluster, or workers that die."""

import io
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as parquet
import pytest
from distributed import Client, LocalCluster
from distributed.scheduler import KilledWorker

from placement.errors import ProblemError
from placement.fleet import cluster as fleet_cluster
from placement.fleet.cluster import FleetError, cluster, solve_fleet
from placement.fleet.servers import Effort, Server, Solved, Verdict, solve_batch, solve_server
from placement.fleet.tables import plans, work
from placement.model import HOST, NF, Mode, Nic, Problem
from placement.studies.fleet import Hardware, fleet, sites
from placement.studies.workloads import uno_ring
from tests.placement.dask_processes import scheduler, workers

NETWORK = (resources.files("topohub") / "data/sndlib/germany50.json").read_text()
EFFORT = Effort(60.0, "lagcut")


def written(solved: Sequence[Solved]) -> bytes:
    """Return the plans as a Parquet file."""
    file = io.BytesIO()
    parquet.write_table(plans([each.row for each in solved]), file)
    return file.getvalue()


def alone(servers: Sequence[Server]) -> bytes:
    """Return the plans without a cluster."""
    return written(sorted(solve_batch(servers, EFFORT), key=lambda each: each.row.server))


@pytest.fixture(scope="module")
def threads() -> Iterator[Client]:
    """A cluster inside this process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as local,
        Client(local) as client,
    ):
        yield client


def test_the_order_of_servers_changes_nothing(threads: Client) -> None:
    servers = fleet(NETWORK, 60)
    shuffled = random.Random(1).sample(servers, len(servers))
    told: list[tuple[int, int]] = []
    first = solve_fleet(threads, servers, EFFORT)
    second = solve_fleet(threads, shuffled, EFFORT, lambda done, of: told.append((done, of)))
    assert written(first) == written(second) == alone(servers)
    assert told[-1] == (60, 60)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert all(each.row.verdict == Verdict.PLACED and each.row.certified for each in first)
    assert work(first).column("cpu_seconds").to_pylist() == [each.cpu_seconds for each in first]


def test_a_killed_worker_loses_nothing() -> None:
    servers = fleet(NETWORK, 300)
    with scheduler() as address, workers(address, 2) as running, cluster(address) as client:
        client.wait_for_workers(2, timeout=60)
        killed: list[int] = []

        def told(done: int, _: int) -> None:
            if not killed:
                killed.append(done)
                os.kill(running[0].pid, signal.SIGKILL)

        solved = solve_fleet(client, servers, EFFORT, told)
        assert 0 < killed[0] < len(servers) / 2
        assert running[0].wait() == -signal.SIGKILL
        left: Any = client.nthreads()
        assert len(left) == 1
    assert written(solved) == alone(servers)


def test_rows_say_what_came_of_a_server() -> None:
    def row(problem: Problem, current: dict[str, int] | None = None, backend: str = "auto") -> Any:
        return solve_server(Server("s", lambda: (problem, current)), Effort(20, backend))

    placed = row(uno_ring(40_000))
    assert (placed.verdict, placed.nfs, placed.on_snics, placed.pcie_mbps) == ("placed", 18, 8, (38_800,))
    assert (placed.host_cost, placed.bound, placed.host_alone) == (10_000, 10_000, 18_000)
    assert sum(location for _, location in placed.placement) == 8
    infeasible = row(uno_ring(9_000))
    assert (infeasible.verdict, infeasible.host_cost, infeasible.host_alone) == ("infeasible", None, 18_000)
    assert "possible with pcie + 1000" in infeasible.reason
    refused = row(Problem((NF("dpi", ()),), nics=(Nic({}),)))
    assert refused.verdict == "refused"
    assert "has no mode" in refused.reason
    failed = row(uno_ring(40_000), backend="cplex")
    assert failed.verdict == "failed"
    assert "cplex" in failed.reason
    pinned = row(Problem((NF("dpi", (Mode(1, {"cores": 1}),)),), nics=(Nic({"cores": 1}),)))
    assert (pinned.verdict, pinned.host_alone) == ("placed", None)
    moved = row(uno_ring(40_000), {f"dpi{i}{way}": HOST for i in range(9) for way in "+-"})
    assert moved.moves == 8


def test_servers_whose_workers_die_again_and_again_have_failed() -> None:
    worker: Any = SimpleNamespace(address="tcp://1")

    def result() -> None:
        raise KilledWorker("batch", worker, 4)

    future: Any = SimpleNamespace(result=result)
    found = fleet_cluster._result(future, fleet(NETWORK, 3))
    assert [each.row.verdict for each in found] == ["failed"] * 3
    assert "batch of 3 servers killed workers" in found[0].row.reason


def test_clusters_that_cannot_work_are_named(threads: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FleetError, match="no Dask scheduler answers at 'nonsense://x'"), cluster("nonsense://x"):
        pass
    server = fleet(NETWORK, 1)[0]
    with pytest.raises(FleetError, match="two servers are called 'site"):
        solve_fleet(threads, [server, server])
    monkeypatch.setattr(fleet_cluster, "PATIENCE", 0.01)
    with scheduler() as address, cluster(address) as client, pytest.raises(FleetError, match="has had no worker for"):
        solve_fleet(client, fleet(NETWORK, 3))


def test_a_fleet_carries_the_demands_of_its_network() -> None:
    found = {site.name: site for site in sites(NETWORK)}
    hardware = Hardware(mean_mbps=10_000)
    servers = fleet(NETWORK, 400, seed=3, hardware=hardware)
    assert len(servers) == 400
    sent: dict[str, int] = dict.fromkeys(found, 0)
    for server in servers:
        problem, _ = server.make()
        traffic = sum(d.mbps for d in problem.demands if "eth0" in (d.source, d.target))
        assert traffic <= hardware.line_mbps + 50
        sent[server.name.removeprefix("site").split("-")[0]] += traffic
    whole = sum(site.total for site in found.values())
    for name, site in found.items():
        assert sent[name] == pytest.approx(400 * 10_000 * site.total / whole, rel=0.01, abs=50), name


def test_networks_without_demands_are_refused() -> None:
    with pytest.raises(ProblemError, match="the network has no demands"):
        sites("{}")


def test_equal_problems_get_equal_placements_among_equally_good_ones() -> None:
    tied = next(server for server in fleet(NETWORK, 300) if server.name == "site3-00002")
    assert len({solve_server(tied, EFFORT).placement for _ in range(8)}) == 1


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_ten_thousand_servers_are_placed_the_same_on_any_cluster() -> None:
    bench = Path(__file__).resolve().parents[2] / "bench/fleet"
    done = subprocess.run([bench], cwd=bench.parents[1], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["verdicts"] == {"placed": 10_000}
    assert found["certified"] == 10_000
    assert found["same_on_two_processes"]
    assert found["same_after_a_kill"]
    assert 0 < found["killed_at"] < 10_000
