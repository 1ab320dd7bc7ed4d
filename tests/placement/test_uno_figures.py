"""UNO's figures in emulation: what is counted and computed, and the paper's ordering of the alternatives."""

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

figures: Any = importlib.import_module("uno_benches.figures")
functions: Any = importlib.import_module("uno_benches.functions")
round_trips: Any = importlib.import_module("uno_benches.round_trips")
switches: Any = importlib.import_module("uno_benches.switches")

CONSTANTS = tomllib.loads(figures.CONSTANTS.read_text())
MEASURED = {"secgw_ns": 277.0, "l7fw_ns": 69.0, "frame_bytes": 1400}
TRIPS = [
    {"way": name, "round_trip_us": trip, "secgw_s_per_gbit": 2.0, "l7fw_s_per_gbit": l7fw}
    for name, trip, l7fw in (
        ("standalone host", 4000.0, 7.0),
        ("switch offload", 5000.0, 7.0),
        ("UNO full", 40_000.0, 2.5),
        ("UNO partial", 4000.0, 7.0),
    )
]


@pytest.mark.parametrize("nfs", [0, 2])
def test_a_chain_crosses_pcie_twice_for_each_function_behind_a_switch_on_the_snic(nfs: int) -> None:
    assert switches.crossings(nfs, offload=True) == 2 * nfs + 1
    assert switches.crossings(nfs, offload=False) == 1


def test_what_the_snic_filters_does_not_reach_the_hypervisor() -> None:
    rows = [switches.filtering(part, flows=64, rounds=1, rules=1024) for part in (0.0, 0.5, 1.0)]
    assert [row["crossed"] for row in rows] == [64, 32, 0]


def test_bytes_over_pcie_are_those_of_real_packets() -> None:
    rows = {row["way"]: row["bytes"] for row in functions.pcie_bytes()}
    # ESP in tunnel mode: outer header 20, ESP 8, IV 8, padding 2, trailer 2, ICV 16.
    assert rows == {"sNIC": 1294, "x86, AES-NI": 1294 + 56, "x86, QAT": 1294 + 2 * (1294 + 56)}


def test_functions_keep_the_papers_ordering() -> None:
    found = {
        "fig2": [],
        "fig8": [{"cpu_s": 3.0}, {"cpu_s": 2.0}, {"cpu_s": 1.0}],
        "fig9": functions.pcie_bytes(),
        "fig10": round_trips.cores(TRIPS, CONSTANTS),
        "fig11": functions.energy(MEASURED, CONSTANTS),
        "fig14": TRIPS,
        "fig16": [{"host": 2}, {"host": 1}],
    }
    found["fig2"] = [
        {"nfs": n, "offload": offload, "gbps": 10 / (2 * n + 1 if offload else 1)}
        for n in (2, 3)
        for offload in (False, True)
    ]
    assert all(figures.orderings(found).values())
    assert figures.orderings(found | {"fig14": functions.latency(MEASURED, CONSTANTS, packets=8000)})["fig14"]
    found["fig8"].reverse()
    assert not figures.orderings(found)["fig8"]


def test_cores_of_the_snic_count_by_their_ratios() -> None:
    (*_, at_4_gbps) = round_trips.cores(TRIPS, CONSTANTS)
    assert (at_4_gbps["host_only"], at_4_gbps["uno_host"]) == (4 * (2 + 7), 0)
    assert at_4_gbps["uno_snic"] == pytest.approx(4 * (2 * 0.75 + 2.5 * 4))


@pytest.mark.root
def test_packets_pass_a_chain_on_slow_cores(lab_dir: Path) -> None:
    full = next(way for way in round_trips.WAYS if way.name == "UNO full")
    assert lab_dir
    found = round_trips._measure(full, 0.5, CONSTANTS, 1.0)
    assert found["lost"] < 1
    assert found["l7fw_s_per_gbit"] > 0


def test_a_queue_that_cannot_keep_up_is_full() -> None:
    slow = functions._queues([20.0], 10.0, 100, 4000)
    assert slow == pytest.approx(100 * 20.0, rel=0.05)
    assert functions._queues([1.0], 10.0, 100, 4000) == pytest.approx(1.05, rel=0.05)
