"""Fault points, and the faults that can happen at each.

A point is a call across a border of the agent, or a write to its store; points are numbered in the order in which a run
comes to them. A run is replayed by its scenario's name and the faults: ``memfd:17.kill-old+23.crash``.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Border = Literal["control", "launch", "switch", "write"]

FOREVER = math.inf
NAP_S, BLIP_S, AWAY_S = 5.0, 1.0, 5.0

_ACTORS = ("kill-old", "kill-new", "kill-keeper", "hang-old", "hang-new", "nap-old", "nap-new", "down-nic")
_KINDS: dict[Border, tuple[str, ...]] = {
    "control": ("crash", "refuse", "lose", "dies", "delete", *_ACTORS),
    "launch": ("crash", "refuse", "lose", *_ACTORS),
    "switch": (
        *("crash", "refuse", "lose", "forget", "blip-nic"),
        *(f"{how}-{who}" for who in ("nic", "hub", "oneswitchd") for how in ("away", "lost")),
    ),
    "write": ("crash", "refuse", "lose", "delete"),
}


class AgentDiedError(BaseException):
    """The agent was killed; no part of it may act any more."""


@dataclass(frozen=True)
class Point:
    """A fault point that a run reached.

    Attributes:
        functions: number of the instance's processes.
        keepers: number of keepers.
    """

    index: int
    border: Border
    what: str
    functions: int
    keepers: int

    def faults(self) -> "list[Fault]":
        """Return all faults that can happen here."""
        return [Fault(self.index, kind) for kind in _KINDS[self.border] if self._has(kind)]

    def _has(self, kind: str) -> bool:
        if kind.endswith("-old"):
            return self.functions > 0
        if kind.endswith("-new"):
            return self.functions > 1
        return not kind.endswith("-keeper") or self.keepers > 0


@dataclass(frozen=True)
class Fault:
    """A fault that happens when a run reaches a point.

    Attributes:
        kind: ``crash``: the agent is killed before the call; ``refuse``: the call fails and has no effect; ``lose``: it
            takes effect and fails; ``dies``: as ``lose``, and the asked process ends; ``kill``, ``hang`` (forever),
            ``nap`` (for a while): a process ends or hangs before the call; ``blip``, ``away``, ``lost`` (forever):
            the same of a switch or oneswitchd; ``down-nic``: the smart NIC's switch was away long enough to
            count as down, and comes back; ``forget``: oneswitchd is restarted; ``delete``: a client deletes the
            instance.
    """

    index: int
    kind: str

    def __str__(self) -> str:
        return f"{self.index}.{self.kind}"


def parse(text: str) -> tuple[str, tuple[Fault, ...]]:
    """Split a run's name into its scenario and its faults."""
    scenario, _, faults = text.partition(":")
    found = [each.split(".", 1) for each in faults.split("+") if each]
    return scenario, tuple(Fault(int(index), kind) for index, kind in found)


def name(scenario: str, faults: Iterable[Fault]) -> str:
    """Return a run's name."""
    return f"{scenario}:{'+'.join(map(str, faults))}"
