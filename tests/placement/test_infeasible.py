"""Infeasible problems name remedies and conflicting limits."""

from dataclasses import replace

import pytest

from placement import HOST, NF, Demand, Mode, Nic, Port, Problem, solve
from placement.errors import InfeasibleError
from placement.infeasible import Infeasibility
from placement.studies.workloads import uno_ring
from tests.placement.instances import instance
from tests.placement.oracle import try_all


def report(problem: Problem) -> Infeasibility:
    with pytest.raises(InfeasibleError) as caught:
        solve(problem)
    caught.value.report.check(problem)
    return caught.value.report


def test_limits_below_the_minimum_cut_are_infeasible() -> None:
    found = report(uno_ring(9_000))
    (cut,) = found.cuts
    assert (cut.mbps, cut.allowed) == (10_000, 9_000)
    assert cut.edges == (("eth0", "vm0", 10_000),)
    assert found.conflict == ("pcie shared of sNIC 1",)
    by = {least.what: least.by for least in found.least}
    assert by == {"pcie": 1_000, "cores of the sNICs": None}
    assert "at least 10000 Mbps cross it" in str(found)


def two_pinned(shared: int, cores: int) -> Problem:
    pinned = (NF(name, (Mode(1, {"cores": 600}),)) for name in "ab")
    nfs = (*pinned, NF("free", (Mode(HOST, {"cores": 1}), Mode(1, {"cores": 1}))))
    traffic = (Demand("eth0", "a", 50), Demand("a", "vm", 50), Demand("b", "vm", 30))
    return Problem(nfs, ("vm",), (Port("eth0"),), traffic, (Nic({"cores": cores}, shared=shared),))


def test_the_least_limits_and_the_conflict_are_reported() -> None:
    found = report(two_pinned(shared=100, cores=1000))
    assert {least.what: (least.by, least.limits) for least in found.least} == {
        "pcie": (None, ()),
        "cores of the sNICs": (200, (("cores of sNIC 1", 1200),)),
    }
    assert set(found.conflict) == {"cores of sNIC 1", "pin of a", "pin of b"}


def test_the_least_limits_have_a_certificate() -> None:
    problem = two_pinned(shared=100, cores=1000)
    (least,) = [least for least in report(problem).least if least.by]
    assert least.certificate is not None
    least.certificate.check(problem)
    assert least.certificate.widened == (("cores of sNIC 1", 199),)


def test_the_conflict_is_minimal() -> None:
    """Without any one limit of the conflict, the rest is feasible."""
    problem = two_pinned(shared=60, cores=5000)
    found = report(problem)
    assert set(found.conflict) == {"pcie shared of sNIC 1", "pin of b"}
    wider = replace(problem, nics=(Nic({"cores": 5000}, shared=80),))
    assert solve(wider).placement["b"] == 1


def test_the_least_limits_of_random_instances_are_minimal() -> None:
    seen = 0
    for seed in range(100):
        problem, _ = instance(seed)
        if try_all(problem).feasible.any():
            continue
        for least in report(problem).least:
            if least.what != "pcie" or not least.by:
                continue
            seen += 1
            assert try_all(_widened(problem, least.by)).feasible.any(), seed
            assert not try_all(_widened(problem, least.by - 1)).feasible.any(), seed
    assert seen >= 5


def _widened(problem: Problem, by: int) -> Problem:
    def more(limit: int | None) -> int | None:
        return None if limit is None else limit + by

    nics = tuple(replace(n, up=more(n.up), down=more(n.down), shared=more(n.shared)) for n in problem.nics)
    return replace(problem, nics=nics)
