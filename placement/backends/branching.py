"""The kernel with branching: where one bound leaves too much open, the largest open NF is settled each way in turn.

A large NF that is wrongly placed shifts what is left of every limit, and multipliers that fit the whole fit neither
half; each branch gets its own. All branches together are the proof.
"""

from __future__ import annotations

import time
from dataclasses import replace

from placement.backends.base import Answer, Status
from placement.backends.lagcut import Lagcut, goal_form
from placement.formulate import Form, Program, Row, restrict
from placement.labels import Branch, Losses

BRANCH_LABELS = 300
"""Partial placements to keep in each branch: less than it takes to split once more."""


def branch(program: Program, goal: str, root: Answer, until: float) -> Answer:
    """Go on where the kernel stopped.

    Args:
        program: the equations, with at most one sNIC.
        goal: as ``Backend.minimise`` has it, but not ``feasible``.
        root: the kernel's answer, neither optimal nor infeasible.
        until: ``time.monotonic()`` at which to stop.

    Returns:
        A proven answer with its branches, or the root's with the best placement found.
    """
    form, best = goal_form(program, goal), root.modes
    leaves: list[Branch] = []
    stack: list[dict[int, int]] = []
    _split(program, goal, {}, root, best, stack)
    while stack:
        left = until - time.monotonic()
        if left <= 0:
            break
        pins = stack.pop()
        part = restrict(program, pins)
        cutoff = None if best is None else program.value(form, best)
        answer = Lagcut().search(part, goal, left, None, 0.0, cutoff, BRANCH_LABELS)
        if answer.modes is not None:
            modes = tuple(pins.get(i, mode) for i, mode in enumerate(answer.modes))
            if best is None or program.value(form, modes) < program.value(form, best):
                best = modes
        if answer.status in (Status.OPTIMAL, Status.INFEASIBLE):
            leaves.append(Branch(tuple(pins.items()), answer.duals, answer.order))
        elif not _split(part, goal, pins, answer, best, stack):
            return replace(root, modes=best)
    else:
        if leaves and best is not None:
            bound = program.value(form, best)
            return replace(root, status=Status.OPTIMAL, modes=best, bound=bound, branches=tuple(leaves))
    return replace(root, status=root.status if best is None else Status.FEASIBLE, modes=best)


def _split(
    part: Program,
    goal: str,
    pins: dict[int, int],
    answer: Answer,
    best: tuple[int, ...] | None,
    stack: list[dict[int, int]],
) -> bool:
    """Put the ways to settle the largest open NF on the stack, the likelier last; whether there is one."""
    form = goal_form(part, goal)
    target = (answer.bound or 0) * 101 // 100 + 1
    if best is not None:
        whole = tuple(0 if i in pins else mode for i, mode in enumerate(best))
        fits = all(i not in pins or pins[i] == mode for i, mode in enumerate(best))
        target = part.value(form, whole) - 1 if fits else target
    if not answer.duals:
        return False
    dual = answer.duals[0]
    losses = Losses(replace(part, rows=(*part.rows, _row(form, target))), dual)
    sizes = [0] * len(part.names)
    for weight, row in zip(dual.weights, part.rows, strict=False):
        if weight:
            for i, coefs in row.form.choice.items():
                sizes[i] += weight * (max(coefs) - min(coefs))
    found = [i for i, modes in enumerate(losses.mode) if len(modes) > 1 and losses.base + sorted(modes)[1] <= 0]
    found = found or [i for i, modes in enumerate(losses.mode) if len(modes) > 1]
    if not found:
        return False
    chosen = max(found, key=lambda i: (sizes[i], -i))
    by_loss = sorted(range(len(losses.mode[chosen])), key=lambda m: -losses.mode[chosen][m])
    stack.extend({**pins, chosen: mode} for mode in by_loss)
    return True


def _row(form: Form, limit: int) -> Row:
    return Row("goal", "goal", form, limit)
