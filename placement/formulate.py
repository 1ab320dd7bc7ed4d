"""The equations, defined only here.

Variables, after ``contract``:

- ``x[i, m]`` in {0, 1}: NF i runs in mode m; ``sum_m x[i, m] = 1``. ``y[i, k]`` is the sum of x over i's modes at
sNIC k.
- ``c[i, j, k] >= y[i, k] - y[j, k]``, 0 <= c <= 1, continuous: i is on sNIC k and j is not. A demand i -> j then leaves
  sNIC k (up) on ``c[i, j, k]`` and enters it (down) on ``c[j, i, k]``.

Rows are ``sum of coefficients <= limit`` in whole numbers: PCIe up, down and shared per sNIC and moment; resources per
location and moment; latency per chain; anti-affinity. Objectives have the same form without a limit: host cost, moves,
latency. UNO 3.2.1 has one sNIC, one shared limit, one resource and one moment; its capacity row sums over j where i is
meant, and one orientation of ``d >= p_i - p_j`` is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from placement.contract import Traffic, contract
from placement.evaluate import used_by
from placement.model import HOST, Locations, Problem, Sample

Arc = tuple[int, int, int]
"""(i, j, k): the crossing variable of NF i on sNIC k and NF j not on it."""


@dataclass
class Form:
    """A linear form in x and c, plus a constant.

    Attributes:
        choice: per NF that occurs, its coefficient in each mode.
        cross: per arc that occurs, its coefficient, which is never negative.
        constant: the part that does not depend on any choice.
    """

    choice: dict[int, list[int]] = field(default_factory=dict)
    cross: dict[int, int] = field(default_factory=dict)
    constant: int = 0

    def value(self, modes: tuple[int, ...], crossing: list[bool]) -> int:
        """Evaluate the form at a full choice of modes."""
        total = self.constant + sum(coefs[modes[i]] for i, coefs in self.choice.items())
        return total + sum(coef for arc, coef in self.cross.items() if crossing[arc])


@dataclass(frozen=True)
class Row:
    """A form that must not exceed a limit.

    Attributes:
        name: as ``evaluate.breaches`` names the limit.
        kind: ``pcie``, ``resource``, ``latency``, ``apart`` or ``goal`` (an objective turned into a limit).
        form: the left side.
        limit: the right side, the form's constant not yet subtracted.
    """

    name: str
    kind: str
    form: Form
    limit: int


@dataclass(frozen=True)
class Program:
    """A placement problem as equations.

    Attributes:
        names: of the NFs.
        sites: per NF, the location of each of its modes.
        arcs: the crossing variables.
        rows: the limits.
        host: host cost, summed over all moments.
        moves: state cost of all moves; empty if nothing runs yet.
        latency: latency of all chains together.
    """

    names: tuple[str, ...]
    sites: tuple[tuple[int, ...], ...]
    arcs: tuple[Arc, ...]
    rows: tuple[Row, ...]
    host: Form
    moves: Form
    latency: Form

    def goal(self, name: str) -> Form:
        """Return the objective ``host``, ``moves`` or ``latency``."""
        return {"host": self.host, "moves": self.moves, "latency": self.latency}[name]

    def crossing(self, modes: tuple[int, ...]) -> list[bool]:
        """Tell which crossing variables are 1 at a choice of modes."""
        at = [sites[mode] for sites, mode in zip(self.sites, modes, strict=True)]
        return [at[i] == k and at[j] != k for i, j, k in self.arcs]

    def value(self, form: Form, modes: tuple[int, ...]) -> int:
        """Evaluate a form at a choice of modes."""
        return form.value(modes, self.crossing(modes))

    def broken(self, modes: tuple[int, ...]) -> list[Row]:
        """Return the rows that a choice of modes breaks."""
        crossing = self.crossing(modes)
        return [row for row in self.rows if row.form.value(modes, crossing) > row.limit]

    def with_goal(self, name: str, limit: int) -> Program:
        """Return the program with one more row: an objective is at most ``limit``."""
        return replace(self, rows=(*self.rows, Row(f"goal {name}", "goal", self.goal(name), limit)))


def formulate(problem: Problem, current: Locations | None = None) -> Program:
    """Write a valid problem as equations.

    Args:
        problem: as ``validate`` accepts it.
        current: where NFs run now, for the goal ``moves``.

    Example:
        >>> from placement.model import *
        >>> nf = NF("dpi", (Mode(HOST, {"cores": 1000}), Mode(1, {"cores": 2000})))
        >>> nic, traffic = Nic({"cores": 500}, shared=9), Demand("vm", "dpi", 7)
        >>> problem = Problem((nf,), vms=("vm",), nics=(nic,), demands=(traffic,))
        >>> [(row.name, row.form.choice, row.limit) for row in formulate(problem).rows]
        [('pcie shared of sNIC 1', {0: [0, 7]}, 9), ('cores of sNIC 1', {0: [0, 2000]}, 500)]
    """
    return _Writer(problem).write(current or {})


class _Writer:
    """Writes rows one by one, and creates arcs when a row first needs them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.sites = tuple(tuple(mode.location for mode in nf.modes) for nf in problem.nfs)
        self.index = {nf.name: i for i, nf in enumerate(problem.nfs)}
        self.fixed = problem.fixed()
        self.arcs: dict[Arc, int] = {}
        self.rows: list[Row] = []

    def write(self, current: Locations) -> Program:
        for number, sample in enumerate(self.problem.moments()):
            suffix = f" in sample {number}" if number else ""
            self._pcie(contract(self.problem, sample), suffix)
            self._resources(sample, suffix)
        latency = self._chains()
        self._apart()
        host, moves = self._host(), self._moves(current)
        names = tuple(nf.name for nf in self.problem.nfs)
        return Program(names, self.sites, tuple(self.arcs), tuple(self.rows), host, moves, latency)

    def _unary(self, form: Form, i: int, amount: Callable[[int], int]) -> None:
        """Add an amount that depends on the location of NF i."""
        coefs = form.choice.setdefault(i, [0] * len(self.sites[i]))
        for m, location in enumerate(self.sites[i]):
            coefs[m] += amount(location)

    def _cross(self, form: Form, i: int, j: int, k: int, amount: int) -> None:
        """Add ``amount * c[i, j, k]``, except where the variable is 0 or depends on one NF only."""
        inside, outside = k in self.sites[i], any(site != k for site in self.sites[j])
        if not inside or not outside or amount == 0:
            return
        if k not in self.sites[j]:
            self._unary(form, i, lambda site: amount * (site == k))
        elif all(site == k for site in self.sites[i]):
            self._unary(form, j, lambda site: amount * (site != k))
        else:
            arc = self.arcs.setdefault((i, j, k), len(self.arcs))
            form.cross[arc] = form.cross.get(arc, 0) + amount

    def _pcie(self, traffic: Traffic, suffix: str) -> None:
        for k, nic in enumerate(self.problem.nics, 1):
            for name, limit, up, down in (
                ("up", nic.up, True, False),
                ("down", nic.down, False, True),
                ("shared", nic.shared, True, True),
            ):
                if limit is not None:
                    form = self._link(traffic, k, up, down)
                    self.rows.append(Row(f"pcie {name} of sNIC {k}{suffix}", "pcie", form, limit))

    def _link(self, traffic: Traffic, k: int, up: bool, down: bool) -> Form:
        """Return the Mbps on the PCIe link of sNIC k in the given directions."""
        form = Form()
        for (i, j), mbps in traffic.between.items():
            if up:
                self._cross(form, i, j, k, mbps)
            if down:
                self._cross(form, j, i, k, mbps)
        for ends, leaves, enters in ((traffic.leaving, up, down), (traffic.entering, down, up)):
            for (i, place), mbps in ends.items():
                if place == k and enters:
                    self._unary(form, i, lambda site, mbps=mbps: mbps * (site != k))
                elif place != k and leaves:
                    self._unary(form, i, lambda site, mbps=mbps: mbps * (site == k))
        for (source, target), mbps in traffic.fixed.items():
            form.constant += mbps * ((up and source == k != target) + (down and target == k != source))
        return form

    def _resources(self, sample: Sample, suffix: str) -> None:
        places = [(HOST, "the host", self.problem.host)]
        places += [(k, f"sNIC {k}", nic.capacity) for k, nic in enumerate(self.problem.nics, 1)]
        for place, called, capacity in places:
            for resource, limit in capacity.items():
                form = self._use(sample, place, lambda use, resource=resource: use.get(resource, 0))
                self.rows.append(Row(f"{resource} of {called}{suffix}", "resource", form, limit))

    def _use(self, sample: Sample, place: int, amount: Callable[..., int]) -> Form:
        form = Form()
        for i, nf in enumerate(self.problem.nfs):
            coefs = [
                amount(used_by(sample, nf.name, m, mode)) if mode.location == place else 0
                for m, mode in enumerate(nf.modes)
            ]
            if any(coefs):
                form.choice[i] = coefs
        return form

    def _host(self) -> Form:
        weights = self.problem.weights
        total = Form()
        for sample in self.problem.moments():
            form = self._use(
                sample, HOST, lambda use: sum(weights.get(name, 0) * amount for name, amount in use.items())
            )
            for i, coefs in form.choice.items():
                before = total.choice.get(i, [0] * len(coefs))
                total.choice[i] = [a + b for a, b in zip(before, coefs, strict=True)]
        return total

    def _moves(self, current: Locations) -> Form:
        form = Form()
        for i, nf in enumerate(self.problem.nfs):
            if nf.name in current and nf.state_cost:
                form.choice[i] = [nf.state_cost * (site != current[nf.name]) for site in self.sites[i]]
        return form

    def _chains(self) -> Form:
        total = Form()
        for chain in self.problem.chains:
            form = Form()
            self._chain(form, chain.path)
            if chain.limit_us is not None:
                self.rows.append(Row(f"latency of chain {chain.name}", "latency", form, chain.limit_us))
            self._chain(total, chain.path)
        return total

    def _chain(self, form: Form, path: Iterable[str]) -> None:
        path = tuple(path)
        for name in path:
            if name in self.index:
                modes = self.problem.nfs[self.index[name]].modes
                coefs = form.choice.setdefault(self.index[name], [0] * len(modes))
                for m, mode in enumerate(modes):
                    coefs[m] += mode.latency_us
        for first, second in itertools.pairwise(path):
            self._hop(form, first, second)

    def _hop(self, form: Form, first: str, second: str) -> None:
        """Add the time of one hop of a chain: ``crossing_us`` per PCIe link."""
        i, j, delta = self.index.get(first), self.index.get(second), self.problem.crossing_us
        if i == j is not None:
            return
        if i is not None and j is not None:
            for k in range(1, len(self.problem.nics) + 1):
                self._cross(form, i, j, k, delta)
                self._cross(form, j, i, k, delta)
        elif i is None and j is None:
            form.constant += delta * _links(self.fixed[first], self.fixed[second])
        else:
            nf, place = (i, self.fixed[second]) if i is not None else (j, self.fixed[first])
            if nf is not None:
                self._unary(form, nf, lambda site: delta * _links(site, place))

    def _apart(self) -> None:
        for first, second in self.problem.apart:
            i, j = self.index[first], self.index[second]
            for k in sorted(set(self.sites[i]) & set(self.sites[j]) - {HOST}):
                form = Form({n: [int(site == k) for site in self.sites[n]] for n in (i, j)})
                self.rows.append(Row(f"apart {first} and {second} on sNIC {k}", "apart", form, 1))


def _links(first: int, second: int) -> int:
    """Count the PCIe links between two locations."""
    return 0 if first == second else (first != HOST) + (second != HOST)
