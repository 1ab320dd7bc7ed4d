"""Contraction of VMs and ports: the rest is NFs, the traffic between them, and each NF's traffic with fixed locations.

A VM is always on the host and a port always on its sNIC, so they need no variables: their traffic with an NF is a cost
of the NF's own location. That makes the problem several times smaller than UNO's Algorithm 1, where each is a variable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from placement.model import Problem, Sample


@dataclass(frozen=True)
class Traffic:
    """One moment's traffic in Mbps after contraction; NFs are indices into ``problem.nfs``.

    Attributes:
        between: from NF to NF.
        leaving: from an NF to the fixed vertices at a location.
        entering: from the fixed vertices at a location to an NF.
        fixed: from location to location, none of it movable.
    """

    between: Mapping[tuple[int, int], int]
    leaving: Mapping[tuple[int, int], int]
    entering: Mapping[tuple[int, int], int]
    fixed: Mapping[tuple[int, int], int]


def contract(problem: Problem, sample: Sample) -> Traffic:
    """Contract the fixed vertices of one moment, and add up parallel demands.

    Example:
        >>> from placement.model import *
        >>> problem = Problem(nfs=(NF("a", (Mode(0, {}),)),), vms=("vm",), demands=(Demand("vm", "a", 5),))
        >>> dict(contract(problem, problem.moments()[0]).entering)
        {(0, 0): 5}
    """
    index = {nf.name: i for i, nf in enumerate(problem.nfs)}
    fixed = problem.fixed()
    between: dict[tuple[int, int], int] = defaultdict(int)
    leaving: dict[tuple[int, int], int] = defaultdict(int)
    entering: dict[tuple[int, int], int] = defaultdict(int)
    still: dict[tuple[int, int], int] = defaultdict(int)
    for demand in sample.demands:
        if demand.mbps == 0:
            continue
        source, target = index.get(demand.source), index.get(demand.target)
        if source is not None and target is not None:
            between[source, target] += demand.mbps
        elif source is not None:
            leaving[source, fixed[demand.target]] += demand.mbps
        elif target is not None:
            entering[target, fixed[demand.source]] += demand.mbps
        else:
            still[fixed[demand.source], fixed[demand.target]] += demand.mbps
    return Traffic(between, leaving, entering, still)
