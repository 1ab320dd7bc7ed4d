"""A migration's journal: its steps, and the report that grows with them."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from nfagent.model import Migration, Outcome
from nfagent.store import Change, Outlives, Store, migrations
from server import tracing

COMMIT = "COMMIT"
COMMITTED = (COMMIT, "flip", "drain", "done")
"""Steps after COMMIT, which cannot be rolled back."""

Measure = Callable[[float], float]
"""Returns the time without service so far, given the time that the agent observed."""


@dataclass
class Report:
    """`Migration.report`.

    Attributes:
        mode: ``memfd``: the state's memory was handed over; ``copy``: its content was copied.
        freeze_us: time in which no instance processed packets, which waited in rings.
        outage_us: time in which no packet was served between start and end, in pauses longer than those of the traffic
            itself; at least the freeze, if that is too short to be distinguished from these.
        relayed: packets that arrived by the old path after that, and were processed at the new instance.
        state_bytes: size of the memory that was handed over, or of all data that was sent.
        rounds: rounds of copying while packets were processed.
        step_at: since when it is in its current step, or is rolled back (seconds since 1970).
        rate_mbps: limit for copying; None: unlimited.
        steps: actions with their start (seconds since 1970) and duration.
        flows: number of flows of the state; None: the kind does not report it.
        lost_state: None: no state was lost; else ``why``, ``flows``, ``instances``.
        rolled_back_at: step from which it was rolled back.
        rolled_back_as: outcome of the rollback; None: ``rolled-back``.
        replaced: the new process died after COMMIT and another one replaced it.
        restart_at: where a process continues with the remaining state, because both processes are lost.
        failures: failures to start a process in place of one that had the state.
        why: reason for the rollback or restart.
        waits: what it waits for, if the last attempt was blocked.
        undrained: why packets in flight on the old paths may be lost.
    """

    mode: Literal["memfd", "copy"] | None = None
    freeze_us: int | None = None
    outage_us: int | None = None
    relayed: int | None = None
    state_bytes: int | None = None
    rounds: int = 0
    step_at: float | None = None
    rate_mbps: int | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    flows: int | None = None
    lost_state: dict[str, Any] | None = None
    rolled_back_at: str | None = None
    rolled_back_as: Outcome | None = None
    replaced: bool = False
    restart_at: str | None = None
    failures: int = 0
    why: str | None = None
    waits: str | None = None
    undrained: str | None = None


class Journal:
    """One migration's row.

    Args:
        store: the store.
        migration: its row.
        outage_s: measures the outage.
    """

    def __init__(
        self, store: Store, migration: Migration, outage_s: Callable[[float], float] = lambda freeze_s: freeze_s
    ) -> None:
        self._store = store
        self._outage_s = outage_s
        self.migration = migration
        known = {name: value for name, value in migration.report.items() if name in Report.__dataclass_fields__}
        self.report = Report(**known)

    @property
    def epoch(self) -> int:
        """The migration's number."""
        return self.migration.epoch

    @property
    def secret(self) -> str:
        """Return the secret shared by the two processes and the agent."""
        return migrations.secret(self._store.read, self.epoch)

    @property
    def is_committed(self) -> bool:
        """Return whether the migration can no longer be rolled back."""
        return self.migration.step in COMMITTED

    def step(self, name: str, outlives: Outlives = "machine") -> None:
        """Journal a step before it starts; on disk when this returns, as far as `Store.change` promises."""
        if name != self.migration.step:
            self.report.step_at = round(time.time(), 3)
        with self._store.change(outlives=outlives) as change:
            self.migration = migrations.step(change, self.migration, name, self._told())

    def reach(self, name: str) -> None:
        """Journal a step unless a later step after COMMIT is already journalled.

        Nothing waits for the disk: after a power cut all steps after COMMIT are repeated.
        """
        if COMMITTED.index(name) > COMMITTED.index(self.migration.step):
            self.step(name, outlives="process")

    def note(self) -> None:
        """Write the current report."""
        self.measure()
        self.step(self.migration.step)

    def look(self) -> None:
        """Read the row again, because after a failed write its content is unknown."""
        found = migrations.find(self._store.read, self.epoch)
        if found is not None:
            self.migration = found

    @contextlib.contextmanager
    def timed(self, effect: str) -> Iterator[None]:
        """Record start and duration of an action; of several tries, the last one."""
        at, start = time.time(), time.monotonic()
        try:
            with tracing.step(effect):
                yield
        finally:
            took = round((time.monotonic() - start) * 1e6)
            # Otherwise a row that waits for days for a switch would grow, and with it every event.
            others = [each for each in self.report.steps if each["step"] != effect]
            self.report.steps = [*others, {"step": effect, "at": round(at, 6), "us": took}]

    def end(self, change: Change, outcome: Outcome, reason: str | None) -> None:
        """Record the outcome, after `measure`."""
        self.migration = migrations.end(change, self.migration, outcome, reason, self._told())

    def measure(self) -> None:
        """Measure the outage so far.

        Not at every step, because it queries processes while packets may wait; nor in a transaction, because it
        queries oneswitchd, which may not answer for seconds.
        """
        self.report.outage_us = round(self._outage_s((self.report.freeze_us or 0) / 1e6) * 1e6)

    def _told(self) -> dict[str, Any]:
        return dict(vars(self.report))  # not `asdict`, which makes deep copies while packets wait
