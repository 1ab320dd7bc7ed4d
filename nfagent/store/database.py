"""The database under the store: opened by one agent, upgraded, written in transactions that append events."""

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from nfagent.errors import DiskFullError, StoreError
from server import tracing

_BUSY_MS = 10_000
_KEPT_EVENTS = 100_000
_PRUNE_EVERY = 1_000


_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
"""SQLite's errors for a full disk; the second comes where its log grows."""

Outlives = Literal["machine", "process"]


class Change:
    """An open transaction; created by `Store.change`.

    Attributes:
        db: the connection, for the modules beside this one.
        last_event: the id of its newest event; 0: it has none.
        newest: the same for each type of event.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.last_event = 0
        self.newest: dict[str, int] = {}

    def event(
        self, kind: str, subject: str, project: str | None, payload: dict[str, Any], *, at: float | None = None
    ) -> None:
        """Append an event; see `nfagent.model.Event`. It names its trace, which what follows joins.

        Args:
            kind: its type.
            subject: the thing that it is about.
            project: whose clients may see it.
            payload: its data.
            at: when it happened; None: now.
        """
        if (span := tracing.current()) is not None:
            payload = payload | {"traceparent": span.traceparent}
        row = (time.time() if at is None else at, kind, subject, project, json.dumps(payload))
        cursor = self.db.execute(
            "INSERT INTO event (time, type, subject, project, payload) VALUES (?, ?, ?, ?, ?)", row
        )
        self.last_event = self.newest[kind] = cursor.lastrowid or 0


class Store:
    """The state of an agent on disk.

    A transaction's changes are on disk when `change` returns, and survive a power cut
    (``synchronous=FULL``): only then may clients be told that they were accepted. A caller may ask for less.

    Thread safety: any thread may call anything. Writers take turns; readers see the last whole transaction.

    Args:
        directory: created if missing. One agent at a time.

    Raises:
        StoreError: another agent uses it, a newer version wrote it, or it cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "nfagent.db"
        self._local = threading.local()
        self._connections: dict[threading.Thread, sqlite3.Connection] = {}
        self._connecting = threading.Lock()
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        # By type, since the store was opened; the types of events up to `_first_event` are not known.
        self._newest: dict[str, int] = {}
        self._ending = False
        self._waiting_since: float | None = None
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(directory / "nfagent.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"cannot create the store {directory}: {error.strerror}") from error
        try:
            self._take(directory)
            _upgrade(self.read, self._path)
            self._last_event = self._first_event = _last_event(self.read)
        except BaseException:
            self.close()
            raise

    def _take(self, directory: Path) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"the store {directory} is in use by another nfagent; stop that one first") from None

    def close(self) -> None:
        """Close it, so that another agent can use it. No other method may follow."""
        self.end_waits()
        with self._connecting:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def end_waits(self) -> None:
        """End all present and future waits for events, because the store is about to be closed."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    @property
    def read(self) -> sqlite3.Connection:
        """Return this thread's connection, for reading."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = _connect(self._path)
            self._local.connection = connection
            with self._connecting:
                ended = [thread for thread in self._connections if not thread.is_alive()]
                for thread in ended:
                    self._connections.pop(thread).close()
                self._connections[threading.current_thread()] = connection
        return connection

    @contextlib.contextmanager
    def change(self, *, outlives: Outlives = "machine") -> Iterator[Change]:
        """Open a transaction: all of it is on disk at the end of the block, or nothing if the block raises.

        Args:
            outlives: what the changes must survive. If only a ``process``, nothing waits for the disk; the next
                transaction syncs both.

        Raises:
            StoreError: it changed something without appending an event.
            DiskFullError: the disk has no room.
        """
        with self._writing, self._timed(), self._synchronous(outlives) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                before = db.total_changes
                change = Change(db)
                yield change
                if db.total_changes != before and not change.last_event:
                    raise StoreError("the store was changed without an event")
                if change.last_event // _PRUNE_EVERY > self._last_event // _PRUNE_EVERY:
                    db.execute("DELETE FROM event WHERE id <= ?", (change.last_event - _KEPT_EVENTS,))
                db.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error) and error.sqlite_errorcode in _NO_ROOM:
                    raise DiskFullError(
                        f"the disk of {self._path} is full, so nothing was changed; free some space"
                    ) from error
                raise
            _mark_for_readers(db)
        if change.last_event:
            with self._changed:
                self._last_event = max(self._last_event, change.last_event)
                self._newest |= change.newest
                self._changed.notify_all()

    @contextlib.contextmanager
    def _synchronous(self, outlives: Outlives) -> Iterator[sqlite3.Connection]:
        db = self.read
        if outlives == "machine":
            yield db
            return
        db.execute("PRAGMA synchronous = NORMAL")
        try:
            yield db
        finally:
            db.execute("PRAGMA synchronous = FULL")

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        self._waiting_since = time.monotonic()
        try:
            yield
        finally:
            self._waiting_since = None

    @property
    def waiting_s(self) -> float:
        """Return for how long the present transaction has taken, which the disk decides; 0: there is none."""
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def free_bytes(self) -> int:
        """Return the room on the store's disk."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def checkpoint(self) -> None:
        """Checkpoint the write-ahead log, so that the next transaction does not have to."""
        with self._writing, self._timed():
            self.read.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    @property
    def last_event(self) -> int:
        """Return the id of the newest event; 0 if there is none yet."""
        return self._last_event

    def wait(self, after: int, timeout_s: float, kinds: tuple[str, ...] = ("",)) -> bool:
        """Wait for an event newer than ``after`` (return True), for the time limit, or for the store's end.

        Args:
            after: an id.
            timeout_s: the limit.
            kinds: prefixes of the types that matter. A thread that names them is not woken by others: each wake-up
                takes a core from packets that wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._has_newer(after, kinds), timeout_s)
            return self._has_newer(after, kinds)

    def _has_newer(self, after: int, kinds: tuple[str, ...]) -> bool:
        known = self._newest.items()
        return self._first_event > after or any(newest > after and kind.startswith(kinds) for kind, newest in known)

    @property
    def is_ending(self) -> bool:
        """Return whether it is closed, or about to be."""
        return self._ending


