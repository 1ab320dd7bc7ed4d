"""A certificate must prove what it claims: forged ones are refused, whatever was forged."""

from dataclasses import replace

import pytest

from placement import HOST, NF, Demand, Mode, Nic, Port, Problem, portfolio, solve
from placement.backends import branching
from placement.certify import Certificate
from placement.errors import CertificateError, InfeasibleError, MoveOrderError
from placement.labels import Dual
from placement.workloads import chains, limited, uno_ring
from tests.placement.instances import instance


def _plan(problem: Problem) -> Certificate:
    certificate = solve(problem).certificate
    assert certificate is not None
    return certificate


def test_a_bound_raised_by_one_is_refused() -> None:
    problem = uno_ring(40_000)
    certificate = _plan(problem)
    certificate.check(problem)
    with pytest.raises(CertificateError, match="contradicts"):
        replace(certificate, bound=certificate.bound + 1).check(problem)


def test_no_instance_lets_its_bound_be_raised() -> None:
    """The checker itself: whatever multipliers the kernel left, one more than the optimum must not pass."""
    tried = 0
    for seed in range(250):
        problem, current = instance(seed)
        try:
            plan = solve(problem, current, deadline=30)
        except (InfeasibleError, MoveOrderError):
            continue
        for stage in plan.stages:
            assert stage.certificate is not None
            tried += 1
            with pytest.raises(CertificateError, match="contradicts"):
                replace(stage.certificate, bound=stage.value + 1).check(problem, current)
    assert tried > 150


def test_a_certificate_of_another_problem_is_refused() -> None:
    certificate = _plan(uno_ring(40_000))
    with pytest.raises(CertificateError, match="contradicts"):
        certificate.check(uno_ring(50_000))


def test_negative_weights_are_refused() -> None:
    problem = uno_ring(40_000)
    certificate = _plan(problem)
    first = certificate.duals[0]
    forged = Dual((-5, *first.weights[1:]), first.flows)
    with pytest.raises(CertificateError, match="expected 0 or more"):
        replace(certificate, duals=(forged,)).check(problem)


def test_flow_above_what_an_arc_carries_is_refused() -> None:
    nfs = tuple(NF(name, (Mode(HOST, {"cores": 10}), Mode(1, {"cores": 10}))) for name in "ab")
    traffic = (Demand("a", "b", 5), Demand("eth0", "a", 5))
    problem = Problem(nfs, ports=(Port("eth0"),), demands=traffic, nics=(Nic({"cores": 10}, shared=7),))
    certificate = _plan(problem)
    first = certificate.duals[0]
    assert len(first.flows) == 2
    with pytest.raises(CertificateError, match="the flow of arc"):
        replace(certificate, duals=(replace(first, flows=(10**15, 0)),)).check(problem)


def test_an_order_that_leaves_nfs_out_is_refused() -> None:
    problem = uno_ring(40_000)
    certificate = _plan(problem)
    with pytest.raises(CertificateError, match="permutation"):
        replace(certificate, order=certificate.order[1:]).check(problem)


def test_poor_multipliers_prove_nothing_false() -> None:
    """With all multipliers 0 everything is left open: slow, and still right."""
    problem = uno_ring(40_000, vms=4)
    plan = solve(problem)
    certificate = _plan(problem)
    nothing = Dual((0,) * len(certificate.duals[0].weights), certificate.duals[0].flows)
    assert not any(nothing.flows)
    replace(certificate, duals=(nothing,)).check(problem)
    with pytest.raises(CertificateError):
        replace(certificate, duals=(nothing,), bound=plan.host_cost + 1).check(problem)


def test_a_plan_that_was_changed_is_refused() -> None:
    plan = solve(uno_ring(40_000))
    moved = next(name for name, location in plan.placement.items() if location == HOST)
    with pytest.raises(CertificateError, match="breaks pcie shared"):
        replace(plan, modes=plan.modes | {moved: 1}).check()


def test_infeasible_is_proven_for_that_problem_only() -> None:
    with pytest.raises(InfeasibleError) as caught:
        solve(uno_ring(9_999))
    caught.value.report.check(uno_ring(9_999))
    with pytest.raises(CertificateError):
        caught.value.report.check(uno_ring(10_000))


def test_a_proof_with_a_branch_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "KERNEL_LABELS", 1)
    monkeypatch.setattr(branching, "BRANCH_LABELS", 1)
    problem = limited(chains(40, 3), "hard", 3)
    certificate = _plan(problem)
    assert certificate.branches
    certificate.check(problem)
    with pytest.raises(CertificateError, match=r"no branch has NF|do not split"):
        replace(certificate, branches=certificate.branches[1:]).check(problem)
