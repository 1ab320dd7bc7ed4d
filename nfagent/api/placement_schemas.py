"""Bodies and queries of ``/api/v1/load`` and ``/api/v1/placement``: what was measured, and what was decided."""

from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field

from nfagent import model
from nfagent.api.schemas import In, Name, Out, Reference, Time, iso
from nfagent.measurement import Measurement

# ---- load


class RateOut(Out):
    """Of traffic."""

    mbps: float
    pps: float


class DemandOut(RateOut):
    """What entered at one virtual port and left at another."""

    source: Annotated[int, Field(alias="from")]
    target: Annotated[int, Field(alias="to")]

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)


class InstanceLoadOut(Out):
    """``utilisation``: 0..1 of what its workers could do; ``millicores``: CPU that its process used."""

    utilisation: float
    millicores: int
    traffic: RateOut
    flows: int | None


class LinkUseOut(Out):
    """Of a PCIe link, in both directions."""

    to_nic: RateOut
    to_host: RateOut
    capacity_mbps: int


class LocationUseOut(Out):
    """CPU of the network functions at a location."""

    millicores: int
    capacity_millicores: int


class LoadOut(Out):
    """The newest sample. ``error``: bound of the matrix's relative error; ``window_s``: what rates are averages of."""

    at: Time
    window_s: float
    matrix: list[DemandOut]
    error: float
    instances: dict[str, InstanceLoadOut]
    links: dict[str, LinkUseOut]
    locations: dict[str, LocationUseOut]

    @classmethod
    def of(cls, measured: Measurement) -> Self:
        """As JSON has it."""
        row: dict[str, Any] = asdict(measured) | {"at": iso(measured.at)}
        matrix = sorted(measured.matrix.items())
        row["matrix"] = [{"from": pair[0], "to": pair[1], **asdict(rate)} for pair, rate in matrix]
        return cls(**row)


# ---- placement


class PlacedOut(Out):
    """Where an instance runs and why it may not elsewhere."""

    instance: str
    name: str
    project: str
    location: str | None
    pin: str | None
    target: str | None


class CurrentOut(Out):
    """Where everything runs."""

    placement: list[PlacedOut]


class DecisionOut(Out):
    """What the optimiser says. ``plan``: location by instance id; ``moves``: in this order.

    ``outcome`` null: it is not known yet. ``id`` 0: it was not written, as nothing was to be moved or it answers a
    question only.
    """

    id: int
    decided: Time
    plan: dict[str, str]
    explanation: dict[str, Any]
    moves: list[str]
    outcome: str | None
    ended: Time | None
    report: dict[str, Any]

    @classmethod
    def of(cls, decision: model.Decision) -> Self:
        """As JSON has it."""
        return cls(
            id=decision.id,
            decided=iso(decision.decided),
            plan=decision.plan,
            explanation=decision.explanation,
            moves=list(decision.moves),
            outcome=decision.outcome,
            ended=None if decision.ended is None else iso(decision.ended),
            report=decision.report,
        )


class DecisionDetailOut(Out):
    """A decision and its problem, as ``unoctl place`` reads it."""

    decision: DecisionOut
    problem: dict[str, Any]


class DecisionQuery(In):
    """``marker``: the id of the last one of the page before; the newest come first."""

    limit: Annotated[int, Field(strict=False, ge=1, le=100)] = 10
    marker: Annotated[int, Field(strict=False, ge=1, le=2**63 - 1)] | None = None


class DecisionPage(Out):
    """``next``: the marker of the next page; null: this is the last."""

    decisions: list[DecisionOut]
    next: int | None


class WhyOut(Out):
    """Why an instance runs where it does."""

    instance: str
    location: str | None
    why: dict[str, Any]


class DryRun(In):
    """What if these were pinned, and those were not there? Instances by id or name."""

    pins: dict[Reference, Name] = Field(default={})
    without: list[Reference] = Field(default=[])
