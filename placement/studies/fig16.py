"""UNO Fig. 16: load of the host, the sNIC and the PCIe link as T grows, on the graph of Fig. 15."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.evaluate import load
from placement.model import CORES, HOST
from placement.solve import solve
from placement.studies.workloads import uno_ring

LIMITS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""UNO's T in Gbps."""


@dataclass(frozen=True)
class Point:
    """One T: Gbps, host cores, sNIC cores, Gbps on the PCIe link."""

    limit: int
    host: float
    snic: float
    pcie: float


def curve(limits: Sequence[int] = LIMITS, backend: str = "auto") -> list[Point]:
    """Solve Fig. 15 for each T, and recheck every plan without a solver.

    Args:
        limits: T in Gbps.
        backend: as ``solve`` has it.

    Raises:
        CertificateError: a plan's certificate does not hold.

    Notes:
        UNO 5.3. The text lacks the figure itself; the ring of ``workloads.uno_ring`` fits its description.

    Example:
        >>> curve([10, 80])
        [Point(limit=10, host=18.0, snic=0.0, pcie=10.0), Point(limit=80, host=0.0, snic=36.0, pcie=74.8)]
    """
    points = []
    for limit in limits:
        problem = uno_ring(limit * 1000)
        plan = solve(problem, deadline=20, backend=backend)
        if backend == "auto":
            plan.check()
        taken = load(problem, plan.modes)
        host, snic = taken.use.get((HOST, CORES), 0), taken.use.get((1, CORES), 0)
        points.append(Point(limit, host / 1000, snic / 1000, taken.pcie(1) / 1000))
    return points
