"""Proofs that need no solver to be believed.

A certificate says: no placement reaches less than ``bound`` of a goal (or: no placement satisfies the limits at
all). It
carries multipliers and an order; ``check`` rebuilds the equations from the problem and looks, with whole numbers
only, at
everything that the multipliers leave open (see ``labels``). That a plan is feasible and costs what it says is
checked from the problem's data (see ``evaluate``), without the equations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement.errors import CertificateError
from placement.formulate import Program, formulate, restrict
from placement.labels import Branch, Dual, Losses, TooManyLabelsError, open_placements
from placement.model import Locations, Problem

FEASIBLE = "feasible"
"""The goal of a certificate of infeasibility: to satisfy the limits at all."""


@dataclass(frozen=True)
class Certificate:
    """A lower bound and its proof.

    Attributes:
        goal: ``host``, ``moves``, ``latency``, or ``feasible``.
        bound: no placement has less of the goal; for ``feasible`` it is 1: no placement has no broken limit.
        within: earlier goals and the limits they were held to, in order.
        widened: by how much limits were raised before the proof, per name of the row; for least T and least D.
        duals: multipliers of all rows: the problem's, those of ``within``, and the goal's own; the first are the best.
        order: the order in which NFs are looked at.
        branches: parts that together are the proof, where one set of multipliers does not suffice.
    """

    goal: str
    bound: int
    within: tuple[tuple[str, int], ...]
    widened: tuple[tuple[str, int], ...]
    duals: tuple[Dual, ...]
    order: tuple[int, ...]
    branches: tuple[Branch, ...] = ()

    def check(self, problem: Problem, current: Locations | None = None, max_labels: int = 200_000) -> None:
        """Verify the bound.

        Args:
            problem: the problem that was solved.
            current: where NFs ran, if the goal or an earlier one is ``moves``.
            max_labels: partial placements to look at after each step.

        Raises:
            CertificateError: a placement contradicts the bound, the data is malformed, or too much is left open to
                look at.
        """
        program = refuted_program(formulate(problem, current), self)
        parts = self.branches or (Branch((), self.duals, self.order),)
        try:
            _cover(program, [part.pins for part in parts])
            for part in parts:
                self._check_part(program, part, max_labels)
        except TooManyLabelsError as error:
            raise CertificateError(
                f"the certificate for {self.goal!r} >= {self.bound} leaves too much open: {error}"
            ) from error
        except ValueError as error:
            raise CertificateError(
                f"the certificate for {self.goal!r} >= {self.bound} is malformed: {error}"
            ) from error

    def _check_part(self, program: Program, part: Branch, max_labels: int) -> None:
        program = restrict(program, dict(part.pins))
        found = open_placements(program, [Losses(program, dual) for dual in part.duals], part.order, max_labels)
        if found:
            where = {name: sites[m] for name, sites, m in zip(program.names, program.sites, found[0], strict=True)}
            raise CertificateError(f"{self.goal!r} >= {self.bound} is wrong: the placement {where} contradicts it")


def _cover(program: Program, pins: list[tuple[tuple[int, int], ...]]) -> None:
    """Check that branches leave no placement out: at each split every mode of one NF has its branch.

    Raises:
        ValueError: they do.
    """
    if len(pins) == 1 and not pins[0]:
        return
    if not all(pins) or len({part[0][0] for part in pins}) != 1:
        raise ValueError("the branches do not split on one NF at a time")
    nf = pins[0][0][0]
    for mode in range(len(program.sites[nf])):
        rest = [part[1:] for part in pins if part[0][1] == mode]
        if not rest:
            raise ValueError(f"no branch has NF {program.names[nf]!r} in mode {mode}")
        _cover(program, rest)


def held(program: Program, within: tuple[tuple[str, int], ...], widened: tuple[tuple[str, int], ...] = ()) -> Program:
    """The program with limits widened and with earlier goals held as rows."""
    more = dict(widened)
    if more:
        rows = tuple(replace(row, limit=row.limit + more.get(row.name, 0)) for row in program.rows)
        program = replace(program, rows=rows)
    for goal, limit in within:
        program = program.with_goal(goal, limit)
    return program


def refuted_program(program: Program, certificate: Certificate) -> Program:
    """The rows that the certificate says no placement satisfies."""
    program = held(program, certificate.within, certificate.widened)
    if certificate.goal == FEASIBLE:
        return program
    return program.with_goal(certificate.goal, certificate.bound - 1)
