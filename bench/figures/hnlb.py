"""The figures of docs/hnlb.md."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: The variants of the step: name in the results, label, colour.
VARIANTS = (
    ("mark", "number in the packet (HNLB)", "#1f77b4"),
    ("table", "our connection table", "#2ca02c"),
    ("hash", "ordinary hash table (SLB)", "#d62728"),
)


def draw(result: dict[str, Any]) -> dict[str, Figure]:
    series = result["figures"]
    return {
        "hnlb-connections": connections(series["fig5"]),
        "hnlb-sizes": sizes(series["fig6"]),
        "hnlb-util": utilisation(series["fig7"]),
        "hnlb-shift": shift(series["shift"]),
    }


def _axes(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    return figure, axes


def connections(rows: list[dict[str, float]]) -> Figure:
    figure, axes = _axes("connections", "ns of CPU per packet")
    for name, label, colour in VARIANTS:
        axes.plot(
            [row["connections"] for row in rows], [row[f"{name}_ns"] for row in rows], "o-", c=colour, label=label
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def sizes(rows: list[dict[str, float]]) -> Figure:
    figure, axes = _axes("bytes of the frame", "ns of CPU per packet, with the copy")
    for name, label, colour in VARIANTS:
        whole = [row[f"{name}_ns"] + row["copy_ns"] for row in rows]
        axes.plot([row["bytes"] for row in rows], whole, "o-", c=colour, label=label)
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def utilisation(curves: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("offered load (million packets/s)", "util+")
    styles = {"mark": "--", "hash": "-"}
    numbers = sorted({curve["connections"] for curve in curves})
    for curve in curves:
        colour = f"C{numbers.index(curve['connections'])}"
        label = f"{curve['connections']} connections, {'HNLB' if curve['variant'] == 'mark' else 'SLB'}"
        axes.plot(curve["mpps"], curve["util_plus"], styles[curve["variant"]], c=colour, label=label)
    axes.legend(fontsize=7)
    return figure


def shift(points: dict[str, list[float]]) -> Figure:
    figure, axes = _axes("seconds; other flows are the heavy ones from the line on", "hit share / best possible")
    axes.plot(points["seconds"], points["of_best"], c="#1f77b4")
    axes.axvline(points["shift_s"][0], c="grey", ls=":")
    axes.axhline(0.95, c="grey", lw=0.8)
    axes.set_ylim(0, 1.02)
    return figure
