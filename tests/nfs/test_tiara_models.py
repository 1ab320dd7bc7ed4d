"""The arithmetic of bench/tiara against the paper's numbers and against brute force."""

import math
import random
from collections import Counter

import pytest

from bench.nf_benches import tiara_models as models


def test_shares_not_inserted_are_those_of_thrown_flows() -> None:
    generator = random.Random(4)
    slots, load = 1 << 17, models.FLOWS / models.SLOTS
    for width in (1, 2, 4):
        chains = Counter(generator.randrange(slots // width) for _ in range(int(slots * load)))
        outside = sum(max(0, count - width) for count in chains.values()) / chains.total()
        assert models.overflow_share(load)[width] == pytest.approx(outside, rel=0.15)


def test_shares_not_inserted_are_those_of_the_errata() -> None:
    shares = models.overflow_share(models.FLOWS / models.SLOTS)
    assert [round(100 * shares[width], 2) for width in (1, 2, 4)] == [14.12, 4.81, 0.91]


def test_the_channel_model_is_within_3_percent_of_figure_9() -> None:
    for width, paper in models.FIG9.items():
        assert models.throughput(width) == pytest.approx(paper, rel=0.03), width


def test_the_rate_of_the_text_alone_does_not_explain_figure_9() -> None:
    """With even channels, 8M x 4 would carry 128-byte packets at line rate."""
    assert models.lookup_rate(4, phases=100) > models.line_rate(128)


def test_collisions_are_those_of_small_tables() -> None:
    # Birthdays: 23 entries, one of 1,024 days each.
    apart = math.prod(1 - number / 1024 for number in range(23))
    assert models.collision_probability(23, 1024, 1) == pytest.approx(1 - apart, rel=0.02)
    # As the equation takes it: two indexes, each with both entries in one of four cases.
    assert models.collision_probability(2, 2, 1) == pytest.approx(1 - (3 / 4) ** 2)
    assert models.collision_probability(3, 4, 2) == pytest.approx(1 - (7 / 8) ** 2)
    wider = [models.collision_probability(32768, 1 << 20, width) for width in (1, 2, 4, 8)]
    assert wider == sorted(wider, reverse=True)


def test_table_1_has_one_slip() -> None:
    for solution in (models.SMUX, models.SILKROAD, models.TIARA):
        assert models.efficiency(solution) == pytest.approx(models.PRINTED[solution.name], rel=1e-4)
    pairs = zip(models.gains(), models.PRINTED_GAINS, strict=True)
    assert [round(gain, 1) == printed for gain, printed in pairs] == [False, True, True]
    assert models.gains()[0] == pytest.approx(17.27, abs=0.01)
