"""Converts a situation and its traffic to a placement problem of `placement.model`."""

from collections.abc import Sequence
from dataclasses import replace

from nfagent.capacity import Capacity
from nfagent.decide.demand import Costs, Moment
from nfagent.decide.situation import Function, Situation
from placement import HOST, NF, Chain, Demand, Mode, Nic, Port, Problem
from placement.model import CORES, MEMORY

SLOTS = "slots"
WIDE_SLOTS = "two-wire slots"


class ProblemMaker:
    """Builds the problems of one situation.

    Args:
        situation: the functions and their possible locations.
        costs: costs of functions.
        crossing_us: latency of a PCIe link.
    """

    def __init__(self, situation: Situation, costs: Costs, crossing_us: int) -> None:
        self._situation = situation
        self._costs = costs
        self._places = {name: index for index, name in enumerate(situation.locations)}
        host, *nics = situation.capacity.values()
        fixed = {name: self._places[switch] for name, switch in situation.fixed.items()}
        self._frame = Problem(
            nfs=(),
            vms=tuple(name for name, place in fixed.items() if place == HOST),
            ports=tuple(Port(name, place) for name, place in fixed.items() if place != HOST),
            nics=tuple(Nic(_amounts(each), up=each.pcie_mbps, down=each.pcie_mbps) for each in nics),
            host=_amounts(host),
            chains=tuple(Chain(chain.name, chain.hops, chain.latency_us) for chain in situation.chains),
            apart=tuple(pair for group in situation.apart for pair in group.pairs),
            crossing_us=crossing_us,
        )

    def problem(self, moment: Moment) -> Problem:
        """Return the problem of one moment, without the traffic of absent functions."""
        known = {each.name for each in self._situation.functions} | set(self._situation.fixed)
        demands = tuple(
            Demand(source, target, mbps)
            for (source, target), mbps in sorted(moment.demands.items())
            if source in known and target in known
        )
        nfs = tuple(self._nf(each, moment) for each in self._situation.functions)
        return replace(self._frame, nfs=nfs, demands=demands)

    def problems(self, moments: Sequence[Moment]) -> list[Problem]:
        """Return the problems of several moments; equal ones are one object."""
        made: list[tuple[Moment, Problem]] = []
        for moment in moments:
            same = next((problem for known, problem in made if known == moment), None)
            made.append((moment, same or self.problem(moment)))
        return [problem for _, problem in made]

    def _nf(self, function: Function, moment: Moment) -> NF:
        modes = tuple(self._mode(function, name, moment) for name in function.allowed)
        return NF(function.name, modes, function.state_cost)

    def _mode(self, function: Function, location: str, moment: Moment) -> Mode:
        capacity = self._situation.capacity[location]
        cores = self._costs.millicores(
            function.kind,
            self._situation.capacity[function.location],
            capacity,
            moment.traffic.get(function.instance, 0),
            moment.millicores.get(function.instance, 0),
        )
        use = {CORES: cores}
        if function.ports:
            use[SLOTS] = 1
        if function.ports > 1:
            use[WIDE_SLOTS] = 1
        if capacity.memory_mb is not None:
            use[MEMORY] = function.memory_mb
        return Mode(self._places[location], use)


def _amounts(capacity: Capacity) -> dict[str, int]:
    amounts = {
        CORES: capacity.millicores,
        SLOTS: len(capacity.slots),
        WIDE_SLOTS: sum(wires > 1 for wires in capacity.slots.values()),
    }
    return amounts | ({MEMORY: capacity.memory_mb} if capacity.memory_mb is not None else {})


def choice(problem: Problem, current: dict[str, int]) -> dict[str, int] | None:
    """Return the current placement as modes; None if something runs where it may not."""
    found: dict[str, int] = {}
    for nf in problem.nfs:
        mode = next((index for index, mode in enumerate(nf.modes) if mode.location == current.get(nf.name)), None)
        if mode is None:
            return None
        found[nf.name] = mode
    return found
