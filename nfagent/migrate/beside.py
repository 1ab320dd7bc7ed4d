"""The thread beside the end of a migration, which does nothing unless that takes longer than usual."""

import contextlib
import contextvars
import logging
import sqlite3
import threading
import time
from typing import Self

from nfagent.errors import AgentError, ControlRefusedError
from nfagent.migrate.move import RunningMigration
from nfagent.migrate.switching import unused_number

_log = logging.getLogger(__name__)

_FLIP_S = 0.02  # usually enough for a flip
_SOON_S = 0.003  # usually enough for what follows a flip, and for a drain
_MARKER_MS = 50  # packets wait while a marker is lost
_FAILURES = (AgentError, sqlite3.Error)


class Beside:
    """Releases held packets during a long flip, and journals a long drain.

    Packets wait meanwhile. So the thread starts beforehand, and the caller does not wait for it unless it is at work.

    Args:
        move: the migration; during a long flip, no other thread uses the connections to its processes.
    """

    def __init__(self, move: RunningMigration) -> None:
        self._move = move
        self._due = time.monotonic() + _FLIP_S
        self._letting_go, self._let_go = threading.Lock(), threading.Event()
        self._quiet, self._ended = threading.Event(), threading.Event()
        self._drains = False
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(self._run,), name="beside")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def note_flipped(self) -> None:
        """Allow the switches only the time that they usually take until they use the new paths."""
        self._due = min(self._due, time.monotonic() + _SOON_S)

    def note_quiet(self) -> None:
        """Leave the connections to the caller: no switch uses the old paths, and the drain begins."""
        self._drains = True
        self._quiet.set()
        if not self._letting_go.acquire(blocking=False):
            self._let_go.wait()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self._quiet.set()
        self._thread.join()
        if self._drains:
            # The error that ended the drain says more.
            with contextlib.suppress(*() if kind is None else _FAILURES):
                self._move.journal.reach("drain")

    def _run(self) -> None:
        if self._is_late() and self._letting_go.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._let_go.set()
            self._quiet.wait()
        # Somebody may want to know what packets wait for.
        if self._drains and not self._ended.wait(_SOON_S):
            with contextlib.suppress(*_FAILURES):  # repeated at the end
                self._move.journal.reach("drain")

    def _is_late(self) -> bool:
        while time.monotonic() < self._due:
            # Looks again, since being told of the flip would delay the thread that tells.
            if self._quiet.wait(_SOON_S):
                return False
        return True

    def _release(self) -> None:
        try:
            self._release_in_turn()
        except (*_FAILURES, OSError) as error:
            name = self._move.instance.name
            _log.info("packets that %s holds wait until no old path is in use: %s", name, error)
            self._move.end_marking()

    def _release_in_turn(self) -> None:
        """Release held packets that nothing older can follow, until no switch uses an old path.

        A held packet arrived by the new path, so older packets of its flow had left the same switch before, by the old
        one. Markers sent after the process has noted what it holds arrive behind all of these: once everything that the
        old process relayed until then is processed, the held packets can be.
        """
        new, old = self._move.need("incoming"), self._move.peer("serving")
        if old is None:
            return
        marking, fence, first = self._move.marking(), unused_number(), unused_number()
        new.ask("release", fence=fence)
        while not self._quiet.is_set():
            paths = marking.send(first)
            try:
                relayed = old.ask("relayed", first=first, paths=paths, timeout_ms=_MARKER_MS)["relayed"]
            except ControlRefusedError as error:
                if error.code != "timeout":
                    raise
                # A marker was lost: repeat, with the same fence, and other numbers, since their paths may be others.
            else:
                new.ask("release", fence=fence + 1, reached=fence, relayed=relayed)
                fence += 1
            first += paths
