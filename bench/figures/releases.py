"""The figures of all benchmarks beside their aims, by release: docs/figures/benchmarks.svg."""

from typing import Any

from matplotlib.figure import Figure
from suite.measures import Measure, load

_ROW = 0.24  # inches
_NOW, _PAST, _MISSED = "#1f6f8b", "#b9c4c9", "#b3431e"


def draw(releases: dict[str, Any]) -> dict[str, Figure]:
    """Draw one row per figure with an aim that is not 0.

    Args:
        releases: the saved results by release, oldest first.
    """
    rows = [measure for measure in load() if measure.aim and any(found(measure, each) for each in releases.values())]
    figure = Figure(figsize=(8, 1.1 + _ROW * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = list(releases)
    for place, measure in enumerate(rows):
        for name in names:
            if (value := found(measure, releases[name])) is None:
                continue
            is_last = name == names[-1]
            colour = _PAST if not is_last else _NOW if measure.is_met(value) else _MISSED
            axes.scatter(distance(measure, value), place, color=colour, s=30 if is_last else 16, zorder=2 + is_last)
    axes.axvline(1, color="black", linewidth=0.8, zorder=1)
    axes.set_xscale("log")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(rows)), [label(measure, releases[names[-1]]) for measure in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", color="#e4e8ea", linewidth=0.6)
    axes.set_xlabel("times the aim; left of the line the aim is met, right of it missed")
    older = f"; grey: {', '.join(names[:-1])}" if len(names) > 1 else ""
    axes.set_title(f"Benchmarks of {names[-1]} beside their aims{older}", fontsize=10, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return {"benchmarks": figure}


def found(measure: Measure, release: dict[str, Any]) -> float | None:
    """Return a figure of a release."""
    return release["figures"].get(measure.benchmark, {}).get(measure.path)


def distance(measure: Measure, value: float) -> float:
    """Return how far a value is from its aim: 1 is there, more is missed, at least 0.05 and at most 20."""
    aim = measure.aim or 1.0
    ratio = value / aim if measure.better == "lower" else aim / max(value, aim / 20)
    return min(max(ratio, 0.05), 20.0)


def label(measure: Measure, release: dict[str, Any]) -> str:
    """Return the text beside a row."""
    value = found(measure, release)
    said = "not measured" if value is None else f"{value:g}"
    return f"{measure.benchmark} {measure.path}  {said} (aim {measure.aim:g})"
