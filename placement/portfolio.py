"""The portfolio: the kernel first, then a general solver starting from its result, all before the deadline."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from placement.backends import Answer, Status, backend
from placement.backends.base import Backend
from placement.backends.cpsat import Process, installed
from placement.backends.lagcut import Lagcut
from placement.formulate import Program

AUTO = "auto"
KERNEL_SHARE = 0.6
"""Largest part of the time for the kernel with one sNIC."""
KERNEL_SECONDS = 0.6
KERNEL_LONG_SHARE = 0.1
"""Seconds that the kernel seldom exceeds: a general solver that starts from its placement then finishes sooner. With
more time, this part of it, because only the kernel leaves a certificate."""
KERNEL_SECONDS_SEVERAL = 0.1
KERNEL_SECONDS_PER_PAIR = 0.00002
"""The same with several sNICs and many NFs, and per pair: the bound is weaker, so the kernel proves the optimum soon or
never."""
READY_NFS = 40
"""NFs above which, with several sNICs, CP-SAT's process starts beside the kernel, because starting takes a while."""
GENERAL_MOST = 20_000
"""NFs above which a general solver only searches for any placement: it would miss every deadline."""


def minimise(
    program: Program, goal: str, seconds: float, name: str = AUTO, start: tuple[int, ...] | None = None, gap: float = 0
) -> Answer:
    """Minimise a goal.

    Args:
        program: the equations.
        goal: as ``Backend.minimise`` has it.
        seconds: time limit.
        name: a backend's name, or ``auto`` for the portfolio.
        start: a placement to beat.
        gap: an answer within this fraction of its bound is sufficient.

    Returns:
        The best answer; its ``steps`` prove its ``bound`` if it has both. ``auto`` may return a status of ``optimal``
        from a solver without checkable proofs; then ``bound`` is the one that the kernel proved.

    Raises:
        BackendError: a backend is missing or failed.
    """
    if name != AUTO:
        return backend(name).minimise(program, goal, seconds, start, gap)
    until = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        first, ready = min(seconds * KERNEL_SHARE, max(KERNEL_SECONDS, seconds * KERNEL_LONG_SHARE)), None
        if _several(program) and len(program.names) > READY_NFS:
            first = min(first, KERNEL_SECONDS_SEVERAL + KERNEL_SECONDS_PER_PAIR * len(program.names) ** 2)
            if installed() and len(program.names) <= GENERAL_MOST:
                ready = stack.enter_context(Process())
        kernel = Lagcut().minimise(program, goal, first, start, gap)
        if kernel.status in (Status.OPTIMAL, Status.INFEASIBLE) or _close(program, goal, kernel, gap):
            return kernel
        if kernel.modes is not None and len(program.names) > GENERAL_MOST:
            return kernel
        general = ready or _general(program)
        left = max(until - time.monotonic(), 0.01)
        told = general.minimise(program, goal, left, kernel.modes, gap)
    return _merge(program, goal, kernel, told)


def _several(program: Program) -> bool:
    return any(site > 1 for sites in program.sites for site in sites)


def _general(program: Program) -> Backend:
    return backend("cpsat" if _several(program) and installed() else "highs")


def _close(program: Program, goal: str, answer: Answer, gap: float) -> bool:
    if answer.modes is None or answer.bound is None or goal == "feasible":
        return False
    value = program.value(program.goal(goal), answer.modes)
    return value - answer.bound <= gap * value


def _merge(program: Program, goal: str, kernel: Answer, general: Answer) -> Answer:
    """Combine the general solver's verdict, the kernel's proof, and the better placement of both."""
    if general.status == Status.INFEASIBLE:
        return replace(kernel, status=Status.INFEASIBLE, backend=general.backend, modes=None)
    found = [modes for modes in (general.modes, kernel.modes) if modes is not None]
    if not found:
        return kernel
    form = program.goal(goal) if goal != "feasible" else None
    modes = min(found, key=lambda modes: program.value(form, modes) if form else 0)
    status = general.status if general.status == Status.OPTIMAL else Status.FEASIBLE
    return replace(kernel, status=status, backend=f"{kernel.backend}+{general.backend}", modes=modes)
