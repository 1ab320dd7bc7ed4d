"""Virtual ports that many threads remove at once."""

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from nfagent.removals import Removals
from server.errors import DatabaseUnreachableError, OwnershipError

FIRST, OTHERS = 1000, (1001, 1002, 1003)


class Switches:
    """Switches that do not answer before `answer`, and fail as `fails` says."""

    def __init__(self) -> None:
        self.asked: list[set[int]] = []
        self.is_asked, self.answers = threading.Event(), threading.Event()
        self.fails: Callable[[Collection[int]], Exception | None] = lambda _: None

    def remove(self, numbers: Collection[int]) -> None:
        self.asked.append(set(numbers))
        self.is_asked.set()
        assert self.answers.wait(60)
        if (error := self.fails(numbers)) is not None:
            raise error


def _removed(switches: Switches) -> list[Future[None]]:
    """Remove a port, and three others while the switches do not answer."""
    turn, waiting = threading.Lock(), threading.Semaphore(0)

    class Turn:
        def __enter__(self) -> None:
            waiting.release()
            turn.acquire()

        def __exit__(self, *_: object) -> None:
            turn.release()

    removals = Removals(Turn, switches.remove)
    with ThreadPoolExecutor(1 + len(OTHERS)) as threads:
        ended = [threads.submit(removals.remove, FIRST)]
        assert switches.is_asked.wait(60)
        ended += [threads.submit(removals.remove, number) for number in OTHERS]
        for _ in range(1 + len(OTHERS)):
            assert waiting.acquire(timeout=60)
        switches.answers.set()
    return ended


def test_ports_that_wait_are_removed_together() -> None:
    switches = Switches()
    assert [each.result() for each in _removed(switches)] == [None] * 4
    assert switches.asked == [{FIRST}, set(OTHERS)]


def test_a_port_of_others_does_not_hold_up_the_rest() -> None:
    switches = Switches()
    switches.fails = lambda numbers: OwnershipError("not ours") if 1002 in numbers else None
    first, *others = _removed(switches)
    assert [type(each.exception()) for each in (first, *others)] == [type(None), type(None), OwnershipError, type(None)]
    assert switches.asked == [{FIRST}, set(OTHERS), {1001}, {1002}, {1003}]


def test_all_that_wait_learn_of_a_switch_that_does_not_answer() -> None:
    switches = Switches()
    switches.fails = lambda _: DatabaseUnreachableError("switch snic0: no database")
    for each in _removed(switches):
        with pytest.raises(DatabaseUnreachableError, match="snic0"):
            each.result()
    assert switches.asked == [{FIRST}, set(OTHERS)]
