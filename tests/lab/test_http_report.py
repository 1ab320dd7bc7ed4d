import pytest

from lab.http_report import Count, Failure, HttpReport


def failure(began: float, ended: float, opened: float | None) -> Failure:
    return Failure("kept", began, ended, opened, "reset")


def test_an_outage_explains_only_overlapping_failures() -> None:
    before = failure(1.0, 4.9, 0.0)
    under_way = failure(4.0, 6.0, 0.0)
    during = failure(6.0, 9.5, None)
    lost_its_state = failure(12.0, 12.1, 4.5)
    opened_during = failure(12.0, 12.1, 7.0)
    afterwards = failure(12.0, 12.1, 11.0)
    no_connection = failure(12.0, 15.0, None)
    report = HttpReport(failures=[before, under_way, during, lost_its_state, opened_during, afterwards, no_connection])
    assert report.failed_within(5.0, 10.0) == [under_way, during, lost_its_state, opened_during]


def test_the_report_has_counts_and_percentiles() -> None:
    count = Count()
    assert count.delay_ms(0.5) == 0.0
    for number in range(100):
        count.sent += 1
        count.took(10.0, 10.0 + number / 1000)
    assert (count.answered, count.first_answer) == (100, 10.0)
    assert (count.delay_ms(0.5), count.delay_ms(0.99), count.delay_ms(1.0)) == (50.0, 99.0, 99.0)


def test_a_long_load_keeps_a_bounded_number_of_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.http_report._DELAYS_MAX", 3)
    count = Count()
    for number in range(5):
        count.took(10.0, 10.0 + number)
    assert (count.answered, count.delays_ms) == (5, [0.0, 1000.0, 2000.0])


def test_a_report_survives_json() -> None:
    report = HttpReport({"one": {"new": Count(2, 1, 0, 5.0, [1.5])}}, [failure(1.0, 2.0, None)])
    assert HttpReport.from_json(report.to_json()) == report
    assert (report.sent, report.answered) == (2, 1)
