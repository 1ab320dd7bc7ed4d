"""UNO Fig. 15/16: the table, and agreement with a second implementation."""

import pytest

from placement.studies.algorithm1 import algorithm1
from placement.studies.fig16 import curve
from placement.studies.workloads import uno_ring

TABLE = {
    10: (18, 0, 10),
    20: (16, 4, 17.2),
    30: (13, 10, 28),
    40: (10, 16, 38.8),
    50: (7, 22, 49.6),
    60: (5, 26, 56.8),
    70: (2, 32, 67.6),
    80: (0, 36, 74.8),
    100: (0, 36, 74.8),
}


@pytest.mark.parametrize("backend", ["auto", "highs", "cbc", "lagcut-python"])
def test_figure_16_is_reproduced(backend: str) -> None:
    points = curve(list(TABLE), backend)
    assert {point.limit: (point.host, point.snic, point.pcie) for point in points} == TABLE


@pytest.mark.parametrize("limit", TABLE)
def test_algorithm_1_as_uno_wrote_it_agrees(limit: int) -> None:
    answer = algorithm1(uno_ring(limit * 1000))
    assert answer.host == 1000 * TABLE[limit][0]
