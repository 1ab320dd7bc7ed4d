"""The part of ``/metrics`` about migrations and decisions since the agent started, read from their events."""

import threading
from collections import Counter
from typing import Any

from nfagent.api.exposition import family, labels
from nfagent.api.histogram import WIDE_S, Histogram
from nfagent.model import Event
from nfagent.store import Store, events

_BATCH = 1000
_TYPES = ("migration.ended", "placement.decided", "placement.ended", "placement.infeasible")


class History:
    """Counts what happened.

    Args:
        store: of events; those that it has now are not counted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = store.last_event
        self._lock = threading.Lock()
        self._steps = Histogram("migration_step_duration_seconds", "Seconds of each step of migrations.", WIDE_S)
        self._whole = Histogram("migration_duration_seconds", "Seconds of migrations, by outcome.", WIDE_S)
        self._outages = Histogram("migration_outage_seconds", "Seconds without service, per migration.", WIDE_S)
        self._counts: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()

    def text(self) -> str:
        """Format what was read."""
        with self._lock:
            return (
                self._steps.text()
                + self._whole.text()
                + self._outages.text()
                + family("decisions", "counter", "Decisions of the optimiser.", {"": self._counts["decided"]})
                + family("decision_moves", "counter", "Moves that it decided.", {"": self._counts["moves"]})
                + family("decisions_infeasible", "counter", "Times when no placement satisfied all limits.",
                         {"": self._counts["infeasible"]})
                + family("decisions_ended", "counter", "Ended decisions by outcome.",
                         {labels(outcome=outcome): count for outcome, count in sorted(self._outcomes.items())})
            )  # fmt: skip

    def read(self) -> None:
        """Read up to the newest event; one thread at a time may."""
        newest = self._store.last_event
        while self._seen < newest:
            batch = events.of_types(self._store.read, _TYPES, self._seen, newest, _BATCH)
            with self._lock:  # not while the disk is asked
                for event in batch:
                    self._count(event)
            self._seen = batch[-1].id if len(batch) == _BATCH else newest

    def _count(self, event: Event) -> None:
        match event.type:
            case "migration.ended":
                self._ended(event.payload)
            case "placement.decided":
                self._counts.update(decided=1, moves=len(event.payload.get("moves") or ()))
            case "placement.ended":
                self._outcomes[str(event.payload.get("outcome"))] += 1
            case _:
                self._counts["infeasible"] += 1

    def _ended(self, payload: dict[str, Any]) -> None:
        report = payload.get("report") or {}
        if payload.get("started"):
            self._whole.observe(payload["ended"] - payload["started"], outcome=str(payload["outcome"]))
        for step in report.get("steps") or ():
            self._steps.observe(float(step["us"]) / 1e6, step=str(step["step"]))
        outage = report.get("outage_us", report.get("freeze_us"))
        if isinstance(outage, int | float):
            self._outages.observe(outage / 1e6)
