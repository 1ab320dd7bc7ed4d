"""A fleet of servers whose traffic follows the demand matrix of a network, for example one of SNDlib.

The servers of a site share the site's demands: some carry more than others, as heavy-tailed flows are distributed, but
none more than its line. Each virtual machine reaches its part of the other sites through functions of its own, and so a
neighbour on the same server.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from placement.errors import ProblemError
from placement.fleet.servers import Made, Server
from placement.model import CORES, Nic, Port
from placement.studies.workloads import KINDS, Builder, heavy_tailed

VMS = 12
NEIGHBOURS = 0.2
"""Traffic to the neighbour, as a part of that to other sites."""


@dataclass(frozen=True)
class Hardware:
    """The hardware of every server, and the traffic of an average one.

    Attributes:
        millicores: the sNIC's cores.
        pcie_mbps: its PCIe link, both directions together (UNO 2.3: 32 Gbps).
        line_mbps: the most that a server sends to and receives from other sites, together.
        mean_mbps: what it does on average.
    """

    millicores: int = 16_000
    pcie_mbps: int = 32_000
    line_mbps: int = 25_000
    mean_mbps: int = 10_000


@dataclass(frozen=True)
class Site:
    """Traffic of a site in the network's own unit, per other site: to it, and from it."""

    name: str
    to: Mapping[str, float]
    back: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.to.values()) + sum(self.back.values())


def sites(document: str) -> list[Site]:
    """Read the sites of a network.

    Args:
        document: a network of topohub as JSON text (``json.dumps(topohub.get("sndlib/germany50"))``).

    Raises:
        ProblemError: the document has no demands.
    """
    rows: Mapping[str, Mapping[str, float]] = json.loads(document).get("graph", {}).get("demands", {})
    names = sorted({*rows, *itertools.chain.from_iterable(rows.values())}, key=lambda name: (len(name), name))
    found = []
    for name in names:
        to = {other: rows[name][other] for other in names if rows.get(name, {}).get(other, 0) > 0 and other != name}
        back = {other: rows[other][name] for other in names if rows.get(other, {}).get(name, 0) > 0 and other != name}
        if to or back:
            found.append(Site(name, to, back))
    if not found:
        raise ProblemError("the network has no demands under graph.demands; take one of topohub's 'sndlib/...'")
    return found


def fleet(document: str, servers: int, seed: int = 0, hardware: Hardware | None = None) -> list[Server]:
    """Build a fleet; a site has servers in proportion to its traffic.

    Args:
        document: the network, as ``sites`` has it.
        servers: their number.
        seed: decides on the shares of the servers, and on their functions.
        hardware: of each server.

    Raises:
        ProblemError: the document has no demands.
    """
    kind = hardware or Hardware()
    found = sites(document)
    scale = servers * kind.mean_mbps / sum(site.total for site in found)
    made = []
    for site, count in zip(found, _shared_out(servers, [site.total for site in found]), strict=True):
        loads = _loads(random.Random(f"{seed} {site.name}"), count, scale * site.total, kind.line_mbps) if count else []
        for number, load in enumerate(loads):
            name = f"site{site.name}-{number:05}"
            made.append(Server(name, functools.partial(server, site, load / site.total, f"{seed} {name}", kind)))
    return made


def _shared_out(total: int, weights: list[float]) -> list[int]:
    """Divide a number in proportion to weights, by largest remainders."""
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [int(each) for each in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _loads(source: random.Random, count: int, total: float, line: float) -> list[float]:
    """Divide a site's Mbps among its servers; what exceeds a line goes to the others, as far as they have room."""
    drawn = heavy_tailed(source, count, 1000 * count)
    loads = [total * each / sum(drawn) for each in drawn]
    while (excess := sum(max(0.0, load - line) for load in loads)) > 1e-6 * total:
        room = sum(max(0.0, line - load) for load in loads)
        part = min(1.0, excess / room) if room else 0.0
        loads = [min(load, line) + part * max(0.0, line - load) for load in loads]
    return loads


def server(site: Site, mbps: float, seed: str, hardware: Hardware) -> Made:
    """Build a server's problem.

    Args:
        site: where it is.
        mbps: its traffic for each unit of the site's demands.
        seed: decides which virtual machine serves which other site, and through which functions.
        hardware: its limits.
    """
    source, made = random.Random(seed), Builder()
    vms = [f"vm{number}" for number in range(VMS)]
    chains = [[made.nf(source.choice(KINDS)) for _ in range(source.randint(1, 4))] for _ in vms]
    out, back = [0.0] * VMS, [0.0] * VMS
    for other in sorted({*site.to, *site.back}):
        vm = source.randrange(VMS)
        out[vm] += mbps * site.to.get(other, 0)
        back[vm] += mbps * site.back.get(other, 0)
    for number, vm in enumerate(vms):
        chain = chains[number]
        made.path([vm, *chain, "eth0"], round(out[number]))
        made.path(["eth0", *reversed(chain), vm], round(back[number]))
        made.path([vm, chain[0], vms[(number + 1) % VMS]], round(NEIGHBOURS * (out[number] + back[number])))
    problem = made.problem(vms, (Port("eth0"),))
    return replace(problem, nics=(Nic({CORES: hardware.millicores}, shared=hardware.pcie_mbps),)), None
