"""Reports the state of the server's parts: to callers at once, and by events as soon as the disk takes them.

A full or stalled disk delays the events only: a thread of its own writes them from memory.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from nfagent.errors import DiskFullError
from nfagent.model import Event
from nfagent.store import Store, events

_log = logging.getLogger(__name__)

_PATIENCE_S = 0.2
"""A disk that works has taken an event by then."""
_RETRY_S = 0.5
_STOP_S = 2.0
_MOST = 1000
"""Events that wait for the disk; the oldest are dropped, which the log says."""


class Bulletin:
    """The newest event of each part, written from `start` to `stop`; before `start`, the teller writes it itself.

    Thread safety: any thread may call any method.

    Args:
        store: for the events.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._newest: dict[tuple[str, str], Event | None] = {}  # by first word of the type, and subject
        self._waiting: deque[Event] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="write reports", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write the waiting events, if the disk takes them, and stop."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def newest(self, room: str, subject: str) -> Event | None:
        """Return the newest event about a part, written or not; None: none yet.

        Args:
            room: first word of the event's type, such as ``location``.
            subject: the part.
        """
        with self._changed:
            if (room, subject) in self._newest:
                return self._newest[room, subject]
        found = next(iter(events.newest(self._store.read, 1, subject, f"{room}.")), None)
        with self._changed:
            return self._newest.setdefault((room, subject), found)

    def down(self, room: str, subjects: Iterable[str]) -> list[Event]:
        """Return the newest events of the parts that are down."""
        found = (self.newest(room, subject) for subject in subjects)
        return [each for each in found if each is not None and each.type == f"{room}.down"]

    def tell(self, kind: str, subject: str, payload: dict[str, Any]) -> bool:
        """Tell of a part, unless its newest event has this type; return whether the disk has taken the newest one."""
        before = self.newest(kind.partition(".")[0], subject)
        if before is None or before.type != kind:
            before = self._add(kind, subject, payload)
        return self._is_written(before)

    def add(self, kind: str, subject: str, payload: dict[str, Any]) -> None:
        """Tell of something that happened once."""
        self._is_written(self._add(kind, subject, payload))

    def _add(self, kind: str, subject: str, payload: dict[str, Any]) -> Event:
        event = Event(0, time.time(), kind, subject, None, payload)
        _log.warning("%s: %s: %s", kind, subject, payload.get("reason"))
        with self._changed:
            self._newest[kind.partition(".")[0], subject] = event
            self._waiting.append(event)
            if len(self._waiting) > _MOST:
                dropped = self._waiting.popleft()
                _log.error("%s: %s: the disk has taken no event for too long: this one is lost", dropped.type, subject)
            self._changed.notify_all()
        return event

    def _is_written(self, event: Event) -> bool:
        if not self._thread.is_alive() and not self._stopping:
            self._write()
        with self._changed:
            return self._changed.wait_for(lambda: not any(each is event for each in self._waiting), _PATIENCE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return
            try:
                self._write()
            except Exception:  # noqa: BLE001  later events must still be written
                _log.exception("cannot write events")
            with self._changed:
                if self._waiting and self._stopping:
                    _log.error("%d events were not written: the disk takes none", len(self._waiting))
                    return
                self._changed.wait_for(lambda: self._stopping, _RETRY_S if self._waiting else 0.0)

    def _write(self) -> None:
        """Write the waiting events until the disk is full."""
        while True:
            with self._changed:
                if not self._waiting:
                    return
                event = self._waiting[0]
            try:
                with self._store.change() as change:
                    change.event(event.type, event.subject, None, event.payload, at=event.time)
            except DiskFullError:
                return
            with self._changed:
                if self._waiting and self._waiting[0] is event:
                    self._waiting.popleft()
                self._changed.notify_all()
