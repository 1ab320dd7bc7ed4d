"""The end of the old paths: what the old process is asked when markers fail."""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nfagent.errors import ControlRefusedError, WiringError
from nfagent.migrate import protocol


class FakeOld:
    """See `nfagent.migrate.peer.Peer`; ``refusals`` are those of its next answers."""

    def __init__(self, *refusals: str) -> None:
        self.asked: list[tuple[int, int]] = []
        self.refusals = list(refusals)

    def ask(self, verb: str, *, first: int, paths: int, timeout_ms: int, timeout_s: float) -> None:
        assert (verb, timeout_ms / 1000 < timeout_s) == ("drain", True)
        self.asked.append((first, paths))
        if self.refusals and (code := self.refusals.pop(0)):
            raise ControlRefusedError(verb, code, f"the detail of {code}")

    @contextlib.contextmanager
    def begun(self, verb: str, **arguments: Any) -> Iterator[Callable[[], None]]:
        yield lambda: self.ask(verb, **arguments)

    def phase(self) -> str:
        return "given"


class FakeMove:
    """See `nfagent.migrate.move.RunningMigration`; ``failures`` are the seconds that its next markers take to fail."""

    def __init__(self, *failures: float, paths: int = 2) -> None:
        self.paths, self.failures, self.now = paths, list(failures), 50.0
        self.journal = SimpleNamespace(epoch=1, report=SimpleNamespace(undrained=None))
        self.instance = SimpleNamespace(name="lb")
        self.marked: list[int] = []

    def marking(self) -> "FakeMove":
        return self

    def end_marking(self) -> None:
        """Do nothing: nothing is open."""

    def send(self, first: int) -> int:
        self.marked.append(first)
        if self.failures:
            self.now += self.failures.pop(0)
            raise WiringError("a switch is silent")
        return 2


def drained(monkeypatch: pytest.MonkeyPatch, move: FakeMove, old: FakeOld) -> str | None:
    monkeypatch.setattr(protocol.time, "monotonic", lambda: move.now)
    monkeypatch.setattr(protocol.time, "sleep", lambda _: None)
    monkeypatch.setattr(protocol, "unused_number", lambda: 0)
    made: Any = move, old
    protocol._drain_old(*made)
    return move.journal.report.undrained


def test_the_old_process_waits_for_markers_before_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    move, old = FakeMove(), FakeOld()
    assert drained(monkeypatch, move, old) is None
    assert (move.marked, old.asked) == ([0], [(0, 2)])


def test_nothing_is_waited_for_if_the_old_paths_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a number of markers, the old process would end its relay at once."""
    move, old = FakeMove(paths=0), FakeOld()
    assert drained(monkeypatch, move, old) is None
    assert (move.marked, old.asked) == ([1000], [(1000, 2)])


@pytest.mark.parametrize("code", ["timeout", "busy"])
def test_lost_markers_are_repeated_by_higher_numbers(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    move, old = FakeMove(0.0, 0.0), FakeOld(code)
    assert drained(monkeypatch, move, old) is None
    assert move.marked == [0, 1000, 2000, 3000]
    assert old.asked == [(2000, 2), (3000, 2)]


def test_the_report_says_why_packets_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    move, old = FakeMove(2.0), FakeOld()
    assert drained(monkeypatch, move, old) == "a switch is silent"
    assert old.asked == [(1000, 0)], "the old paths are given up"
    move, old = FakeMove(), FakeOld("peer")
    assert drained(monkeypatch, move, old) == "the detail of peer"
    assert old.asked == [(0, 2), (1000, 2)]
