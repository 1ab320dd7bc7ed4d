"""Every refusal of a malformed problem states the thing, its value, and the expected values."""

from dataclasses import replace
from typing import Any

import pytest

from placement import HOST, NF, Chain, Demand, Mode, Nic, Port, Problem, Sample
from placement.errors import AmountError, DuplicateNameError, PinError, ProblemError, UnknownNameError
from placement.validate import MAX_AMOUNT, MAX_MBPS, validate

UNITS = "units (cores: millicores; memory: MiB)"
THOUSANDS = "; if it is in thousands of that (Gbps, cores), write"
OTHER_UNIT = "is it in another unit (bits per second, bytes)?"
DPI = NF("dpi", (Mode(HOST, {"cores": 1000}), Mode(1, {"cores": 2000})))
IDS = NF("ids", (Mode(1, {"cores": 10}),))
GOOD = Problem(
    (DPI, IDS), ("vm",), (Port("eth0"),), (Demand("eth0", "dpi", 1800),), (Nic({"cores": 2000}, shared=5000),)
)


def but(**changes: Any) -> Problem:
    return replace(GOOD, **changes)


def mode(**changes: Any) -> Problem:
    return but(nfs=(replace(DPI, modes=(replace(DPI.modes[1], **changes),)), IDS))


def nic(cores: Any) -> Nic:
    return Nic({"cores": cores})


def demand(mbps: Any) -> Problem:
    return but(demands=(Demand("eth0", "dpi", mbps),))


AMOUNTS = [
    (demand(-1), "demand 'eth0' -> 'dpi' is -1; expected 0 or more Mbps"),
    (demand(True), "demand 'eth0' -> 'dpi' is True; expected a whole number of Mbps"),
    (demand("1"), "demand 'eth0' -> 'dpi' is '1'; expected a whole number of Mbps"),
    (demand(2.0), "demand 'eth0' -> 'dpi' is 2.0; expected a whole number of Mbps"),
    (demand(-0.5), "demand 'eth0' -> 'dpi' is -0.5; expected a whole number of Mbps"),
    (demand(1e8 + 0.5), "demand 'eth0' -> 'dpi' is 100000000.5; expected a whole number of Mbps"),
    (demand(0.25), f"demand 'eth0' -> 'dpi' is 0.25; expected a whole number of Mbps{THOUSANDS} 250"),
    (
        demand(MAX_MBPS + 1),
        f"demand 'eth0' -> 'dpi' is 100000001, more than 100000000 Mbps: {OTHER_UNIT}",
    ),
    (but(nics=(nic("1"),)), f"'cores' in the capacity of sNIC 1 is '1'; expected a whole number of {UNITS}"),
    (but(nics=(*GOOD.nics, Nic({"x": -1}))), f"'x' in the capacity of sNIC 2 is -1; expected 0 or more {UNITS}"),
    (but(nics=(Nic({"cores": 1}, up=-1),)), "PCIe limit 'up' of sNIC 1 is -1; expected 0 or more Mbps"),
    (but(nics=(Nic({"cores": 1}, down=-2),)), "PCIe limit 'down' of sNIC 1 is -2; expected 0 or more Mbps"),
    (
        but(nics=(Nic({"cores": 1}, shared=MAX_MBPS + 1),)),
        f"PCIe limit 'shared' of sNIC 1 is 100000001, more than 100000000 Mbps: {OTHER_UNIT}",
    ),
    (but(host={"cores": -1}), f"'cores' in the host's capacity is -1; expected 0 or more {UNITS}"),
    (but(weights={"cores": -1}), f"'cores' in the weights is -1; expected 0 or more {UNITS}"),
    (but(crossing_us=-1), "crossing_us is -1; expected 0 or more microseconds"),
    (but(nfs=(replace(DPI, state_cost=-1),)), "state_cost of NF 'dpi' is -1; expected 0 or more units"),
    (mode(latency_us=-1), "latency_us of NF 'dpi' at location 1 is -1; expected 0 or more microseconds"),
    (mode(use={"cores": -1}), f"'cores' in the use of NF 'dpi' at location 1 is -1; expected 0 or more {UNITS}"),
    (
        mode(use={"cores": MAX_AMOUNT + 1}),
        f"'cores' in the use of NF 'dpi' at location 1 is 1000000001, more than 1000000000 {UNITS}: {OTHER_UNIT}",
    ),
    (
        but(window=(Sample((), {"ids": ({"cores": -3},)}),)),
        f"'cores' in the use of NF 'ids' at location 1 is -3; expected 0 or more {UNITS}",
    ),
    (
        but(chains=(Chain("c", ("eth0", "dpi"), -1),)),
        "limit_us of chain 'c' is -1; expected 0 or more microseconds",
    ),
]


@pytest.mark.parametrize(("problem", "message"), AMOUNTS)
def test_amounts_name_their_place_and_unit(problem: Problem, message: str) -> None:
    with pytest.raises(AmountError) as caught:
        validate(problem)
    assert str(caught.value) == message


def nowhere(where: object, nics: str) -> str:
    return f"NF 'dpi' has a mode at location {where!r}; expected 0 (the host) or one of {nics}"


