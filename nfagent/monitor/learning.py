"""Cost of a kind of network function, learnt from samples: millicores for each Mbps in and out, on host and sNIC.

The estimate is the median of the samples' ratios, weighted by traffic: a regression through the origin that tolerates
up to half wrong samples (Bassett & Koenker 1978: least absolute deviations). Costs learnt before a restart count as
additional samples.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from nfagent.measurement import Coefficient

KEPT = 300
"""Number of newest samples that count, for each kind and class of location."""

DEFAULT = 1.0
"""Millicores for each Mbps on the host before any measurement: a core for each Gbps."""

_LEAST_MBPS = 5.0
_LEAST_PPS = 100.0
_LEAST_MILLICORES = 2
_SATURATED = 0.9
_PRIOR = 100
_TRUSTED = 10


@dataclass
class _Known:
    prior: Coefficient | None = None
    ratios: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT))  # ratio, weight
    count: int = 0
    newest: Coefficient | None = None


class Learner:
    """All kinds.

    Thread safety: one thread calls `take`; `coefficients` may be called by any.

    Args:
        before: costs learnt by the previous agent.
    """

    def __init__(self, before: Iterable[Coefficient] = ()) -> None:
        self._known = {(each.kind, each.location_class): _Known(prior=each, newest=each) for each in before}

    def take(
        self, kind: str, location_class: str, mbps: float, pps: float, millicores: int, utilisation: float
    ) -> None:
        """Learn from a sample, unless it has too little traffic or the instance is saturated."""
        if mbps < _LEAST_MBPS or pps < _LEAST_PPS or millicores < _LEAST_MILLICORES or utilisation > _SATURATED:
            return
        known = self._known.get((kind, location_class))
        if known is None:
            known = _Known()
            self._known = self._known | {(kind, location_class): known}
        known.ratios.append((millicores / mbps, mbps))
        known.count += 1
        known.newest = _estimate(kind, location_class, known)

    def coefficients(self) -> list[Coefficient]:
        """Return the learnt costs, by kind and class."""
        found = [known.newest for _, known in sorted(self._known.items())]
        return [each for each in found if each is not None]


def _estimate(kind: str, location_class: str, known: _Known) -> Coefficient:
    weighted = list(known.ratios)
    before = 0
    if known.prior is not None:
        before = known.prior.samples
        typical = sum(weight for _, weight in weighted) / len(weighted)
        weighted.append((known.prior.millicores_per_mbps, typical * min(before, _PRIOR)))
    middle = _median(weighted)
    deviation = _median([(abs(ratio - middle) / middle, weight) for ratio, weight in weighted])
    return Coefficient(kind, location_class, middle, before + known.count, deviation)


def _median(weighted: list[tuple[float, float]]) -> float:
    ordered = sorted(weighted)
    half, below = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        below += weight
        if below >= half:
            return value
    return ordered[-1][0]


def is_trusted(learnt: Coefficient) -> bool:
    """Tell whether it is based on enough samples."""
    return learnt.samples >= _TRUSTED


def cost(learnt: Iterable[Coefficient], kind: str, location_class: str, core_factor: float) -> Coefficient:
    """Return a kind's cost in a class of locations: learnt there; else scaled from the other class; else a default.

    Args:
        learnt: all learnt costs.
        kind: of the network function.
        location_class: ``host`` or ``nic``.
        core_factor: millicores of the sNIC that do the work of one host millicore, until measured.

    Returns:
        The cost, with ``samples`` 0 unless it was learnt there.
    """
    known = {each.location_class: each for each in learnt if each.kind == kind and is_trusted(each)}
    if location_class in known:
        return known[location_class]
    factor = core_factor if location_class == "nic" else 1 / core_factor
    other = known.get("host" if location_class == "nic" else "nic")
    if other is not None:
        return Coefficient(kind, location_class, other.millicores_per_mbps * factor, 0, other.deviation)
    scale = core_factor if location_class == "nic" else 1.0
    return Coefficient(kind, location_class, DEFAULT * scale, 0, 0.0)
