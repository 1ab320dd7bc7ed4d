"""The figures of docs/tiara.md."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Figures 10 and 11: million operations per second of an engine, and the speedup of three.
PAPER_ENGINE = 6.8
PAPER_SPEEDUP = {1: 1.0, 3: 2.77}
#: Shares of flows in per cent: the errata of the paper's 2.6 %.
SHAPES = ("32Mx1", "16Mx2", "8Mx4", "16Mx2 skewed")

PAPER, OURS = "#d62728", "#1f77b4"


def draw(result: dict[str, Any]) -> dict[str, Figure]:
    series = result["figures"]
    return {
        "tiara-shapes": shapes(series),
        "tiara-lookups": lookups(series["fig9"]),
        "tiara-engines": engines(series),
        "tiara-eviction": eviction(series["eviction"]),
        "tiara-collisions": collisions(series["fig14"]),
    }


def _axes(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    return figure, axes


def shapes(series: dict[str, Any]) -> Figure:
    figure, axes = _axes("", "% of 10M flows not inserted")
    rows = {row["shape"]: row["not_inserted_pct"] for row in series["fills"]}
    bars = axes.bar(SHAPES, [rows[shape] for shape in SHAPES], color=[PAPER, PAPER, PAPER, OURS])
    axes.bar_label(bars, fmt="%.2f")
    return figure


def lookups(rows: list[dict[str, float]]) -> Figure:
    figure, axes = _axes("width", "Gb/s of a port, 128-byte packets")
    places = range(len(rows))
    axes.bar([place - 0.2 for place in places], [row["paper_gbps"] for row in rows], 0.4, color=PAPER, label="paper")
    axes.bar([place + 0.2 for place in places], [row["model_gbps"] for row in rows], 0.4, color=OURS, label="model")
    axes.set_xticks(list(places), [str(row["width"]) for row in rows])
    axes.legend(loc="lower left")
    return figure


def engines(series: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    speed, scaling = figure.subplots(1, 2)
    rows = series["smuxes"]
    speed.plot([row["smuxes"] for row in rows], [row["mops"] for row in rows], "o-", c=OURS, label="ours")
    speed.axhline(PAPER_ENGINE, c=PAPER, ls="--", label="paper, two and more")
    speed.set(xlabel="load balancers", ylabel="million insertions/s of an engine")
    rows = series["engines"]
    scaling.plot([row["engines"] for row in rows], [row["speedup"] for row in rows], "o-", c=OURS, label="ours")
    scaling.plot(list(PAPER_SPEEDUP), list(PAPER_SPEEDUP.values()), "s--", c=PAPER, label="paper")
    scaling.set(xlabel="engines", ylabel="speedup")
    for axes in (speed, scaling):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def eviction(series: dict[str, Any]) -> Figure:
    figure, axes = _axes("detection periods", "share of packets that hit")
    for name, label, colour in (("series", "with eviction", OURS), ("series_without", "without (paper)", PAPER)):
        axes.plot(range(1, len(series[name]) + 1), series[name], "o-", ms=3, c=colour, label=label)
    axes.axhline(0.99, c="grey", lw=0.8)
    axes.legend()
    return figure


def collisions(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("slots", "probability of a full chain")
    for number, row in enumerate(rows):
        shown = [(slots, value) for slots, value in zip(row["slots"], row["probability"], strict=True) if value > 0]
        axes.plot(*zip(*shown, strict=True), "o-", ms=3, c=f"C{number}", label=f"width {row['width']}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(1e-12, 3)
    axes.legend()
    return figure
