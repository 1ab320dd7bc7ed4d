"""The figures of docs/figures.md: UNO's in emulation."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAPER, OURS, OTHER = "#d62728", "#1f77b4", "#7f7f7f"
#: UNO 2.3: Gbps with two and three functions when the sNIC switches.
PAPER_CHAIN = {2: 6.0, 3: 3.0}
#: UNO 5.1: the highest, and halved.
PAPER_SWITCHING = (1.0, 0.5)
#: UNO 5.1: more than doubled, of the bytes over PCIe.
PAPER_QAT = 2.0
#: UNO 5.1, at 4 Gbps: host cores without an sNIC, and sNIC cores.
PAPER_CORES = (6, 8)
#: UNO 5.1: energy of the host over that of the sNIC.
PAPER_ENERGY = {"l7fw": (2.0, 3.0), "secgw": (1.5, 2.0)}
#: UNO 5.3, in us.
PAPER_LATENCY = {"UNO full": 79_000, "UNO partial": 200}
#: UNO 5.2: added latency of packets during a move, and MB of state by flows.
PAPER_ADDED_MS = (40, 50)
PAPER_STATE_MB = {750: 1.4, 1000: 1.6}


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
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    times, state = figure.subplots(1, 2)
    rows = [result[str(size)] for size in sizes]
    times.axhspan(*PAPER_ADDED_MS, color=PAPER, alpha=0.4, label="added latency, mean (paper)")
    times.plot(sizes, [row["added_mean_ms"] for row in rows], "o-", c=OURS, label="added latency, mean")
    times.plot(sizes, [row["freeze_p50_ms"] for row in rows], "s--", c=OTHER, label="without service, median")
    times.set(xlabel="flows", ylabel="ms (logarithmic)", yscale="log", ylim=(0.1, 5000))
    state.plot(list(PAPER_STATE_MB), list(PAPER_STATE_MB.values()), "s", c=PAPER, label="paper")
    state.plot(sizes, [row["state_bytes"] / 1e6 for row in rows], "o-", c=OURS, label="here")
    state.set(xlabel="flows", ylabel="MB of state", ylim=(0, 2))
    for axes in (times, state):
        axes.grid(alpha=0.3)
        axes.set_xlim(0, 1100)
    times.legend(fontsize=8, loc="upper center")
    state.legend(loc="lower right")
    return {"uno-fig13": figure}


def _axes(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
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
    figure, axes = _axes("", "CPU time, all rules on the host = 1")
    names = [f"{row['offloaded']:.0%} of the rules\non the sNIC" for row in rows]
    bars = axes.bar(names, [row["cpu_s"] / rows[0]["cpu_s"] for row in rows], 0.5, color=OURS, label="here")
    axes.bar_label(bars, fmt="%.2f", padding=2)
    axes.plot([0, 1], PAPER_SWITCHING, "s", c=PAPER, label="paper (100%: lowest, without a number)")
    axes.set_ylim(0, 1.2)
    axes.legend()
    return figure


def pcie(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("", "bytes over PCIe per packet of 1,280")
    bars = axes.bar([row["way"] for row in rows], [row["bytes"] for row in rows], 0.5, color=OURS, label="here")
    axes.bar_label(bars, padding=2)
    doubled = PAPER_QAT * rows[0]["bytes"]
    axes.axhline(doubled, c=PAPER, ls="--", label="paper: QAT is above this, the others below")
    axes.set_ylim(0, 1.15 * max(row["bytes"] for row in rows))
    axes.legend(loc="upper left")
    return figure


def cores(rows: list[dict[str, Any]]) -> Figure:
    """Draw CPU time relative to that of the host, because a core of the paper polls and ours do not."""
    figure, axes = _axes("", "cores, host without sNIC = 1")
    last = rows[-1]
    labels = ("host,\nwithout sNIC", "host,\nUNO", "sNIC's slow cores,\nUNO")
    here = [last[name] / last["host_only"] for name in ("host_only", "uno_host", "uno_snic")]
    paper = [1.0, 0.0, PAPER_CORES[1] / PAPER_CORES[0]]
    for shift, values, colour, label in ((-0.2, paper, PAPER, "paper, at 4 Gbps"), (0.2, here, OURS, "here")):
        bars = axes.bar([place + shift for place in range(3)], values, 0.4, color=colour, label=label)
        axes.bar_label(bars, fmt="%.2f")
    axes.set_xticks(range(3), labels)
    axes.set_ylim(0, 1.25 * max(*here, *paper))
    axes.legend(loc="upper left")
    return figure


def energy(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("", "energy on the host / on the sNIC")
    names = [row["function"].upper() for row in rows]
    bars = axes.bar(names, [row["ratio"] for row in rows], 0.3, color=OURS, label="here, by assumed watts")
    axes.bar_label(bars, fmt="%.1f", padding=2)
    for place, row in enumerate(rows):
        low, high = PAPER_ENERGY[row["function"]]
        beside, label = place + 0.25, "paper" if place == 0 else None
        axes.plot([beside, beside], [low, high], c=PAPER, lw=8, solid_capstyle="butt", label=label)
    axes.axhline(1, c="grey", lw=0.8)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylim(0, 1.5 * max(row["ratio"] for row in rows))
    axes.legend(loc="upper center", ncols=2)
    return figure


def latency(rows: list[dict[str, Any]]) -> Figure:
    figure, axes = _axes("", "round trip, ms (logarithmic)")
    names = [row["way"] for row in rows]
    trips = [row["round_trip_us"] / 1000 for row in rows]
    spread = [[trip - row["least_us"] / 1000 for trip, row in zip(trips, rows, strict=True)]]
    spread.append([row["most_us"] / 1000 - trip for trip, row in zip(trips, rows, strict=True)])
    bars = axes.bar(names, trips, 0.5, color=OURS, yerr=spread, ecolor=OTHER, capsize=4, label="emulated, at a scale")
    axes.bar_label(bars, fmt="%.1f", label_type="center", color="white", weight="bold")
    paper = [PAPER_LATENCY.get(name) for name in names]
    places = [place for place, each in enumerate(paper) if each is not None]
    axes.plot(places, [each / 1000 for each in paper if each is not None], "s", c=PAPER, label="paper")
    axes.set_yscale("log")
    axes.set_ylim(0.1, 200)
    axes.legend(loc="upper left")
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
