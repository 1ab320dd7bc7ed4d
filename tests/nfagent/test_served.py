"""Pauses reported by processes, and the resulting outage."""

import json

import pytest

from nfagent.migrate.served import Interval, Served, common, union


def answer(age_s: float, *pauses: tuple[float, float | None]) -> bytes:
    in_us = [[round(start * 1e6), None if end is None else round(end * 1e6)] for start, end in pauses]
    return json.dumps({"ok": {"age_us": round(age_s * 1e6), "pauses_us": in_us}}).encode()


def told(before: Served | None, at: float, age_s: float, *pauses: tuple[float, float | None], since: float) -> Served:
    """Take an answer that took 2 ms and was written halfway."""
    return Served.told(before, answer(age_s, *pauses), at - 0.001, at + 0.001, since)


def rounded(intervals: list[Interval]) -> list[Interval]:
    return [(round(start, 6), round(end, 6)) for start, end in intervals]


def test_pauses_use_the_clock_of_the_process() -> None:
    served = told(None, 1000.0, 10.0, (2.0, 2.5), (9.9, None), since=991.0)
    assert rounded(served.idle_until(1000.0)) == [(992.0, 992.5), (999.9, 1000.0)]
    assert rounded(served.idle_until(1000.2)) == [(992.0, 992.5), (999.9, 1000.2)]


def test_a_process_was_idle_before_it_began() -> None:
    served = told(None, 1000.0, 1.0, (0.0, 0.2), since=990.0)
    assert rounded(served.idle_until(1000.0)) == [(990.0, 999.2)]


def test_a_killed_process_is_idle_until_its_successor_serves() -> None:
    first = told(None, 1000.0, 50.0, (20.0, 20.1), since=960.0)
    second = told(first, 1003.0, 1.0, (0.0, 0.5), since=960.0)
    assert rounded(second.idle_until(1003.0)) == [(970.0, 970.1), (1000.0, 1002.5)]


def test_a_late_answer_shifts_no_pause() -> None:
    first = told(None, 1000.0, 50.0, (20.0, 20.1), since=960.0)
    late = Served.told(first, answer(52.0, (20.0, 20.1), (51.0, 51.5)), 1001.0, 1007.0, 960.0)
    assert late.idle_until(1002.0) == [pytest.approx(each, abs=0.002) for each in ((970.0, 970.1), (1001.0, 1001.5))]


def test_pauses_that_touch_are_two() -> None:
    """Packets were processed between them, in less than a microsecond."""
    served = told(None, 1000.0, 10.0, (2.0, 2.5), (2.5, 3.0), (3.0, None), since=991.0)
    assert rounded(served.idle_until(1000.0)) == [(992.0, 992.499999), (992.5, 992.999999), (993.0, 1000.0)]


def test_pauses_forgotten_by_the_process_are_remembered() -> None:
    first = told(None, 1000.0, 50.0, (20.0, 21.0), since=960.0)
    newer = [(50.0 + number / 20, 50.0 + number / 20 + 0.01) for number in range(256)]
    second = told(first, 1013.0, 63.0, *newer, since=960.0)
    assert rounded(second.idle_until(1013.0))[0] == (970.0, 971.0)
    assert len(second.idle_until(1013.0)) == 257


@pytest.mark.parametrize(
    ("pauses", "own_s"),
    [
        ([], 0.0),
        ([(8.0, 8.4)], 0.0),
        ([(5.0 + number / 10, 5.1 + number / 10) for number in range(50)], 0.5),
        ([(6.0, 6.04), (7.0, 7.05), (8.0, 8.4)], 0.0),
        ([(6.0 + number / 10, 6.03 + number * 0.12) for number in range(5)], 0.06),
        ([(5.0 + 2 * number / 3, 5.6 + 2 * number / 3) for number in range(5)], 1.2),
        ([(1.0, 9.2)], 0.0),
        ([(1.0, 9.9)], 0.0),
        ([(5.0 + number * 0.35, 5.3 + number * 0.35) for number in range(14)], 1.5),
        ([(7.0, 9.6)], 0.0),
        ([(0.0, 10.1)], None),
    ],
)
def test_earlier_pauses_belong_to_traffic_and_machine(
    pauses: list[tuple[float, float | None]], own_s: float | None
) -> None:
    served = told(None, 1010.0, 20.0, *pauses, since=1000.0)
    assert served.own_pause_s(1000.0) == (own_s if own_s is None else pytest.approx(own_s, abs=1e-5))


def test_a_new_process_has_no_usual_pause() -> None:
    assert told(None, 1000.0, 5.0, since=1000.0).own_pause_s(995.03) is None


def test_a_tenth_of_a_second_of_traffic_sets_the_usual_pause() -> None:
    pauses = [(0.03 + number / 500, 0.0315 + number / 500) for number in range(50)]
    assert told(None, 1000.0, 0.13, *pauses, since=990.0).own_pause_s(1000.0) == pytest.approx(0.0075)


@pytest.mark.parametrize(
    ("pauses", "own_s"),
    [
        ([(0.0, 0.3)], 0.0),
        ([(0.0, 0.3), (0.32, 0.45)], 0.0),
        ([(0.0, 0.3), (0.31, 0.37), (0.38, 0.44), (0.45, 0.5)], 0.3),
    ],
)
def test_a_young_process_has_the_usual_pauses_that_recur(
    pauses: list[tuple[float, float | None]], own_s: float
) -> None:
    """A migration started it 0.5 s ago and held packets at first; a single pause may have been an outage, too."""
    assert told(None, 1000.0, 0.5, *pauses, since=990.0).own_pause_s(1000.0) == pytest.approx(own_s, abs=0.01)


def test_without_packets_after_the_wait_for_the_first_one_nothing_is_usual() -> None:
    assert told(None, 1000.0, 0.5, (0.0, 0.47), since=990.0).own_pause_s(1000.0) is None


def test_a_saved_record_loads_unchanged() -> None:
    served = told(None, 1000.0, 50.0, (20.0, 20.1), since=960.0)
    assert Served.loaded(json.loads(json.dumps(vars(served)))) == served


@pytest.mark.parametrize(
    "line", [b"", b"[]", b'{"ok": {}}', b'{"error": {}}', b'{"ok": {"age_us": "x", "pauses_us": []}}']
)
def test_malformed_answers_are_refused(line: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Served.told(None, line, 1.0, 2.0, 0.0)


def test_unions_and_intersections_of_spans_are_correct() -> None:
    one = [(0.0, 1.0), (2.0, 3.0), (5.0, 9.0)]
    other = [(0.5, 2.5), (6.0, 7.0), (8.0, 10.0)]
    assert common(one, other) == common(other, one) == [(0.5, 1.0), (2.0, 2.5), (6.0, 7.0), (8.0, 9.0)]
    assert union([*other, *one, (10.0, 11.0), (4.0, 4.0)]) == [(0.0, 3.0), (5.0, 11.0)]
