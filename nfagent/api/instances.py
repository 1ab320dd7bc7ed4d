"""``/api/v1/instances``."""

import json

from apiflask import APIBlueprint
from flask import url_for

from nfagent.api.schemas import InstanceAmendment, InstanceOrder, InstanceOut, InstancePage, InstanceQuery
from nfagent.api.services import client, services
from nfagent.desired import Amendment
from nfagent.model import View
from nfagent.orders import Order
from nfagent.store.instances import Filter

blueprint = APIBlueprint("instances", __name__, tag="instances")

_PAGE_BYTES = 4 << 20


@blueprint.post("/instances")
@blueprint.input(InstanceOrder)
@blueprint.output(InstanceOut, status_code=202, description="Accepted and on disk; it is being built")
@blueprint.doc(responses=[403, 409])
def create_instance(json_data: InstanceOrder) -> tuple[InstanceOut, int, dict[str, str]]:
    """Create an instance.

    The server decides where it runs, not the client.
    """
    order = Order(**json_data.model_dump())
    view = services().desired.create(client(), order)
    location = url_for(".show_instance", reference=view.instance.id)
    return _shown(view), 202, {"Location": location}


@blueprint.get("/instances")
@blueprint.input(InstanceQuery, location="query")
@blueprint.output(InstancePage)
@blueprint.doc(responses=[403])
def list_instances(query_data: InstanceQuery) -> InstancePage:
    """List instances, oldest first. A page with large configurations may have fewer of them than ``limit``."""
    wanted = Filter(**query_data.model_dump(exclude={"limit", "marker"}))
    views = services().desired.page(client(), wanted, query_data.limit + 1, query_data.marker)
    page = [_shown(view) for view in _bounded(views[: query_data.limit])]
    return InstancePage(instances=page, next=page[-1].id if len(views) > len(page) else None)


def _shown(view: View) -> InstanceOut:
    """Convert for the client."""
    admin = client().admin
    config = services().discretion.configuration(view.instance.config, client())
    reason = services().discretion.reason(view.running.reason if view.running else None, admin=admin)
    measured = services().monitor.newest()
    load = measured.instances.get(view.instance.id) if measured else None
    return InstanceOut.of(view, config, reason, load.offload if load else None, admin=admin)


def _bounded(views: list[View]) -> list[View]:
    """Limit an answer's size, so that it can be buffered and a slow client does not occupy a thread."""
    room = _PAGE_BYTES
    for index, view in enumerate(views):
        room -= len(json.dumps(view.instance.config))
        if room < 0:
            return views[: max(index, 1)]
    return views


@blueprint.get("/instances/<path:reference>")
@blueprint.output(InstanceOut)
@blueprint.doc(responses=[409])
def show_instance(reference: str) -> InstanceOut:
    """Show an instance, by id or name.

    Administrators name those of other projects PROJECT/NAME, or NAME if it is unique.
    """
    return _shown(services().desired.show(client(), reference))


@blueprint.patch("/instances/<path:reference>")
@blueprint.input(InstanceAmendment)
@blueprint.output(InstanceOut)
@blueprint.doc(responses=[403, 409])
def amend_instance(reference: str, json_data: InstanceAmendment) -> InstanceOut:
    """Change an instance's configuration, name, labels or pin.

    A new configuration is on disk when this returns, and in force when ``config_state`` is ``applied``.
    """
    given = {name: getattr(json_data, name) for name in json_data.model_fields_set}
    if "pin" in given:
        given["pin"] = given["pin"] or ""
    view = services().desired.amend(client(), reference, Amendment(**given))
    return _shown(view)


@blueprint.delete("/instances/<path:reference>")
@blueprint.output(InstanceOut, status_code=202, description="Accepted and on disk; it is being deleted")
@blueprint.doc(responses=[403, 409])
def delete_instance(reference: str) -> InstanceOut:
    """Delete an instance.

    Repeated requests get the same answer. A migrating instance is deleted after its migration.
    """
    return _shown(services().desired.delete(client(), reference))
