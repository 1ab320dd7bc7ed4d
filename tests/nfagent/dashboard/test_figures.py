"""Formatting of figures."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfagent.dashboard import figures, sparkline
from tests.nfagent.dashboard.sample import AT


@pytest.mark.parametrize(
    ("show", "texts"),
    [
        (figures.rate, {0: "0 Mb/s", 0.004: "< 0.1 Mb/s", 0.1: "0.1 Mb/s", 9.94: "9.9 Mb/s", 9.96: "10 Mb/s"}),
        (figures.rate, {999.4: "999 Mb/s", 999.6: "1.00 Gb/s", 12_345: "12.35 Gb/s", 123_456: "123 Gb/s"}),
        (figures.duration, {0: "0 µs", 0.000_412: "412 µs", 0.001: "1.0 ms", 0.0173: "17.3 ms", 0.842: "842 ms"}),
        (figures.duration, {1.5: "1.5 s", 59.96: "1 min 0 s", 3600: "1 h 0 min", 5430: "1 h 30 min"}),
        (figures.count, {0: "0", 9999: "9,999", 10_000: "10.0 k", 123_456: "123 k", 2_345_678: "2.3 M"}),
        (figures.size, {0: "0 B", 999: "999 B", 1000: "1.0 kB", 18_400_000: "18 MB"}),
        (figures.cores, {0: "0", 1: "< 0.01", 5: "0.01", 28: "0.03", 994: "0.99", 996: "1.0", 1840: "1.8"}),
        (figures.percent, {0: "0 %", 0.0002: "< 1 %", 0.0099: "< 1 %", 0.31: "31 %", 1.3: "130 %"}),
    ],
)
def test_figures_have_units_and_few_digits(show: Callable[[Any], str], texts: dict[float, str]) -> None:
    assert {value: show(value) for value in texts} == texts


def test_times_of_another_day_include_the_date() -> None:
    assert figures.clock(AT, AT) == "14:13:20"
    assert figures.clock(AT - 86_400, AT) == "20 Sep 14:13"
    assert figures.stamp(AT) == "2026-09-21T14:13:20Z"


@settings(deadline=None)
@given(st.floats(0, 1e15, allow_nan=False))
def test_every_figure_is_short(value: float) -> None:
    assert len(figures.rate(value)) <= 18
    assert len(figures.duration(value / 1e6)) <= 18


def test_a_chart_runs_left_to_right_within_its_box() -> None:
    samples = [(AT - ago, float(ago)) for ago in range(400, -1, -1)]
    drawn = sparkline.draw(samples, AT, 300.0)
    assert drawn is not None
    points = [tuple(map(float, point.split())) for point in drawn.line.removeprefix("M").split("L")]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[-1][0] == sparkline.WIDTH
    assert all(0 <= x <= sparkline.WIDTH and 0 <= y <= sparkline.HEIGHT for x, y in points)
    assert points[0][1] < points[-1][1]  # it falls, and y grows downward
    assert 60 <= len(points) <= 61


def test_a_chart_has_a_gap_where_measurements_are_missing() -> None:
    samples = [(AT - ago, 1.0) for ago in (100, 95, 90, 40, 35, 30)]
    drawn = sparkline.draw(samples, AT, 1.0)
    assert drawn is not None
    assert drawn.line.count("M") == 2


@pytest.mark.parametrize("samples", [[], [(AT, 1.0)], [(AT - 1000, 1.0), (AT - 999, 2.0)]])
def test_a_chart_needs_two_points(samples: list[tuple[float, float]]) -> None:
    assert sparkline.draw(samples, AT, 1.0) is None
