"""Steps for many things: one at a time for each, several side by side, again when woken, later when asked."""

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

_AFTER_A_FAULT_S = 30.0


class Schedule:
    """Threads that call ``step`` for each key that was woken.

    A key that is woken while its step is under way gets another one after it: nothing is missed.

    Args:
        step: returns the seconds until it is to be called again at the latest; None: when it is woken.
        threads: how many steps may be under way, each for another key.
    """

    def __init__(self, step: Callable[[str], float | None], threads: int) -> None:
        self._step = step
        self._changed = threading.Condition()
        self._woken: dict[str, None] = {}  # in order
        self._due: dict[str, float] = {}
        self._busy: set[str] = set()
        self._stopping = False
        names = [f"reconcile {number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """End when the steps under way have ended, or the time is over."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def wake(self, key: str) -> None:
        """Have a step for a key, soon."""
        with self._changed:
            self._woken[key] = None
            self._changed.notify()

    def _work(self) -> None:
        while (key := self._next()) is not None:
            delay: float | None = _AFTER_A_FAULT_S
            try:
                delay = self._step(key)
            except Exception:  # noqa: BLE001  a fault in the step of one thing must not end the others'
                _log.exception("a step for %s failed in a way that was not foreseen", key)
            with self._changed:
                self._busy.discard(key)
                if delay is not None:
                    self._due[key] = time.monotonic() + delay
                self._changed.notify()

    def _next(self) -> str | None:
        """The next key to step; None: stop."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                for key in [key for key, due in self._due.items() if due <= now]:
                    self._woken[key] = None
                    del self._due[key]
                key = next((key for key in self._woken if key not in self._busy), None)
                if key is not None:
                    del self._woken[key]
                    self._due.pop(key, None)
                    self._busy.add(key)
                    return key
                next_due = min(self._due.values(), default=None)
                self._changed.wait(None if next_due is None else max(0.0, next_due - now))
            return None
