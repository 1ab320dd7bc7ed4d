"""Solves a fleet on a Dask cluster: one on this machine, or one that runs already.

A worker that dies loses nothing: the scheduler gives its batches, even finished ones that were not fetched, to others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from distributed import Client, Future, LocalCluster, wait
from distributed.scheduler import KilledWorker

from placement.errors import PlacementError
from placement.fleet.servers import Effort, Row, Server, Solved, Verdict, solve_batch

LARGEST_BATCH = 50
BATCHES_PER_THREAD = 8
"""Batches are small enough that all threads end at about the same time, and large enough that Dask's work of about a
millisecond for each does not matter."""
PATIENCE = 60.0
"""Seconds without any worker after which a study gives up."""

Told = Callable[[int, int], None]
"""Takes the number of solved servers, and of all."""


class FleetError(PlacementError):
    """The cluster cannot be reached, or cannot do the work."""


@contextmanager
def cluster(address: str | None = None, workers: int | None = None) -> Iterator[Client]:
    """Connect to a cluster.

    Args:
        address: of a scheduler that runs, for example ``tcp://host:8786``; None starts a cluster on this machine, which
            ends with the context.
        workers: processes of that cluster; by default one for each CPU that this process may use.

    Raises:
        FleetError: no scheduler answers at the address.
    """
    if address is not None:
        with _connected(address) as client:
            yield client
        return
    count = workers or len(os.sched_getaffinity(0))
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local,
        Client(local) as client,
    ):
        yield client


def _connected(address: str) -> Client:
    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise FleetError(
            f"no Dask scheduler answers at {address!r} ({error}); expected its address, for example tcp://HOST:8786"
        ) from error


def solve_fleet(
    client: Client, servers: Sequence[Server], effort: Effort | None = None, told: Told | None = None
) -> list[Solved]:
    """Solve all servers; return one result for each, sorted by name, whatever the order in which they came.

    Args:
        client: the cluster, from ``cluster``.
        servers: the fleet.
        effort: the time limit and backend.
        told: is called after each batch.

    Raises:
        FleetError: two servers share a name; the cluster ended, lost all its workers, or lacks this package.
    """
    names = [server.name for server in servers]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FleetError(f"two servers are called {twice!r}; expected a name for each")
    batches = _batches(servers, client)
    futures = client.map(solve_batch, batches, effort=effort or Effort(), pure=False)
    waiting = dict(zip(futures, batches, strict=True))
    solved: list[Solved] = []
    try:
        while waiting:
            for future in _some(client, list(waiting)):
                solved += _result(future, waiting.pop(future))
                future.release()
                if told:
                    told(len(solved), len(servers))
    except CancelledError as error:
        raise FleetError(f"the cluster ended when {len(solved)} of {len(servers)} servers were solved") from error
    return sorted(solved, key=lambda each: each.row.server)


def _threads(client: Client) -> int:
    counts: Any = client.nthreads()
    return sum(counts.values())


def _batches(servers: Sequence[Server], client: Client) -> list[list[Server]]:
    threads = max(1, _threads(client))
    size = min(LARGEST_BATCH, max(1, len(servers) // (threads * BATCHES_PER_THREAD)))
    return [list(servers[start : start + size]) for start in range(0, len(servers), size)]


def _some(client: Client, futures: list[Future]) -> set[Future]:
    """Wait until a batch has ended; return all that have."""
    while True:
        try:
            ended: Any = wait(futures, timeout=PATIENCE, return_when="FIRST_COMPLETED")
            return ended.done
        except TimeoutError as error:
            if not _threads(client):
                raise FleetError(f"the cluster has had no worker for {PATIENCE:g} s; start one, or more") from error


def _result(future: Future, batch: list[Server]) -> list[Solved]:
    try:
        found: Any = future.result()
    except KilledWorker as error:
        reason = f"its batch of {len(batch)} servers killed workers: {error}"
        return [Solved(Row(server.name, Verdict.FAILED, reason=reason), 0.0) for server in batch]
    except ImportError as error:
        raise FleetError(f"a worker lacks a module ({error}); install uno-server[fleet] on all of them") from error
    return found
