"""Checks a problem before any solver sees it. Every message names the thing, its value, and what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placement.errors import AmountError, DuplicateNameError, PinError, ProblemError, UnknownNameError
from placement.model import HOST, NF, Chain, Demand, Nic, Problem, Sample

MAX_MBPS = 100_000_000
"""100 Tbps. A larger demand or limit is probably in bits or kilobits per second."""
MAX_AMOUNT = 1_000_000_000
"""A million cores in millicores, a petabyte in MiB."""


def validate(problem: Problem) -> None:
    """Check a problem.

    Raises:
        AmountError: a number is negative, not whole, not a number, or too large for its unit.
        UnknownNameError: a demand, chain, pair or mode names something unknown.
        DuplicateNameError: two vertices share a name.
        PinError: an NF has no mode, or pins contradict each other.

    Example:
        >>> from placement.model import NF, Problem
        >>> validate(Problem(nfs=(NF("dpi", ()),)))
        Traceback (most recent call last):
            ...
        placement.errors.PinError: NF 'dpi' has no mode, so it cannot run anywhere; give it at least one Mode
    """
    names = _vertices(problem)
    for number, nic in enumerate(problem.nics, 1):
        _nic(number, nic)
    _amounts("the host's capacity", problem.host)
    _amounts("the weights", problem.weights)
    _whole("crossing_us", problem.crossing_us, "microseconds")
    for nf in problem.nfs:
        _nf(nf, problem)
    for sample in problem.moments():
        _sample(sample, problem, names)
    for chain in problem.chains:
        _chain(chain, names)
    _apart(problem)


def _vertices(problem: Problem) -> set[str]:
    seen: dict[str, str] = {}
    kinds: list[tuple[str, Iterable[str]]] = [
        ("NF", (nf.name for nf in problem.nfs)),
        ("VM", problem.vms),
        ("port", (port.name for port in problem.ports)),
    ]
    for kind, names in kinds:
        for name in names:
            if not isinstance(name, str) or not name:
                raise ProblemError(f"a {kind} has the name {name!r}; expected a non-empty string")
            if name in seen:
                raise DuplicateNameError(
                    f"{name!r} names {_a(seen[name])} and {_a(kind)}; every NF, VM and port needs its own name"
                )
            seen[name] = kind
    for port in problem.ports:
        if not 1 <= port.nic <= len(problem.nics):
            raise UnknownNameError(f"port {port.name!r} is on sNIC {port.nic!r}; the problem has {_nics(problem)}")
    return set(seen)


def _a(kind: str) -> str:
    return ("an " if kind == "NF" else "a ") + kind


def _nics(problem: Problem) -> str:
    count = len(problem.nics)
    return f"sNICs 1 to {count}" if count else "no sNICs"


def _whole(what: str, value: object, unit: str, most: int = MAX_AMOUNT) -> None:
    """Check one number.

    Raises:
        AmountError: it is not a whole number from 0 to ``most``.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        hint = ""
        if isinstance(value, float) and 0 < value < most and value != int(value):
            hint = f"; if it is in thousands of that (Gbps, cores), write {round(value * 1000)}"
        raise AmountError(f"{what} is {value!r}; expected a whole number of {unit}{hint}")
    if value < 0:
        raise AmountError(f"{what} is {value}; expected 0 or more {unit}")
    if value > most:
        raise AmountError(
            f"{what} is {value}, more than {most} {unit}: is it in another unit (bits per second, bytes)?"
        )


def _amounts(what: str, amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        _whole(f"{resource!r} in {what}", amount, "units (cores: millicores; memory: MiB)")


def _nic(number: int, nic: Nic) -> None:
    _amounts(f"the capacity of sNIC {number}", nic.capacity)
    for name, limit in (("up", nic.up), ("down", nic.down), ("shared", nic.shared)):
        if limit is not None:
            _whole(f"PCIe limit {name!r} of sNIC {number}", limit, "Mbps", MAX_MBPS)


def _nf(nf: NF, problem: Problem) -> None:
    if not nf.modes:
        raise PinError(f"NF {nf.name!r} has no mode, so it cannot run anywhere; give it at least one Mode")
    _whole(f"state_cost of NF {nf.name!r}", nf.state_cost, "units")
    for mode in nf.modes:
        where = mode.location
        if isinstance(where, bool) or not isinstance(where, int) or not 0 <= where <= len(problem.nics):
            raise UnknownNameError(
                f"NF {nf.name!r} has a mode at location {where!r}; expected 0 (the host) or one of {_nics(problem)}"
            )
        _whole(f"latency_us of NF {nf.name!r} at location {where}", mode.latency_us, "microseconds")
        _use(nf.name, where, mode.use, problem)


def _use(name: str, where: int, use: Mapping[str, int], problem: Problem) -> None:
    _amounts(f"the use of NF {name!r} at location {where}", use)
    if where == HOST:
        return
    for resource in use:
        if resource not in problem.nics[where - 1].capacity:
            raise UnknownNameError(
                f"NF {name!r} uses {resource!r} on sNIC {where}, whose capacity does not list it; "
                f"list it, with 0 if it has none"
            )


def _sample(sample: Sample, problem: Problem, names: set[str]) -> None:
    for demand in sample.demands:
        _demand(demand, names)
    if not sample.use:
        return
    modes = {nf.name: nf.modes for nf in problem.nfs}
    for name, uses in sample.use.items():
        if name not in modes:
            raise UnknownNameError(f"a sample of the window has amounts for {name!r}, which is not an NF")
        if len(uses) != len(modes[name]):
            raise ProblemError(f"a sample has {len(uses)} amounts for NF {name!r}, which has {len(modes[name])} modes")
        for mode, use in zip(modes[name], uses, strict=True):
            _use(name, mode.location, use, problem)


def _demand(demand: Demand, names: set[str]) -> None:
    for end in (demand.source, demand.target):
        if end not in names:
            raise UnknownNameError(
                f"demand {demand.source!r} -> {demand.target!r} names {end!r}, which is not an NF, VM or port"
            )
    if demand.source == demand.target:
        raise ProblemError(f"demand {demand.source!r} -> {demand.target!r} goes from a vertex to itself; remove it")
    _whole(f"demand {demand.source!r} -> {demand.target!r}", demand.mbps, "Mbps", MAX_MBPS)


def _chain(chain: Chain, names: set[str]) -> None:
    for name in chain.path:
        if name not in names:
            raise UnknownNameError(f"chain {chain.name!r} goes through {name!r}, which is not an NF, VM or port")
    if chain.limit_us is not None:
        _whole(f"limit_us of chain {chain.name!r}", chain.limit_us, "microseconds")


def _apart(problem: Problem) -> None:
    modes = {nf.name: nf.modes for nf in problem.nfs}
    for first, second in problem.apart:
        for name in (first, second):
            if name not in modes:
                raise UnknownNameError(f"apart ({first!r}, {second!r}) names {name!r}, which is not an NF")
        if first == second:
            raise PinError(f"apart ({first!r}, {second!r}) names NF {first!r} twice; name two NFs")
        places = [{mode.location for mode in modes[name]} for name in (first, second)]
        if places[0] == places[1] and len(places[0]) == 1 and HOST not in places[0]:
            raise PinError(
                f"NFs {first!r} and {second!r} must not share an sNIC (apart), but both are pinned to "
                f"sNIC {min(places[0])}; drop one of the three"
            )
