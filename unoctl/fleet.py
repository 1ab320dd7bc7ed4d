"""Solves a folder of problem files, one for each server of a fleet, on Dask: ``unoctl place --fleet``."""

import functools
import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.text import Text

from unoctl.render import View, table

if TYPE_CHECKING:
    from placement.fleet.cluster import Told
    from placement.fleet.servers import Made, Server, Solved

SHOWN = 10
"""Servers without a placement that the text lists; the file has all."""


def place_fleet(folder: Path, address: str | None, deadline: float, backend: str) -> View:
    """Solve all problem files of a folder; write ``plans.parquet`` and ``work.parquet`` beside them.

    Raises:
        PlacementError: the folder holds no problem, the cluster cannot do the work, or a package is missing.
    """
    from placement.errors import PlacementError

    try:
        from placement.fleet.cluster import cluster, solve_fleet
        from placement.fleet.servers import Effort
    except ImportError as error:
        raise PlacementError(f"--fleet needs more packages ({error}); install uno-server[fleet]") from error
    servers = _servers(folder)
    with cluster(address) as client, _bar() as told:
        solved = solve_fleet(client, servers, Effort(deadline, backend), told)
    files = _write(folder, solved)
    summary = _summary(solved)
    lost = [each.row for each in solved if not each.row.placement and each.row.reason]
    return View(summary | files, _body(summary | files, lost), 1 if lost else 0)


def _servers(folder: Path) -> "list[Server]":
    from placement.errors import PlacementError
    from placement.fleet.servers import Server

    try:
        texts = {path.stem: path.read_text() for path in sorted(folder.glob("*.json"))}
    except (OSError, UnicodeDecodeError) as error:
        raise PlacementError(f"cannot read the problems of the fleet: {error}") from error
    if not texts:
        raise PlacementError(f"{folder} has no problem; expected a file SERVER.json for each server")
    return [Server(name, functools.partial(_read, text)) for name, text in texts.items()]


def _read(text: str) -> "Made":
    from placement.errors import SchemaError
    from placement.schema import from_json

    try:
        return from_json(json.loads(text))
    except ValueError as error:
        raise SchemaError(f"not JSON: {error}") from error


@contextmanager
def _bar() -> "Iterator[Told]":
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("servers", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _write(folder: Path, solved: "Sequence[Solved]") -> dict[str, str]:
    """Write both tables; a file appears when it is complete."""
    import pyarrow.parquet as parquet

    from placement.errors import PlacementError
    from placement.fleet.tables import plans, work

    files = {"plans": plans([each.row for each in solved]), "work": work(solved)}
    try:
        for name, rows in files.items():
            unfinished = folder / f".{name}.parquet"
            parquet.write_table(rows, unfinished)
            unfinished.replace(folder / f"{name}.parquet")
    except OSError as error:
        raise PlacementError(f"cannot write the results: {error}") from error
    return {name: str(folder / f"{name}.parquet") for name in files}


def _summary(solved: "Sequence[Solved]") -> dict[str, Any]:
    from placement.fleet.servers import Verdict

    counts = Counter(each.row.verdict for each in solved)
    seconds = sorted(each.cpu_seconds for each in solved)
    rows = [each.row for each in solved]
    return {
        "servers": len(solved),
        **{verdict.value: counts.get(verdict, 0) for verdict in Verdict},
        "nfs": sum(row.nfs for row in rows),
        "on_snics": sum(row.on_snics for row in rows),
        "host_cost": sum(row.host_cost or 0 for row in rows),
        "cpu_seconds_per_server": round(statistics.fmean(seconds), 6),
        "worst_cpu_seconds": round(seconds[-1], 6),
    }


def _body(summary: dict[str, Any], lost: Sequence[Any]) -> Group:
    parts = [
        table(("", ""), [(name.replace("_", " "), str(value)) for name, value in summary.items()]),
        *(Text(f"{row.server}: {row.verdict}: {row.reason}") for row in lost[:SHOWN]),
    ]
    if len(lost) > SHOWN:
        parts.append(Text(f"and {len(lost) - SHOWN} more without a placement: see {summary['plans']}"))
    return Group(*parts)
