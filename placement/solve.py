"""``solve``: turn a problem into a proven and explained plan."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property

from placement import evaluate
from placement.backends import Answer, Status
from placement.certify import Certificate, held
from placement.errors import (
    BackendError,
    CertificateError,
    DeadlineError,
    InfeasibleError,
    MoveOrderError,
    PlacementError,
)
from placement.explain import Why, explain
from placement.formulate import Program, formulate
from placement.infeasible import diagnose
from placement.model import Locations, Problem
from placement.moves import Move, order_moves
from placement.portfolio import AUTO, minimise
from placement.validate import validate


@dataclass(frozen=True)
class Stage:
    """One goal of the lexicographic order.

    Attributes:
        goal: ``host``, ``moves`` or ``latency``.
        value: the value reached.
        bound: no placement has a lower value, given the stages before.
        proven: whether the solver that found it proved it to be the least.
        backend: the backend that solved it.
        within: earlier goals and their limits.
        certificate: proof of the bound; None if the backend keeps none.
    """

    goal: str
    value: int
    bound: int | None
    proven: bool
    backend: str
    within: tuple[tuple[str, int], ...]
    certificate: Certificate | None


@dataclass(frozen=True)
class Plan:
    """The location of every NF, with reasons.

    Attributes:
        problem: the solved problem.
        current: the placement before, if given.
        placement: per NF its location: 0 the host, k sNIC k.
        modes: per NF the index of its mode.
        stages: the goals in order: host cost, then moves, then latency, as applicable.
        moves: steps from ``current``, each feasible.
        seconds: duration of the solve.
    """

    problem: Problem
    current: Locations | None
    placement: dict[str, int]
    modes: dict[str, int]
    stages: tuple[Stage, ...]
    moves: tuple[Move, ...]
    seconds: float

    @property
    def host_cost(self) -> int:
        """Return the host cost of the placement, summed over all moments (millicores with the default weights)."""
        return evaluate.host_cost(self.problem, self.modes)

    @property
    def bound(self) -> int | None:
        """Return the bound: no placement has a lower host cost."""
        return self.stages[0].bound

    @property
    def proven(self) -> bool:
        """Tell whether every stage's value is proven to be the least."""
        return all(stage.proven for stage in self.stages)

    @property
    def certified(self) -> bool:
        """Tell whether the certificates prove all that ``proven`` claims, so that ``check`` needs no solver."""
        return all(
            stage.bound is not None and stage.certificate and stage.bound >= stage.value for stage in self.stages
        )

    @property
    def certificate(self) -> Certificate | None:
        """Return the proof of ``bound``."""
        return self.stages[0].certificate

    @cached_property
    def why(self) -> Why:
        """Explain each NF's location, the binding limits and the runner-up; computed on first use."""
        return explain(self.problem, self.modes, self.certificate)

    def check(self) -> None:
        """Verify without a solver that the placement is feasible and that all bounds hold.

        Raises:
            CertificateError: something does not hold; the message says what.
        """
        broken = evaluate.breaches(self.problem, self.modes)
        if broken:
            raise CertificateError(f"the placement breaks {broken[0].limit}: {broken[0].used} of {broken[0].allowed}")
        values = {
            "host": self.host_cost,
            "moves": evaluate.move_cost(self.problem, self.modes, self.current or {}),
            "latency": sum(evaluate.latency(self.problem, self.modes, chain.path) for chain in self.problem.chains),
        }
        last = self.stages[-1]
        if values[last.goal] != last.value:
            raise CertificateError(f"the placement's {last.goal} is {values[last.goal]}, not {last.value}")
        for goal, limit in last.within:
            if values[goal] > limit:
                raise CertificateError(f"the placement's {goal} is {values[goal]}, more than {limit}")
        for stage in self.stages:
            if stage.certificate is not None:
                stage.certificate.check(self.problem, self.current)


def solve(
    problem: Problem,
    current: Locations | None = None,
    eps: float = 0.01,
    gap: float = 0.0,
    deadline: float = 1.0,
    backend: str = AUTO,
) -> Plan:
    """Decide where every NF runs.

    Host cost first; then, with ``current``, the least state cost of moves at a host cost of at most ``1 + eps`` times
    the least; then the least latency at that.

    Args:
        problem: the problem.
        current: where NFs run now; omitted NFs do not run yet.
        eps: the cost of stability, as a fraction of the host cost.
        gap: stop when the host cost is within this fraction of its bound; 0 asks for the optimum.
        deadline: seconds after which the best plan so far is returned, with ``proven`` false.
        backend: ``auto`` or the name of one solver.

    Raises:
        ProblemError: the problem is invalid.
        InfeasibleError: no placement satisfies all limits; its ``report`` says which changes would help.
        DeadlineError: no placement was found in time.
        BackendError: a solver is missing or failed.
        MoveOrderError: no feasible steps lead from ``current`` to the plan; the error carries the plan.

    Notes:
        UNO 3.2.1 (Algorithm 1) and 3.2.2, with the corrections listed in docs/placement.md.

    Example:
        >>> from placement import *
        >>> dpi = NF("dpi", (Mode(HOST, {"cores": 1000}), Mode(1, {"cores": 2000})))
        >>> nic = Nic({"cores": 2000}, shared=5000)
        >>> traffic = (Demand("eth0", "dpi", 1800), Demand("dpi", "vm", 1800))
        >>> plan = solve(Problem((dpi,), ("vm",), (Port("eth0"),), traffic, (nic,)))
        >>> plan.placement, plan.host_cost, plan.bound
        ({'dpi': 1}, 0, 0)
        >>> plan.check()
    """
    _settings(eps, gap, deadline)
    validate(problem)
    started = time.monotonic()
    if current is not None:
        _current(problem, current)
    program = formulate(problem, current)
    return _Solver(problem, program, current, eps, gap, started, deadline, backend).run()


