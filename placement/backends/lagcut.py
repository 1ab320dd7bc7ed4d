"""The project's own kernel: a Lagrangian bound, then an enumeration of what the bound leaves open.

``lagcut`` is native code (``placement/lagcut``); with one sNIC it finds its own multipliers by minimum cuts, with
several it takes them from HiGHS's linear relaxation. ``lagcut-python`` is the same search in plain Python: its
specification, and a choice for platforms without the native module. Neither silently replaces the other.
"""

from __future__ import annotations

import time
from types import ModuleType

from placement.backends.base import Answer, Status, accept
from placement.backends.highs import relaxation, trivial
from placement.errors import BackendError
from placement.formulate import Form, Program
from placement.labels import Dual, Losses, TooManyLabelsError, good_order, open_placements
from placement.proof import Close, ProofStep, Split, Walk

MAX_LABELS = 600_000
"""Partial placements that the native search may keep at a time (some 100 bytes each)."""
TWIN_MAX_LABELS = 20_000


_Raw = tuple[str, tuple[list[int], list[int]] | None, list[tuple[int, int]], list[int]]
"""A step as the native module returns it: its kind, multipliers, NFs and modes, order."""


def native() -> ModuleType:
    """Return the native module.

    Raises:
        BackendError: it was not built.
    """
    try:
        from placement import _lagcut
    except ImportError as error:
        raise BackendError(
            f"the native module placement._lagcut does not load ({error}); build it with `make build`, "
            f"or ask for the backend 'lagcut-python' or 'highs'"
        ) from error
    return _lagcut


class Lagcut:
    """The native kernel as a backend."""

    name = "lagcut"

    def minimise(
        self, program: Program, goal: str, seconds: float, start: tuple[int, ...] | None = None, gap: float = 0.0
    ) -> Answer:
        """See ``Backend.minimise``. The answer's bound always comes with its proof."""
        if not program.names:
            return trivial(program, goal, self.name)
        until = time.monotonic() + seconds
        kernel, form = native(), goal_form(program, goal)
        dual = None
        if any(site > 1 for sites in program.sites for site in sites):
            dual = relaxation(program, goal, seconds)
            if dual is None:
                return Answer(Status.UNKNOWN, self.name)
            if goal == "feasible":
                dual = Dual((*dual.weights, 0), dual.flows)
        left = max(until - time.monotonic(), 0.001)
        try:
            found = kernel.minimise(
                program.sites,
                program.arcs,
                [(_plain(row.form), row.limit - row.form.constant) for row in program.rows],
                _plain(form),
                None if dual is None else (dual.weights[:-1], dual.weights[-1], dual.flows),
                start,
                left,
                MAX_LABELS,
                gap,
            )
        except ValueError as error:
            raise BackendError(f"backend 'lagcut' cannot work on this problem: {error}; use 'highs'") from error
        except TypeError as error:
            raise BackendError(
                f"the native module placement._lagcut was built from different sources ({error}); "
                f"rebuild it with `make build`"
            ) from error
        outcome, modes, bound, weights, steps = found
        chosen = None if modes is None else accept(program, tuple(modes), self.name)
        last = None if goal != "feasible" else -1
        proof = tuple(_step(step, last) for step in steps)
        best = _dual(weights, last)
        return Answer(
            Status(outcome),
            self.name,
            chosen,
            bound + form.constant,
            best,
            proof or (Walk(best, tuple(range(len(program.names)))),),
        )


def _dual(raw: tuple[list[int], list[int]], last: int | None) -> Dual:
    weights, flows = raw
    return Dual(tuple(weights[:last]), tuple(flows))


def _step(raw: _Raw, last: int | None) -> ProofStep:
    kind, weights, pairs, order = raw
    if weights is None:
        return Split(pairs[0][0], tuple(mode for _, mode in pairs))
    dual = _dual(weights, last)
    return Close(dual, tuple(pairs)) if kind == "close" else Walk(dual, tuple(order))


def goal_form(program: Program, goal: str) -> Form:
    """Return the goal's form; that of ``feasible`` is empty."""
    return Form() if goal == "feasible" else program.goal(goal)


def _plain(form: Form) -> tuple[list[tuple[int, list[int]]], list[tuple[int, int]]]:
    return list(form.choice.items()), list(form.cross.items())


class LagcutPython:
    """The same search in plain Python."""

    name = "lagcut-python"

    def minimise(
        self, program: Program, goal: str, seconds: float, start: tuple[int, ...] | None = None, gap: float = 0.0
    ) -> Answer:
        """See ``Backend.minimise``."""
        if not program.names:
            return trivial(program, goal, self.name)
        dual = relaxation(program, goal, seconds)
        if dual is None:
            return Answer(Status.UNKNOWN, self.name)
        if goal == "feasible":
            dual = Dual((*dual.weights, 0), dual.flows)
        return _Widening(program, goal, dual, time.monotonic() + seconds, start, gap).run()


class _Widening:
    """Searches for placements ever further above the bound."""

    def __init__(
        self, program: Program, goal: str, dual: Dual, until: float, start: tuple[int, ...] | None, gap: float
    ) -> None:
        self.program, self.goal, self.dual, self.until = program, goal, dual, until
        self.form = goal_form(program, goal)
        self.best, self.gap = start, gap
        self.order: tuple[int, ...] = tuple(range(len(program.names)))

    def run(self) -> Answer:
        most = _most(self.form)
        lower = self._first_bound(most)
        step = 1 + lower // 4000
        while True:
            upper = most if self.best is None else self.program.value(self.form, self.best) - 1
            if lower > upper:
                return self._answer(Status.INFEASIBLE if self.best is None else Status.OPTIMAL, lower)
            if upper + 1 - lower <= self.gap * (upper + 1) and self.best is not None:
                return self._answer(Status.FEASIBLE, lower)
            target = min(upper, lower + step)
            try:
                found = self._up_to(target)
            except TooManyLabelsError:
                return self._answer(Status.UNKNOWN if self.best is None else Status.FEASIBLE, lower)
            if found is None:
                lower, step = target + 1, step * 3
            else:
                self.best = found
                lower = self.program.value(self.form, found)
            if time.monotonic() > self.until and lower <= upper:
                return self._answer(Status.UNKNOWN if self.best is None else Status.FEASIBLE, lower)

    def _target(self, most: int) -> Program:
        return _with_form(self.program, self.form, most)

    def _first_bound(self, most: int) -> int:
        base, scale = Losses(self._target(0), self.dual).base, self.dual.weights[-1]
        if scale == 0:
            return most + 1 if base > 0 else min(0, most)
        return -(-base // scale)

    def _up_to(self, target: int) -> tuple[int, ...] | None:
        program = self._target(target)
        losses = Losses(program, self.dual)
        self.order = good_order(program, losses)
        found = open_placements(program, losses, self.order, TWIN_MAX_LABELS)
        return min(found, key=lambda modes: self.program.value(self.form, modes)) if found else None

    def _answer(self, status: Status, bound: int) -> Answer:
        dual = self.dual
        if self.goal == "feasible":
            dual = Dual(dual.weights[:-1], dual.flows)
        return Answer(status, LagcutPython.name, self.best, bound, dual, (Walk(dual, self.order),))


def _with_form(program: Program, form: Form, limit: int) -> Program:
    from dataclasses import replace

    from placement.formulate import Row

    return replace(program, rows=(*program.rows, Row("goal", "goal", form, limit)))


def _most(form: Form) -> int:
    return form.constant + sum(max(coefs) for coefs in form.choice.values()) + sum(form.cross.values())
