"""The interface of backends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from placement.errors import BackendError
from placement.formulate import Program
from placement.labels import Dual
from placement.proof import ProofStep


class Status(StrEnum):
    """Outcome of a backend."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Answer:
    """A backend's answer.

    Attributes:
        status: ``optimal`` and ``infeasible`` are claims that a certificate can back.
        backend: name of the backend that answered.
        modes: per NF the index of its mode; None if no placement was found.
        bound: no placement has a lower value of the goal; None if unknown.
        dual: multipliers of the program's rows, then of the goal; None if not kept.
        steps: the proof of the bound; empty if there is none.
    """

    status: Status
    backend: str
    modes: tuple[int, ...] | None = None
    bound: int | None = None
    dual: Dual | None = None
    steps: tuple[ProofStep, ...] = ()


class Backend(Protocol):
    """A solver."""

    name: str

    def minimise(
        self, program: Program, goal: str, seconds: float, start: tuple[int, ...] | None = None, gap: float = 0.0
    ) -> Answer:
        """Minimise a goal of the program within the time limit.

        Args:
            program: the equations.
            goal: ``host``, ``moves``, ``latency``, or ``feasible`` for any placement that satisfies the rows.
            seconds: time limit, after which it returns the best known answer.
            start: a placement that satisfies the rows, to beat.
            gap: a placement within this fraction of the bound is good enough.

        Raises:
            BackendError: the solver is missing, failed, or returned a placement that violates the rows.
        """
        ...


def accept(program: Program, modes: tuple[int, ...], backend: str) -> tuple[int, ...]:
    """Return a solver's placement if it satisfies every row in whole numbers.

    Raises:
        BackendError: it does not.
    """
    broken = program.broken(modes)
    if broken:
        row = broken[0]
        used = program.value(row.form, modes)
        raise BackendError(
            f"backend {backend!r} returned a placement that breaks {row.name!r}: {used} of {row.limit}; "
            f"use another backend and report this problem"
        )
    return modes
