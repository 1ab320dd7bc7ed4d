"""Damping: deciding under changing traffic without moving NFs back and forth.

UNO 3.2.2 leaves this open. The damper keeps the distinct samples of the last W and requires that every limit holds at
all of them. So traffic that repeats within W samples changes neither the feasible placements nor their cost, and
nothing moves. Otherwise an NF moves for one of two reasons: the current placement breaks a limit at some sample of the
window; or the window has a new sample, or for the first time consists of equal samples, and the host saves more within
W samples than the moves cost. (Savings are averaged over distinct samples: a small steady load may pay only after quiet
samples have left the window.) An NF that moved rests for W samples; only an overload that cannot be resolved otherwise
wakes it earlier. When the window is full for the first time, all NFs wake once, because earlier decisions used too few
samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement import evaluate
from placement.errors import DeadlineError, InfeasibleError, MoveOrderError, PinError, PlacementError
from placement.model import CORES, HOST, Locations, Problem, robust
from placement.solve import Plan, solve

OVERLOAD = "a limit would break"
"""The reason for moves that need not pay."""


@dataclass(frozen=True)
class Settings:
    """How strongly to damp.

    Attributes:
        window: W, in samples.
        eps: the cost of stability: a fraction of the host cost, and the least gain worth a move.
        price: host cost (millicores with the default weights) times samples that one unit of state cost is worth.
        deadline: seconds for each ``solve``.
        margin: the part of each sNIC's limits that moves for a gain leave free, so that the next peak does not drive
            the NF back.
    """

    window: int = 30
    eps: float = 0.01
    price: float = 1000.0
    deadline: float = 1.0
    margin: float = 0.0


class Damper:
    """Decides at each sample the placement until the next.

    Args:
        settings: how strongly to damp.
        current: where NFs run before the first sample; default: nowhere yet.

    Attributes:
        reason: the reason for the last plan.
        problem: the problem of the last plan: the window, with all NFs awake.

    Example:
        >>> from placement.studies.workloads import uno_ring
        >>> damper = Damper(Settings(window=4))
        >>> [len(damper.step(uno_ring(limit)).moves) for limit in (80_000, 40_000, 80_000, 40_000)]
        [0, 10, 0, 0]
    """

    def __init__(self, settings: Settings = Settings(), current: Locations | None = None) -> None:
        if settings.window < 1:
            raise PlacementError(f"the damper's window is {settings.window}; expected 1 sample or more")
        self.settings = settings
        self.current = None if current is None else dict(current)
        self.reason = ""
        self.problem: Problem | None = None
        self._samples: deque[Problem] = deque(maxlen=settings.window)
        self._rests: dict[str, int] = {}
        self._now = 0
        self._known: list[Problem] = []
        self._is_awake = self._wakes = False
        self._decided = 0

    def step(self, sample: Problem) -> Plan:
        """Add a sample and decide.

        Args:
            sample: the problem as it is now: present traffic and amounts.

        Returns:
            The plan for the window (or as much of it as can be satisfied together); its ``moves`` are to be done now.
            ``reason`` then gives the reason in a few words.

        Raises:
            InfeasibleError: not even the present sample can be satisfied; the current placement stays.
            PlacementError: as ``solve``.
        """
        self.observe(sample)
        return self.decide()

    def observe(self, sample: Problem) -> None:
        """Add a sample without deciding."""
        self._samples.append(sample)
        self._now += 1

    def revise(self, samples: Sequence[Problem]) -> None:
        """Replace the samples of the window: the same moments, after NFs or their possible locations changed."""
        self._samples = deque(samples, maxlen=self.settings.window)
        self._known = []

    def rest(self, nf: str) -> None:
        """Let an NF rest that others have moved."""
        self._rests[nf] = self._now + self.settings.window

    def decide(self) -> Plan:
        """Decide on the samples so far; returns and raises as `step`."""
        plan = self._decide()
        for move in plan.moves:
            self._rests[move.nf] = self._now + self.settings.window
        self.current = dict(plan.placement)
        return plan

    def _decide(self) -> Plan:
        distinct = self._distinct()
        self._wakes = not self._is_awake and self._now >= self.settings.window
        self._is_awake = self._is_awake or self._wakes
        rested = any(self._decided < until <= self._now for until in self._rests.values())
        self._rests = {name: until for name, until in self._rests.items() if until > self._now}
        steady = len(distinct) == 1 < len(self._known)
        fresh = any(sample not in self._known for sample in distinct) or steady or self._wakes or rested
        self._known = distinct
        self._decided = self._now
        if self.current is None:
            self.reason = "first placement"
            self.problem = distinct[-1]
            return solve(self.problem, deadline=self.settings.deadline)
        problem = self.problem = _joined(distinct)
        stay = self._stay(problem)
        if stay is not None and not fresh:
            self.reason = "nothing new"
            return stay
        if stay is not None:
            return self._gain(problem, stay)
        self.reason = OVERLOAD
        return self._mend(distinct)

    def _distinct(self) -> list[Problem]:
        """Return the window without repetitions, the present last."""
        found: list[Problem] = []
        for sample in reversed(self._samples):
            if sample not in found:
                found.append(sample)
        return found[::-1]

    def _stay(self, problem: Problem) -> Plan | None:
        """Return the current placement as a plan, if it satisfies the whole window."""
        held = self._pinned(problem, {nf.name for nf in problem.nfs})
        try:
            return solve(held, self.current, deadline=self.settings.deadline, gap=self.settings.eps / 4)
        except (InfeasibleError, PinError):  # a new wish may concern NFs that share an sNIC
            return None

    def _gain(self, problem: Problem, stay: Plan) -> Plan:
        """Return a better plan if its gain within W samples pays for its moves; else stay."""
        settings = self.settings
        try:
            better = self._solve(
                _tightened(self._pinned(problem, self._resting() | self._unpaying(problem)), settings.margin)
            )
        except (InfeasibleError, MoveOrderError, DeadlineError):
            # Staying is feasible, so only a move order, a new NF or the time limit can prevent a plan.
            self.reason = "no better placement can be reached"
            return stay
        gain = stay.host_cost - better.host_cost
        cost = evaluate.move_cost(problem, better.modes, self.current or {})
        worth = gain * settings.window / len(problem.moments())
        if gain > settings.eps * stay.host_cost and worth > settings.price * cost and better.moves:
            self.reason = f"saves {worth:.0f} within the window for moves that cost {settings.price * cost:.0f}"
            return better
        self.reason = "no gain pays for its moves"
        return stay

    def _unpaying(self, problem: Problem) -> set[str]:
        """Return NFs on the host that use less of it than their own move costs: they could only spoil a plan's gain."""
        settings, moments, current = self.settings, problem.moments(), self.current or {}
        found: set[str] = set()
        for nf in problem.nfs:
            here = [m for m, mode in enumerate(nf.modes) if mode.location == HOST]
            if current.get(nf.name) != HOST or not here:
                continue
            used = max(
                sum(
                    problem.weights.get(resource, 0) * amount
                    for moment in moments
                    for resource, amount in evaluate.used_by(moment, nf.name, m, nf.modes[m]).items()
                )
                for m in here
            )
            if used * settings.window / len(moments) <= settings.price * nf.state_cost:
                found.add(nf.name)
        return found

    def _mend(self, distinct: list[Problem]) -> Plan:
        """Satisfy as much of the window as possible, NFs at rest if possible, dropping the oldest samples first."""
        resting = self._resting()
        while True:
            problem = self.problem = _joined(distinct)
            for held in (resting, set[str]()):
                try:
                    return self._solve(self._pinned(problem, held))
                except (InfeasibleError, PinError):
                    if len(distinct) == 1 and not held:
                        raise
            distinct = distinct[(len(distinct) + 1) // 2 :]

    def _solve(self, problem: Problem) -> Plan:
        """Find the fewest moves at almost the least host cost; the bound may use a part of ``eps`` to save time."""
        eps = self.settings.eps
        return solve(problem, self.current, eps * 3 / 4, gap=eps / 4, deadline=self.settings.deadline)

    def _resting(self) -> set[str]:
        if self._wakes:
            return set()
        return set(self._rests)

    def _pinned(self, problem: Problem, held: set[str]) -> Problem:
        """Return the problem with some NFs kept at their location; those that run nowhere yet are free."""
        current = self.current or {}
        keep = {
            nf.name: [m for m, mode in enumerate(nf.modes) if mode.location == current.get(nf.name)]
            for nf in problem.nfs
            if nf.name in held
        }
        nfs = tuple(
            replace(nf, modes=tuple(nf.modes[m] for m in keep[nf.name])) if keep.get(nf.name) else nf
            for nf in problem.nfs
        )
        window = tuple(
            replace(
                sample,
                use={
                    name: tuple(uses[m] for m in keep[name]) if keep.get(name) else uses
                    for name, uses in sample.use.items()
                },
            )
            for sample in problem.window
        )
        return replace(problem, nfs=nfs, window=window)


def _joined(distinct: list[Problem]) -> Problem:
    """Join all samples into one problem; limits that changed over time hold with their smallest value."""
    present = distinct[-1]
    nics = tuple(
        replace(
            nic,
            capacity={
                name: min(s.nics[k].capacity.get(name, amount) for s in distinct)
                for name, amount in nic.capacity.items()
            },
            up=_least([s.nics[k].up for s in distinct]),
            down=_least([s.nics[k].down for s in distinct]),
            shared=_least([s.nics[k].shared for s in distinct]),
        )
        for k, nic in enumerate(present.nics)
    )
    return replace(robust(distinct), nics=nics)


def _tightened(problem: Problem, margin: float) -> Problem:
    """Return the problem with a part of the sNICs' cores and links left free."""
    if not margin:
        return problem

    def part(limit: int | None) -> int | None:
        return None if limit is None else int(limit * (1 - margin))

    nics = tuple(
        replace(
            nic,
            capacity={
                name: int(amount * (1 - margin)) if name == CORES else amount for name, amount in nic.capacity.items()
            },
            up=part(nic.up),
            down=part(nic.down),
            shared=part(nic.shared),
        )
        for nic in problem.nics
    )
    return replace(problem, nics=nics)


def _least(limits: list[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
