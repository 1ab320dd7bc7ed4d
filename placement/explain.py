"""Explanations of a placement: the binding limits, the alternatives, and what forbids them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement.certify import Certificate, refuted_program
from placement.formulate import Program, formulate
from placement.labels import Losses
from placement.model import HOST, Problem
from placement.state import State, Tables


@dataclass(frozen=True)
class Alternative:
    """Another way to run an NF, with everything else unchanged.

    Attributes:
        location: where.
        mode: the mode's name or index.
        host_cost: change of the host cost (millicores with the default weights).
        blocked_by: limits that forbid it: name, resulting use, limit. Empty: it is possible.
        at_least: no placement with this NF in this mode has a lower host cost; None without a certificate.
    """

    location: int
    mode: str
    host_cost: int
    blocked_by: tuple[tuple[str, int, int], ...]
    at_least: int | None


@dataclass(frozen=True)
class Reason:
    """The reason for one NF's location.

    Attributes:
        nf: its name.
        location: its location.
        text: one sentence.
        runner_up: the best alternative, possible if any is; None for an NF that has only one mode.
        alternatives: all of them, best first.
    """

    nf: str
    location: int
    text: str
    runner_up: Alternative | None
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class Why:
    """An explanation.

    Attributes:
        reasons: per NF.
        binding: limits that, if raised, would lower the bound on the host cost: name, use, limit.
        loads: all limits: name, use, limit.
    """

    reasons: Mapping[str, Reason]
    binding: tuple[tuple[str, int, int], ...]
    loads: tuple[tuple[str, int, int], ...]

    def __str__(self) -> str:
        binding = "; ".join(f"{name} ({used} of {limit})" for name, used, limit in self.binding) or "nothing"
        return "\n".join([f"binding: {binding}", *(reason.text for reason in self.reasons.values())])


def explain(problem: Problem, modes: Mapping[str, int], certificate: Certificate | None = None) -> Why:
    """Explain a placement.

    Args:
        problem: the solved problem.
        modes: per NF the index of its mode, as ``Plan.modes``.
        certificate: of the host cost; adds the bounds of alternatives.

    Example:
        >>> from placement import *
        >>> dpi = NF("dpi", (Mode(HOST, {"cores": 1000}), Mode(1, {"cores": 2000})))
        >>> problem = Problem((dpi,), ("vm",), nics=(Nic({"cores": 1500}),), demands=(Demand("vm", "dpi", 7),))
        >>> print(solve(problem).why.reasons["dpi"].text)
        dpi is on the host: sNIC 1 would save 1000 there, but cores of sNIC 1 would be 2000 of 1500
    """
    program = formulate(problem)
    state = State(Tables(program), [modes[name] for name in program.names])
    floors = _floors(program, certificate)
    reasons = {name: _reason(problem, program, state, i, floors) for i, name in enumerate(program.names)}
    loads = tuple((row.name, state.use[r], row.limit) for r, row in enumerate(program.rows))
    weights = certificate.dual.weights if certificate is not None else ()
    binding = tuple(load for load, weight in zip(loads, weights, strict=False) if weight > 0)
    return Why(reasons, binding, loads)


def _floors(program: Program, certificate: Certificate | None) -> list[list[int]] | None:
    """Bound the host cost from below per NF and mode."""
    if certificate is None or certificate.goal != "host" or not certificate.dual.weights[-1]:
        return None
    scale = certificate.dual.weights[-1]
    losses = Losses(refuted_program(program, certificate), certificate.dual)
    base = losses.base + scale * (certificate.bound - 1)
    return [[max(certificate.bound, -(-(base + loss) // scale)) for loss in modes] for modes in losses.mode]


def _reason(problem: Problem, program: Program, state: State, i: int, floors: list[list[int]] | None) -> Reason:
    here = state.modes[i]
    found = [_alternative(problem, program, state, i, m, floors) for m in range(len(program.sites[i])) if m != here]
    found.sort(key=lambda alternative: (bool(alternative.blocked_by), alternative.host_cost))
    location = program.sites[i][here]
    text = f"{program.names[i]} is on {_place(location)}: {_because(found)}"
    return Reason(program.names[i], location, text, found[0] if found else None, tuple(found))


def _alternative(
    problem: Problem, program: Program, state: State, i: int, mode: int, floors: list[list[int]] | None
) -> Alternative:
    cost = state.delta(i, mode).get(len(program.rows), 0)
    rows = program.rows
    blocked = tuple((rows[r].name, used, rows[r].limit) for r, used in state.blocked(i, mode))
    name = problem.nfs[i].modes[mode].name or str(mode)
    return Alternative(program.sites[i][mode], name, cost, blocked, floors[i][mode] if floors else None)


def _because(found: list[Alternative]) -> str:
    if not found:
        return "it has no other mode"
    saving = [alternative for alternative in found if alternative.host_cost < 0]
    if not saving:
        best = found[0]
        return f"{_place(best.location)} would cost the host {best.host_cost} more"
    best = min(saving, key=lambda alternative: alternative.host_cost)
    if not best.blocked_by:
        return f"{_place(best.location)} would save {-best.host_cost} there, which is less than the move is worth"
    blocks = " and ".join(f"{name} would be {used} of {limit}" for name, used, limit in best.blocked_by)
    return f"{_place(best.location)} would save {-best.host_cost} there, but {blocks}"


def _place(location: int) -> str:
    return "the host" if location == HOST else f"sNIC {location}"
