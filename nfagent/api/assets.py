"""``/api/v1/instances/ID/assets``: what functions of kind ``assets`` have found."""

from uuid import UUID

from apiflask import APIBlueprint

from nfagent.api.asset_schemas import AssetLinesOut, AssetLinesQuery, AssetsOut, AssetsQuery
from nfagent.api.services import client, services

blueprint = APIBlueprint("assets", __name__, tag="instances")


# A name could end with "/assets": another project's instance of that name.
@blueprint.get("/instances/<uuid:identifier>/assets")
@blueprint.input(AssetsQuery, location="query")
@blueprint.output(AssetsOut)
@blueprint.doc(responses=[409, 503])
def list_assets(identifier: UUID, query_data: AssetsQuery) -> AssetsOut:
    """List the hosts that an instance of kind ``assets`` knows, with their services and operating systems."""
    view = services().desired.show(client(), str(identifier))
    return AssetsOut(**services().assets.hosts(view, query_data.start, query_data.limit))


@blueprint.get("/instances/<uuid:identifier>/assets/lines")
@blueprint.input(AssetLinesQuery, location="query")
@blueprint.output(AssetLinesOut)
@blueprint.doc(responses=[409, 503])
def list_asset_lines(identifier: UUID, query_data: AssetLinesQuery) -> AssetLinesOut:
    """List PRADS' lines ``after`` a number, oldest first. The numbers continue when the instance moves."""
    view = services().desired.show(client(), str(identifier))
    return AssetLinesOut(**services().assets.lines(view, query_data.after, query_data.limit))
