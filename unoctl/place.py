"""Implements ``unoctl place``: solves a problem file with ``placement``, without a server."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from server.errors import ServerError
from unoctl.command import FormatOption, PrettyOption, carry_out
from unoctl.render import Output, View, table


class PlaceError(ServerError):
    """The problem file cannot be read, is invalid, or has no solution."""

    code = "place"


def place_command(
    ctx: typer.Context,
    problem: Annotated[
        Path | None, typer.Argument(metavar="PROBLEM.json", help="The problem; --schema prints its schema.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain each placement, and list the binding limits.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Plot the plan: .png, .svg, .pdf.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of problems.")] = False,
    deadline: Annotated[float, typer.Option("--deadline", metavar="S", help="Time limit in seconds.")] = 10.0,
    backend: Annotated[str, typer.Option("--backend", metavar="NAME", help="Solver to use.")] = "auto",
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", metavar="DIR", help="Solve all DIR/*.json on Dask; write DIR/plans.parquet."),
    ] = None,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Dask scheduler; default: a local cluster.")
    ] = None,
    chosen: FormatOption = None,
    pretty: PrettyOption = False,
) -> None:
    """Solve a placement problem: host or sNIC for each NF; or those of a fleet."""

    def work(_: Output) -> View:
        if schema:
            return _schema()
        if fleet is None and dask is None:
            return _place(problem, explain, plot, deadline, backend)
        given = {"PROBLEM.json": problem, "--explain": explain, "--plot": plot}
        return _fleet(fleet, dask, deadline, backend, [name for name, value in given.items() if value])

    carry_out(ctx, chosen, pretty, work)


def _schema() -> View:
    from placement.schema import SCHEMA

    return View(SCHEMA, Text(json.dumps(SCHEMA, indent=2)))


def _fleet(folder: Path | None, address: str | None, deadline: float, backend: str, unfit: list[str]) -> View:
    if folder is None:
        raise PlaceError("--dask is only for a fleet; add --fleet DIR")
    if unfit:
        raise PlaceError(f"{unfit[0]} does not go with --fleet, which solves every problem file in {folder}")
    from placement.errors import PlacementError
    from unoctl.fleet import place_fleet

    try:
        return place_fleet(folder, address, deadline, backend)
    except PlacementError as error:
        raise PlaceError(str(error)) from error


def _place(path: Path | None, explain: bool, plot: Path | None, deadline: float, backend: str) -> View:
    if path is None:
        raise PlaceError("PROBLEM.json is missing; `unoctl place --schema` prints its schema")
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise PlaceError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise PlaceError(f"{path} is not JSON: {error}") from error
    # Importing solvers takes half a second, so only this command does it.
    from placement.errors import PlacementError
    from placement.schema import from_json, plan_to_json
    from placement.solve import solve

    try:
        problem, current = from_json(document)
        plan = solve(problem, current, deadline=deadline, backend=backend)
        if plot is not None:
            from placement.plot import save

            save(plan, str(plot))
        return View(plan_to_json(plan, explain), _body(plan_to_json(plan, True), explain))
    except PlacementError as error:
        raise PlaceError(f"{path}: {error}") from error


def _body(plan: dict[str, Any], explain: bool) -> Group:
    rows = [
        (name, "host" if place == 0 else f"sNIC {place}", *([plan["why"][name]] if explain else []))
        for name, place in plan["placement"].items()
    ]
    proof = "proven least" if plan["proven"] else f"not proven; at least {plan['bound']}"
    parts = [
        table(("NF", "RUNS ON", *(["WHY"] if explain else [])), rows),
        Text(f"host cost {plan['host_cost']} ({proof})"),
    ]
    if explain:
        binding = ", ".join(f"{row['limit']} {row['used']}/{row['allowed']}" for row in plan["binding"])
        parts.append(Text(f"binding: {binding or 'nothing'}"))
    if plan["moves"]:
        steps = [f"{m['nf']} {m['source']} -> {m['target']}" for m in plan["moves"]]
        parts.append(Text("moves, in this order: " + ", ".join(steps)))
    return Group(*parts)
