"""Conversion of a placement graph (UNO 3.2.1) from and to networkx.

Vertices carry ``kind`` (``nf``, ``vm`` or ``port``); an NF carries ``modes`` and optionally ``state_cost``; a port
carries ``nic`` (default 1). Edges carry ``mbps``. Undirected edges are read as traffic in both directions that adds up
to ``mbps`` on a shared limit; with a directional limit the graph must be directed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from placement.errors import ProblemError
from placement.model import NF, Demand, Mode, Nic, Port, Problem


def from_graph(graph: nx.Graph, nics: tuple[Nic, ...], **more: Any) -> Problem:
    """Read a placement graph.

    Args:
        graph: vertices and edges as described above; ``modes`` is a sequence of ``Mode``.
        nics: the sNICs.
        **more: further fields of ``Problem``, for example ``host`` or ``chains``.

    Raises:
        ProblemError: a vertex or edge lacks an attribute, or an undirected graph meets a directional limit.

    Example:
        >>> graph = nx.DiGraph()
        >>> graph.add_node("dpi", kind="nf", modes=(Mode(0, {"cores": 5}), Mode(1, {"cores": 10})))
        >>> graph.add_node("vm", kind="vm")
        >>> graph.add_edge("vm", "dpi", mbps=1800)
        >>> from_graph(graph, (Nic({"cores": 10}, shared=2000),)).demands
        (Demand(source='vm', target='dpi', mbps=1800),)
    """
    if not graph.is_directed():
        for number, nic in enumerate(nics, 1):
            if nic.up is not None or nic.down is not None:
                raise ProblemError(
                    f"the graph is undirected and sNIC {number} limits one direction (up={nic.up}, down={nic.down}); "
                    f"use a DiGraph, or the limit 'shared'"
                )
    nfs: list[NF] = []
    vms: list[str] = []
    ports: list[Port] = []
    for name, data in graph.nodes(data=True):
        kind = data.get("kind")
        if kind == "nf":
            nfs.append(_nf(name, data))
        elif kind == "vm":
            vms.append(name)
        elif kind == "port":
            ports.append(Port(name, data.get("nic", 1)))
        else:
            raise ProblemError(f"vertex {name!r} has kind={kind!r}; expected 'nf', 'vm' or 'port'")
    demands = tuple(_demand(source, target, data) for source, target, data in graph.edges(data=True))
    return Problem(tuple(nfs), tuple(vms), tuple(ports), demands, nics, **more)


def _nf(name: str, data: Mapping[str, Any]) -> NF:
    modes = tuple(data.get("modes", ()))
    for mode in modes:
        if not isinstance(mode, Mode):
            raise ProblemError(f"NF {name!r} has the mode {mode!r}; expected a placement.Mode")
    return NF(name, modes, data.get("state_cost", 1))


def _demand(source: str, target: str, data: Mapping[str, Any]) -> Demand:
    if "mbps" not in data:
        raise ProblemError(f"edge {source!r} - {target!r} has no 'mbps'; give it the traffic in whole Mbps")
    return Demand(source, target, data["mbps"])


def to_graph(problem: Problem, where: Mapping[str, int] | None = None) -> nx.DiGraph:
    """Write the placement graph of a problem, with ``location`` on each vertex if a placement is given.

    Edges that cross a PCIe link then carry ``crosses=True``.
    """
    graph = nx.DiGraph()
    fixed = problem.fixed()
    for nf in problem.nfs:
        graph.add_node(nf.name, kind="nf", modes=nf.modes, state_cost=nf.state_cost)
    for name in problem.vms:
        graph.add_node(name, kind="vm")
    for port in problem.ports:
        graph.add_node(port.name, kind="port", nic=port.nic)
    for demand in problem.demands:
        before = graph.get_edge_data(demand.source, demand.target, {"mbps": 0})["mbps"]
        graph.add_edge(demand.source, demand.target, mbps=before + demand.mbps)
    if where is not None:
        places = fixed | dict(where)
        nx.set_node_attributes(graph, places, "location")
        for source, target, data in graph.edges(data=True):
            data["crosses"] = places[source] != places[target]
    return graph
