"""The enumeration of placements that multipliers leave open; it searches for placements and checks proofs.

Take any multipliers ``w >= 0`` for the rows and ``f`` with ``0 <= f[a] <= g[a]`` for the arcs, where ``g[a]`` is the
weighted sum of the arc's coefficients. For every placement that satisfies all rows::

    sum_r w[r] * (row r - limit r) + sum_a f[a] * (y[i, k] - y[j, k] - c[a])  <=  0

The left side is at least a base value plus, per NF, what its mode costs more than its cheapest mode (its *loss*), plus,
per arc, ``g - f`` where it crosses and ``f`` where only j is on the sNIC. All losses are whole and not negative, so a
partial placement whose base and losses exceed 0 cannot be completed, and neither can one that already overfills a row.
Walking the NFs in some order and dropping both kinds leaves the *open* placements. Two partial placements that agree on
where the NFs with traffic still to come are, are compared: one that uses no less of every row is dropped.

Nothing here depends on where the multipliers come from: poor ones are slow, never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.formulate import Program

PARETO_SCAN = 48
"""Labels that a new one is compared with; more comparisons would cost more time than they save."""


@dataclass(frozen=True)
class Dual:
    """Multipliers.

    Attributes:
        weights: per row of the program.
        flows: per arc.
    """

    weights: tuple[int, ...]
    flows: tuple[int, ...]


class TooManyLabelsError(Exception):
    """The enumeration would exceed its limit of labels."""


class Losses:
    """Base value and losses of a program under multipliers.

    Args:
        program: the equations.
        dual: the multipliers.

    Raises:
        ValueError: a multiplier is negative, or a flow exceeds its arc's weight; the message names it.
    """

    def __init__(self, program: Program, dual: Dual) -> None:
        if len(dual.weights) != len(program.rows) or len(dual.flows) != len(program.arcs):
            raise ValueError(
                f"{len(dual.weights)} weights and {len(dual.flows)} flows for "
                f"{len(program.rows)} rows and {len(program.arcs)} arcs"
            )
        self.program = program
        self.crossed = self._crossed(dual)
        self.flows = dual.flows
        alpha = self._alpha(dual)
        least = [min(values) for values in alpha]
        self.mode = [[value - low for value in values] for values, low in zip(alpha, least, strict=True)]
        slack = sum(w * (row.form.constant - row.limit) for w, row in zip(dual.weights, program.rows, strict=True))
        self.base = sum(least) + slack

    def _crossed(self, dual: Dual) -> list[int]:
        """Compute per arc ``g``, the weighted sum of its coefficients."""
        total = [0] * len(self.program.arcs)
        for weight, row in zip(dual.weights, self.program.rows, strict=True):
            if weight < 0:
                raise ValueError(f"the weight of row {row.name!r} is {weight}; expected 0 or more")
            for arc, coef in row.form.cross.items():
                total[arc] += weight * coef
        for arc, (flow, most) in enumerate(zip(dual.flows, total, strict=True)):
            if not 0 <= flow <= most:
                raise ValueError(f"the flow of arc {self.program.arcs[arc]} is {flow}; expected 0 to {most}")
        return total

    def _alpha(self, dual: Dual) -> list[list[int]]:
        """Compute per NF and mode its weighted use and its share of the flows."""
        alpha = [[0] * len(sites) for sites in self.program.sites]
        for weight, row in zip(dual.weights, self.program.rows, strict=True):
            if weight:
                for i, coefs in row.form.choice.items():
                    for m, coef in enumerate(coefs):
                        alpha[i][m] += weight * coef
        for flow, (i, j, k) in zip(dual.flows, self.program.arcs, strict=True):
            if flow:
                for m, site in enumerate(self.program.sites[i]):
                    alpha[i][m] += flow * (site == k)
                for m, site in enumerate(self.program.sites[j]):
                    alpha[j][m] -= flow * (site == k)
        return alpha


@dataclass(frozen=True)
class Label:
    """A partial placement.

    Attributes:
        value: base plus losses.
        use: of each row.
        mode: its last NF's.
        before: the label that it extends.
    """

    value: int
    use: tuple[int, ...]
    mode: int
    before: Label | None

    def modes(self, order: Sequence[int]) -> tuple[int, ...]:
        """Return the full placement that this label ends."""
        chosen = [0] * len(order)
        label: Label | None = self
        for i in reversed(order):
            assert label is not None
            chosen[i] = label.mode
            label = label.before
        return tuple(chosen)


@dataclass(frozen=True)
class _Step:
    """One NF's turn: the effect of each of its modes.

    Attributes:
        options: per mode that is not ruled out: mode, site, loss, use.
        arcs: per arc to an NF that had its turn: its place in the state, whether it is the arc's i, k, both losses,
            use.
        keep: places of the state that are still needed.
        stays: whether this NF is still needed.
        room: per row, the limit less the least use of the remaining NFs.
    """

    options: list[tuple[int, int, int, tuple[int, ...]]]
    arcs: list[tuple[int, bool, int, int, int, list[tuple[int, int]]]]
    keep: list[int]
    stays: bool
    room: tuple[int, ...]


def open_placements(
    program: Program, losses: Losses, order: Sequence[int], max_labels: int = 200_000
) -> list[tuple[int, ...]]:
    """Return all placements (up to dominance) that satisfy every row, as modes; an empty list proves infeasibility.

    Args:
        program: the equations, with any goal already turned into a row.
        losses: of the same program, under any multipliers.
        order: a permutation of the NFs; it affects the time, never the answer.
        max_labels: limit of partial placements after each step.

    Raises:
        TooManyLabelsError: more than ``max_labels`` are open.
    """
    if sorted(order) != list(range(len(program.names))):
        raise ValueError("the order is not a permutation of the NFs")
    if losses.base > 0:
        return []
    start = tuple(row.form.constant for row in program.rows)
    states: dict[tuple[int, ...], list[Label]] = {(): [Label(losses.base, start, -1, None)]}
    for step in _steps(program, losses, order):
        grown = _grow(states, step)
        states = {state: _undominated(labels) for state, labels in grown.items()}
        count = sum(len(labels) for labels in states.values())
        if count > max_labels:
            raise TooManyLabelsError(f"{count} partial placements are open, more than {max_labels}")
    limits = [row.limit for row in program.rows]
    return [
        label.modes(order)
        for labels in states.values()
        for label in labels
        if all(used <= limit for used, limit in zip(label.use, limits, strict=True))
    ]


def _grow(states: dict[tuple[int, ...], list[Label]], step: _Step) -> dict[tuple[int, ...], list[Label]]:
    grown: dict[tuple[int, ...], list[Label]] = {}
    for state, labels in states.items():
        for mode, site, loss, use in step.options:
            extra, added = loss, list(use)
            for place, first, k, crossing, lone, uses in step.arcs:
                here, there = site == k, state[place] == k
                inside, outside = (here, there) if first else (there, here)
                if inside and not outside:
                    extra += crossing
                    for row, amount in uses:
                        added[row] += amount
                elif outside and not inside:
                    extra += lone
            after = tuple(state[place] for place in step.keep) + ((site,) if step.stays else ())
            _extend(grown, after, labels, mode, extra, added, step.room)
    return grown


def _extend(
    grown: dict[tuple[int, ...], list[Label]],
    after: tuple[int, ...],
    labels: list[Label],
    mode: int,
    extra: int,
    added: list[int],
    room: tuple[int, ...],
) -> None:
    for label in labels:
        value = label.value + extra
        if value > 0:
            continue
        use = tuple(map(int.__add__, label.use, added))
        if all(map(int.__le__, use, room)):
            grown.setdefault(after, []).append(Label(value, use, mode, label))


def _undominated(labels: list[Label]) -> list[Label]:
    """Drop labels that use no less than another one of every row."""
    if len(labels) < 2:
        return labels
    kept: list[Label] = []
    seen: set[tuple[int, ...]] = set()
    for label in sorted(labels, key=lambda label: label.use[::-1]):
        if label.use in seen:
            continue
        if any(all(map(int.__le__, other.use, label.use)) for other in kept[-PARETO_SCAN:]):
            continue
        seen.add(label.use)
        kept.append(label)
    return kept


def _steps(program: Program, losses: Losses, order: Sequence[int]) -> list[_Step]:
    turn = {i: t for t, i in enumerate(order)}
    count, rows = len(order), range(len(program.rows))
    touching: list[list[int]] = [[] for _ in program.names]
    last = list(range(count))
    for a, (i, j, _) in enumerate(program.arcs):
        touching[max(i, j, key=turn.__getitem__)].append(a)
        first, second = sorted((turn[i], turn[j]))
        last[first] = max(last[first], second)
    arc_use: list[list[tuple[int, int]]] = [[] for _ in program.arcs]
    for r, row in enumerate(program.rows):
        for arc, coef in row.form.cross.items():
            arc_use[arc].append((r, coef))
    unary = [[[0] * len(rows) for _ in sites] for sites in program.sites]
    for r, row in enumerate(program.rows):
        for i, coefs in row.form.choice.items():
            for m, coef in enumerate(coefs):
                unary[i][m][r] = coef
    room = [row.limit for row in program.rows]
    rooms: list[tuple[int, ...]] = []
    for i in reversed(order):
        rooms.append(tuple(room))
        for r in rows:
            room[r] -= min(use[r] for use in unary[i])
    steps: list[_Step] = []
    frontier: list[int] = []
    for t, i in enumerate(order):
        arcs = []
        for a in touching[i]:
            first, second, k = program.arcs[a]
            other = second if first == i else first
            lone = losses.flows[a]
            crossing = losses.crossed[a] - lone
            arcs.append((frontier.index(other), first == i, k, crossing, lone, arc_use[a]))
        options = [
            (m, site, losses.mode[i][m], tuple(unary[i][m]))
            for m, site in enumerate(program.sites[i])
            if losses.base + losses.mode[i][m] <= 0
        ]
        keep = [place for place, v in enumerate(frontier) if last[turn[v]] > t]
        stays = last[t] > t
        steps.append(_Step(options, arcs, keep, stays, rooms[count - 1 - t]))
        frontier = [frontier[place] for place in keep] + ([i] if stays else [])
    return steps


def good_order(program: Program, losses: Losses) -> tuple[int, ...]:
    """Order NFs with one open mode first, then along the traffic, always the NF that keeps fewest others waiting."""
    near: list[set[int]] = [set() for _ in program.names]
    for i, j, _ in program.arcs:
        near[i].add(j)
        near[j].add(i)
    settled = [sum(losses.base + loss <= 0 for loss in modes) <= 1 for modes in losses.mode]
    order = [i for i in range(len(program.names)) if settled[i]]
    left = {i for i in range(len(program.names)) if not settled[i]}
    waiting: set[int] = set()
    while left:
        pool = [i for i in waiting if i in left] or [min(left, key=lambda i: (len(near[i] & left), i))]
        chosen = min(pool, key=lambda i: (len((near[i] & left) - waiting), i))
        order.append(chosen)
        left.remove(chosen)
        waiting = (waiting | near[chosen]) & left
    return tuple(order)
