"""``/api/v1/chains``."""

from apiflask import APIBlueprint
from flask import url_for

from nfagent import chain_costs
from nfagent.api.chain_schemas import ChainCost, ChainOrder, ChainOut, ChainPage, ChainQuery, Hop, HopCost, HopOut
from nfagent.api.schemas import PortOut, iso
from nfagent.api.services import Services, client, services
from nfagent.chain_costs import Surroundings
from nfagent.clients import Client
from nfagent.desired_chains import ChainOrder as Wanted
from nfagent.errors import InvalidError
from nfagent.model import PORT_HOP, Chain
from nfagent.orders import Order
from nfagent.store import instances
from server.errors import ServerError

blueprint = APIBlueprint("chains", __name__, tag="chains")


@blueprint.post("/chains")
@blueprint.input(ChainOrder)
@blueprint.output(ChainOut, status_code=202, description="Accepted and on disk; its instances are being built")
@blueprint.doc(responses=[403, 409])
def create_chain(json_data: ChainOrder) -> tuple[ChainOut, int, dict[str, str]]:
    """Create a chain, together with the instances that are its ``function`` hops: all of it, or nothing."""
    hops = tuple(_wanted(hop, index) for index, hop in enumerate(json_data.hops))
    chain = services().desired.chains.create(client(), Wanted(json_data.name, hops, json_data.latency_us))
    return _shown([chain])[0], 202, {"Location": url_for(".show_chain", reference=chain.id)}


@blueprint.get("/chains")
@blueprint.input(ChainQuery, location="query")
@blueprint.output(ChainPage)
def list_chains(query_data: ChainQuery) -> ChainPage:
    """List chains, by name."""
    found = services().desired.chains.page(client(), query_data.limit + 1, query_data.marker)
    page = found[: query_data.limit]
    return ChainPage(chains=_shown(page), next=page[-1].id if len(found) > len(page) else None)


@blueprint.get("/chains/<path:reference>")
@blueprint.output(ChainOut)
@blueprint.doc(responses=[409])
def show_chain(reference: str) -> ChainOut:
    """Show a chain, by id or name: its hops in order, with their ports and costs."""
    return _shown([services().desired.chains.find(client(), reference)])[0]


@blueprint.delete("/chains/<path:reference>")
@blueprint.output(ChainOut, status_code=202, description="Accepted and on disk; its instances are being deleted")
@blueprint.doc(responses=[403, 409])
def delete_chain(reference: str) -> ChainOut:
    """Delete a chain, and the instances that were created with it.

    Repeated requests get the same answer until the last of these is gone. Other instances stay.
    """
    return _shown([services().desired.chains.delete(client(), reference)])[0]


def _wanted(hop: Hop, index: int) -> str | Order:
    if hop.function is not None:
        return Order(**hop.function.model_dump())
    if hop.instance is None:
        return f"{PORT_HOP}{hop.port}"
    if hop.instance.startswith(PORT_HOP):  # names have no colon; this one would be stored as a port
        raise InvalidError("instance-unknown", f"unknown instance {hop.instance!r}", f"hops.{index}")
    return hop.instance


def _shown(found: list[Chain]) -> list[ChainOut]:
    known, who = services(), client()
    now = surroundings(known, found, _homes(known) if who.admin else {})
    return [_chain(known, who, chain, now) for chain in found]


def surroundings(known: Services, found: list[Chain], homes: dict[int, str]) -> Surroundings:
    """Read what the costs of chains depend on.

    Args:
        known: the agent.
        found: the chains.
        homes: locations of the server's ports.
    """
    db = known.desired.store.read
    wanted = {hop for chain in found for hop in chain.hops if not hop.startswith(PORT_HOP)}
    views = {name: view for name in wanted if (view := instances.view(db, name)) is not None}
    return Surroundings(
        views, homes, known.desired.catalog.home, known.config.decide.crossing_us, known.monitor.newest()
    )


def _homes(known: Services) -> dict[int, str]:
    try:
        return {port.number: port.switch for port in known.ports()}
    except ServerError:
        return {}  # their crossings are unknown meanwhile


def _chain(known: Services, who: Client, chain: Chain, now: Surroundings) -> ChainOut:
    hops = chain_costs.hops(chain, now)
    total = ChainCost(
        crossings=chain_costs.total([hop.crossings for hop in hops]),
        latency_us=chain_costs.total([hop.latency_us for hop in hops]),
        millicores=sum(hop.millicores or 0 for hop in hops),
    )
    return ChainOut(
        id=chain.id,
        name=chain.name,
        project=chain.project,
        status=chain_costs.status(chain, hops),
        hops=[_hop(known, who, chain, hop) for hop in hops],
        latency_us=chain.latency_us,
        unkept=known.decider.left_out().get(chain.id),
        cost=total if who.admin else None,
        created=iso(chain.created),
    )


def _hop(known: Services, who: Client, chain: Chain, hop: chain_costs.Hop) -> HopOut:
    # An administrator may have put another project's instance into the chain of a tenant.
    view = hop.view if hop.view and (who.admin or hop.view.instance.project == who.project) else None
    reason = view.running.reason if view and view.running else None
    cost = HopCost(
        location=hop.location,
        crossings=hop.crossings,
        latency_us=hop.latency_us,
        millicores=hop.millicores,
        mbps=hop.mbps,
    )
    ports = view.instance.ports if view else ()
    return HopOut(
        port=hop.port,
        instance=None if hop.port is not None else hop.name,
        name=view.instance.name if view else None,
        kind=view.instance.kind if view else None,
        status=view.status if view else None,
        reason=known.discretion.reason(reason, admin=who.admin),
        ports=[PortOut(number=each.number, name=each.name, mac=each.mac) for each in ports],
        owned=hop.name in chain.owned,
        cost=cost if who.admin else None,
    )