def _connect(path: Path) -> sqlite3.Connection:
    try:
        # Closed by whichever thread closes the store, hence no check; in use it stays with its thread.
        connection = sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from error
    return connection


def _mark_for_readers(db: sqlite3.Connection) -> None:
    """Read the new transaction, so that later readers do not have to write.

    Its first reader writes a read mark into the write-ahead log's index, a mapped file; on a stalled disk that write
    blocks (SQLite's walTryBeginRead). Later readers reuse the mark.
    """
    with contextlib.suppress(sqlite3.Error):  # the transaction is on disk
        db.execute("SELECT 1 FROM event LIMIT 0")


def _upgrade(db: sqlite3.Connection, path: Path) -> None:
    """Run the ``upgrades/NNNN_*.sql`` that this database lacks, each in a transaction of its own."""
    found = resources.files("nfagent.store").joinpath("upgrades").iterdir()
    scripts = sorted((each for each in found if each.name.endswith(".sql")), key=lambda each: each.name)
    version = db.execute("PRAGMA user_version").fetchone()[0]
    newest = int(scripts[-1].name[:4])
    if version > newest:
        raise StoreError(f"{path} has version {version}; this nfagent supports up to {newest}: use a newer nfagent")
    for script in scripts:
        number = int(script.name[:4])
        if number > version:
            db.executescript(f"BEGIN IMMEDIATE;\n{script.read_text()}\nPRAGMA user_version = {number};\nCOMMIT;")


def _last_event(db: sqlite3.Connection) -> int:
    # Not MAX(id): the newest may have been pruned, and ids are never reused.
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
    return row[0] if row else 0
