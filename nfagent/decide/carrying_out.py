"""Carries out the moves of a decision: one at a time, in the order that keeps every limit on the way.

A move is a target in the desired state; the reconciler and the migrator do it. This module only requests it, follows
it, and withdraws it after a failure: later moves may depend on it, so the rest is abandoned.
"""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from nfagent.model import View
from nfagent.store import Store, instances, migrations

_BEGIN_S = 60.0

Result = Literal["done", "rolled-back", "failed", "superseded"]


@dataclass(frozen=True)
class InstanceMove:
    """A move of an instance, from location to location."""

    instance: str
    name: str
    source: str
    target: str


@dataclass
class _Ordered:
    step: InstanceMove
    at: float
    seen: int | None = None  # epoch of its migration


class CarryingOut:
    """One decision's moves.

    Args:
        store: where targets are written.
        decision: its id.
        steps: in order.
    """

    def __init__(self, store: Store, decision: int, steps: Iterable[InstanceMove]) -> None:
        self._store = store
        self.decision = decision
        self._left = deque(steps)
        self._ordered: _Ordered | None = None
        self.moves: list[dict[str, Any]] = []
        self.result: Result = "done"

    @property
    def is_over(self) -> bool:
        """Return whether all moves are done."""
        return self._ordered is None and not self._left

    def advance(self, down: frozenset[str]) -> None:
        """Check the current move; request the next one when it is done.

        Args:
            down: locations where nothing can be started.
        """
        while not self.is_over:
            if self._ordered is None and not self._order(self._left[0], down):
                continue
            if not self._follow():
                return

    def _order(self, step: InstanceMove, down: frozenset[str]) -> bool:
        at = time.time()
        with self._store.change() as change:
            view = instances.view(change.db, step.instance)
            hindrance = _hindrance(view, step, down)
            if hindrance is None:
                instances.aim(change, step.instance, step.target)
        self._left.popleft()
        if hindrance is not None:
            self._end(step, "superseded", hindrance, None)
            return False
        self._ordered = _Ordered(step, at)
        return True

    def _follow(self) -> bool:
        """Return whether the current move has ended."""
        ordered = self._ordered
        assert ordered is not None
        step = ordered.step
        view = instances.view(self._store.read, step.instance)
        if view is None or not view.instance.present:
            return self._end(step, "superseded", "it is being deleted", ordered.seen)
        if view.migration is not None:
            ordered.seen = view.migration.epoch
            return False
        running, instance = view.running, view.instance
        last = next(iter(migrations.page(self._store.read, step.instance, None, 1, None)), None)
        if last is not None and last.requested >= ordered.at:
            ordered.seen = last.epoch
            if last.ended is None:
                return False  # it began just now
        if instance.pin is not None:
            return self._end(step, "superseded", f"it was pinned to {instance.pin}", ordered.seen)
        ended = last if last is not None and last.epoch == ordered.seen else None
        there = running if running is not None and running.location == step.target else None
        # A failure after the arrival does not concern this decision.
        if there is not None and (there.phase == "active" or (ended is not None and ended.outcome == "done")):
            return self._end(step, "done", None, ordered.seen)
        if ended is not None and ended.outcome != "done":
            outcome: Result = "rolled-back" if ended.outcome == "rolled-back" else "failed"
            return self._take_back(step, outcome, ended.reason or f"the migration was {ended.outcome}", ended.epoch)
        if instance.target != step.target:
            return self._end(step, "superseded", f"it was wanted at {instance.target}", ordered.seen)
        if time.time() - ordered.at > _BEGIN_S:
            reason = f"it did not become active at {step.target} within {_BEGIN_S:g} s"
            return self._take_back(step, "failed", reason, None)
        return False

    def _take_back(self, step: InstanceMove, result: Result, reason: str, epoch: int | None) -> bool:
        with self._store.change() as change:
            view = instances.view(change.db, step.instance)
            if view is not None and view.instance.target == step.target and view.migration is None:
                instances.aim(change, step.instance, step.source)
        return self._end(step, result, reason, epoch)

    def _end(self, step: InstanceMove, result: Result, reason: str | None, epoch: int | None) -> bool:
        self._ordered = None
        move = {"instance": step.instance, "name": step.name, "source": step.source, "target": step.target}
        self.moves.append(move | {"outcome": result, "reason": reason, "epoch": epoch})
        if result != "done":
            self.result = result
            self.moves += [
                {"instance": each.instance, "name": each.name, "source": each.source, "target": each.target}
                | {"outcome": "superseded", "reason": "an earlier move was not done", "epoch": None}
                for each in self._left
            ]
            self._left.clear()
        return True


def _hindrance(view: View | None, step: InstanceMove, down: frozenset[str]) -> str | None:
    if view is None or not view.instance.present:
        return "it is being deleted"
    if view.instance.pin is not None:
        return f"it was pinned to {view.instance.pin}"
    if view.migration is not None:
        return "it is already moving"
    if view.running is None or view.running.phase != "active" or view.running.location != step.source:
        return f"it no longer runs at {step.source}"
    if step.target in down:
        return f"{step.target} is down"
    return None
