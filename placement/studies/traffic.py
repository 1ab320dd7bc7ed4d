"""Traffic over time, and the results of policies under it: moves, overloads, host cost.

A decision made from epoch e's sample takes effect at epoch e + 1: measuring and moving have one epoch of lag.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from placement import evaluate
from placement.damper import Damper, Settings
from placement.errors import InfeasibleError
from placement.model import CORES, HOST, NF, Demand, Mode, Nic, Port, Problem, robust
from placement.solve import Plan, solve

EPOCHS = 180
Factors = Callable[[int, Mapping[str, int]], dict[str, float]]
"""Per epoch and running placement, each NF's traffic as a fraction of its nominal one."""
Policy = Callable[[Problem], Mapping[str, int]]
"""Takes a sample, and returns the placement from the next epoch on."""


def busy_server(nfs: int = 24, seed: int = 1) -> Problem:
    """A server with NFs of 0.5 to 3 Gbps between VMs and the port, whose sNIC holds about half of them."""
    source = random.Random(seed)
    placed: list[NF] = []
    demands: list[Demand] = []
    for i in range(nfs):
        mbps, name, vm = source.randint(500, 3000), f"nf{i}", f"vm{i % 8}"
        host = mbps * source.randint(40, 60) // 100
        placed.append(NF(name, (Mode(HOST, {CORES: host}), Mode(1, {CORES: 2 * host})), source.randint(1, 3)))
        ends = ("eth0", vm) if source.random() < 0.5 else (vm, f"vm{(i + 3) % 8}")
        demands += [Demand(ends[0], name, mbps), Demand(name, ends[1], mbps)]
    need = sum(nf.modes[1].use[CORES] for nf in placed)
    crossing = sum(d.mbps for d in demands if "eth0" in (d.source, d.target))
    nic = Nic({CORES: need // 2}, shared=crossing + crossing // 3)
    return Problem(tuple(placed), tuple(f"vm{i}" for i in range(8)), (Port("eth0"),), tuple(demands), (nic,))


def at_epoch(problem: Problem, factors: Mapping[str, float]) -> Problem:
    """Return the problem with each NF's traffic and amounts scaled."""

    def scaled(amount: int, name: str) -> int:
        return round(amount * factors.get(name, 1.0))

    nfs = tuple(
        replace(nf, modes=tuple(replace(m, use={r: scaled(a, nf.name) for r, a in m.use.items()}) for m in nf.modes))
        for nf in problem.nfs
    )
    demands = tuple(
        replace(d, mbps=scaled(d.mbps, d.source if d.source in factors else d.target)) for d in problem.demands
    )
    return replace(problem, nfs=nfs, demands=demands)


def square(problem: Problem, period: int = 2) -> Factors:
    """Two halves of the NFs take turns: full traffic, then two fifths."""
    names = [nf.name for nf in problem.nfs]

    def factors(epoch: int, _: Mapping[str, int]) -> dict[str, float]:
        high = (epoch % period) < period / 2
        return {name: 1.0 if (i % 2 == 0) == high else 0.4 for i, name in enumerate(names)}

    return factors


def sine(problem: Problem, period: int = 24) -> Factors:
    """Every NF swings between three tenths and full traffic, each with its own phase."""
    names = [nf.name for nf in problem.nfs]

    def factors(epoch: int, _: Mapping[str, int]) -> dict[str, float]:
        turn = 2 * math.pi * (epoch % period) / period
        return {name: round(0.65 + 0.35 * math.sin(turn + 2.4 * i), 6) for i, name in enumerate(names)}

    return factors


def noise(problem: Problem, seed: int = 7) -> Factors:
    """Every NF independently between a half and full traffic, redrawn each epoch."""
    names = [nf.name for nf in problem.nfs]

    def factors(epoch: int, _: Mapping[str, int]) -> dict[str, float]:
        source = random.Random(f"{seed} {epoch}")
        return {name: round(source.uniform(0.5, 1.0), 6) for name in names}

    return factors


def adversary(problem: Problem) -> Factors:
    """Full traffic for NFs on the sNIC, little for the rest: the last decision is always wrong."""
    names = [nf.name for nf in problem.nfs]

    def factors(_: int, placement: Mapping[str, int]) -> dict[str, float]:
        return {name: 1.0 if placement.get(name, HOST) != HOST else 0.3 for name in names}

    return factors


TRAFFICS: Mapping[str, Callable[[Problem], Factors]] = {
    "square": square,
    "sine": sine,
    "adversary": adversary,
    "noise": noise,
}


@dataclass(frozen=True)
class PolicyRun:
    """The result of a policy.

    Attributes:
        moves: NFs moved, over all epochs.
        late_moves: those after warm-up, which is one window.
        most_moved: moves of the NF that moved most.
        overloaded: epochs at which the placement broke a limit.
        host: host cost over all epochs, in millicore-epochs.
        host_vs_static: that, relative to the cost of the best placement that satisfies every epoch, known in hindsight.
    """

    moves: int
    late_moves: int
    most_moved: int
    overloaded: int
    host: int
    host_vs_static: float


def run(
    problem: Problem,
    factors: Factors,
    policy: Policy,
    epochs: int = EPOCHS,
    warm_up: int = 30,
    static_seconds: float = 20.0,
) -> PolicyRun:
    """Run a policy.

    Args:
        problem: the nominal problem.
        factors: the traffic.
        policy: the policy.
        epochs: the number of epochs.
        warm_up: epochs after which a move counts as late.
        static_seconds: time limit for the placement known in hindsight.
    """
    running: dict[str, int] = dict.fromkeys((nf.name for nf in problem.nfs), HOST)
    moved = dict.fromkeys(running, 0)
    late = overloaded = host = 0
    seen: list[Problem] = []
    for epoch in range(epochs):
        sample = at_epoch(problem, factors(epoch, running))
        seen.append(sample)
        modes = {name: _mode(sample, name, location) for name, location in running.items()}
        overloaded += bool(evaluate.breaches(sample, modes))
        host += evaluate.host_cost(sample, modes)
        for name, location in policy(sample).items():
            if location != running[name]:
                moved[name] += 1
                late += epoch >= warm_up
                running[name] = location
    static = best_static(seen, static_seconds)
    return PolicyRun(sum(moved.values()), late, max(moved.values()), overloaded, host, host / static)


def _mode(problem: Problem, name: str, location: int) -> int:
    return next(m for m, mode in enumerate(problem.nf(name).modes) if mode.location == location)


def best_static(samples: list[Problem], seconds: float = 20.0) -> int:
    """Host cost of the best placement that satisfies every sample, summed over all of them."""
    distinct = [sample for n, sample in enumerate(samples) if sample not in samples[:n]]
    plan = solve(robust(distinct), deadline=seconds, gap=0.001)
    return sum(evaluate.host_cost(sample, plan.modes) for sample in samples)


def naive() -> Policy:
    """Solve from scratch at every sample."""

    def policy(sample: Problem) -> Mapping[str, int]:
        return solve(sample).placement

    return policy


def threshold(part: float = 0.1) -> Policy:
    """UNO 3.2.2: move only if the host's use is far (10 %) from the new solution, or a limit is broken."""
    current: dict[str, int] = {}

    def policy(sample: Problem) -> Mapping[str, int]:
        plan = solve(sample)
        modes = {name: _mode(sample, name, location) for name, location in current.items()}
        if (
            not current
            or evaluate.breaches(sample, modes)
            or evaluate.host_cost(sample, modes) > (1 + part) * plan.host_cost
        ):
            current.update(plan.placement)
        return dict(current)

    return policy


def ewma(alpha: float = 0.2) -> Policy:
    """Solve from scratch for exponentially smoothed traffic."""
    smooth: list[Problem] = []

    def blend(old: int, new: int) -> int:
        return round((1 - alpha) * old + alpha * new)

    def policy(sample: Problem) -> Mapping[str, int]:
        if smooth:
            old = smooth.pop()
            demands = tuple(
                replace(d, mbps=blend(o.mbps, d.mbps)) for o, d in zip(old.demands, sample.demands, strict=True)
            )
            nfs = tuple(_blended(o, n, blend) for o, n in zip(old.nfs, sample.nfs, strict=True))
            smooth.append(replace(sample, demands=demands, nfs=nfs))
        else:
            smooth.append(sample)
        return solve(smooth[0]).placement

    return policy


def _blended(old: NF, new: NF, blend: Callable[[int, int], int]) -> NF:
    modes = tuple(
        replace(n, use={r: blend(o.use[r], amount) for r, amount in n.use.items()})
        for o, n in zip(old.modes, new.modes, strict=True)
    )
    return replace(new, modes=modes)


def damped(settings: Settings | None = None, problem: Problem | None = None) -> Policy:
    """The damper."""
    start = None if problem is None else dict.fromkeys((nf.name for nf in problem.nfs), HOST)
    damper = Damper(settings or Settings(), start)

    def policy(sample: Problem) -> Mapping[str, int]:
        try:
            plan: Plan = damper.step(sample)
        except InfeasibleError:
            return damper.current or {}
        return plan.placement

    return policy
