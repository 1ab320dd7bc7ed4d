"""The damper's window, in which each sample is the peak of several periods.

A window of W periods has at most ten samples: limits that hold at the peak of a few seconds hold throughout them, and a
problem with ten moments is solved many times faster than one with W.
"""

from collections import deque

from nfagent.decide.demand import Costs, Levels, Moment, peak
from nfagent.decide.problem import ProblemMaker, choice
from nfagent.decide.situation import Situation
from nfagent.measurement import Measurement
from placement import evaluate
from placement.damper import Damper, Settings
from placement.errors import InfeasibleError, PlacementError
from placement.model import Problem
from placement.solve import Plan, solve

_SAMPLES = 10
_DEADLINE_S = 0.45  # for each of two questions: the cost of staying, and the better plan
_MARGIN = 0.1
_PRICE = 500.0  # millicores times periods that a move must save: slightly more than it costs


class Window:
    """Traffic of the last W periods, and the damper over it.

    Args:
        periods: W.
        eps: the cost of stability; see `placement.damper.Settings`.
        crossing_us: latency of a PCIe link.
    """

    def __init__(self, periods: int, eps: float, crossing_us: int) -> None:
        self._fold = -(-periods // _SAMPLES)
        samples = -(-periods // self._fold)
        price = _PRICE / self._fold
        self.settings = Settings(window=samples, eps=eps, price=price, deadline=_DEADLINE_S, margin=_MARGIN)
        self._crossing_us = crossing_us
        self._damper = Damper(self.settings, current={})
        self._levels = Levels()
        self.costs = Costs()
        self._block: list[Moment] = []
        self._moments: deque[Moment] = deque(maxlen=samples)
        self._situation: Situation | None = None
        self._maker: ProblemMaker | None = None

    @property
    def newest(self) -> Moment:
        """Return the traffic of the current block, or of the last one."""
        if self._block:
            return peak(self._block)
        return self._moments[-1] if self._moments else Moment()

    @property
    def is_full(self) -> bool:
        """Return whether the window covers W periods; before, decisions lack data."""
        return len(self._moments) == self.settings.window

    @property
    def problem(self) -> Problem | None:
        """Return the last plan's problem."""
        return self._damper.problem

    @property
    def reason(self) -> str:
        """Return the reason for the last plan."""
        return self._damper.reason

    def take(self, situation: Situation, measured: Measurement) -> bool:
        """Add a period; return whether it completes a sample."""
        self._block.append(self._levels.moment(situation, measured))
        if len(self._block) > self._fold:  # during moves it stays open indefinitely
            self._block[:2] = [peak(self._block[:2])]
        return len(self._block) >= self._fold

    def face(self, situation: Situation, *, relearnt: bool) -> bool:
        """Switch to a situation; return whether it or the costs have changed."""
        if situation == self._situation and not relearnt:
            return False
        self._situation = situation
        self._maker = ProblemMaker(situation, self.costs, self._crossing_us)
        self._damper.revise(self._maker.problems(self._moments))
        return True

    def breaks(self) -> bool:
        """Return whether the current placement breaks a limit under the current traffic."""
        problem = self._problem(self.newest)
        assert self._situation is not None
        now = choice(problem, self._situation.current())
        return now is None or bool(evaluate.breaches(problem, now))

    def close(self) -> None:
        """Complete a sample from the periods since the last one."""
        if self._block:
            moment = self.newest
            self._block.clear()
            self._moments.append(moment)
            self._damper.observe(self._problem(moment))

    def decide(self) -> Plan:
        """Return a plan for the window; raises as `placement.damper.Damper.decide`."""
        assert self._situation is not None
        self._damper.current = self._situation.current()
        if not self._moments:
            self._block.append(Moment())
            self.close()
        return self._damper.decide()

    def propose(self) -> Plan:
        """Return the best plan for the current traffic, with any number of moves; raises as `placement.solve`."""
        assert self._situation is not None
        return solve(self._problem(self.newest), self._situation.current(), self.settings.eps, deadline=_DEADLINE_S)

    def rest(self, name: str) -> None:
        """Note a move by others."""
        self._damper.rest(name)

    def problem_of(self, situation: Situation) -> Problem:
        """Return the current problem in another situation."""
        return ProblemMaker(situation, self.costs, self._crossing_us).problem(self.newest)

    def is_possible(self, situation: Situation) -> bool:
        """Return whether a situation has a placement for the current traffic, as far as known within the time limit."""
        try:
            solve(self.problem_of(situation), situation.current(), self.settings.eps, deadline=_DEADLINE_S)
        except InfeasibleError:
            return False
        except PlacementError:
            return True
        return True

    def _problem(self, moment: Moment) -> Problem:
        assert self._maker is not None
        return self._maker.problem(moment)
