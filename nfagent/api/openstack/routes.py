"""A subset of OpenStack's Compute API, enough for the stock ``openstack`` command and for NFV orchestrators.

https://docs.openstack.org/api-ref/compute/. A network function is a server, its kind an image; placement is hidden from
    tenants. The command uses the same endpoint for images and networks with ``--os-endpoint``, and asks for networks
    below ``v2.0`` there.
"""

from typing import Any, TypeVar
from urllib.parse import urlencode

from apiflask import APIBlueprint
from flask import request
from flask.typing import ResponseReturnValue

from nfagent.api.openstack import bodies, inventory, versions, views
from nfagent.api.openstack.faults import PREFIX
from nfagent.api.schemas import LOG_MAX
from nfagent.api.services import client, services
from nfagent.desired import Amendment
from nfagent.errors import InvalidError, UnknownError
from nfagent.model import Status, View
from nfagent.orders import Order
from nfagent.store import events, instances, migrations
from nfagent.store.instances import Filter

blueprint = APIBlueprint("compute", __name__, url_prefix=PREFIX, enable_openapi=False)
blueprint.register_blueprint(inventory.blueprint)
blueprint.before_request(versions.note)
blueprint.after_request(versions.mark)

OPEN_PATHS = (PREFIX,)
"""Discovery needs no token."""

T = TypeVar("T")

_PAGE_MAX = 1000
_CONSOLE = "os-getConsoleOutput"
_RESIZE, _CONFIRM, _REVERT = "resize", "confirmResize", "revertResize"
_ACTIONS = ("migrate", "os-migrateLive", _RESIZE, _CONFIRM, _REVERT, _CONSOLE)
_STATUSES: dict[str, Status] = {"BUILD": "building", "ACTIVE": "active", "MIGRATING": "migrating", "ERROR": "error"}


@blueprint.get("/")
def show_version() -> ResponseReturnValue:
    """Version discovery."""
    return {"version": versions.document()}


# ---- servers


@blueprint.post("/servers")
def create_server() -> ResponseReturnValue:
    """Create an instance."""
    wanted = bodies.read(bodies.Create).server
    if isinstance(wanted.networks, list) and wanted.networks:
        raise InvalidError(
            "invalid", "networks: nfagent creates the ports that the kind needs; use none or auto", "networks"
        )
    catalog = services().desired.catalog
    catalog.kind(wanted.image, "imageRef")
    catalog.flavor(wanted.flavor, "flavorRef")
    order = Order(
        wanted.name, wanted.image, wanted.flavor, config=wanted.config(), labels=wanted.labels(), pin=wanted.pin()
    )
    instance = services().desired.create(client(), order).instance
    body = views.brief_server(instance) | {"OS-DCF:diskConfig": "MANUAL", "security_groups": []}
    return {"server": body}, 202, {"Location": body["links"][0]["href"]}


@blueprint.get("/servers")
def list_servers() -> ResponseReturnValue:
    """List instances, newest first."""
    return _page([views.brief_server(view.instance) for view in _wanted()])


@blueprint.get("/servers/detail")
def list_servers_in_detail() -> ResponseReturnValue:
    """List instances in full."""
    return _page([_server(view) for view in _wanted()])


@blueprint.get("/servers/<string:server>")
def show_server(server: str) -> ResponseReturnValue:
    """Show an instance."""
    return {"server": _server(_find(server))}


@blueprint.put("/servers/<string:server>")
def update_server(server: str) -> ResponseReturnValue:
    """Rename or describe an instance."""
    update = bodies.read(bodies.Updated).server
    instance = _find(server).instance
    labels = None if update.description is None else instance.labels | {bodies.DESCRIPTION: update.description}
    view = services().desired.amend(client(), instance.id, Amendment(name=update.name, labels=labels))
    return {"server": _server(view)}


@blueprint.delete("/servers/<string:server>")
def delete_server(server: str) -> ResponseReturnValue:
    """Delete an instance; repeated requests get the same answer."""
    services().desired.delete(client(), _find(server).instance.id)
    return "", 204


@blueprint.post("/servers/<string:server>/action")
def act(server: str) -> ResponseReturnValue:
    """Migrate or resize an instance, or show its output; other actions are not supported."""
    view = _find(server)
    body = request.get_json()
    action = next(iter(body)) if isinstance(body, dict) and len(body) == 1 else None
    if action not in _ACTIONS:
        named = "exactly one action is expected" if action is None else f"unknown action {action}"
        raise InvalidError("action-unknown", f"{named}; expected one of {', '.join(_ACTIONS)}")
    if action == _CONSOLE:
        return {"output": _console(view, bodies.check(bodies.Console, body[action] or {}).length)}
    desired = services().desired
    if action == _RESIZE:
        desired.resize(client(), view.instance.id, bodies.check(bodies.Resize, body[action]).flavor)
        return "", 202
    if action in (_CONFIRM, _REVERT):
        desired.confirm_resize(client(), view.instance.id, keep=action == _CONFIRM)
        return "", 204 if action == _CONFIRM else 202
    model = bodies.Migrate if action == "migrate" else bodies.LiveMigrate
    wanted = bodies.check(model, body[action] or {})
    desired.migrate(client(), view.instance.id, wanted.host)
    return "", 202


