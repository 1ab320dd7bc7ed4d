"""Faults of network functions that may need a person: for REST, the dashboard and unoctl doctor."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from nfagent.budgets import budget
from nfagent.model import Migration, Running, View

Gravity = Literal["critical", "warning"]

_FULL_BYTES, _NARROW_BYTES = 1 << 20, 64 << 20
"""Room on the store's disk. A change takes some KiB, and the log of changes up to a few MiB."""

STALLED_S = 2.0
"""The time after which a disk that takes no change counts as stalled; most take one in milliseconds."""

_LONG_S = 60.0
"""Seconds after which a function without a process is a fault; most take less than one to start."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        gravity: ``critical``: a function does not serve; ``warning``: something about it is blocked.
        instance: id.
        since: seconds since 1970.
        text: the fault, and what it waits for.
    """

    gravity: Gravity
    instance: str
    name: str
    project: str
    since: float
    text: str


@dataclass(frozen=True)
class Overdue:
    """A migration's step that takes longer than it may.

    Attributes:
        since: when the step began (seconds since 1970).
        limit_s: how long it may take.
        holds: whether packets wait meanwhile.
    """

    epoch: int
    instance: str
    step: str
    since: float
    limit_s: float
    waits_for: str
    holds: bool


def faults(views: Iterable[View], now: float | None = None) -> list[Fault]:
    """Return the faults of all instances, those that do not serve first."""
    at = time.time() if now is None else now
    found = [fault for view in views for fault in _of(view, at)]
    return sorted(found, key=lambda fault: (fault.gravity, fault.since))


def disk_fault(free_bytes: int, waiting_s: float = 0.0) -> tuple[Gravity, str] | None:
    """Return what is wrong with the store's disk: how grave it is, and a sentence; None: nothing.

    Args:
        free_bytes: room.
        waiting_s: for how long a change has been waiting for the disk.
    """
    if waiting_s > STALLED_S:
        said = f"the disk of nfagent's store has not taken a change for {waiting_s:.0f} s: requests that change"
        return "critical", f"{said} something wait, and nothing can be started or moved; see the kernel's log"
    if free_bytes >= _NARROW_BYTES:
        return None
    left = f"the disk of nfagent's store has {free_bytes / 1e6:.1f} MB left"
    if free_bytes < _FULL_BYTES:
        return "critical", f"{left}: requests are refused, and nothing can be started or moved; free some space"
    return "warning", f"{left}; without any, requests are refused; free some space"


def _of(view: View, now: float) -> Iterator[Fault]:
    running, migration = view.running, view.migration
    if running is None and view.instance.present and now - view.instance.created > _LONG_S:
        yield _fault("warning", view, view.instance.created, "it does not run")
    if running is not None and (running.silent is not None or running.phase == "error"):
        yield _fault("critical", view, running.silent or running.since, running.reason or "it is not running")
    elif running is not None and running.reason is not None:
        yield _fault("warning", view, running.since, _beside(view, running))
    if migration is not None:
        yield from _of_migration(view, migration, now)


def _beside(view: View, running: Running) -> str:
    if not view.instance.present:
        return f"its deletion waits: {running.reason}"
    return f"it runs, but {running.reason}" if running.phase == "active" else f"it does not serve yet: {running.reason}"


def _of_migration(view: View, migration: Migration, now: float) -> Iterator[Fault]:
    move = f"its migration {migration.epoch} from {migration.source} to {migration.target}"
    waits, since = migration.report.get("waits"), migration.started or migration.requested
    if waits:
        yield _fault("critical", view, since, f"{move} waits in step {migration.step}: {waits}")
        return
    for late in overdue(view, now):
        back = "its rollback from " if migration.report.get("rolled_back_at") else ""
        text = f"{move} is overdue in {back}step {late.step}: {now - late.since:.0f} s of {late.limit_s:.0f} s;"
        gravity: Gravity = "critical" if late.holds else "warning"
        yield _fault(gravity, view, late.since, f"{text} it waits for {late.waits_for}")


def overdue(view: View, now: float) -> Iterator[Overdue]:
    """Yield the step of an instance's migration, if it is overdue and was not blocked."""
    migration = view.migration
    if migration is None or migration.ended is not None or migration.report.get("waits"):
        return
    begun = migration.report.get("step_at") or migration.started or migration.requested
    allowed = budget(migration.step, migration.report)
    if now - begun > allowed.limit_s:
        waits_for = allowed.waits_for.format(source=migration.source, target=migration.target)
        yield Overdue(
            migration.epoch, view.instance.id, migration.step, begun, allowed.limit_s, waits_for, allowed.holds
        )


def _fault(gravity: Gravity, view: View, since: float, text: str) -> Fault:
    return Fault(gravity, view.instance.id, view.instance.name, view.instance.project, since, text)
