"""The figures of docs/figures.md: UNO's in emulation."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAPER, OURS, OTHER = "#d62728", "#1f77b4", "#7f7f7f"
#: UNO 2.3: Gbps with two and three functions when the sNIC switches.
PAPER_CHAIN = {2: 6.0, 3: 3.0}
#: UNO 5.1, at 4 Gbps: host cores without an sNIC, and sNIC cores.
PAPER_CORES = (6, 8)
#: UNO 5.1: energy of the host over that of the sNIC.
PAPER_ENERGY = {"l7fw": (2.0, 3.0), "secgw": (1.5, 2.0)}
#: UNO 5.3, in us.
PAPER_LATENCY = {"UNO full": 79_000, "UNO partial": 200}


def draw(result: dict[str, Any]) -> dict[str, Figure]:
    series = result["figures"]
    return {
        "uno-fig2": chain(series["fig2"]),
        "uno-fig8": switching(series["fig8"]),
        "uno-fig9": pcie(series["fig9"]),
        "uno-fig10": cores(series["fig10"]),
        "uno-fig11": energy(series["fig11"]),
        "uno-fig14": latency(series["fig14"]),
        "uno-fig16": placement(series["fig16"]),
    }


def moves(result: dict[str, Any]) -> dict[str, Figure]:
    """Draw Fig. 13 from the result of bench/asset_moves."""
    sizes = sorted(int(key) for key in result if key.isdigit())
    figure, axes = _axes("flows", "ms without service (p50)")
    axes.plot(sizes, [result[str(size)]["freeze_p50_ms"] for size in sizes], "o-", c=OURS)
    axes.set_ylim(bottom=0)
    return {"uno-fig13": figure}


def _axes(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    return figure, axes


def chain(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("functions in the chain", "Gbps (crossings counted)")
    for offload, label, colour in ((False, "hypervisor switches", OTHER), (True, "sNIC switches", OURS)):
        chosen = [row for row in rows if row["offload"] is offload]
        axes.plot([row["nfs"] for row in chosen], [row["gbps"] for row in chosen], "o-", c=colour, label=label)
    axes.plot(list(PAPER_CHAIN), list(PAPER_CHAIN.values()), "s", c=PAPER, label="sNIC switches, paper")
    axes.set_xticks([0, 1, 2, 3])
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def switching(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("", "CPU time of the hypervisor's switch, all rules = 1")
    names = [f"{row['offloaded']:.0%} of the rules\non the sNIC" for row in rows]
    bars = axes.bar(names, [row["cpu_s"] / rows[0]["cpu_s"] for row in rows], color=OURS)
    axes.bar_label(bars, fmt="%.2f")
    return figure


def pcie(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("", "bytes over PCIe per packet of 1,280")
    bars = axes.bar([row["way"] for row in rows], [row["bytes"] for row in rows], color=OURS)
    axes.bar_label(bars)
    return figure


def cores(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("Gbps", "cores, without those of ports")
    loads = [row["gbps"] for row in rows]
    for name, label, colour in (("host_only", "host", OTHER), ("uno_snic", "sNIC (UNO)", OURS)):
        axes.plot(loads, [row[name] for row in rows], "o-", c=colour, label=label)
    axes.plot(loads, [row["uno_host"] for row in rows], "o--", c=OURS, label="host (UNO)")
    axes.set_xticks(loads)
    axes.set_title(
        f"paper, with polling: {PAPER_CORES[0]} host cores or {PAPER_CORES[1]} of the sNIC at 4 Gbps", fontsize=9
    )
    axes.legend()
    return figure


def energy(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("", "energy on the host / on the sNIC")
    bars = axes.bar([row["function"].upper() for row in rows], [row["ratio"] for row in rows], color=OURS, label="here")
    axes.bar_label(bars, fmt="%.1f")
    for place, row in enumerate(rows):
        low, high = PAPER_ENERGY[row["function"]]
        label = "paper" if place == 0 else None
        axes.plot([place, place], [low, high], c=PAPER, lw=6, solid_capstyle="butt", label=label)
    axes.axhline(1, c="grey", lw=0.8)
    axes.legend()
    return figure


def latency(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("", "round trip, us (simulated)")
    bars = axes.bar([row["way"] for row in rows], [row["round_trip_us"] for row in rows], color=OURS, label="here")
    axes.bar_label(bars, fmt="%.0f")
    axes.plot(list(PAPER_LATENCY), list(PAPER_LATENCY.values()), "s", c=PAPER, label="paper")
    axes.set_yscale("log")
    axes.legend()
    return figure


def placement(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("largest PCIe throughput T (Gbps)", "cores")
    limits = [row["limit"] for row in rows]
    axes.plot(limits, [row["host"] for row in rows], "o-", c=OTHER, label="host cores")
    axes.plot(limits, [row["snic"] for row in rows], "o-", c=OURS, label="sNIC cores")
    link = axes.twinx()
    link.plot(limits, [row["pcie"] for row in rows], "s--", c=PAPER, label="Gbps on PCIe")
    link.set_ylabel("Gbps on PCIe")
    link.set_ylim(0, 110)  # otherwise the curve lies on that of the sNIC's cores
    lines = [*axes.get_lines(), *link.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines])
    return figure
