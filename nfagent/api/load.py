"""``/api/v1/load``: the measurements; administrators only."""

from apiflask import APIBlueprint

from nfagent.api.placement_schemas import LoadOut
from nfagent.api.services import client, services
from nfagent.errors import UnavailableError

blueprint = APIBlueprint("load", __name__, tag="load")


@blueprint.get("/load")
@blueprint.output(LoadOut)
@blueprint.doc(responses=[403, 503])
def show_load() -> LoadOut:
    """Show traffic between virtual ports, load of instances, and use of PCIe links and locations."""
    client().require_admin("load")
    measured = services().monitor.newest()
    if measured is None:
        raise UnavailableError("no-measurement", "no measurement yet")
    return LoadOut.of(measured)
