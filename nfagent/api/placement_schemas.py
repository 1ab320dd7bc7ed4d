"""Bodies and queries of ``/api/v1/load`` and ``/api/v1/placement``: measurements and decisions."""

from dataclasses import asdict
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field

from nfagent import model
from nfagent.api.schemas import In, Name, OffloadOut, Out, Reference, Time, iso
from nfagent.measurement import Coefficient, Measurement
from nfagent.monitor.learning import is_trusted

# ---- load


class RateOut(Out):
    """Of traffic."""

    mbps: float
    pps: float


class DemandOut(RateOut):
    """Traffic that entered at one virtual port and left at another."""

    source: Annotated[int, Field(alias="from")]
    target: Annotated[int, Field(alias="to")]

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)


class OffloadedOut(OffloadOut):
    """``traffic``: what the switches carried for it, beside its own traffic."""

    traffic: RateOut


class InstanceLoadOut(Out):
    """``utilisation``: 0..1 of its workers' capacity; ``millicores``: CPU used by its process.

    ``traffic`` passed its process; ``offload`` is null if it does not ask the switches to carry flows.
    """

    utilisation: float
    millicores: int
    traffic: RateOut
    flows: int | None
    offload: OffloadedOut | None


class LinkUseOut(Out):
    """Use of a PCIe link, in both directions."""

    to_nic: RateOut
    to_host: RateOut
    capacity_mbps: int


class LocationUseOut(Out):
    """CPU of the network functions at a location."""

    millicores: int
    capacity_millicores: int


class LoadOut(Out):
    """The newest sample. ``error``: bound of the matrix's relative error; ``window_s``: averaging time of the rates."""

    at: Time
    window_s: float
    matrix: list[DemandOut]
    error: float
    instances: dict[str, InstanceLoadOut]
    links: dict[str, LinkUseOut]
    locations: dict[str, LocationUseOut]

    @classmethod
    def of(cls, measured: Measurement) -> Self:
        """Convert to the API's form."""
        row: dict[str, Any] = asdict(measured) | {"at": iso(measured.at)}
        matrix = sorted(measured.matrix.items())
        row["matrix"] = [{"from": pair[0], "to": pair[1], **asdict(rate)} for pair, rate in matrix]
        return cls(**row)


# ---- placement


class PlacedOut(Out):
    """Where an instance runs, and why it may not run elsewhere."""

    instance: str
    name: str
    project: str
    location: str | None
    pin: str | None
    target: str | None


class CurrentOut(Out):
    """The locations of all instances."""

    placement: list[PlacedOut]


class DecisionOut(Out):
    """The optimiser's decision. ``plan``: location by instance id; ``moves``: in this order.

    ``outcome`` null: not known yet. ``id`` 0: not recorded, because nothing moves or because it only answers a request.
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
        """Convert to the API's form."""
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
    """A decision and its problem, in the format of ``unoctl place``."""

    decision: DecisionOut
    problem: dict[str, Any]


class DecisionQuery(In):
    """``marker``: the id of the previous page's last decision; newest first."""

    limit: Annotated[int, Field(strict=False, ge=1, le=100)] = 10
    marker: Annotated[int, Field(strict=False, ge=1, le=2**63 - 1)] | None = None


class DecisionPage(Out):
    """``next``: the marker of the next page; null: this is the last page."""

    decisions: list[DecisionOut]
    next: int | None


class WhyOut(Out):
    """The reason for an instance's location."""

    instance: str
    location: str | None
    why: dict[str, Any]


class CostOut(Out):
    """The learnt cost of a kind at one class of locations: CPU for each Mbps in and out.

    ``location_class``: ``host`` or ``nic``; ``deviation``: typical relative distance of a sample from it. Only
    ``trusted`` ones, of enough samples, count.
    """

    kind: str
    location_class: str
    millicores_per_mbps: float
    samples: int
    deviation: float
    trusted: bool

    @classmethod
    def of(cls, learnt: Coefficient) -> Self:
        """Convert to the API's form."""
        return cls(**asdict(learnt), trusted=is_trusted(learnt))


class CostList(Out):
    """All learnt costs, by kind and class."""

    costs: list[CostOut]


class DryRun(In):
    """Hypothetical pins and absences of instances, by id or name."""

    pins: dict[Reference, Name] = Field(default={})
    without: list[Reference] = Field(default=[])
