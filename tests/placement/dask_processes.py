"""A Dask scheduler in this process, and workers as processes of their own, for tests and `bench/fleet`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import LocalCluster


@contextmanager
def scheduler() -> Iterator[str]:
    """Yield the address of a scheduler that other processes reach."""
    here: dict[str, Any] = {"host": "127.0.0.1", "scheduler_port": 0, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=0, processes=False, protocol="tcp", **here) as local:
        running: Any = local
        yield running.scheduler_address


@contextmanager
def workers(address: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start workers that nobody restarts."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address]
    options = ["--no-nanny", "--nthreads", "1", "--no-dashboard"]
    running = [subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()
