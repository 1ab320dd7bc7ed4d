"""Reduction of a program after modes are closed: smaller, with settled NFs folded into limits and single NFs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.formulate import Arc, Form, Program, Row


@dataclass(frozen=True)
class Part:
    """A part of a program: the NFs that are still open.

    Attributes:
        program: rows only; it has no goals of its own.
        nfs: per NF of the part, its index in the whole.
        modes: per NF and mode of the part, the mode in the whole.
        settled: modes of the other NFs of the whole.
    """

    program: Program
    nfs: tuple[int, ...]
    modes: tuple[tuple[int, ...], ...]
    settled: dict[int, int]

    def lift(self, modes: Sequence[int]) -> tuple[int, ...]:
        """Convert a placement of the part to one of the whole."""
        chosen = {nf: left[mode] for nf, left, mode in zip(self.nfs, self.modes, modes, strict=True)} | self.settled
        return tuple(chosen[nf] for nf in range(len(chosen)))

    def keep(self, left: Mapping[int, Sequence[int]]) -> Part:
        """Return the part in which some NFs have only certain modes (all as in the whole), at least one each."""
        opened = [[modes.index(m) for m in left.get(nf, modes)] for nf, modes in zip(self.nfs, self.modes, strict=True)]
        folder = _Folder(self.program, opened)
        kept = [i for i, modes in enumerate(opened) if len(modes) > 1]
        settled = {self.nfs[i]: self.modes[i][modes[0]] for i, modes in enumerate(opened) if len(modes) == 1}
        return Part(
            folder.program(kept),
            tuple(self.nfs[i] for i in kept),
            tuple(tuple(self.modes[i][m] for m in opened[i]) for i in kept),
            self.settled | settled,
        )


def whole(program: Program) -> Part:
    """Make a program a part of itself; its first reduction settles NFs without a choice."""
    modes = tuple(tuple(range(len(sites))) for sites in program.sites)
    return Part(program, tuple(range(len(program.names))), modes, {})


class _Folder:
    """Folds the NFs with one open mode into the forms of the others."""

    def __init__(self, program: Program, opened: list[list[int]]) -> None:
        self.before, self.opened = program, opened
        self.place: dict[int, int] = {}
        self.arcs: list[Arc] = []
        self.arc_place: dict[int, int] = {}

    def program(self, kept: list[int]) -> Program:
        self.place = {i: place for place, i in enumerate(kept)}
        for a, (i, j, k) in enumerate(self.before.arcs):
            if i in self.place and j in self.place:
                self.arc_place[a] = len(self.arcs)
                self.arcs.append((self.place[i], self.place[j], k))
        names = tuple(self.before.names[i] for i in kept)
        sites = tuple(tuple(self.before.sites[i][m] for m in self.opened[i]) for i in kept)
        rows = tuple(Row(row.name, row.kind, self._form(row.form), row.limit) for row in self.before.rows)
        return Program(names, sites, tuple(self.arcs), rows, Form(), Form(), Form())

    def _site(self, i: int) -> int:
        return self.before.sites[i][self.opened[i][0]]

    def _form(self, form: Form) -> Form:
        made = Form(constant=form.constant)
        for i, coefs in form.choice.items():
            if i in self.place:
                made.choice[self.place[i]] = [coefs[m] for m in self.opened[i]]
            else:
                made.constant += coefs[self.opened[i][0]]
        for a, coef in form.cross.items():
            if a in self.arc_place:
                made.cross[self.arc_place[a]] = coef
            else:
                self._settled(made, a, coef)
        return made

    def _settled(self, form: Form, a: int, coef: int) -> None:
        """Add an arc with a settled end: crossed if i is on sNIC k and j is not."""
        i, j, k = self.before.arcs[a]
        if i in self.place:
            if self._site(j) != k:
                self._unary(form, i, k, coef, 0)
        elif self._site(i) == k:
            if j in self.place:
                self._unary(form, j, k, 0, coef)
            elif self._site(j) != k:
                form.constant += coef

    def _unary(self, form: Form, i: int, k: int, on: int, off: int) -> None:
        modes = self.opened[i]
        coefs = form.choice.setdefault(self.place[i], [0] * len(modes))
        for m, mode in enumerate(modes):
            coefs[m] += on if self.before.sites[i][mode] == k else off
