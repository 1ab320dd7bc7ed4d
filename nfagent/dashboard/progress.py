"""Migrations: progress of the current ones, and outcomes of the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nfagent.dashboard import figures
from nfagent.dashboard.snapshot import Snapshot
from nfagent.model import Migration

STEPS = ("prepare", "precopy", "freeze", "COMMIT", "flip", "drain", "handover", "done")
"""Steps of a migration with state (docs/nfagent.md)."""
_RESTART_STEPS = ("restart", "done")
_PARTS = {
    **dict.fromkeys(("start", "rules", "await-rules", "try-way"), "prepare"),
    "settle": "COMMIT",
    "quiesce": "flip",
}
"""Steps that a report distinguishes but the page merges."""

_LONG_US = 100_000

StepState = Literal["done", "now", "next", "skipped", "undone"]


@dataclass(frozen=True)
class ProgressStep:
    """A step.

    Attributes:
        state: ``undone``: the migration was rolled back from here.
        at: time of day of its start; None: not started, or not reported.
        took: its duration; None as with ``at``, or not over yet.
    """

    name: str
    state: StepState
    at: str | None
    took: str | None


@dataclass(frozen=True)
class MigrationProgress:
    """A migration with its steps; ``outcome`` None: not ended."""

    epoch: int
    name: str
    source: str
    target: str
    how: str
    requested: str
    outcome: str | None
    steps: tuple[ProgressStep, ...]


@dataclass(frozen=True)
class Past:
    """An ended migration; None: not reported.

    Attributes:
        outage: time without service; ``long``: longer than a hand-over takes.
        lost: the lost state; ``none`` if known that none was lost.
    """

    epoch: int
    name: str
    source: str
    target: str
    how: str
    outcome: str
    reason: str | None
    ended: str
    stamp: str
    took: str | None
    outage: str | None
    long: bool
    state: str | None
    lost: str | None
    loses: bool


def shown(known: Snapshot) -> tuple[MigrationProgress, ...]:
    """Return open migrations, the oldest first; without any, the last one: most end before anyone looks."""
    under_way = [move for move in reversed(known.moves) if move.ended is None]
    return tuple(_move(known, move) for move in under_way or known.moves[:1])


def past(known: Snapshot) -> tuple[Past, ...]:
    """Return ended migrations, newest first."""
    return tuple(_past(known, move, move.ended) for move in known.moves if move.ended is not None)


def _move(known: Snapshot, move: Migration) -> MigrationProgress:
    return MigrationProgress(
        epoch=move.epoch,
        name=_name(known, move),
        source=move.source,
        target=move.target,
        how=_how(move),
        requested=figures.clock(move.requested, known.at),
        outcome=move.outcome,
        steps=_steps(known, move),
    )


def _steps(known: Snapshot, move: Migration) -> tuple[ProgressStep, ...]:
    begun, took = _times(move, known.steps.get(move.epoch, {}))
    order = STEPS if move.mode == "state" else _RESTART_STEPS
    # Show unknown steps, such as those after a crash, at the end.
    order += tuple(name for name in begun if name not in order)
    here = str(move.report.get("rolled_back_at") or move.step)
    reached = order.index(here) if here in order else -1
    if move.outcome == "done":
        reached = len(order)
    steps = []
    for place, name in enumerate(order):
        state: StepState = "done" if name in begun or name == "done" else "skipped"
        if place == reached:
            state = "now" if move.ended is None else "undone"
        elif place > reached:
            state = "next" if move.ended is None else "skipped"
        at, seconds = begun.get(name), took.get(name)
        length = figures.duration(seconds) if seconds is not None and state != "now" else None
        steps.append(ProgressStep(name, state, figures.clock(at, known.at) if at else None, length))
    return tuple(steps)


def _times(move: Migration, written: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the start of each step, and its seconds, as far as the journal and the report contain them."""
    begun, took = {name: at for name, at in written.items() if name != "requested"}, dict[str, float]()
    for part in move.report.get("steps") or ():
        name = str(part["step"])
        if name == "hold":  # part of the following step: the new process learns the source of the state
            name = "precopy" if move.report.get("mode") == "copy" else "prepare"
        name = _PARTS.get(name, name)
        begun.setdefault(name, float(part["at"]))
        took[name] = took.get(name, 0.0) + float(part["us"]) / 1e6
    return begun, took


def _past(known: Snapshot, move: Migration, ended: float) -> Past:
    report = move.report
    outage, state = _whole(report, "outage_us"), _whole(report, "state_bytes")
    if outage is None:
        outage = _whole(report, "freeze_us")
    lost = _lost(report)
    return Past(
        epoch=move.epoch,
        name=_name(known, move),
        source=move.source,
        target=move.target,
        how=_how(move),
        outcome=move.outcome or "unknown",
        reason=move.reason,
        ended=figures.clock(ended, known.at),
        stamp=figures.stamp(ended),
        took=figures.duration(ended - move.started) if move.started else None,
        outage=None if outage is None else figures.duration(outage / 1e6),
        long=outage is not None and outage > _LONG_US,
        state=None if state is None else figures.size(state),
        lost=lost,
        loses=lost not in (None, "none"),
    )


def _lost(report: Mapping[str, Any]) -> str | None:
    if "lost_state" not in report:
        return "all state: restarted" if report.get("restarted") else None
    lost = report["lost_state"]
    if lost is None:
        return "none"
    flows = lost.get("flows")
    what = "state" if flows is None else f"{figures.count(int(flows))} flows"
    return f"{what}: {lost.get('why') or 'for an unknown reason'}"


def _whole(report: Mapping[str, Any], key: str) -> int | None:
    found = report.get(key)
    return int(found) if isinstance(found, int | float) else None


def _how(move: Migration) -> str:
    return str(move.report.get("mode") or ("with its state" if move.mode == "state" else "restart"))


def _name(known: Snapshot, move: Migration) -> str:
    return known.names.get(move.instance, move.instance[:8])
