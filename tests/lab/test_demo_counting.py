"""The demo reports a loss exactly if there was one."""

import dataclasses

import pytest

from lab.demo.counting import Summary
from lab.http_report import Count, Failure, HttpReport
from lab.tally import StreamReport

KILLED, BACK = 100.0, 104.0
CLEAN = StreamReport(sent=1000, received=1000, lost=0, duplicated=0, reordered=0, longest_gap_ms=1.0)


def http(*failures: Failure) -> HttpReport:
    count = Count(sent=50, answered=50 - len(failures), delays_ms=[1.0])
    return HttpReport({"little": {"kept": Count(), "new": count}}, list(failures))


def failure(began: float, opened: float | None = None) -> Failure:
    return Failure("new", began, began + 1.0, opened, "reset")


def summary() -> Summary:
    made = Summary(stream=CLEAN, killed=KILLED, back=BACK)
    return dataclasses.replace(made, outside=http(), second=http(), again=http())


def test_a_run_without_loss_passes() -> None:
    check = summary().check()
    assert check.holds
    assert check.figures["requests"] == 150


def test_failures_within_the_outage_are_reported_and_pass() -> None:
    made = summary()
    made.second = http(failure(101.0), failure(99.5), failure(106.0, opened=99.0))
    check = made.check()
    assert check.holds
    assert (check.figures["failed"], check.figures["failed_in_outage"], check.figures["outage_s"]) == (0, 3, 4.0)


@pytest.mark.parametrize("who", ["outside", "second", "again"])
def test_an_unexplained_failure_is_reported(who: str) -> None:
    made = summary()
    setattr(made, who, http(failure(90.0)))
    check = made.check()
    assert not check.holds
    assert "1 of 150 requests failed" in check.detail
    assert "reset" in check.detail


@pytest.mark.parametrize("what", ["lost", "duplicated", "reordered"])
def test_a_lost_packet_is_reported(what: str) -> None:
    made = summary()
    made.stream = dataclasses.replace(CLEAN, **{what: 1})
    assert not made.check().holds


def test_overflow_without_a_move_is_reported_and_passes() -> None:
    made = summary()
    made.stream = dataclasses.replace(CLEAN, lost=3, holes=[(3, 50.0)])
    made.overflowed = {"hypervisor": {"eno1": 3}}
    assert made.check().holds
    assert "3 packets are missing from times without a move" in made.check().detail
    made.moves = [{"epoch": 1, "report": {}, "requested": "1970-01-01T00:00:49Z", "ended": "1970-01-01T00:00:50Z"}]
    assert not made.check().holds
    assert "3 packets lost in moves" in made.check().detail


def migration(epoch: int, requested: str) -> dict[str, object]:
    return {"epoch": epoch, "report": {}, "requested": f"1970-01-01T{requested}Z", "ended": f"1970-01-01T{requested}Z"}


def test_unplanned_moves_with_a_live_snic_count_as_flaps() -> None:
    made = summary()
    made.moves = [migration(1, "00:00:10")]
    made.migrations = [*made.moves, migration(2, "00:01:42"), migration(3, "00:03:00")]
    assert made.flaps == 0
    assert made.check().holds
    made.migrations.append(migration(4, "00:00:20"))
    assert made.flaps == 1
    assert not made.check().holds


def test_a_missing_stream_proves_nothing() -> None:
    made = summary()
    made.stream = None
    assert not made.check().holds


def test_an_outage_without_end_explains_all_later_failures() -> None:
    made = summary()
    made.back, made.second = None, http(failure(200.0), failure(98.0))
    assert len(made.failed_outside) == 1
