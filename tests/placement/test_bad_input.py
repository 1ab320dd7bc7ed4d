"""Malformed problems are refused by name; unusual ones are solved correctly."""

from dataclasses import replace

import pytest

from placement import (
    HOST,
    NF,
    Chain,
    Demand,
    Mode,
    Nic,
    Port,
    Problem,
    Sample,
    pin,
    robust,
    solve,
)
from placement.errors import (
    AmountError,
    BackendError,
    DuplicateNameError,
    PinError,
    PlacementError,
    ProblemError,
    UnknownNameError,
)
from placement.studies.workloads import chains, limited, uno_ring

DPI = NF("dpi", (Mode(HOST, {"cores": 1000}), Mode(1, {"cores": 2000})))
NIC = Nic({"cores": 2000}, shared=5000)
GOOD = Problem((DPI,), ("vm",), (Port("eth0"),), (Demand("eth0", "dpi", 1800),), (NIC,))


def but(**changes: object) -> Problem:
    return replace(GOOD, **changes)


@pytest.mark.parametrize(
    ("problem", "error", "words"),
    [
        (but(demands=(Demand("eth0", "dpi", -1),)), AmountError, "'eth0' -> 'dpi' is -1"),
        (but(demands=(Demand("eth0", "dpi", float("nan")),)), AmountError, "is nan; expected a whole number"),  # type: ignore[arg-type]
        (but(demands=(Demand("eth0", "dpi", 1.8),)), AmountError, "in thousands of that .* write 1800"),  # type: ignore[arg-type]
        (but(demands=(Demand("eth0", "dpi", 10_000_000_000),)), AmountError, "bits per second"),
        (but(demands=(Demand("eth0", "dpx", 1),)), UnknownNameError, "names 'dpx'"),
        (but(demands=(Demand("dpi", "dpi", 1),)), ProblemError, "from a vertex to itself"),
        (but(nfs=(NF("dpi", ()),)), PinError, "'dpi' has no mode"),
        (but(nfs=(NF("dpi", (Mode(2, {}),)),)), UnknownNameError, "location 2"),
        (but(nfs=(NF("dpi", (Mode(1, {"fpga": 1}),)),)), UnknownNameError, "'fpga' on sNIC 1"),
        (but(nfs=(NF("vm", DPI.modes),), demands=()), DuplicateNameError, "'vm' names an NF and a VM"),
        (but(ports=(Port("eth0", 2),)), UnknownNameError, "port 'eth0' is on sNIC 2"),
        (but(nics=(Nic({"cores": 2.5}, shared=5000),)), AmountError, "write 2500"),  # type: ignore[dict-item]
        (but(nics=(Nic({"cores": 2000}, shared=-5),)), AmountError, "'shared' of sNIC 1 is -5"),
        (but(chains=(Chain("c", ("eth0", "nobody")),)), UnknownNameError, "chain 'c' goes through 'nobody'"),
        (but(apart=(("dpi", "dpi"),)), PinError, "names NF 'dpi' twice"),
        (but(window=(Sample((Demand("eth0", "x", 1),)),)), UnknownNameError, "names 'x'"),
        (but(window=(Sample((), {"dpi": ({},)}),)), ProblemError, "1 amounts for NF 'dpi', which has 2 modes"),
    ],
)
def test_each_error_names_the_culprit(problem: Problem, error: type[PlacementError], words: str) -> None:
    with pytest.raises(error, match=words):
        solve(problem)


def test_contradicting_pins_are_refused() -> None:
    pinned = tuple(NF(name, (Mode(1, {"cores": 1}),)) for name in "ab")
    with pytest.raises(PinError, match="both are pinned to sNIC 1"):
        solve(Problem(pinned, nics=(NIC,), apart=(("a", "b"),)))
    with pytest.raises(ProblemError, match="its modes are at \\[1\\]"):
        pin(pinned[0], HOST)


def test_settings_are_checked() -> None:
    with pytest.raises(PlacementError, match="deadline is 0"):
        solve(GOOD, deadline=0)
    with pytest.raises(PlacementError, match="eps is -1"):
        solve(GOOD, eps=-1)
    with pytest.raises(BackendError, match="unknown backend 'gurobi'"):
        solve(GOOD, backend="gurobi")
    with pytest.raises(PlacementError, match="'dpi' runs at 7"):
        solve(GOOD, current={"dpi": 7})


def test_samples_of_a_window_must_have_the_same_nfs() -> None:
    with pytest.raises(ProblemError, match="sample 0 has different NFs"):
        robust([but(nfs=()), GOOD])
    with pytest.raises(ProblemError, match="at least one sample"):
        robust([])


def test_zero_capacity_keeps_everything_on_the_host() -> None:
    plan = solve(but(nics=(Nic({"cores": 0}, shared=5000),)))
    assert plan.placement == {"dpi": HOST}
    plan.check()


def test_zero_pcie_offloads_nfs_that_need_none() -> None:
    plan = solve(but(nics=(Nic({"cores": 2000}, shared=0),)))
    assert plan.placement == {"dpi": 1}
    plan.check()


def test_an_empty_problem_has_an_empty_plan() -> None:
    assert solve(Problem(())).placement == {}
    assert solve(Problem((), ("vm",), (Port("eth0"),), (Demand("eth0", "vm", 7),), (Nic({}, shared=7),))).host_cost == 0


def test_a_disconnected_graph_is_solved_as_a_whole() -> None:
    """Two rings share only the sNIC, whose limits couple them."""
    one = uno_ring(40_000, vms=3, uplink=0)
    other = replace(one, nfs=tuple(replace(nf, name=nf.name + "'") for nf in one.nfs))
    demands = tuple(Demand(_prime(d.source), _prime(d.target), d.mbps) for d in one.demands)
    both = Problem(
        one.nfs + other.nfs,
        one.vms + tuple(f"{vm}'" for vm in one.vms),
        (Port("eth0"), Port("eth0'")),
        one.demands + demands,
        (Nic({"cores": 8_000}, shared=40_000),),
    )
    plan = solve(both)
    assert plan.host_cost == 8_000
    plan.check()


def _prime(name: str) -> str:
    return f"{name}'"


def test_a_hundred_thousand_nodes_are_solved() -> None:
    problem = limited(chains(100_000, 1), "loose", 1)
    plan = solve(problem, gap=0.01, deadline=600)  # done in seconds; the kernel's share is a tenth
    assert len(plan.placement) == len(problem.nfs)
    assert plan.bound is not None
    assert plan.host_cost <= 1.01 * plan.bound + 1
