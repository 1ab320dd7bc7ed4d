"""Drops tenants' bounds and labels that no placement satisfies, so that they affect only their own project.

A wish is a chain's bound or a group of instances that must be apart. Counting links finds wishes that are impossible by
themselves; of several conflicting wishes the youngest is dropped. All are retried later.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from nfagent.chain_costs import crossings
from nfagent.decide.situation import Situation
from nfagent.model import Chain
from nfagent.store import Store

_log = logging.getLogger(__name__)

_RETRY_S = 30.0
_STRIKES = 3  # wishes of a project to examine one by one; after that all its others are dropped, too


@dataclass(frozen=True)
class Wish:
    """A tenant's requirement on the placement.

    Attributes:
        key: the id of a chain or of a group.
        event: prefix of its events.
    """

    key: str
    event: str
    project: str
    name: str
    created: float


class Wishes:
    """Remembers dropped wishes.

    Args:
        store: for the events ``chain.unkept``, ``chain.kept``, ``apart.unkept`` and ``apart.kept``.
        crossing_us: latency of a PCIe link.
        clock: seconds of a steady clock.
    """

    def __init__(self, store: Store, crossing_us: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._crossing_us = crossing_us
        self._clock = clock
        self._left_out: dict[str, str] = {}
        self._since = float("-inf")
        self._told: dict[str, tuple[Wish, str]] = {}

    def apply(self, now: Situation) -> Situation:
        """Return the situation without dropped wishes."""
        if self._clock() - self._since >= _RETRY_S:
            self._left_out, self._since = {}, self._clock()
        for chain in now.chains:
            least = self._crossing_us * least_crossings(now, chain)
            if least > (chain.latency_us or 0):
                self._left_out[chain.id] = f"its hops take at least {least} us, but its bound is {chain.latency_us} us"
        return without(now, self._left_out)

    def relax(self, now: Situation, is_possible: Callable[[Situation], bool]) -> Situation | None:
        """Drop more wishes until the situation has a placement; None if wishes are not the obstacle.

        Args:
            now: without a placement.
            is_possible: whether a situation has one.
        """
        left = wishes_of(now)
        if not left or not is_possible(without(now, [wish.key for wish in left])):
            return None
        strikes: Counter[str] = Counter()
        while True:
            culprit = _first_conflict(now, left, is_possible)
            strikes[culprit.project] += 1
            for wish in left:
                if wish == culprit or (wish.project == culprit.project and strikes[culprit.project] >= _STRIKES):
                    self._left_out[wish.key] = "no placement satisfies it together with all other requirements"
            now = without(now, self._left_out)
            left = [wish for wish in left if wish.key not in self._left_out]
            if is_possible(now):
                return now

    def settle(self, everything: Situation) -> None:
        """Emit events for newly dropped and newly kept wishes."""
        known = {wish.key: wish for wish in wishes_of(everything)}
        found = {key: (known[key], why) for key, why in self._left_out.items() if key in known}
        new = [entry for key, entry in found.items() if key not in self._told]
        kept = [wish for key, (wish, _) in self._told.items() if key not in found and key in known]
        self._told = found
        if not new and not kept:
            return
        with self._store.change() as change:
            for wish, why in new:
                _log.warning("ignored, of project %s: %s %s: %s", wish.project, wish.event, wish.name, why)
                told = {"id": wish.key, "name": wish.name, "reason": TOLD}
                change.event(f"{wish.event}.unkept", wish.key, wish.project, told)
            for wish in kept:
                change.event(f"{wish.event}.kept", wish.key, wish.project, {"id": wish.key, "name": wish.name})

    def listed(self) -> list[dict[str, Any]]:
        """Return dropped wishes, for administrators."""
        return [
            {"what": wish.event, "id": key, "name": wish.name, "project": wish.project, "reason": why}
            for key, (wish, why) in self._told.items()
        ]

    def left_out(self) -> dict[str, str]:
        """Return the reasons by key, as tenants see them."""
        return dict.fromkeys(self._told, TOLD)


TOLD = "no placement satisfies it together with all other requirements; it is ignored"
"""Tenants do not learn more, since that would reveal where their hops are and what other projects run."""


def wishes_of(situation: Situation) -> list[Wish]:
    """Return all wishes, oldest first."""
    chains = [Wish(each.id, "chain", each.project, each.name, each.created) for each in situation.chains]
    groups = [Wish(each.key, "apart", each.project, each.label, each.created) for each in situation.apart]
    return sorted(chains + groups, key=lambda wish: (wish.created, wish.key))


def without(situation: Situation, keys: Iterable[str] | Mapping[str, str]) -> Situation:
    """Return the situation without some wishes."""
    gone = set(keys)
    return replace(
        situation,
        chains=tuple(each for each in situation.chains if each.id not in gone),
        apart=tuple(each for each in situation.apart if each.key not in gone),
    )


def least_crossings(situation: Situation, chain: Chain) -> int:
    """Return the minimum number of PCIe links that a chain crosses."""
    allowed = {each.name: each.allowed for each in situation.functions}
    allowed |= {name: (place,) for name, place in situation.fixed.items()}
    least = dict.fromkeys(allowed[chain.hops[0]], 0)
    home = situation.locations[0]
    for before, hop in pairwise(chain.hops):
        choices = allowed[before] if hop == before else allowed[hop]
        least = {
            place: min(so_far + crossings(other, place, home) for other, so_far in least.items()) for place in choices
        }
    return min(least.values())


def _first_conflict(now: Situation, wishes: list[Wish], is_possible: Callable[[Situation], bool]) -> Wish:
    """Return the oldest wish that conflicts with the older ones."""
    possible, impossible = 0, len(wishes)
    while impossible - possible > 1:
        middle = (possible + impossible) // 2
        if is_possible(without(now, [wish.key for wish in wishes[middle:]])):
            possible = middle
        else:
            impossible = middle
    return wishes[impossible - 1]
