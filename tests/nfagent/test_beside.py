"""The thread beside the end of a migration: what it does, and that nothing waits for it in vain."""

import sqlite3
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from nfagent.errors import ControlRefusedError
from nfagent.migrate import beside
from nfagent.migrate.beside import Beside


class FakeMove:
    """See `nfagent.migrate.move.RunningMigration`; its thread fails with ``error`` when it asks for a process."""

    def __init__(self, error: Exception | None = None) -> None:
        self.journal = SimpleNamespace(reach=self.reach)
        self.instance = SimpleNamespace(name="lb")
        self.error = error
        self.needed, self.reached = threading.Event(), threading.Event()
        self.steps: list[str] = []

    def need(self, role: str) -> "FakeMove":
        assert role == "incoming"
        self.needed.set()
        if self.error is not None:
            raise self.error
        return self

    def peer(self, role: str) -> None:
        """Return None: the old process has ended."""
        assert role == "serving"

    def end_marking(self) -> None:
        """Do nothing: nothing is open."""

    def reach(self, step: str) -> None:
        self.steps.append(step)
        self.reached.set()


@pytest.fixture
def long_flip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_FLIP_S", 0.0)


def made(move: FakeMove) -> Beside:
    given: Any = move
    return Beside(given)


def test_packets_do_not_wait_for_a_thread_that_has_nothing_to_do() -> None:
    move = FakeMove()
    with made(move) as thread:
        thread.note_flipped()
        thread.note_quiet()
    assert move.steps[-1:] == ["drain"]
    assert not move.needed.is_set()


@pytest.mark.parametrize("error", [None, OSError("no files are left"), ControlRefusedError("release", "busy", "")])
@pytest.mark.usefixtures("long_flip")
def test_the_drain_begins_when_the_thread_has_stopped_releasing(error: Exception | None) -> None:
    move = FakeMove(error)
    with made(move) as thread:
        assert move.needed.wait(60)
        thread.note_quiet()
    assert move.steps


def test_a_long_drain_is_journalled_before_it_ends() -> None:
    move = FakeMove()
    with made(move) as thread:
        thread.note_quiet()
        assert move.reached.wait(60)
    assert move.steps == ["drain", "drain"]


def test_the_error_of_the_drain_is_not_hidden() -> None:
    move = FakeMove()

    def fail(_: str) -> None:
        raise sqlite3.OperationalError("the disk is full")

    def drain(thread: Beside) -> None:
        thread.note_quiet()
        move.journal.reach = fail
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), made(move) as thread:
        drain(thread)


def test_a_flip_that_fails_has_no_drain() -> None:
    move = FakeMove()
    with pytest.raises(ZeroDivisionError), made(move):
        raise ZeroDivisionError
    assert move.steps == []
