"""An order of moves in which every step is feasible.

A step is feasible if it makes no limit worse than allowed: a row may end above its limit only if it was above it
before, and must not rise. So from a feasible placement all intermediate placements are feasible; from an overloaded
one, none adds to the overload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.errors import MoveOrderError
from placement.formulate import Program
from placement.state import State, Tables

MAX_STATES = 20_000
MAX_DETOURS = 2


@dataclass(frozen=True)
class Move:
    """One step.

    Attributes:
        nf: the NF that moves.
        source: its location before.
        target: its location after.
        detour: whether the step is temporary (or not one of the planned moves), and only makes room.
    """

    nf: str
    source: int
    target: int
    detour: bool = False


def order_moves(program: Program, before: Sequence[int], after: Sequence[int]) -> tuple[Move, ...]:
    """Order the changes from one placement to another.

    Args:
        program: the equations; goals held as rows do not belong here.
        before: per NF its mode now; after a change of traffic this may break rows.
        after: per NF its final mode.

    Raises:
        MoveOrderError: no order was found, not even with up to two detours; names the stuck moves and what blocks them.
    """
    tables = Tables(program)
    for detours in range(MAX_DETOURS + 1):
        steps = _Search(tables, after).run(list(before), detours)
        if steps is not None:
            return steps
    state = State(tables, before)
    stuck = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    reasons = "; ".join(_blocked(program, state, i, after[i]) for i in stuck[:5])
    raise MoveOrderError(
        f"no order of the {len(stuck)} moves keeps every step feasible, even with {MAX_DETOURS} detours: {reasons}; "
        f"leave headroom (lower limits), or allow an interruption"
    )


def _blocked(program: Program, state: State, i: int, mode: int) -> str:
    rows = [f"{program.rows[r].name} ({used} of {program.rows[r].limit})" for r, used in state.blocked(i, mode)]
    return f"{program.names[i]} is blocked by {', '.join(rows) or 'later moves'}"


class _Search:
    """Depth-first search that visits each placement once, the step with most relief first."""

    def __init__(self, tables: Tables, after: Sequence[int]) -> None:
        self.tables = tables
        self.after = list(after)
        self.seen: set[tuple[int, ...]] = set()
        self.steps: list[Move] = []

    def run(self, before: list[int], detours: int) -> tuple[Move, ...] | None:
        self.state = State(self.tables, before)
        pending = {i for i, mode in enumerate(before) if mode != self.after[i]}
        return tuple(self.steps) if self._descend(pending, detours) else None

    def _descend(self, pending: set[int], detours: int) -> bool:
        """Do all pending moves; a loop, because long plans would need deep recursion."""
        stack = [iter(self._choices(pending, detours))]
        done: list[tuple[int, int, int]] = []
        left = detours
        if not pending:
            return True
        while stack:
            choice = next(stack[-1], None)
            if choice is None:
                stack.pop()
                if done:
                    i, before, spent = done.pop()
                    self.state.put(i, before)
                    self.steps.pop()
                    left += spent
                    self._mark(pending, i)
                continue
            i, mode, spent = choice
            if spent > left or self.state.blocked(i, mode):
                continue
            before = self.state.modes[i]
            self.state.put(i, mode)
            key = (*self.state.modes, left - spent)
            if key in self.seen or len(self.seen) > MAX_STATES:
                self.state.put(i, before)
                continue
            self.seen.add(key)
            self._step(i, before, mode, spent)
            left -= spent
            done.append((i, before, spent))
            self._mark(pending, i)
            if not pending:
                return True
            stack.append(iter(self._choices(pending, left)))
        return False

    def _mark(self, pending: set[int], i: int) -> None:
        """Keep in ``pending`` exactly the NFs that are not yet at their target."""
        if self.state.modes[i] == self.after[i]:
            pending.discard(i)
        else:
            pending.add(i)

    def _step(self, i: int, before: int, mode: int, spent: int) -> None:
        sites = self.tables.program.sites[i]
        self.steps.append(Move(self.tables.program.names[i], sites[before], sites[mode], bool(spent)))

    def _choices(self, pending: set[int], detours: int) -> list[tuple[int, int, int]]:
        direct = [(i, self.after[i], 0) for i in pending if not self.state.blocked(i, self.after[i])]
        direct.sort(key=lambda choice: (self._strain(choice[0], choice[1]), choice[0]))
        if not detours:
            return direct
        sites = self.tables.program.sites
        others = sorted(range(len(sites)), key=lambda i: (i not in pending, i))
        around = [
            (i, m, 1) for i in others for m in range(len(sites[i])) if m not in (self.after[i], self.state.modes[i])
        ]
        return direct + around

    def _strain(self, i: int, mode: int) -> float:
        """Return the share of the tightest rows that a step takes; negative if it frees room."""
        rows = self.tables.program.rows
        return sum(
            amount / (1 + max(rows[r].limit - self.state.use[r], 0))
            for r, amount in self.state.delta(i, mode).items()
            if r < len(rows)
        )
