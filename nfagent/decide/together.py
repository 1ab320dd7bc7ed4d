"""Where the instances start that were ordered with a chain: one placement problem, with the chain's bound.

Their traffic is unknown, so the problem has slots, memory and labels, but no load; other instances stay where they are.
Regular decisions take over once all of them run.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nfagent.capacity import Capacity
from nfagent.catalog import Catalog
from nfagent.decide.demand import Costs, Moment
from nfagent.decide.problem import ProblemMaker
from nfagent.decide.situation import Situation, situation
from nfagent.model import Chain, Instance, Running, View
from nfagent.monitor.layout import Layout
from nfagent.protocols import Fitness
from nfagent.store import Store, chains, instances
from nfagent.store.instances import Filter
from placement import PlacementError, solve

_log = logging.getLogger(__name__)


@dataclass
class _Plan:
    """Locations of a chain's new instances, by id, and which of them have been told theirs."""

    places: Mapping[str, str]
    told: set[str] = field(default_factory=set)


class Together:
    """Places the instances of chains.

    Thread safety: any thread may call `place`.

    Args:
        store: contains chains and instances.
        catalog: of kinds and flavors.
        capacity: of the locations, the hypervisor first.
        layout: locations of ports; None: oneswitchd does not answer.
        down: returns the locations where nothing can be started.
        fitness: of the locations for instances.
        crossing_us: latency of a PCIe link.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        capacity: Mapping[str, Capacity],
        layout: Callable[[], Layout | None],
        down: Callable[[], frozenset[str]],
        fitness: Fitness,
        crossing_us: int,
    ) -> None:
        self._store, self._catalog, self._capacity = store, catalog, capacity
        self._layout, self._down, self._fitness = layout, down, fitness
        self._crossing_us = crossing_us
        self._lock = threading.Lock()
        self._plans: dict[str, _Plan] = {}  # by chain

    def place(self, instance: Instance) -> str | None:
        """Return where an instance starts; None: it does not belong to such a chain, or the chain does not fit."""
        chain = chains.owner(self._store.read, instance.id)
        if chain is None or not chain.present:
            return None
        with self._lock:
            plan = self._plans.get(chain.id)
            # An instance that asks again could not start there: what was free then may be taken by now.
            if plan is None or instance.id in plan.told or instance.id not in plan.places:
                self._forget_deleted()
                plan = _Plan(self._solve(chain))
            plan.told.add(instance.id)
            self._plans[chain.id] = plan
            if plan.told.issuperset(plan.places):
                del self._plans[chain.id]
        return plan.places.get(instance.id)

    def _forget_deleted(self) -> None:
        for identity in list(self._plans):
            if chains.find(self._store.read, identity) is None:
                del self._plans[identity]

    def _solve(self, chain: Chain) -> dict[str, str]:
        layout = self._layout()
        if layout is None:
            _log.info("chain %s: oneswitchd does not answer, so each of its instances is placed by itself", chain.name)
            return {}
        views = instances.views(self._store.read, Filter())
        new = {view.instance.id for view in views if view.instance.id in chain.owned and _is_new(view)}
        views = [self._at_home(view) if view.instance.id in new else view for view in views]
        known = situation(views, [chain], self._catalog, self._capacity, layout, self._down(), {}, self._lacks(new))
        places = self._places(known, new)
        if places is None and known.chains:
            _log.info("chain %s: no placement keeps its bound", chain.name)
            places = self._places(replace(known, chains=()), new)
        if places is None:
            _log.info("chain %s: no placement has room for all of it, so each instance is placed by itself", chain.name)
        return places or {}

    def _places(self, known: Situation, new: set[str]) -> dict[str, str] | None:
        """Return locations of the new instances while all others stay; None: no placement is known."""
        functions = tuple(
            each if each.instance in new else replace(each, allowed=(each.location,)) for each in known.functions
        )
        ids = {each.name: each.instance for each in functions if each.instance in new}
        # A new label may keep functions apart that share an sNIC and stay there.
        apart = tuple(
            replace(group, pairs=tuple(pair for pair in group.pairs if not ids.keys().isdisjoint(pair)))
            for group in known.apart
        )
        asked = replace(known, functions=functions, apart=apart)
        try:
            plan = solve(ProblemMaker(asked, Costs(), self._crossing_us).problem(Moment()), asked.current())
        except PlacementError:
            return None
        return {ids[name]: known.locations[place] for name, place in plan.placement.items() if name in ids}

    def _at_home(self, view: View) -> View:
        """Return an instance as if it ran on the hypervisor, or where it is pinned."""
        home = next(iter(self._capacity))
        at = view.instance.pin or home
        return replace(view, migration=None, running=_running(view.instance, at))

    def _lacks(self, new: set[str]) -> Callable[[Instance, str], str | None]:
        def lacks(instance: Instance, location: str) -> str | None:
            kind = self._catalog.kinds.get(instance.kind)
            if instance.id not in new or kind is None:
                return self._fitness.lacks(instance, location)
            return self._fitness.look(kind, instance.config, len(instance.ports), location)

        return lacks


def _is_new(view: View) -> bool:
    """Return whether an instance is yet to be started somewhere."""
    running = view.running
    return view.instance.present and (running is None or (running.phase == "error" and running.pid is None))


def _running(instance: Instance, location: str) -> Running:
    return Running("", instance.id, "serving", location, None, "active", instance.generation, time.time())
