"""Proofs as steps: close modes, split on an NF, walk the rest. Checked with whole numbers, without a solver.

The steps are in preorder, as the kernel's branch and bound wrote them. Each applies to the part of the program that the
previous steps left open (``reduce``), and its multipliers are those of that part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placement.errors import CertificateError
from placement.formulate import Program
from placement.labels import Dual, Losses, open_placements
from placement.reduce import Part, whole


@dataclass(frozen=True)
class Close:
    """No placement has any of some modes.

    Attributes:
        dual: multipliers that prove it: the base value and the mode's loss exceed 0.
        closed: NFs and modes.
    """

    dual: Dual
    closed: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Split:
    """Every placement has some mode of an NF: a proof for each of these follows, then one for all others, if any.

    Attributes:
        nf: the NF.
        modes: the modes with their own proofs.
    """

    nf: int
    modes: tuple[int, ...]


@dataclass(frozen=True)
class Walk:
    """Nothing is left open (see ``labels``).

    Attributes:
        dual: the multipliers.
        order: the order of the NFs.
    """

    dual: Dual
    order: tuple[int, ...]


ProofStep = Close | Split | Walk


def check(program: Program, steps: Sequence[ProofStep], max_labels: int) -> None:
    """Verify that no placement satisfies all rows of a program.

    Raises:
        CertificateError: a placement does, or a step does not prove its claim.
        ValueError: the steps do not fit the program or each other.
        TooManyLabelsError: a walk leaves more open than ``max_labels``.
    """
    reader = iter(steps)
    _check(whole(program), reader, max_labels)
    if next(reader, None) is not None:
        raise ValueError("the proof continues after its end")


def _check(part: Part, steps: Iterator[ProofStep], max_labels: int) -> None:
    while True:
        match next(steps, None):
            case Close(dual, closed):
                part = part.keep(_left(part, dual, closed))
            case Split(nf, modes):
                rest = list(_modes(part, nf))
                for mode in modes:
                    if mode not in rest:
                        raise ValueError(f"NF {nf} is split on mode {mode}, which is not open there")
                    rest.remove(mode)
                    _check(part.keep({nf: [mode]}), steps, max_labels)
                if not rest:
                    return
                part = part.keep({nf: rest})
            case Walk(dual, order):
                _walk(part, dual, order, max_labels)
                return
            case _:
                raise ValueError(f"the proof ends where {len(part.nfs)} NFs are still open")


def _modes(part: Part, nf: int) -> tuple[int, ...]:
    if nf not in part.nfs:
        raise ValueError(f"NF {nf} is not open there")
    return part.modes[part.nfs.index(nf)]


def _left(part: Part, dual: Dual, closed: tuple[tuple[int, int], ...]) -> dict[int, list[int]]:
    """Return the remaining modes of the NFs of which modes are closed."""
    losses = Losses(part.program, dual)
    place = {nf: i for i, nf in enumerate(part.nfs)}
    left = {nf: list(_modes(part, nf)) for nf, _ in closed}
    for nf, mode in closed:
        i = place[nf]
        if mode not in left[nf]:
            raise ValueError(f"mode {mode} of NF {nf} is closed, but was not open there")
        if losses.base + losses.mode[i][part.modes[i].index(mode)] <= 0:
            raise CertificateError(f"nothing rules out mode {mode} of NF {part.program.names[i]!r} as a step claims")
        left[nf].remove(mode)
    if not all(left.values()):
        raise ValueError("a step closes all modes of an NF, which only a walk can prove")
    return left


def _walk(part: Part, dual: Dual, order: Sequence[int], max_labels: int) -> None:
    place = {nf: i for i, nf in enumerate(part.nfs)}
    if set(order) != set(place) or len(order) != len(place):
        raise ValueError("the order is not a permutation of the open NFs")
    found = open_placements(part.program, Losses(part.program, dual), [place[nf] for nf in order], max_labels)
    if found:
        raise Contradiction(part.lift(found[0]))


class Contradiction(CertificateError):  # noqa: N818  # what it is, not what went wrong
    """A placement satisfies all rows.

    Attributes:
        modes: of all NFs.
    """

    def __init__(self, modes: tuple[int, ...]) -> None:
        super().__init__(f"the placement {modes} satisfies all rows")
        self.modes = modes
