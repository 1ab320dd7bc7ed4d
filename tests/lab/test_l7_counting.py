"""``uno-lab l7`` reports a loss exactly if there was one."""

import pytest

from lab.http_report import Failure, HttpReport, by_server
from lab.l7.counting import Summary

KILLED = 100.0


def failure(began: float, ended: float) -> Failure:
    return Failure("kept", began, ended, 1.0, "reset")


def test_a_clean_run_holds() -> None:
    summary = Summary(asked=7, killed=(KILLED, KILLED))
    summary.unfinished.update({"half-sent heads": 10})
    check = summary.check()
    assert check.holds
    assert (check.figures["requests"], check.figures["lost"]) == (17, 0)


@pytest.mark.parametrize(("began", "ended", "lost"), [(99.0, 99.5, 1), (99.9, 100.1, 0), (100.1, 100.2, 1)])
def test_only_requests_that_the_killed_server_had_not_answered_are_explained(
    began: float, ended: float, lost: int
) -> None:
    check = Summary(HttpReport(failures=[failure(began, ended)]), killed=(KILLED, KILLED)).check()
    assert (check.holds, check.figures["lost"]) == (not lost, lost)
    assert check.figures["unanswered_by_killed_server"] == 1 - lost


def test_no_failure_is_explained_before_a_server_was_killed() -> None:
    check = Summary(HttpReport(failures=[failure(99.9, 100.1)])).check()
    assert check.figures["lost"] == 1
    assert "reset" in check.detail


def test_a_wrong_answer_is_a_loss() -> None:
    check = Summary(wrong=["uploads: the answer's body is not the expected one"]).check()
    assert not check.holds
    assert "uploads" in check.detail


def test_answers_are_summed_by_server() -> None:
    answers = {"www/": {"web1": 2, "web2": 1}, "api/": {"web3": 4, "web1": 1}}
    assert by_server(answers) == {"web1": 3, "web2": 1, "web3": 4}
    assert by_server(answers, "www/") == {"web1": 2, "web2": 1}
