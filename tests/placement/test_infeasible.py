"""Infeasible problems name remedies and conflicting limits."""

from dataclasses import replace

import pytest

from placement import HOST, NF, Demand, Mode, Nic, Port, Problem, Sample, solve
from placement.backends import Answer, Status
from placement.certify import FEASIBLE, Certificate
from placement.errors import CertificateError, InfeasibleError
from placement.formulate import formulate
from placement.infeasible import Cut, Infeasibility, Least, _cuts, _from_answer, _refute
from placement.labels import Dual
from placement.proof import Walk
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


def test_a_report_tells_everything_in_one_line() -> None:
    limits = (("cores of sNIC 1", 1200), ("cores of sNIC 2", 900))
    least = (Least("pcie", None, (), None), Least("cores of the sNICs", 200, limits, None))
    cuts = (Cut("pcie up of sNIC 1", 7, 9, ()), Cut("pcie down of sNIC 2", 3, 4, ()))
    found = Infeasibility(None, "lagcut", least, cuts, ("pin of a", "pcie up of sNIC 1"))
    assert str(found) == (
        "no placement satisfies all limits; in conflict: pin of a, pcie up of sNIC 1; "
        "possible with cores of the sNICs + 200 (cores of sNIC 1 to 1200, cores of sNIC 2 to 900); "
        "pcie up of sNIC 1 is 7, and at least 9 Mbps cross it; "
        "pcie down of sNIC 2 is 3, and at least 4 Mbps cross it"
    )


def pinned(**limits: int) -> Problem:
    """Return a chain through an NF on sNIC 1; the second sample has more traffic."""
    nfs = (NF("a", (Mode(1, {"cores": 1}),)), NF("free", (Mode(HOST, {"cores": 1}), Mode(1, {"cores": 1}))))
    samples = tuple(
        Sample((Demand("eth0", "a", 10 * more), Demand("a", "vm", 5 * more), Demand("vm", "a", 3 * more)))
        for more in (1, 2)
    )
    return Problem(nfs, ("vm",), (Port("eth0"),), nics=(Nic({"cores": 9}, **limits),), window=samples)


@pytest.mark.parametrize(
    ("limits", "mbps", "edges"),
    [
        ({"shared": 12}, 16, (("a", "vm", 10), ("vm", "a", 6))),
        ({"up": 8, "down": 6}, 10, (("a", "vm", 10),)),
        ({"up": 10, "down": 5}, 6, (("vm", "a", 6),)),
    ],
)
def test_cuts_of_later_samples_have_the_demands_of_their_direction(
    limits: dict[str, int], mbps: int, edges: tuple[tuple[str, str, int], ...]
) -> None:
    problem = pinned(**limits)
    program = formulate(problem)
    kinds = [row.kind for row in program.rows]
    assert "pcie" in kinds[kinds.index("resource") :], "no limit of the second sample follows another kind"
    (cut,) = _cuts(problem, program)
    (limit,) = [name for name in limits if name in cut.limit]
    assert cut == Cut(f"pcie {limit} of sNIC 1 in sample 2", limits[limit], mbps, edges)


def test_limits_that_are_just_met_are_not_cut() -> None:
    problem = pinned(up=10, down=6)
    assert list(_cuts(problem, formulate(problem))) == []


def test_a_backends_proof_is_one_of_the_hosts_cost() -> None:
    dual, steps = Dual((1, 2), (3,)), (Walk(Dual((1,), ()), (0,)),)
    answer = Answer(Status.INFEASIBLE, "lagcut", None, 7, dual, steps)
    assert _from_answer(answer) == Certificate("host", 7, (), (), dual, steps)
    assert _from_answer(replace(answer, dual=None)) is None
    assert _from_answer(replace(answer, bound=None)) is None


def test_a_proof_of_the_hosts_cost_must_exceed_every_cost() -> None:
    problem = two_pinned(shared=100, cores=1000)
    found = report(problem)
    with pytest.raises(CertificateError) as caught:
        replace(found, certificate=None, backend="highs").check(problem)
    assert str(caught.value) == "'highs' calls it infeasible without a certificate"
    assert found.certificate is not None
    # All NFs of this problem cost 1 at most: those on the sNIC cost nothing.
    for bound in (0, 1):
        weak = replace(found.certificate, goal="host", bound=bound)
        with pytest.raises(CertificateError) as caught:
            replace(found, certificate=weak).check(problem)
        assert str(caught.value) == f"the bound {bound} does not exceed 1"
    with pytest.raises(CertificateError, match="malformed"):
        replace(found, certificate=replace(found.certificate, goal="host", bound=2)).check(problem)


def test_limits_without_nfs_are_refuted_by_the_broken_rows() -> None:
    problem = Problem((), ("vm",), (Port("eth0"),), (Demand("eth0", "vm", 9),), (Nic({"cores": 1}, shared=7),))
    program = formulate(problem)
    dual = Dual((1, 0), ())
    assert _refute(program, ()) == Certificate(FEASIBLE, 1, (), (), dual, (Walk(dual, ()),))
    widened = (("pcie shared of sNIC 1", 1),)
    assert _refute(program, widened) == Certificate(FEASIBLE, 1, (), widened, dual, (Walk(dual, ()),))
    assert _refute(program, (("pcie shared of sNIC 1", 2),)) is None
    found = report(problem)
    assert found.cuts == (Cut("pcie shared of sNIC 1", 7, 9, (("eth0", "vm", 9),)),)
    assert found.least == (
        Least("pcie", 2, (("pcie shared of sNIC 1", 9),), _refute(program, widened)),
        Least("cores of the sNICs", None, (), None),
    )
    assert found.conflict == ("pcie shared of sNIC 1",)
