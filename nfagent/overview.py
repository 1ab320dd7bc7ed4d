"""Keeps in memory what metrics and the list of faults show of the store, so that a stalled disk does not delay them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from nfagent.bulletin import Bulletin
from nfagent.faults import Overdue, overdue
from nfagent.model import View
from nfagent.store import Store, figures, instances
from nfagent.store.instances import Filter

_log = logging.getLogger(__name__)

_PERIOD_S = 1.0
_PATIENCE_S = 0.5
"""A store whose disk works has answered by then."""
_STOP_S = 2.0


@dataclass(frozen=True)
class Overview:
    """The state at a moment.

    Attributes:
        event: id of the newest event that it includes.
        statuses: number of instances by status.
        outcomes: number of migrations by outcome; ``none``: open.
        free_bytes: room on the store's disk.
    """

    event: int
    views: list[View]
    statuses: Mapping[str, int]
    outcomes: Mapping[str, int]
    free_bytes: int


class Overviews:
    """Reads the store on demand and every second, from `start` to `stop`; tells of overdue steps of migrations.

    Args:
        store: to read.
        bulletin: tells of overdue steps.
    """

    def __init__(self, store: Store, bulletin: Bulletin) -> None:
        self._store = store
        self._bulletin = bulletin
        self._also: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._asked = self._served = 0
        self._looking_since: float | None = None
        self._stopping = False
        self._told: set[tuple[int, str]] = set()  # epochs and steps of overdue migrations
        self._newest = self._read(None)
        self._thread = threading.Thread(target=self._run, name="read the overview", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def also(self, read: Callable[[], None]) -> None:
        """Call this, too, whenever the store is read."""
        self._also.append(read)

    def newest(self) -> Overview:
        """Return the state as of now or, while the disk stalls, the last that could be read."""
        if not self._thread.is_alive():
            self._look()
            return self._newest
        with self._changed:
            self._asked = ticket = self._asked + 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._served >= ticket or self._stopping, _PATIENCE_S)
            return self._newest

    @property
    def waiting_s(self) -> float:
        """Return for how long the disk has kept a change or this reading waiting; 0: nothing waits."""
        since = self._looking_since
        return max(self._store.waiting_s, 0.0 if since is None else time.monotonic() - since)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked > self._served or self._stopping, _PERIOD_S)
                if self._stopping:
                    return
                asked, self._looking_since = self._asked, time.monotonic()
            try:
                self._look()
            except Exception:  # noqa: BLE001  the next look may succeed
                _log.exception("cannot read the overview")
            with self._changed:
                self._served, self._looking_since = asked, None
                self._changed.notify_all()

    def _look(self) -> None:
        found = self._read(self._newest)
        for read in self._also:
            read()
        self._newest = found
        late = {(each.epoch, each.step): each for view in found.views for each in overdue(view, time.time())}
        for key in late.keys() - self._told:
            self._tell(late[key])
        self._told = set(late)

    def _read(self, before: Overview | None) -> Overview:
        newest = self._store.last_event  # before reading, so that nothing written meanwhile is missed
        if before is not None and before.event == newest:
            return replace(before, free_bytes=self._store.free_bytes)
        db = self._store.read
        return Overview(
            event=newest,
            views=instances.views(db, Filter()),
            statuses=figures.instances_by_status(db),
            outcomes=figures.migrations_by_outcome(db),
            free_bytes=self._store.free_bytes,
        )

    def _tell(self, late: Overdue) -> None:
        reason = f"step {late.step} is overdue; it waits for {late.waits_for}"
        payload = {"epoch": late.epoch, "instance": late.instance, "step": late.step, "waits_for": late.waits_for}
        self._bulletin.add("migration.overdue", str(late.epoch), payload | {"limit_s": late.limit_s, "reason": reason})
