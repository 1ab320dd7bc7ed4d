"""Formatting of figures."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfagent.dashboard import figures, sparkline
from tests.nfagent.dashboard.sample import AT


@pytest.mark.parametrize(
    ("mbps", "text"),
    [
        (0, "0 Mb/s"),
        (0.004, "< 0.1 Mb/s"),
        (0.1, "0.1 Mb/s"),
        (9.94, "9.9 Mb/s"),
        (9.96, "10 Mb/s"),
        (999.4, "999 Mb/s"),
        (999.6, "1.00 Gb/s"),
        (12_345, "12.35 Gb/s"),
        (123_456, "123 Gb/s"),
    ],
)
def test_rates_have_a_unit(mbps: float, text: str) -> None:
    assert figures.rate(mbps) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 µs"),
        (0.000_412, "412 µs"),
        (0.001, "1.0 ms"),
        (0.0173, "17.3 ms"),
        (0.842, "842 ms"),
        (1.5, "1.5 s"),
        (59.96, "1 min 0 s"),
        (3600, "1 h 0 min"),
        (5430, "1 h 30 min"),
    ],
)
def test_durations_have_a_unit(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (9999, "9,999"), (10_000, "10.0 k"), (123_456, "123 k"), (2_345_678, "2.3 M")]
)
def test_large_counts_are_shortened(number: int, text: str) -> None:
    assert figures.count(number) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (18_400_000, "18 MB")])
def test_sizes_have_a_unit(number: int, text: str) -> None:
    assert figures.size(number) == text


@pytest.mark.parametrize(
    ("millicores", "text"),
    [(0, "0"), (1, "< 0.01"), (5, "0.01"), (28, "0.03"), (994, "0.99"), (996, "1.0"), (1840, "1.8")],
)
def test_millicores_become_cores(millicores: int, text: str) -> None:
    assert figures.cores(millicores) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.0002, "< 1 %"), (0.0099, "< 1 %"), (0.31, "31 %"), (1.3, "130 %")]
)
def test_shares_are_percentages(share: float, text: str) -> None:
    assert figures.percent(share) == text


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