@blueprint.get("/servers/<string:server>/metadata")
def show_metadata(server: str) -> ResponseReturnValue:
    """Show an instance's labels."""
    return {"metadata": _find(server).instance.labels}


@blueprint.post("/servers/<string:server>/metadata")
def set_metadata(server: str) -> ResponseReturnValue:
    """Set some labels of an instance."""
    instance = _find(server).instance
    labels = instance.labels | bodies.read(bodies.Metadata).metadata
    return {"metadata": services().desired.amend(client(), instance.id, Amendment(labels=labels)).instance.labels}


@blueprint.delete("/servers/<string:server>/metadata/<string:key>")
def delete_metadata(server: str, key: str) -> ResponseReturnValue:
    """Remove a label of an instance."""
    instance = _find(server).instance
    labels = {name: value for name, value in instance.labels.items() if name != key}
    if labels == instance.labels:
        raise UnknownError("unknown", f"Metadata item {key} could not be found.")
    services().desired.amend(client(), instance.id, Amendment(labels=labels))
    return "", 204


@blueprint.get("/servers/<string:server>/os-interface")
def list_interfaces(server: str) -> ResponseReturnValue:
    """List an instance's virtual ports."""
    instance = _find(server).instance
    return {"interfaceAttachments": [views.attachment(instance, index) for index in range(len(instance.ports))]}


@blueprint.get("/servers/<string:server>/os-volume_attachments")
def list_volumes(server: str) -> ResponseReturnValue:
    """Return an empty list."""
    _find(server)
    return {"volumeAttachments": []}


@blueprint.get("/servers/<string:server>/os-security-groups")
def list_security_groups(server: str) -> ResponseReturnValue:
    """Return an empty list."""
    _find(server)
    return {"security_groups": []}


@blueprint.get("/servers/<string:server>/os-instance-actions")
def list_actions(server: str) -> ResponseReturnValue:
    """List an instance's events, newest first."""
    instance = _find(server).instance
    db = services().desired.store.read
    named = {"instance.created": "create", "instance.deleting": "delete", "instance.configured": "rebuild"}
    named["instance.resized"] = "resize"
    actions: list[dict[str, Any]] = [
        _action(instance.id, named[event.type], f"req-{event.id}", event.time, None)
        for event in events.after(db, 0, _PAGE_MAX, instance.project, instance.id)
        if event.type in named
    ]
    if client().admin:
        for each in migrations.page(db, instance.id, None, _PAGE_MAX, None):
            action = "live-migration" if each.mode == "state" else "migrate"
            actions.append(_action(instance.id, action, f"req-migration-{each.epoch}", each.requested, each.reason))
    actions.sort(key=lambda action: action["start_time"], reverse=True)
    return {"instanceActions": actions}


# ---- inventory


@blueprint.get("/flavors")
@blueprint.get("/flavors/detail")
def list_flavors() -> ResponseReturnValue:
    """List the sizes."""
    return {"flavors": [views.flavor(each) for each in services().desired.catalog.flavors.values()]}


@blueprint.get("/flavors/<string:name>")
def show_flavor(name: str) -> ResponseReturnValue:
    """Show a size."""
    return {"flavor": views.flavor(_known(services().desired.catalog.flavors, name, "Flavor"))}


@blueprint.get("/flavors/<string:name>/os-extra_specs")
def show_extra_specs(name: str) -> ResponseReturnValue:
    """Return none."""
    _known(services().desired.catalog.flavors, name, "Flavor")
    return {"extra_specs": {}}


@blueprint.get("/images")
def list_images() -> ResponseReturnValue:
    """List the kinds. ``name`` and ``id`` (also ``in:a,b``) select some."""
    kinds = list(services().desired.catalog.kinds.values())
    for key in ("name", "id"):
        if key in request.args:
            names = request.args[key].removeprefix("in:").replace('"', "").split(",")
            kinds = [kind for kind in kinds if kind.name in names]
    return {
        "images": [views.image(kind) for kind in kinds],
        "first": f"{PREFIX}/images",
        "schema": "/v2/schemas/images",
    }


@blueprint.get("/images/<string:name>")
def show_image(name: str) -> ResponseReturnValue:
    """Show a kind."""
    return views.image(_known(services().desired.catalog.kinds, name, "Image"))


