"""The native kernel, its plain twin and HiGHS agree beyond the sizes of exhaustive search."""

from dataclasses import replace

import pytest

from placement import Nic, evaluate, solve
from placement.errors import BackendError
from placement.studies.workloads import FAMILIES, REGIMES, limited, several


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernel_finds_the_optimum_of_highs(family: str, regime: str) -> None:
    problem = limited(FAMILIES[family](60, 5), regime, 5)
    ours, highs = (solve(problem, backend=name, deadline=60) for name in ("auto", "highs"))
    assert ours.proven
    assert highs.proven
    assert ours.host_cost == highs.host_cost
    assert evaluate.breaches(problem, ours.modes) == []
    if ours.certified:
        ours.check()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernel_finds_the_optimum_of_its_twin(family: str) -> None:
    problem = limited(FAMILIES[family](30, 2), "hard", 2)
    native, twin = (solve(problem, backend=name, deadline=60) for name in ("lagcut", "lagcut-python"))
    assert native.proven
    assert twin.proven
    assert native.host_cost == twin.host_cost
    twin.check()


def test_directional_limits_are_kept() -> None:
    base = limited(FAMILIES["chains"](60, 1), "hard", 1)
    most = round((base.nics[0].shared or 0) * 0.7)
    problem = replace(base, nics=(Nic(base.nics[0].capacity, up=most, down=most),))
    ours, highs = (solve(problem, backend=name, deadline=60) for name in ("auto", "highs"))
    assert ours.host_cost == highs.host_cost
    ours.check()


def test_several_nics_are_solved() -> None:
    problem = several(limited(FAMILIES["chains"](24, 1), "loose", 1), 3, 1)
    ours, highs = (solve(problem, backend=name, deadline=60) for name in ("auto", "highs"))
    assert ours.host_cost == highs.host_cost
    assert evaluate.breaches(problem, ours.modes) == []


def test_a_gap_is_kept() -> None:
    problem = limited(FAMILIES["matrix"](100, 0), "hard", 0)
    plan = solve(problem, gap=0.02, deadline=30)
    assert plan.bound is not None
    assert plan.host_cost - plan.bound <= 0.02 * plan.host_cost + 1


def test_a_timeout_is_reported() -> None:
    problem = limited(FAMILIES["shared"](400, 0), "hard", 0)
    plan = solve(problem, deadline=0.01)
    assert evaluate.breaches(problem, plan.modes) == []
    assert plan.bound is not None
    assert plan.bound <= plan.host_cost
    assert plan.proven == (plan.bound == plan.host_cost) or plan.stages[0].backend != "lagcut"


def test_a_missing_native_module_has_no_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "placement._lagcut", None)
    monkeypatch.delattr("placement._lagcut", raising=False)
    with pytest.raises(BackendError, match="build it with `make build`"):
        solve(limited(FAMILIES["chains"](20, 0), "hard", 0))


def test_a_native_module_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from placement import _lagcut

    def older(sites: object, arcs: object) -> None:
        """Have an older signature."""

    monkeypatch.setattr(_lagcut, "minimise", older)
    with pytest.raises(BackendError, match="was built from different sources"):
        solve(limited(FAMILIES["chains"](20, 0), "hard", 0))
