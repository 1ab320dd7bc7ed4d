"""Phrases plans for readers, with names of switches and instances instead of numbers."""

import re
from collections.abc import Mapping
from typing import Any

from nfagent.decide.demand import Moment
from nfagent.decide.problem import choice
from nfagent.decide.situation import Function, Situation
from placement import HOST, Plan, Problem, evaluate
from placement.explain import Alternative, Reason, explain
from placement.infeasible import Infeasibility

_SAMPLE = re.compile(r" in sample \d+$")
_NIC = re.compile(r"\bsNIC (\d+)\b")


class Words:
    """Words for one situation."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation

    def say(self, text: str) -> str:
        """Rephrase a sentence of `placement`."""
        names = self._situation.locations

        def name(match: re.Match[str]) -> str:
            number = int(match[1])
            return names[number] if number < len(names) else match[0]

        return _NIC.sub(name, text)

    def locations(self, plan: Plan) -> dict[str, str]:
        """Return the location by instance id."""
        return {
            each.instance: self._situation.locations[plan.placement[each.name]]
            for each in self._situation.functions
            if each.name in plan.placement
        }

    def explanation(self, plan: Plan, problem: Problem, moment: Moment, reason: str, waits: str) -> dict[str, Any]:
        """Explain a plan: its reason, the binding limits, and the reason for each function's location.

        Args:
            plan: the plan.
            problem: its problem, with all modes; the plan's own may have fewer, because of functions at rest.
            moment: the newest traffic.
            reason: the reason for this plan.
            waits: why a function stays although it might save something elsewhere.
        """
        modes = choice(problem, plan.placement) or {}
        why = explain(problem, modes, plan.certificate if plan.problem == problem else None)
        moments = len(problem.moments())
        functions = {
            each.instance: self._function(each, why.reasons[each.name], problem, moment, waits)
            for each in self._situation.functions
        }
        return {
            "feasible": True,
            "reason": reason,
            "host_millicores": round(evaluate.host_cost(problem, modes) / moments),
            "bound_millicores": None if plan.bound is None else round(plan.bound / moments),
            "proven": plan.proven,
            "binding": [self._limit(*limit) for limit in why.binding] or _blocking(functions),
            "limits": [self._limit(*limit) for limit in why.loads if " in sample " not in limit[0]],
            "functions": functions,
        }

    def _function(
        self, function: Function, reason: Reason, problem: Problem, moment: Moment, waits: str
    ) -> dict[str, Any]:
        moments = len(problem.moments())
        others = [self._alternative(each, moments) for each in reason.alternatives]
        where = self._situation.locations[reason.location]
        if function.fixed is not None and where != function.location:
            text = f"{function.name} would move from {function.location} to {where}: {function.fixed}"
        elif function.fixed is not None:
            text = f"{function.name} stays at {function.location}: {function.fixed}"
        elif where != function.location:
            text = f"{function.name} would move from {function.location} to {where}: {_why(function.location, others)}"
        elif not moment.traffic.get(function.instance) and not moment.millicores.get(function.instance):
            place = f"{function.location}, where instances start" if reason.location == HOST else function.location
            text = f"{function.name} is on {place}: it has no measured traffic, so a move would save nothing"
        else:
            text = f"{function.name} is on {where}: {_because(others, waits)}"
        if function.fixed is None:
            text += "".join(f"; {why}" for name, why in function.unfit.items() if name != where)
        return {
            "name": function.name,
            "location": where,
            "text": text,
            "fixed": function.fixed,
            "unfit": dict(function.unfit),
            "traffic_mbps": moment.traffic.get(function.instance, 0),
            "millicores": self._uses(function, problem),
            "runner_up": others[0] if others else None,
            "alternatives": others,
        }

    def _uses(self, function: Function, problem: Problem) -> dict[str, int]:
        """Return its resource use, by location."""
        modes = problem.nf(function.name).modes
        return {self._situation.locations[mode.location]: mode.use.get("cores", 0) for mode in modes}

    def _alternative(self, alternative: Alternative, moments: int) -> dict[str, Any]:
        """Return the average host cost over the window, and what forbids each location, each limit at its worst."""
        worst: dict[str, dict[str, Any]] = {}
        for name, used, allowed in alternative.blocked_by:
            limit = self._limit(_SAMPLE.sub("", name), used, allowed)
            if used > worst.get(limit["limit"], {"used": 0})["used"]:
                worst[limit["limit"]] = limit
        return {
            "location": self._situation.locations[alternative.location],
            "host_cost": round(alternative.host_cost / moments),
            "blocked_by": list(worst.values()),
        }

    def _limit(self, name: str, used: int, allowed: int) -> dict[str, Any]:
        return {"limit": self.say(name), "used": used, "allowed": allowed}

    def infeasible(self, report: Infeasibility, current: Mapping[str, str]) -> dict[str, Any]:
        """Explain why there is no plan: the necessary growth of limits, and the conflicts."""
        return {
            "feasible": False,
            "reason": self.say(str(report)),
            "conflict": [self.say(name) for name in report.conflict],
            "least": [
                {
                    "what": least.what,
                    "by": least.by,
                    "limits": [{"limit": self.say(name), "needed": needed} for name, needed in least.limits],
                }
                for least in report.least
            ],
            "cuts": [
                {
                    "limit": self.say(cut.limit),
                    "allowed": cut.allowed,
                    "mbps": cut.mbps,
                    "demands": [{"from": source, "to": target, "mbps": mbps} for source, target, mbps in cut.edges],
                }
                for cut in report.cuts
            ],
            "current": dict(current),
        }


def _why(here: str, others: list[dict[str, Any]]) -> str:
    """Tell why a function does not stay where it is."""
    stay = next((each for each in others if each["location"] == here), None)
    if stay is None:
        return f"it may not run at {here}"
    if stay["blocked_by"]:
        return _blocked(stay)
    if stay["host_cost"] > 0:
        return f"{here} would cost the hypervisor {stay['host_cost']} millicores more"
    return "the plan as a whole needs this move"


def _because(others: list[dict[str, Any]], waits: str) -> str:
    if not others:
        return "this is its only possible location"
    saving = [each for each in others if each["host_cost"] < 0]
    if not saving:
        return f"{others[0]['location']} would cost the hypervisor {others[0]['host_cost']} millicores more"
    best = min(saving, key=lambda each: each["host_cost"])
    saves = f"{best['location']} would save the hypervisor {-best['host_cost']} millicores"
    if not best["blocked_by"]:
        return f"{saves}, but {waits}"
    return f"{saves}, but {_blocked(best)}"


def _blocked(alternative: Mapping[str, Any]) -> str:
    """Tell which limits an alternative would break."""
    return " and ".join(
        f"{each['limit']} would be {each['used']} of {each['allowed']}" for each in alternative["blocked_by"]
    )


def _blocking(functions: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return limits that keep functions from cheaper locations, each with its value."""
    found: dict[str, dict[str, Any]] = {}
    for function in functions.values():
        for alternative in function["alternatives"]:
            if alternative["host_cost"] < 0:
                found |= {each["limit"]: each for each in alternative["blocked_by"]}
    return list(found.values())
