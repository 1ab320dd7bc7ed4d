"""Certificates must prove their claims: every kind of forgery is refused."""

from dataclasses import replace

import pytest

from placement import HOST, NF, Demand, Mode, Nic, Port, Problem, solve
from placement.certify import Certificate
from placement.errors import CertificateError, InfeasibleError, MoveOrderError
from placement.formulate import formulate
from placement.labels import Dual
from placement.proof import Close, ProofStep, Split, Walk
from placement.studies.workloads import chains, limited, uno_ring
from tests.placement.instances import instance

RAISED = "contradicts|nothing rules out|satisfies"


def _plan(problem: Problem) -> Certificate:
    certificate = solve(problem, deadline=30).certificate
    assert certificate is not None
    return certificate


def _walk(problem: Problem, certificate: Certificate) -> Certificate:
    """Return the same bound, proven only by a walk under the root's multipliers."""
    walk = Walk(certificate.dual, tuple(range(len(problem.nfs))))
    return replace(certificate, steps=(walk,))


def test_a_bound_raised_by_one_is_refused() -> None:
    problem = uno_ring(40_000)
    certificate = _plan(problem)
    certificate.check(problem)
    with pytest.raises(CertificateError, match=RAISED):
        replace(certificate, bound=certificate.bound + 1).check(problem)
    with pytest.raises(CertificateError, match="contradicts"):
        replace(_walk(problem, certificate), bound=certificate.bound + 1).check(problem)


def test_no_bound_of_a_random_instance_can_be_raised() -> None:
    """A bound one above the optimum must not pass, whatever multipliers the kernel left."""
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
            with pytest.raises(CertificateError, match=RAISED):
                replace(stage.certificate, bound=stage.value + 1).check(problem, current)
            with pytest.raises(CertificateError, match="contradicts"):
                replace(_walk(problem, stage.certificate), bound=stage.value + 1).check(problem, current)
    assert tried > 150


def test_a_certificate_of_another_problem_is_refused() -> None:
    certificate = _plan(uno_ring(40_000))
    with pytest.raises(CertificateError, match=RAISED):
        certificate.check(uno_ring(50_000))


def test_negative_weights_are_refused() -> None:
    problem = uno_ring(40_000)
    certificate = _plan(problem)
    forged = Dual((-5, *certificate.dual.weights[1:]), certificate.dual.flows)
    with pytest.raises(CertificateError, match="expected 0 or more"):
        _walk(problem, replace(certificate, dual=forged)).check(problem)


def test_flow_above_the_capacity_of_an_arc_is_refused() -> None:
    nfs = tuple(NF(name, (Mode(HOST, {"cores": 10}), Mode(1, {"cores": 10}))) for name in "ab")
    traffic = (Demand("a", "b", 5), Demand("eth0", "a", 5))
    problem = Problem(nfs, ports=(Port("eth0"),), demands=traffic, nics=(Nic({"cores": 10}, shared=7),))
    certificate = _plan(problem)
    assert len(certificate.dual.flows) == 2
    forged = replace(certificate.dual, flows=(10**15, 0))
    with pytest.raises(CertificateError, match="the flow of arc"):
        _walk(problem, replace(certificate, dual=forged)).check(problem)


def test_an_order_that_omits_nfs_is_refused() -> None:
    problem = uno_ring(40_000)
    certificate = _plan(problem)
    walk = Walk(certificate.dual, tuple(range(len(problem.nfs) - 1)))
    with pytest.raises(CertificateError, match="permutation"):
        replace(certificate, steps=(walk,)).check(problem)


def test_poor_multipliers_prove_nothing_wrong() -> None:
    """With all multipliers 0 everything stays open: slow, but still correct."""
    problem = uno_ring(40_000, vms=4)
    plan = solve(problem)
    certificate = _plan(problem)
    nothing = Dual((0,) * len(certificate.dual.weights), (0,) * len(certificate.dual.flows))
    poor = _walk(problem, replace(certificate, dual=nothing))
    poor.check(problem)
    with pytest.raises(CertificateError):
        replace(poor, bound=plan.host_cost + 1).check(problem)


def test_a_changed_plan_is_refused() -> None:
    plan = solve(uno_ring(40_000))
    moved = next(name for name, location in plan.placement.items() if location == HOST)
    with pytest.raises(CertificateError, match="breaks pcie shared"):
        replace(plan, modes=plan.modes | {moved: 1}).check()


def test_a_proof_of_infeasibility_holds_for_its_problem_only() -> None:
    with pytest.raises(InfeasibleError) as caught:
        solve(uno_ring(9_999))
    caught.value.report.check(uno_ring(9_999))
    with pytest.raises(CertificateError):
        caught.value.report.check(uno_ring(10_000))


@pytest.fixture(name="branched", scope="module")
def _branched() -> tuple[Problem, Certificate]:
    """Return a proof that closes, splits and walks."""
    problem = limited(chains(100, 0), "loose", 0)
    certificate = _plan(problem)
    certificate.check(problem)
    assert {type(step) for step in certificate.steps} == {Close, Split, Walk}
    return problem, certificate


def test_a_proof_with_a_step_missing_is_refused(branched: tuple[Problem, Certificate]) -> None:
    problem, certificate = branched
    for gone in range(0, len(certificate.steps), 7):
        steps = certificate.steps[:gone] + certificate.steps[gone + 1 :]
        if isinstance(certificate.steps[gone], Close) and not _closes(certificate.steps[gone]):
            continue
        with pytest.raises(CertificateError):
            replace(certificate, steps=steps).check(problem)


def _closes(step: ProofStep) -> bool:
    return isinstance(step, Close) and bool(step.closed)


def test_a_mode_closed_without_reason_is_refused(branched: tuple[Problem, Certificate]) -> None:
    problem, certificate = branched
    first = certificate.steps[0]
    assert isinstance(first, Close)
    closed = dict(first.closed)
    free = next(nf for nf in range(len(formulate(problem).names)) if nf not in closed)
    forged = replace(first, closed=(*first.closed, (free, 0)))
    with pytest.raises(CertificateError, match="nothing rules out"):
        replace(certificate, steps=(forged, *certificate.steps[1:])).check(problem)


def test_a_split_that_omits_a_mode_is_refused(branched: tuple[Problem, Certificate]) -> None:
    problem, certificate = branched
    where = next(n for n, step in enumerate(certificate.steps) if isinstance(step, Split) and len(step.modes) > 1)
    split = certificate.steps[where]
    assert isinstance(split, Split)
    forged = (*certificate.steps[:where], replace(split, modes=split.modes[:1]), *certificate.steps[where + 1 :])
    cut = list(forged)
    # The NF's other modes must still be refuted: the rest proves another part.
    with pytest.raises(CertificateError):
        replace(certificate, steps=tuple(cut[: where + 2])).check(problem)
