"""``/api/v1/chains``."""

from apiflask import APIBlueprint

from nfagent.api.schemas import ChainOrder, ChainOut, ChainPage, ChainQuery, Hop, HopOut, iso
from nfagent.api.services import client, services
from nfagent.errors import InvalidError
from nfagent.model import PORT_HOP, Chain

blueprint = APIBlueprint("chains", __name__, tag="chains")


@blueprint.post("/chains")
@blueprint.input(ChainOrder)
@blueprint.output(ChainOut, status_code=201)
@blueprint.doc(responses=[403, 409])
def create_chain(json_data: ChainOrder) -> ChainOut:
    """Create a chain."""
    hops = [_stored(hop, index) for index, hop in enumerate(json_data.hops)]
    return _chain(services().desired.add_chain(client(), json_data.name, hops, json_data.latency_us))


@blueprint.get("/chains")
@blueprint.input(ChainQuery, location="query")
@blueprint.output(ChainPage)
def list_chains(query_data: ChainQuery) -> ChainPage:
    """List chains, by name."""
    found = services().desired.chain_page(client(), query_data.limit + 1, query_data.marker)
    page = found[: query_data.limit]
    return ChainPage(chains=[_chain(each) for each in page], next=page[-1].id if len(found) > len(page) else None)


@blueprint.get("/chains/<string:chain>")
@blueprint.output(ChainOut)
def show_chain(chain: str) -> ChainOut:
    """Show a chain, by id."""
    return _chain(services().desired.find_chain(client(), chain))


@blueprint.delete("/chains/<string:chain>")
@blueprint.output({}, status_code=204)
@blueprint.doc(responses=[403])
def delete_chain(chain: str) -> str:
    """Delete a chain; its instances stay."""
    services().desired.delete_chain(client(), chain)
    return ""


def _stored(hop: Hop, index: int) -> str:
    if hop.instance is None:
        return f"{PORT_HOP}{hop.port}"
    if hop.instance.startswith(PORT_HOP):  # names have no colon; this one would be stored as a port
        raise InvalidError("instance-unknown", f"unknown instance {hop.instance!r}", f"hops.{index}")
    return hop.instance


def _chain(chain: Chain) -> ChainOut:
    hops = [
        HopOut(port=int(hop.removeprefix(PORT_HOP))) if hop.startswith(PORT_HOP) else HopOut(instance=hop)
        for hop in chain.hops
    ]
    return ChainOut(
        id=chain.id,
        name=chain.name,
        project=chain.project,
        hops=hops,
        latency_us=chain.latency_us,
        unkept=services().decider.left_out().get(chain.id),
        created=iso(chain.created),
    )
