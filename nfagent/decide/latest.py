"""The newest plan, explained on request."""

import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nfagent.decide.demand import Moment
from nfagent.decide.situation import Situation
from nfagent.decide.words import Words
from nfagent.errors import UnavailableError
from nfagent.model import Decision, Instance
from placement import Plan, Problem
from placement.schema import to_json


@dataclass
class Latest:
    """The last result: a plan, or why there is none.

    Attributes:
        identity: id of the recorded decision; 0: nothing to change, and nothing recorded.
        plan: None: no placement satisfies all limits, and ``refusal`` says why.
        reason: the reason for this plan.
        problem: the problem of the plan, before any function was kept at rest.
        left_out: tenants' bounds and labels that cannot be satisfied.
        waits: why a function stays although it might save something elsewhere.
    """

    situation: Situation
    moment: Moment
    plan: Plan | None
    reason: str
    problem: Problem | None = None
    waits: str = "the gain does not pay for the move"
    refusal: dict[str, Any] | None = None
    left_out: list[dict[str, Any]] = field(default_factory=list)
    identity: int = 0
    at: float = field(default_factory=time.time)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _explanation: dict[str, Any] | None = None

    def explanation(self) -> dict[str, Any]:
        """See `Words.explanation`."""
        with self._lock:
            if self._explanation is None:
                self._explanation = self._explain()
            return self._explanation

    def _explain(self) -> dict[str, Any]:
        if self.plan is None:
            return self.refusal or {"feasible": None, "reason": self.reason}
        problem = self.problem or self.plan.problem
        said = Words(self.situation).explanation(self.plan, problem, self.moment, self.reason, self.waits)
        return said | {"left_out": self.left_out}

    def decision(self) -> Decision:
        """As a noun."""
        plan, moves = self.plan, tuple[str, ...]()
        where = {each.instance: each.location for each in self.situation.functions}
        if plan is not None:
            where = Words(self.situation).locations(plan)
            ids = {each.name: each.instance for each in self.situation.functions}
            moves = tuple(ids[move.nf] for move in plan.moves)
        return Decision(self.identity, self.at, self._document, where, self.explanation(), moves, None)

    @cached_property
    def _document(self) -> dict[str, Any]:
        """Return the problem as recorded; cached, because dashboards ask twice a second."""
        return {} if self.plan is None else to_json(self.problem or self.plan.problem, self.plan.current)

    def why(self, instance: Instance) -> dict[str, Any]:
        """Explain an instance's placement.

        Raises:
            UnavailableError: the instance is newer than this.
        """
        said = self.explanation()
        common = {"reason": said["reason"], "feasible": said["feasible"], "binding": said.get("binding", [])}
        found = said.get("functions", {}).get(instance.id)
        if found is not None:
            return {**found, **common, "decision": self.identity}
        function = self.situation.function(instance.id)
        if function is None:
            raise UnavailableError("no-decision", f"no decision about instance {instance.name!r} yet")
        text = f"{function.name} stays at {function.location}: {self.reason}"
        return {"name": function.name, "location": function.location, "text": text, **common}
