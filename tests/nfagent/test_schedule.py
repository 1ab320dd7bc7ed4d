"""Steps: one at a time per key, none lost."""

import sqlite3
import threading

from nfagent.schedule import Schedule
from tests.nfagent.world import wait_until


def test_one_thread_at_a_time_steps_a_key_and_no_wake_is_lost() -> None:
    busy: set[str] = set()
    seen: dict[str, int] = {}
    wanted = {f"k{number}": 0 for number in range(5)}
    lock, clashes = threading.Lock(), []

    def step(key: str) -> float | None:
        with lock:
            if key in busy:
                clashes.append(key)
            busy.add(key)
            now = wanted[key]
        threading.Event().wait(0.001)
        with lock:
            busy.discard(key)
            seen[key] = now
        return None

    schedule = Schedule(step, 4)
    schedule.start()
    for round_number in range(200):
        for key in wanted:
            with lock:
                wanted[key] = round_number
            schedule.wake(key)
    wait_until(lambda: seen == wanted)
    schedule.stop(10)
    assert clashes == []


def test_a_step_is_repeated_on_request_and_after_an_error(monkeypatch) -> None:
    monkeypatch.setattr("nfagent.schedule._AFTER_A_FAULT_S", 0.01)
    calls: list[str] = []
    done = threading.Event()

    def step(key: str) -> float | None:
        calls.append(key)
        if len(calls) == 1:
            return 0.01
        if len(calls) == 2:
            raise RuntimeError("requested by the test")
        done.set()
        return None

    schedule = Schedule(step, 2)
    schedule.start()
    schedule.wake("a")
    assert done.wait(30)
    schedule.stop(10)
    assert calls == ["a"] * 3


def test_many_slow_steps_do_not_delay_the_others() -> None:
    let_go, quick = threading.Event(), threading.Event()
    slow: list[str] = []

    def step(key: str) -> float | None:
        if key.startswith("slow"):
            slow.append(key)
            assert let_go.wait(60)
        else:
            quick.set()
        return None

    schedule = Schedule(step, 4, lambda key: key.startswith("slow"), 1)
    schedule.start()
    for number in range(20):
        schedule.wake(f"slow {number}")
    wait_until(lambda: len(slow) == 3)
    schedule.wake("quick")
    assert quick.wait(30)
    assert len(slow) == 3
    let_go.set()
    wait_until(lambda: len(slow) == 20)
    schedule.stop(10)


def test_a_failure_to_tell_whether_a_step_is_slow_ends_no_thread() -> None:
    steps: list[str] = []
    asked: list[str] = []
    all_done = threading.Event()

    def is_slow(key: str) -> bool:
        """Fail when the key is woken, and when it becomes due."""
        asked.append(key)
        if len(asked) <= 2:
            raise sqlite3.OperationalError("requested by the test")
        return False

    def step(key: str) -> float | None:
        steps.append(key)
        if len(steps) == 3:
            all_done.set()
        return 0.01 if len(steps) < 3 else None

    schedule = Schedule(step, 2, is_slow, 1)
    schedule.start()
    schedule.wake("a")
    assert all_done.wait(30)
    assert all(thread.is_alive() for thread in schedule._threads)
    schedule.stop(10)
    assert steps == ["a"] * 3
