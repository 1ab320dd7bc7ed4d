"""All errors of ``placement``, as one tree.

::

    PlacementError               base; ``str(error)`` is one line: the thing, the value, what was expected, what to do
    +-- ProblemError             the problem is invalid: no solver was called
    |   +-- AmountError          a number is negative, not whole, not a number, or in another unit
    |   +-- UnknownNameError     a name that no vertex, sNIC or resource has
    |   +-- DuplicateNameError   a name used twice
    |   +-- PinError             pins that contradict each other, or an NF that may run nowhere
    |   +-- SchemaError          a JSON document that is not a problem
    +-- InfeasibleError          no placement satisfies all limits; carries the report and its certificate
    +-- DeadlineError            no placement was found in time (an unproven one is returned, and says so)
    +-- BackendError             a solver is missing, failed, or contradicts another one
    +-- CertificateError         a certificate does not prove what it claims
    +-- MoveOrderError           no order of the moves keeps every step feasible; carries the plan all the same
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement.infeasible import Infeasibility
    from placement.solve import Plan


class PlacementError(Exception):
    """Base of the tree."""


class ProblemError(PlacementError):
    """The problem is invalid."""


class AmountError(ProblemError):
    """A number is negative, not whole, not a number, or in another unit."""


class UnknownNameError(ProblemError):
    """A name that no vertex, sNIC or resource has."""


class DuplicateNameError(ProblemError):
    """A name used twice."""


class PinError(ProblemError):
    """Pins that contradict each other, or an NF that may run nowhere."""


class SchemaError(ProblemError):
    """A JSON document that is not a problem."""


class InfeasibleError(PlacementError):
    """No placement satisfies all limits.

    Args:
        diagnose: computes the report, which takes longer than detecting infeasibility.
    """

    def __init__(self, diagnose: Callable[[], Infeasibility]) -> None:
        super().__init__()
        self._diagnose = diagnose

    @cached_property
    def report(self) -> Infeasibility:
        """Return the conflict, what would resolve it, and the certificate; computed on first use."""
        return self._diagnose()

    def __str__(self) -> str:
        return str(self.report)


class DeadlineError(PlacementError):
    """No placement was found in time."""


class BackendError(PlacementError):
    """A solver is missing, failed, or contradicts another one."""


class CertificateError(PlacementError):
    """A certificate does not prove what it claims."""


class MoveOrderError(PlacementError):
    """No order of the moves keeps every step feasible.

    Attributes:
        plan: the target with its proofs, without moves; None if only an order was requested.
    """

    def __init__(self, message: str, plan: Plan | None = None) -> None:
        super().__init__(message)
        self.plan = plan