def _settings(eps: float, gap: float, deadline: float) -> None:
    for name, value in (("eps", eps), ("gap", gap)):
        if not 0 <= value < 1e6:
            raise PlacementError(f"{name} is {value!r}; expected a fraction, 0 or more")
    if not 0 < deadline < float("inf"):
        raise PlacementError(f"deadline is {deadline!r}; expected seconds, more than 0")


def _current(problem: Problem, current: Locations) -> None:
    known = {nf.name for nf in problem.nfs}
    for name, location in current.items():
        if name in known and not 0 <= location <= len(problem.nics):
            raise PlacementError(f"current says NF {name!r} runs at {location}; expected 0 to {len(problem.nics)}")


class _Solver:
    """The stages of one call."""

    def __init__(
        self,
        problem: Problem,
        program: Program,
        current: Locations | None,
        eps: float,
        gap: float,
        started: float,
        deadline: float,
        backend: str,
    ) -> None:
        self.problem, self.program, self.current = problem, program, current
        self.eps, self.gap, self.backend = eps, gap, backend
        self.started, self.until = started, started + deadline
        self.stages: list[Stage] = []
        self.within: list[tuple[str, int]] = []

    def run(self) -> Plan:
        modes = self._stage("host", None)
        if self.current is not None and any(any(coefs) for coefs in self.program.moves.choice.values()):
            self.within.append(("host", int((1 + self.eps) * self.stages[0].value)))
            modes = self._stage("moves", modes)
            self.within.append(("moves", self.stages[-1].value))
        else:
            self.within.append(("host", self.stages[0].value))
        if self.problem.chains:
            modes = self._stage("latency", modes)
        names = self.program.names
        plan = Plan(
            self.problem,
            self.current,
            {name: self.program.sites[i][modes[i]] for i, name in enumerate(names)},
            {name: modes[i] for i, name in enumerate(names)},
            tuple(self.stages),
            (),
            time.monotonic() - self.started,
        )
        try:
            moves = self._moves(modes)
        except MoveOrderError as error:
            raise MoveOrderError(str(error), plan) from error
        return replace(plan, moves=moves, seconds=time.monotonic() - self.started)

    def _stage(self, goal: str, start: tuple[int, ...] | None) -> tuple[int, ...]:
        program = held(self.program, tuple(self.within))
        start = self._start(program, goal, start)
        left = max(self.until - time.monotonic(), 0.005)
        answer = minimise(program, goal, left, self.backend, start, self.gap if goal == "host" else 0.0)
        if answer.status == Status.INFEASIBLE:
            if start is not None:
                raise BackendError(f"backend {answer.backend!r} calls {goal!r} infeasible, but a placement is known")
            raise InfeasibleError(lambda: diagnose(self.problem, self.program, answer))
        modes = answer.modes if answer.modes is not None else start
        if modes is None:
            raise DeadlineError(
                f"no placement of {len(self.program.names)} NFs was found in {self.until - self.started:g} s, and none "
                f"was ruled out; allow more time (deadline), or use backend 'highs'"
            )
        value = program.value(program.goal(goal), modes)
        self.stages.append(self._record(goal, value, answer))
        return modes

    def _record(self, goal: str, value: int, answer: Answer) -> Stage:
        proven = answer.status == Status.OPTIMAL or (answer.bound is not None and answer.bound >= value)
        bound, certificate = answer.bound, None
        if answer.dual is not None and bound is not None:
            bound = min(bound, value)
            certificate = Certificate(goal, bound, tuple(self.within), (), answer.dual, answer.steps)
        if proven and self.backend != AUTO:
            bound = value
        return Stage(goal, value, bound, proven, answer.backend, tuple(self.within), certificate)

    def _start(self, program: Program, goal: str, start: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the better of the last stage's placement and the current one."""
        now = self._now(start)
        if now is None or program.broken(now):
            return start
        if start is None:
            return now
        form = program.goal(goal)
        return min(start, now, key=lambda modes: program.value(form, modes))

    def _now(self, others: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Return the current placement as modes: each NF's cheapest for the host there, new NFs as planned."""
        if self.current is None:
            return None
        found: list[int] = []
        for i, (name, sites) in enumerate(zip(self.program.names, self.program.sites, strict=True)):
            here = [m for m, site in enumerate(sites) if site == self.current.get(name)]
            if here:
                costs = self.program.host.choice.get(i, [0] * len(sites))
                found.append(others[i] if others and others[i] in here else min(here, key=costs.__getitem__))
            elif others:
                found.append(others[i])
            else:
                return None
        return tuple(found)

    def _moves(self, modes: tuple[int, ...]) -> tuple[Move, ...]:
        now = self._now(modes)
        if now is None:
            return ()
        return tuple(move for move in order_moves(self.program, now, modes) if move.source != move.target)
