"""Pictures of placements; needs matplotlib (``pip install 'uno-server[plot]'``), which only this module imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx

from placement.errors import PlacementError
from placement.graph import to_graph
from placement.solve import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(plan: Plan, axes: Axes) -> None:
    """Draw a plan: a column per location, crossing traffic in red, widths by Mbps.

    Raises:
        PlacementError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise PlacementError("drawing needs matplotlib; install it: pip install 'uno-server[plot]'") from error
    del mpl
    graph = to_graph(plan.problem, plan.placement)
    at: dict[int, list[str]] = {}
    for name, location in (plan.problem.fixed() | plan.placement).items():
        at.setdefault(location, []).append(name)
    position = {
        name: (location, -(row + 0.5) / len(names)) for location, names in at.items() for row, name in enumerate(names)
    }
    top = max((mbps for *_, mbps in graph.edges(data="mbps")), default=1) or 1
    colours = {"nf": "#4c8", "vm": "#88c", "port": "#ca6"}
    nx.draw_networkx(
        graph,
        position,
        ax=axes,
        font_size=6,
        node_size=160,
        node_color=[colours[data["kind"]] for _, data in graph.nodes(data=True)],
        edge_color=["#d33" if crosses else "#999" for *_, crosses in graph.edges(data="crosses")],
        width=[0.4 + 3 * mbps / top for *_, mbps in graph.edges(data="mbps")],
    )
    axes.set_xticks(sorted(at), ["host" if k == 0 else f"sNIC {k}" for k in sorted(at)])
    axes.tick_params(bottom=False, labelbottom=True)
    axes.set_title(f"host cost {plan.host_cost}, {'proven' if plan.proven else f'bound {plan.bound}'}")


def save(plan: Plan, path: str) -> None:
    """Draw a plan into a file; the file name's extension selects the format (png, svg, pdf).

    Raises:
        PlacementError: matplotlib is not installed, or does not support the format.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlacementError("drawing needs matplotlib; install it: pip install 'uno-server[plot]'") from error
    figure = Figure(figsize=(7, 6), layout="constrained")
    draw(plan, figure.subplots())
    try:
        figure.savefig(path)
    except (ValueError, OSError) as error:
        raise PlacementError(f"cannot draw into {path!r}: {error}") from error