NAMES = [
    (mode(location=2), nowhere(2, "sNICs 1 to 1")),
    (mode(location=-1), nowhere(-1, "sNICs 1 to 1")),
    (mode(location=True), nowhere(True, "sNICs 1 to 1")),
    (mode(location="1"), nowhere("1", "sNICs 1 to 1")),
    (but(nics=(), ports=()), nowhere(1, "no sNICs")),
    (but(ports=(Port("eth0", 2),)), "port 'eth0' is on sNIC 2; the problem has sNICs 1 to 1"),
    (but(ports=(Port("eth0", 0),)), "port 'eth0' is on sNIC 0; the problem has sNICs 1 to 1"),
    (but(nics=()), "port 'eth0' is on sNIC 1; the problem has no sNICs"),
    (
        mode(use={"fpga": 0}),
        "NF 'dpi' uses 'fpga' on sNIC 1, whose capacity does not list it; list it, with 0 if it has none",
    ),
    (
        but(window=(Sample((), {"dpi": ({"fpga": 1}, {"fpga": 1})}),)),
        "NF 'dpi' uses 'fpga' on sNIC 1, whose capacity does not list it; list it, with 0 if it has none",
    ),
    (
        but(demands=(Demand("x", "dpi", 1),)),
        "demand 'x' -> 'dpi' names 'x', which is not an NF, VM or port",
    ),
    (
        but(window=(Sample((Demand("dpi", "y", 1),)),)),
        "demand 'dpi' -> 'y' names 'y', which is not an NF, VM or port",
    ),
    (
        but(window=(Sample((), {"vm": ()}),)),
        "a sample of the window has amounts for 'vm', which is not an NF",
    ),
    (but(chains=(Chain("c", ("eth0", "z")),)), "chain 'c' goes through 'z', which is not an NF, VM or port"),
    (but(apart=(("vm", "dpi"),)), "apart ('vm', 'dpi') names 'vm', which is not an NF"),
    (but(apart=(("dpi", "vm"),)), "apart ('dpi', 'vm') names 'vm', which is not an NF"),
]


@pytest.mark.parametrize(("problem", "message"), NAMES)
def test_unknown_names_are_told_with_the_known_ones(problem: Problem, message: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        validate(problem)
    assert str(caught.value) == message


OTHERS = [
    (but(nfs=(NF("", DPI.modes),)), ProblemError, "a NF has the name ''; expected a non-empty string"),
    (but(vms=(7,)), ProblemError, "a VM has the name 7; expected a non-empty string"),
    (but(ports=(Port(""),)), ProblemError, "a port has the name ''; expected a non-empty string"),
    (
        but(vms=("dpi",)),
        DuplicateNameError,
        "'dpi' names an NF and a VM; every NF, VM and port needs its own name",
    ),
    (
        but(vms=("eth0",)),
        DuplicateNameError,
        "'eth0' names a VM and a port; every NF, VM and port needs its own name",
    ),
    (
        but(nfs=(NF("dpi", ()),)),
        PinError,
        "NF 'dpi' has no mode, so it cannot run anywhere; give it at least one Mode",
    ),
    (
        but(demands=(Demand("vm", "vm", 1),)),
        ProblemError,
        "demand 'vm' -> 'vm' goes from a vertex to itself; remove it",
    ),
    (
        but(window=(Sample((), {"ids": ({}, {})}),)),
        ProblemError,
        "a sample has 2 amounts for NF 'ids', which has 1 modes",
    ),
    (but(apart=(("dpi", "dpi"),)), PinError, "apart ('dpi', 'dpi') names NF 'dpi' twice; name two NFs"),
    (
        but(nfs=(IDS, replace(IDS, name="ips")), demands=(), apart=(("ids", "ips"),)),
        PinError,
        "NFs 'ids' and 'ips' must not share an sNIC (apart), but both are pinned to sNIC 1; drop one of the three",
    ),
]


@pytest.mark.parametrize(("problem", "error", "message"), OTHERS)
def test_other_refusals_state_the_remedy(problem: Problem, error: type[ProblemError], message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        validate(problem)
    assert (type(caught.value), str(caught.value)) == (error, message)


@pytest.mark.parametrize(
    "problem",
    [
        GOOD,
        demand(0),
        demand(MAX_MBPS),
        mode(use={"cores": MAX_AMOUNT}),
        but(nics=(Nic({"cores": 0}, up=0, down=MAX_MBPS, shared=None),)),
        but(chains=(Chain("c", ("eth0", "dpi", "vm"), 0), Chain("d", ("eth0", "vm")))),
        but(window=(Sample((Demand("vm", "ids", 1),)), Sample((), {"ids": ({"cores": 1},)}))),
        # Only a pin of both to the same sNIC leaves no room.
        but(apart=(("dpi", "ids"),)),
        but(nfs=(NF("a", (Mode(HOST, {}),)), NF("b", (Mode(HOST, {}),))), demands=(), apart=(("a", "b"),)),
        but(nfs=(DPI, replace(DPI, name="dpj")), apart=(("dpi", "dpj"),)),
        # The host's capacity need not list what it does not limit.
        but(nfs=(NF("dpi", (Mode(HOST, {"memory": 7}),)),)),
    ],
)
def test_problems_at_the_limits_are_accepted(problem: Problem) -> None:
    validate(problem)
