"""Placement of network functions on the host or an sNIC: proven, explained, and stable.

A pure library: it turns a problem into a plan, and reads, writes and moves nothing. Only ``fleet`` talks to a cluster.

Example:
    >>> from placement import HOST, NF, Demand, Mode, Nic, Port, Problem, solve
    >>> dpi = NF("dpi", (Mode(HOST, {"cores": 1000}), Mode(1, {"cores": 2000})))
    >>> nic = Nic({"cores": 2000}, shared=5000)
    >>> traffic = (Demand("eth0", "dpi", 1800), Demand("dpi", "vm", 1800))
    >>> plan = solve(Problem((dpi,), ("vm",), (Port("eth0"),), traffic, (nic,)))
    >>> plan.placement
    {'dpi': 1}
"""

from placement.certify import Certificate
from placement.errors import PlacementError
from placement.graph import from_graph, to_graph
from placement.model import (
    HOST,
    NF,
    Chain,
    Demand,
    Mode,
    Nic,
    Port,
    Problem,
    Sample,
    pin,
    robust,
)
from placement.moves import Move
from placement.solve import Plan, Stage, solve
from placement.validate import validate

__all__ = [
    "HOST",
    "NF",
    "Certificate",
    "Chain",
    "Demand",
    "Mode",
    "Move",
    "Nic",
    "PlacementError",
    "Plan",
    "Port",
    "Problem",
    "Sample",
    "Stage",
    "from_graph",
    "pin",
    "robust",
    "solve",
    "to_graph",
    "validate",
]
