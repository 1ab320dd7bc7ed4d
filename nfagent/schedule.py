"""Runs steps by key: one at a time for each key, several keys in parallel, again when woken or after a delay."""

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

_AFTER_A_FAULT_S = 30.0


class Schedule:
    """Threads that call ``step`` for each woken key.

    Waking a key during its step schedules another step, so no wake-up is lost.

    Args:
        step: returns the maximum number of seconds until the next step; None: wait until woken.
        threads: maximum number of concurrent steps.
        is_slow: whether a key's next step may take long without delaying packets.
        reserved: threads that never run slow steps, so that these cannot delay the others.
    """

    def __init__(
        self,
        step: Callable[[str], float | None],
        threads: int,
        is_slow: Callable[[str], bool] = lambda _: False,
        reserved: int = 0,
    ) -> None:
        self._step = step
        self._is_slow = is_slow
        self._slow_limit = threads - reserved
        self._changed = threading.Condition()
        self._woken: dict[str, bool] = {}  # in order, with whether the step is slow
        self._due: dict[str, float] = {}
        self._busy: dict[str, bool] = {}  # with whether the step is slow
        self._stopping = False
        names = [f"reconcile {number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop after the current steps, or when the time is over."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def wake(self, key: str) -> None:
        """Schedule a step for a key."""
        slow = self._looks_slow(key)
        with self._changed:
            self._woken[key] = slow
            self._changed.notify()

    def _looks_slow(self, key: str) -> bool:
        """Return whether a key's next step is slow, or if that cannot be told: then it must not delay the others."""
        try:
            return self._is_slow(key)
        except Exception:  # noqa: BLE001  a disk error must end neither a thread nor what wakes keys
            _log.exception("cannot tell whether a step for %s is slow", key)
            return True

    def _work(self) -> None:
        while (key := self._next()) is not None:
            delay: float | None = _AFTER_A_FAULT_S
            try:
                delay = self._step(key)
            except Exception:  # noqa: BLE001  a fault in the step of one thing must not end the others'
                _log.exception("internal error in a step for %s", key)
            with self._changed:
                self._busy.pop(key)
                if delay is not None:
                    self._due[key] = time.monotonic() + delay
                self._changed.notify()

    def _next(self) -> str | None:
        """Return the next key to step; None: stop."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                for key in [key for key, due in self._due.items() if due <= now]:
                    self._woken[key] = self._looks_slow(key)
                    del self._due[key]
                slow_are_full = sum(self._busy.values()) >= self._slow_limit
                free = (
                    key for key, slow in self._woken.items() if key not in self._busy and not (slow and slow_are_full)
                )
                key = next(free, None)
                if key is not None:
                    self._busy[key] = self._woken.pop(key)
                    self._due.pop(key, None)
                    return key
                next_due = min(self._due.values(), default=None)
                self._changed.wait(None if next_due is None else max(0.0, next_due - now))
            return None
