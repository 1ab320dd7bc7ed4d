"""A placement that can be changed one NF at a time, with every row's use kept up to date."""

from __future__ import annotations

from collections.abc import Sequence

from placement.formulate import Program


class Tables:
    """A program transposed: per NF its rows, per NF its arcs. Built once, shared by many states."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.forms = [row.form for row in program.rows] + [program.host]
        self.unary: list[list[tuple[int, list[int]]]] = [[] for _ in program.names]
        self.arc_use: list[list[tuple[int, int]]] = [[] for _ in program.arcs]
        for r, form in enumerate(self.forms):
            for i, coefs in form.choice.items():
                self.unary[i].append((r, coefs))
            for arc, coef in form.cross.items():
                self.arc_use[arc].append((r, coef))
        self.arcs: list[list[int]] = [[] for _ in program.names]
        for arc, (i, j, _) in enumerate(program.arcs):
            self.arcs[i].append(arc)
            self.arcs[j].append(arc)


class State:
    """A placement and its use of each row; the host cost is the last entry of ``use``."""

    def __init__(self, tables: Tables, modes: Sequence[int]) -> None:
        self.tables = tables
        self.modes = list(modes)
        program = tables.program
        crossing = program.crossing(tuple(modes))
        self.use = [form.value(tuple(modes), crossing) for form in tables.forms]

    def delta(self, i: int, mode: int) -> dict[int, int]:
        """Compute the change of the rows' use if NF i ran in another mode."""
        tables = self.tables
        before = self.modes[i]
        change = {r: coefs[mode] - coefs[before] for r, coefs in tables.unary[i]}
        for arc in tables.arcs[i]:
            turned = self._crosses(arc, i, mode) - self._crosses(arc, i, before)
            if turned:
                for r, coef in tables.arc_use[arc]:
                    change[r] = change.get(r, 0) + turned * coef
        return {r: amount for r, amount in change.items() if amount}

    def _crosses(self, arc: int, i: int, mode: int) -> bool:
        first, second, k = self.tables.program.arcs[arc]
        sites = self.tables.program.sites
        at = {n: sites[n][mode if n == i else self.modes[n]] for n in (first, second)}
        return at[first] == k and at[second] != k

    def blocked(self, i: int, mode: int) -> list[tuple[int, int]]:
        """Return the rows that forbid the change, with the resulting use: above the limit, and more than now."""
        rows = self.tables.program.rows
        return [
            (r, self.use[r] + amount)
            for r, amount in self.delta(i, mode).items()
            if r < len(rows) and amount > 0 and self.use[r] + amount > rows[r].limit
        ]

    def put(self, i: int, mode: int) -> None:
        """Change the mode of NF i."""
        for r, amount in self.delta(i, mode).items():
            self.use[r] += amount
        self.modes[i] = mode
