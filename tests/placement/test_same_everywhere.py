"""Seeded problems, traffic and studies are equal on every machine: figures in the docs depend on them."""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from placement.damper import Settings
from placement.schema import to_json
from placement.studies.algorithm1 import Solved, algorithm1
from placement.studies.changes import unchanged
from placement.studies.experiments import chain_model
from placement.studies.fig16 import Point, curve
from placement.studies.traffic import TRAFFICS, at_epoch, busy_server, damped, ewma, naive, run, square, threshold
from placement.studies.workloads import (
    FAMILIES,
    REGIMES,
    flow_size,
    gravity,
    heavy_tailed,
    limited,
    several,
    sndlib,
    uno_ring,
)

NETWORK = json.dumps({"graph": {"demands": {"0": {"1": 5, "2": 0, "3": 2.5}, "3": {"0": 1}, "2": {"1": 9}}}})
RUNNING = {f"nf{number}": number % 2 for number in range(6)}


def mark(value: Any) -> str:
    """Return a digest of eight letters."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def problem(make: Callable[[], Any]) -> Callable[[], str]:
    return lambda: mark(to_json(make()))


def factors(name: str) -> list[dict[str, float]]:
    made = TRAFFICS[name](busy_server(6))
    return [made(epoch, RUNNING) for epoch in range(30)]


MARKS: dict[str, Callable[[], str]] = {
    "uno_ring": problem(lambda: uno_ring(40_000)),
    "uno_ring small": problem(lambda: uno_ring(1, vms=3, mbps=900, uplink=7, capacity=5)),
    "busy_server": problem(busy_server),
    "busy_server small": problem(lambda: busy_server(5, 2)),
    "several": problem(lambda: several(limited(FAMILIES["chains"](20, 1), "hard", 1), 3, 1)),
    "sndlib": problem(lambda: sndlib(NETWORK, 5, 1)),
    "at_epoch": problem(lambda: at_epoch(busy_server(5), {"nf0": 0.5, "nf3": 1.25})),
    "flow_size": lambda: mark([round(flow_size(random.Random(seed)), 6) for seed in range(300)]),
    "heavy_tailed": lambda: mark(heavy_tailed(random.Random(1), 5, 1000)),
    "gravity": lambda: mark(
        sorted((f"{a} {b}", mbps) for (a, b), mbps in gravity(random.Random(1), ["a", "b", "c"], 999).items())
    ),
    **{f"family {name}": problem(lambda name=name: FAMILIES[name](40, 2)) for name in FAMILIES},
    **{f"small family {name}": problem(lambda name=name: FAMILIES[name](5, 1)) for name in FAMILIES},
    **{f"regime {name}": problem(lambda name=name: limited(FAMILIES["shared"](20, 1), name, 1)) for name in REGIMES},
    **{f"traffic {name}": lambda name=name: mark(factors(name)) for name in TRAFFICS},
    "traffic square of 5": lambda: mark([square(busy_server(4), 5)(epoch, {}) for epoch in range(11)]),
}

EXPECTED: dict[str, str] = {
    "uno_ring": "916853ae",
    "uno_ring small": "47a78266",
    "busy_server": "2a4c361c",
    "busy_server small": "00bbd520",
    "several": "78a12447",
    "sndlib": "ee7dbc4b",
    "at_epoch": "e312de4f",
    "flow_size": "f4889c88",
    "heavy_tailed": "7f3febbd",
    "gravity": "d2adc7db",
    "family chains": "c335ebf7",
    "family shared": "64240a00",
    "family ring": "dc88f77b",
    "family matrix": "f0bcdb79",
    "small family chains": "6ec6014f",
    "small family shared": "93d49b8d",
    "small family ring": "7b845e41",
    "small family matrix": "56dbd39f",
    "regime loose": "ee461a5e",
    "regime pcie": "232ffdef",
    "regime cores": "a9c681ac",
    "regime hard": "e68f1dfd",
    "traffic square": "b4f96ed1",
    "traffic sine": "aecfce9d",
    "traffic adversary": "2e94ed15",
    "traffic noise": "ed06a8a7",
    "traffic square of 5": "ae7cec87",
}


@pytest.mark.parametrize("name", MARKS)
def test_seeded_values_are_reproducible(name: str) -> None:
    assert MARKS[name]() == EXPECTED[name]


POLICIES = {
    "naive": naive,
    "threshold": threshold,
    "threshold of a half": lambda: threshold(0.5),
    "ewma": ewma,
    "ewma of a half": lambda: ewma(0.5),
    "damped": lambda: damped(Settings(window=4, deadline=30), busy_server(6)),
    "damped from nowhere": lambda: damped(Settings(window=4, deadline=30)),
}
FARED: dict[str, list[tuple[float, ...]]] = {
    "naive": [(7, 4, 3, 1, 30461, 1.0241), (13, 8, 11, 5, 29913, 0.9941)],
    "threshold": [(3, 0, 1, 0, 30733, 1.0333), (2, 0, 1, 0, 31283, 1.0396)],
    "threshold of a half": [(3, 0, 1, 0, 30733, 1.0333), (2, 0, 1, 0, 31283, 1.0396)],
    "ewma": [(3, 0, 1, 0, 30733, 1.0333), (3, 0, 1, 5, 29363, 0.9758)],
    "ewma of a half": [(3, 0, 1, 0, 30733, 1.0333), (3, 0, 1, 5, 29363, 0.9758)],
    "damped": [(1, 0, 1, 0, 37741, 1.2689), (2, 0, 1, 0, 31283, 1.0396)],
    "damped from nowhere": [(3, 0, 1, 0, 30733, 1.0333), (2, 0, 1, 0, 31283, 1.0396)],
}


def fared(policy: str) -> list[tuple[float, ...]]:
    """Return the counts of two runs."""
    server, found = busy_server(6), list[tuple[float, ...]]()
    for traffic in ("noise", "square"):
        outcome = run(server, TRAFFICS[traffic](server), POLICIES[policy](), epochs=12, warm_up=4, static_seconds=30)
        found.append(tuple(round(each, 4) for each in asdict(outcome).values()))
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_policies_reproduce_their_figures(name: str) -> None:
    assert fared(name) == FARED[name]


def test_figures_of_the_paper_are_reproduced() -> None:
    assert curve([10, 40, 80]) == [Point(10, 18.0, 0.0, 10.0), Point(40, 10.0, 16.0, 38.8), Point(80, 0.0, 36.0, 74.8)]
    everything = {f"dpi{number}{way}": 1 for number in range(3) for way in "+-"}
    assert algorithm1(uno_ring(40_000, vms=3)) == Solved(0, everything, True)
    short = algorithm1(uno_ring(40_000, vms=3, capacity=4000))
    assert (short.host, sorted(short.placement.values())) == (4000, [0, 0, 0, 0, 1, 1])
    tight = algorithm1(uno_ring(13_600, vms=3))
    assert (tight.host, sorted(tight.placement.values())) == (5000, [0, 0, 0, 0, 0, 1])
    assert [asdict(point) for point in chain_model([0, 3], 30.0, 9.0, 5.0)] == [
        {"nfs": 0, "no_offload": 9.0, "full_offload": 9.0, "crossings": 1, "added_us": 0.0},
        {"nfs": 3, "no_offload": 9.0, "full_offload": 30 / 7, "crossings": 7, "added_us": 30.0},
    ]


def test_solving_a_problem_again_moves_nothing() -> None:
    assert unchanged(uno_ring(40_000, vms=3)) == 0
