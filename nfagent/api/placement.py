"""``/api/v1/placement``: current and proposed locations, and the reasons; administrators only."""

from apiflask import APIBlueprint

from nfagent.api.placement_schemas import (
    CostList,
    CostOut,
    CurrentOut,
    DecisionDetailOut,
    DecisionOut,
    DecisionPage,
    DecisionQuery,
    DryRun,
    PlacedOut,
    WhyOut,
)
from nfagent.api.services import client, services
from nfagent.errors import ConflictError, InvalidError, UnknownError
from nfagent.store import decisions, instances
from nfagent.store.instances import Filter

blueprint = APIBlueprint("placement", __name__, tag="placement")


@blueprint.get("/placement")
@blueprint.output(CurrentOut)
@blueprint.doc(responses=[403])
def show_placement() -> CurrentOut:
    """Show the current locations."""
    client().require_admin("placement")
    views = instances.views(services().desired.store.read, Filter())
    placed = [
        PlacedOut(
            instance=view.instance.id,
            name=view.instance.name,
            project=view.instance.project,
            location=view.running.location if view.running else None,
            pin=view.instance.pin,
            target=view.instance.target,
        )
        for view in views
    ]
    return CurrentOut(placement=placed)


@blueprint.get("/placement/proposal")
@blueprint.output(DecisionOut)
@blueprint.doc(responses=[403, 503])
def show_proposal() -> DecisionOut:
    """Show the locations that the optimiser proposes."""
    client().require_admin("placement")
    return DecisionOut.of(services().decider.proposal())


@blueprint.get("/placement/decisions")
@blueprint.input(DecisionQuery, location="query")
@blueprint.output(DecisionPage)
@blueprint.doc(responses=[403])
def list_decisions(query_data: DecisionQuery) -> DecisionPage:
    """List decisions and their outcomes, newest first."""
    client().require_admin("placement")
    found = decisions.page(services().desired.store.read, query_data.limit + 1, query_data.marker)
    page = found[: query_data.limit]
    return DecisionPage(
        decisions=[DecisionOut.of(each) for each in page], next=page[-1].id if len(found) > len(page) else None
    )


@blueprint.get("/placement/decisions/<int:decision>")
@blueprint.output(DecisionDetailOut)
@blueprint.doc(responses=[403, 404])
def show_decision(decision: int) -> DecisionDetailOut:
    """Show a decision, with its problem."""
    client().require_admin("placement")
    found = decisions.find(services().desired.store.read, decision) if decision < 2**63 else None
    if found is None:
        raise UnknownError("decision-unknown", f"decision {decision} does not exist or is no longer kept")
    return DecisionDetailOut(decision=DecisionOut.of(found), problem=found.problem)


@blueprint.get("/placement/why/<path:reference>")
@blueprint.output(WhyOut)
@blueprint.doc(responses=[403, 409, 503])
def show_why(reference: str) -> WhyOut:
    """Show why an instance runs where it does, and not elsewhere."""
    client().require_admin("placement")
    view = services().desired.show(client(), reference)
    why = services().decider.why(view.instance)
    location = view.running.location if view.running else None
    return WhyOut(instance=view.instance.id, location=location, why=why)


@blueprint.get("/placement/costs")
@blueprint.output(CostList)
@blueprint.doc(responses=[403])
def list_costs() -> CostList:
    """Show the measured costs of kinds, at hosts and at smart NICs."""
    client().require_admin("placement")
    return CostList(costs=[CostOut.of(each) for each in services().monitor.coefficients()])


@blueprint.post("/placement/dry-run")
@blueprint.input(DryRun)
@blueprint.output(DecisionOut)
@blueprint.doc(responses=[403, 409, 503])
def dry_run(json_data: DryRun) -> DecisionOut:
    """Show a hypothetical decision without carrying it out."""
    client().require_admin("placement")
    desired = services().desired
    without = [_id(reference, "without") for reference in json_data.without]
    pins: dict[str, str] = {}
    for reference, name in json_data.pins.items():
        location, identity = desired.catalog.location(name, f"pins.{reference}"), _id(reference, "pins")
        if identity in without or pins.get(identity, location) != location:
            detail = f"instance {reference!r} is given twice, with different locations"
            raise InvalidError("contradiction", detail, f"pins.{reference}")
        pins[identity] = location
    return DecisionOut.of(services().decider.dry_run(pins, without))


def _id(reference: str, field: str) -> str:
    try:
        return services().desired.show(client(), reference).instance.id
    except (UnknownError, ConflictError) as error:
        raise InvalidError(error.code, error.detail, field) from None
