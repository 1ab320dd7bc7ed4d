"""Proofs that can be checked without a solver.

A certificate states that no placement has less than ``bound`` of a goal (or that no placement satisfies the limits at
all). It carries a proof in steps (see ``proof``); ``check`` rebuilds the equations from the problem and follows the
steps with whole numbers only. ``evaluate`` checks from the problem's data, without the equations, that a plan is
feasible and has its stated cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement.errors import CertificateError
from placement.formulate import Program, formulate
from placement.labels import Dual, TooManyLabelsError
from placement.model import Locations, Problem
from placement.proof import Contradiction, ProofStep, check

FEASIBLE = "feasible"
"""The goal of a certificate of infeasibility."""


@dataclass(frozen=True)
class Certificate:
    """A lower bound and its proof.

    Attributes:
        goal: ``host``, ``moves``, ``latency``, or ``feasible``.
        bound: no placement has a lower value of the goal; for ``feasible`` it is 1: every placement breaks some limit.
        within: earlier goals and their limits, in order.
        widened: by how much limits were raised before the proof, by row name; for least T and least D.
        dual: multipliers of all rows: the problem's, those of ``within``, and the goal's own; the value of a limit.
        steps: the proof.
    """

    goal: str
    bound: int
    within: tuple[tuple[str, int], ...]
    widened: tuple[tuple[str, int], ...]
    dual: Dual
    steps: tuple[ProofStep, ...]

    def check(self, problem: Problem, current: Locations | None = None, max_labels: int = 200_000) -> None:
        """Verify the bound.

        Args:
            problem: the problem that was solved.
            current: where NFs ran, if the goal or an earlier one is ``moves``.
            max_labels: limit of partial placements to examine after each step.

        Raises:
            CertificateError: a placement contradicts the bound, the data is malformed, or too many placements remain
                open.
        """
        program = refuted_program(formulate(problem, current), self)
        says = f"{self.goal!r} >= {self.bound}"
        try:
            check(program, self.steps, max_labels)
        except Contradiction as error:
            where = {name: sites[m] for name, sites, m in zip(program.names, program.sites, error.modes, strict=True)}
            raise CertificateError(f"{says} is wrong: the placement {where} contradicts it") from error
        except TooManyLabelsError as error:
            raise CertificateError(f"the certificate for {says} leaves too much open: {error}") from error
        except ValueError as error:
            raise CertificateError(f"the certificate for {says} is malformed: {error}") from error


def held(program: Program, within: tuple[tuple[str, int], ...], widened: tuple[tuple[str, int], ...] = ()) -> Program:
    """Return the program with limits widened and with earlier goals added as rows."""
    more = dict(widened)
    if more:
        rows = tuple(replace(row, limit=row.limit + more.get(row.name, 0)) for row in program.rows)
        program = replace(program, rows=rows)
    for goal, limit in within:
        program = program.with_goal(goal, limit)
    return program


def refuted_program(program: Program, certificate: Certificate) -> Program:
    """Return the rows that, by the certificate, no placement satisfies."""
    program = held(program, certificate.within, certificate.widened)
    if certificate.goal == FEASIBLE:
        return program
    return program.with_goal(certificate.goal, certificate.bound - 1)