@blueprint.get("/networks")
@blueprint.get("/v2.0/networks")
def list_networks() -> ResponseReturnValue:
    """The one virtual switch."""
    return {"networks": [views.network()]}


@blueprint.get("/networks/<string:name>")
@blueprint.get("/v2.0/networks/<string:name>")
def show_network(name: str) -> ResponseReturnValue:
    """The one virtual switch."""
    return {"network": _known({views.NETWORK: views.network()}, name, "Network")}


@blueprint.get("/ports")
@blueprint.get("/v2.0/ports")
def list_ports() -> ResponseReturnValue:
    """List the virtual ports of instances. ``device_id`` selects those of one."""
    device = request.args.get("device_id")
    found = instances.views(services().desired.store.read, Filter(project=None if client().admin else client().project))
    ports = [
        views.port(view.instance, index)
        for view in found
        for index in range(len(view.instance.ports))
        if device in (None, view.instance.id)
    ]
    return {"ports": ports}


# ---- administrators


@blueprint.get("/os-migrations")
def list_migrations() -> ResponseReturnValue:
    """List migrations, newest first."""
    client().require_admin("migrations")
    instance = request.args.get("instance_uuid")
    found = migrations.page(services().desired.store.read, instance, None, _PAGE_MAX, None)
    return {"migrations": [views.migration(each) for each in found]}


# ---- helpers


def _console(view: View, lines: int | None) -> str:
    """Return the last lines that an instance has said; None, and -1 as in Nova: all that an answer can hold."""
    said = services().logs.read(view, None, LOG_MAX)
    text = services().discretion.output(said.text, admin=client().admin)
    if lines is None or lines < 0:
        return text
    all_lines = text.splitlines(keepends=True)
    return "".join(all_lines[max(0, len(all_lines) - lines) :])


def _find(server: str) -> View:
    """Find an instance by id only: a client with a name searches the list for it."""
    found = instances.view(services().desired.store.read, server)
    if found is None or not (client().admin or client().project == found.instance.project):
        raise UnknownError("instance-unknown", f"Instance {server} could not be found.")
    return found


def _server(view: View) -> dict[str, Any]:
    flavor = services().desired.catalog.flavors.get(view.instance.flavor)
    known, who = services(), client()
    reason = known.discretion.reason(view.running.reason if view.running else None, admin=who.admin)
    return views.server(view, reason, flavor, who, known.server.oneswitchd.datapath_id)


def _wanted() -> list[View]:
    """Return the instances that a query selects, with one more than the page holds if there are more."""
    query = request.args
    own = Filter(
        project=query.get("project_id") if client().admin and "all_tenants" in query else client().project,
        kind=query.get("image"),
        flavor=query.get("flavor"),
        status=_STATUSES.get(query["status"].upper(), "deleting") if "status" in query else None,
    )
    if "name" in query:
        # Nova takes a regular expression, even one that never ends; here it is a substring.
        found = [view for view in _behind_marker(own, None) if _matches(query["name"], view.instance.name)]
        return found[: _limit() + 1]
    return _behind_marker(own, _limit() + 1)


def _behind_marker(own: Filter, limit: int | None) -> list[View]:
    return services().desired.page(client(), own, limit, request.args.get("marker"), newest_first=True)


def _matches(pattern: str, name: str) -> bool:
    text = pattern.removeprefix("^").removesuffix("$").replace("\\", "")
    if pattern.startswith("^") and pattern.endswith("$"):
        return name == text
    return name.startswith(text) if pattern.startswith("^") else text in name


def _limit() -> int:
    text = request.args.get("limit", str(_PAGE_MAX))
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise InvalidError("invalid", f"Invalid input for query parameters limit: {text[:40]!r}", "limit")
    return min(int(text), _PAGE_MAX) or _PAGE_MAX


def _page(servers: list[dict[str, Any]]) -> dict[str, Any]:
    limit = _limit()
    body: dict[str, Any] = {"servers": servers[:limit]}
    if len(servers) > limit:
        body["servers_links"] = [{"rel": "next", "href": _next(servers[limit - 1]["id"])}]
    return body


def _next(marker: str) -> str:
    query = [(key, value) for key, value in request.args.items(multi=True) if key != "marker"]
    return f"{request.base_url}?{urlencode([*query, ('marker', marker)])}"


def _action(instance: str, action: str, request_id: str, at: float, message: str | None) -> dict[str, Any]:
    return {
        "action": action,
        "instance_uuid": instance,
        "request_id": request_id,
        "start_time": views.time(at),
        "message": message,
        "project_id": client().project,
        "user_id": client().project,
    }


def _known(things: dict[str, T], name: str, what: str) -> T:
    if name not in things:
        raise UnknownError("unknown", f"{what} {name} could not be found.")
    return things[name]
