"""The inventory: kinds, flavors, ports, the server and its switches."""

from apiflask import APIBlueprint

from nfagent.api import schemas
from nfagent.api.services import client, services
from nfagent.errors import UnknownError
from nfagent.model import Flavor, Kind
from nfagent.store import instances, processes
from nfagent.store.instances import Filter
from server.config import SwitchConfig
from server.errors import ServerError
from server.oneswitchd.answers import BridgeState, Status, SwitchState

blueprint = APIBlueprint("offer", __name__, tag="offer")


@blueprint.get("/kinds")
@blueprint.output(schemas.KindList)
def list_kinds() -> schemas.KindList:
    """List the kinds that can be deployed."""
    return schemas.KindList(kinds=[_kind(kind) for kind in services().desired.catalog.kinds.values()])


@blueprint.get("/kinds/<string:name>")
@blueprint.output(schemas.KindOut)
def show_kind(name: str) -> schemas.KindOut:
    """Show a kind."""
    kind = services().desired.catalog.kinds.get(name)
    if kind is None:
        raise UnknownError("kind-unknown", f"unknown kind {name!r}")
    return _kind(kind)


@blueprint.get("/flavors")
@blueprint.output(schemas.FlavorList)
def list_flavors() -> schemas.FlavorList:
    """List the sizes."""
    return schemas.FlavorList(flavors=[_flavor(flavor) for flavor in services().desired.catalog.flavors.values()])


@blueprint.get("/flavors/<string:name>")
@blueprint.output(schemas.FlavorOut)
def show_flavor(name: str) -> schemas.FlavorOut:
    """Show a size."""
    flavor = services().desired.catalog.flavors.get(name)
    if flavor is None:
        raise UnknownError("flavor-unknown", f"unknown flavor {name!r}")
    return _flavor(flavor)


@blueprint.get("/ports")
@blueprint.output(schemas.PortList)
def list_ports() -> schemas.PortList:
    """List the virtual ports of instances, by number."""
    project = None if client().admin else client().project
    views = instances.views(services().desired.store.read, Filter(project=project))
    ports = [
        schemas.InstancePort(number=port.number, name=port.name, mac=port.mac, instance=view.instance.id)
        for view in views
        for port in view.instance.ports
    ]
    return schemas.PortList(ports=sorted(ports, key=lambda port: port.number))


@blueprint.get("/servers")
@blueprint.output(schemas.ServerList)
@blueprint.doc(responses=[403])
def list_servers() -> schemas.ServerList:
    """Show the server; administrators only."""
    client().require_admin("the server")
    status, reason = _status()
    config = services().server
    server = schemas.ServerOut(
        datapath_id=config.oneswitchd.datapath_id,
        api=config.oneswitchd.api,
        oneswitchd="down" if status is None else "up",
        reason=reason,
        version=status.version if status else None,
        controllers=sum(each.state == "connected" for each in status.controllers) if status else 0,
        switches=[switch.name for switch in config.switch],
    )
    return schemas.ServerList(servers=[server])


@blueprint.get("/switches")
@blueprint.output(schemas.SwitchList)
@blueprint.doc(responses=[403])
def list_switches() -> schemas.SwitchList:
    """List the switches and their slots; administrators only."""
    return schemas.SwitchList(switches=_switches())


@blueprint.get("/switches/<string:name>")
@blueprint.output(schemas.SwitchOut)
@blueprint.doc(responses=[403])
def show_switch(name: str) -> schemas.SwitchOut:
    """Show a switch; administrators only."""
    for switch in _switches():
        if switch.name == name:
            return switch
    raise UnknownError("switch-unknown", f"unknown switch {name!r}")


def _switches() -> list[schemas.SwitchOut]:
    """Return all switches, for clients who may see them."""
    client().require_admin("the switches")
    status, _ = _status()
    known = {switch.name: switch for switch in status.switches} if status else {}
    return [_switch(switch, known.get(switch.name)) for switch in services().server.switch]


def _status() -> tuple[Status | None, str | None]:
    """Return oneswitchd's status, or why it is unavailable."""
    try:
        return services().status(), None
    except ServerError as error:
        return None, str(error)


def _kind(kind: Kind) -> schemas.KindOut:
    return schemas.KindOut(name=kind.name, summary=kind.summary, movable=kind.movable, ports=list(kind.ports))


def _flavor(flavor: Flavor) -> schemas.FlavorOut:
    return schemas.FlavorOut(name=flavor.name, workers=flavor.workers, memory_mb=flavor.memory_mb)


def _switch(switch: SwitchConfig, state: SwitchState | None) -> schemas.SwitchOut:
    location = services().config.find_location(switch.name)
    taken = {
        each.slot: each.instance
        for each in processes.everything(services().desired.store.read)
        if each.location == switch.name
    }
    link = None if switch.link is None else "unknown"
    if state is not None and state.link is not None:
        link = "up" if state.link.state == "up" else "down"
    return schemas.SwitchOut(
        name=switch.name,
        hub=switch.link is None,
        machine=location.ssh.host if location.ssh else "local",
        virt=_bridge(switch.virt, state.virt if state else None),
        edge=_bridge(switch.edge, state.edge if state else None),
        link=link,
        slots=[
            schemas.SlotOut(
                name=slot.name,
                wires=[{"edge": wire.edge, "inside": wire.inside} for wire in slot.wires],
                taken=taken.get(slot.name),
            )
            for slot in location.slot
        ],
    )


def _bridge(target: str, state: BridgeState | None) -> schemas.BridgeOut:
    if state is None:
        return schemas.BridgeOut(target=target, state="unknown", last_error=None)
    return schemas.BridgeOut(target=state.target, state=state.state, last_error=state.last_error)
