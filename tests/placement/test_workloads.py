"""Workloads match their descriptions and are reproducible."""

import json
import random
import statistics

import pytest
import topohub

from placement import solve, validate
from placement.errors import ProblemError
from placement.studies.experiments import chain_model, hard_region, rule_ratio, several_nics
from placement.studies.workloads import FAMILIES, REGIMES, flow_size, gravity, limited, sndlib


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_requested_size_and_is_reproducible(family: str) -> None:
    problem = FAMILIES[family](100, 3)
    validate(problem)
    assert problem == FAMILIES[family](100, 3)
    assert problem != FAMILIES[family](100, 4)
    assert 95 <= len(problem.nfs) + len(problem.vms) + len(problem.ports) <= 101


@pytest.mark.parametrize("regime", REGIMES)
def test_regimes_are_feasible(regime: str) -> None:
    problem = limited(FAMILIES["chains"](50, 1), regime, 1)
    assert solve(problem, gap=0.05, deadline=20).placement


@pytest.mark.filterwarnings("ignore")  # topohub leaves its file open
def test_sndlib_networks_are_read() -> None:
    document = json.dumps(topohub.get("sndlib/polska"))
    problem = limited(sndlib(document, 20, 0), "hard", 0)
    assert len(problem.nfs) == 20
    solve(problem, deadline=30).check()
    with pytest.raises(ProblemError, match="no demands"):
        sndlib(json.dumps({"graph": {}}), 20, 0)


def test_flows_are_heavy_tailed() -> None:
    source = random.Random(1)
    sizes = [flow_size(source) for _ in range(50_000)]
    assert min(sizes) >= 0
    assert 100 < statistics.median(sizes) < 300
    assert sum(sorted(sizes)[-500:]) > 0.3 * sum(sizes)


def test_gravity_traffic_adds_up() -> None:
    made = gravity(random.Random(2), ["a", "b", "c", "d"], 10_000)
    assert abs(sum(made.values()) - 10_000) < 10


def test_figure_2_of_uno_is_reproduced() -> None:
    two = chain_model([2])[0]
    assert (two.crossings, round(two.full_offload, 1), two.no_offload) == (5, 6.4, 10.0)


def test_section_5_4_of_uno_is_within_reach() -> None:
    ratios = [row.where_needed for row in rule_ratio([0, 0.4, 0.5, 1])]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[1] < 6810 / 3024
    assert ratios[2] == pytest.approx(2.0, abs=0.05)


def test_studies_cover_their_grid() -> None:
    assert len(hard_region(30, (0.2, 0.5), (0.3, 0.6, 0.9))) == 6
    rows = several_nics(24, (1, 2))
    assert [row.nics for row in rows] == [1, 2]
    assert all(row.bound <= row.host for row in rows)
