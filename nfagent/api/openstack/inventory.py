"""Locations as hypervisors, services and an availability zone; quotas and limits of projects."""

import time
from collections.abc import Iterable
from typing import Any

from apiflask import APIBlueprint
from flask import request
from flask.typing import ResponseReturnValue

from nfagent.api.openstack import views
from nfagent.api.openstack.versions import at_least
from nfagent.api.services import client, services
from nfagent.capacity import Capacity, capacities
from nfagent.errors import ForbiddenError, UnknownError
from nfagent.model import View
from nfagent.orders import Usage
from nfagent.store import instances
from nfagent.store.instances import Filter
from server.errors import ServerError

blueprint = APIBlueprint("compute-inventory", __name__, enable_openapi=False)

_ZONE = "nova"
_BINARY = "nova-compute"
_UNLIMITED = -1
_MILLI = 1000


@blueprint.get("/os-hypervisors")
@blueprint.get("/os-hypervisors/detail")
def list_hypervisors() -> ResponseReturnValue:
    """List the locations."""
    return {"hypervisors": _hypervisors()}


@blueprint.get("/os-hypervisors/<string:hypervisor>")
def show_hypervisor(hypervisor: str) -> ResponseReturnValue:
    """Show a location, by number or name."""
    return {"hypervisor": _hypervisor(hypervisor)}


@blueprint.get("/os-hypervisors/<string:hypervisor>/uptime")
def show_uptime(hypervisor: str) -> ResponseReturnValue:
    """Show a location; nfagent does not know for how long its machine has been up."""
    return {"hypervisor": _hypervisor(hypervisor) | {"uptime": ""}}


@blueprint.get("/os-aggregates")
def list_aggregates() -> ResponseReturnValue:
    """Return an empty list."""
    client().require_admin("aggregates")
    return {"aggregates": []}


@blueprint.get("/os-services")
def list_services() -> ResponseReturnValue:
    """List what starts instances, at each location. ``host`` and ``binary`` select some."""
    client().require_admin("services")
    hosts, binaries = request.args.getlist("host"), request.args.getlist("binary")
    found = [
        each
        for each in _services()
        if each["host"] in (hosts or [each["host"]]) and each["binary"] in (binaries or [each["binary"]])
    ]
    return {"services": found}


@blueprint.get("/os-availability-zone")
@blueprint.get("/os-availability-zone/detail")
def list_zones() -> ResponseReturnValue:
    """List the one zone; the details name the locations, which only administrators learn."""
    zone: dict[str, Any] = {"zoneName": _ZONE, "zoneState": {"available": True}, "hosts": None}
    if request.path.endswith("/detail"):
        client().require_admin("the locations of an availability zone")
        zone["hosts"] = {
            each["host"]: {
                each["binary"]: {
                    "active": each["status"] == "enabled",
                    "available": each["state"] == "up",
                    "updated_at": each["updated_at"],
                }
            }
            for each in _services()
        }
    return {"availabilityZoneInfo": [zone]}


@blueprint.get("/projects/<string:project>")
def show_project(project: str) -> ResponseReturnValue:
    """Answer for the identity service, which the ``openstack`` command asks for the project of a quota."""
    _check_project(project)
    return {"project": {"id": project, "name": project, "domain_id": "default", "enabled": True}}


@blueprint.get("/os-quota-sets/<string:project>")
@blueprint.get("/os-quota-sets/<string:project>/defaults")
@blueprint.get("/os-quota-sets/<string:project>/detail")
def show_quota(project: str) -> ResponseReturnValue:
    """Show a project's limits; in detail with what it uses."""
    usage = _usage(project)
    shown: dict[str, Any] = {"instances": usage["instances"].limit, "cores": usage["workers"].limit}
    if request.path.endswith("/detail"):
        shown = {
            "instances": _in_detail(usage["instances"]),
            "cores": _in_detail(usage["workers"]),
            "ram": _in_detail(Usage(0, _UNLIMITED)),
        }
    return {"quota_set": {"id": project, "ram": _UNLIMITED, "metadata_items": _UNLIMITED} | shown}


@blueprint.get("/limits")
def show_limits() -> ResponseReturnValue:
    """Show the limits of the client's project, or of ``tenant_id``, and what it uses."""
    usage = _usage(request.args.get("tenant_id", client().project))
    absolute = {
        "maxTotalInstances": usage["instances"].limit,
        "totalInstancesUsed": usage["instances"].used,
        "maxTotalCores": usage["workers"].limit,
        "totalCoresUsed": usage["workers"].used,
        "maxTotalRAMSize": _UNLIMITED,
        "totalRAMUsed": 0,
    }
    return {"limits": {"rate": [], "absolute": absolute}}


def _in_detail(usage: Usage) -> dict[str, int]:
    return {"limit": usage.limit, "in_use": usage.used, "reserved": 0}


def _usage(project: str) -> dict[str, Usage]:
    _check_project(project)
    return services().desired.usage(project)


def _check_project(project: str) -> None:
    who = client()
    if not who.admin and who.project != project:
        raise ForbiddenError("administrators-only", f"project {project!r} requires the role reader, operator or admin")


def _hypervisor(wanted: str) -> dict[str, Any]:
    for each in _hypervisors():
        if wanted in (str(each["id"]), each["hypervisor_hostname"]):
            return each
    raise UnknownError("unknown", f"Hypervisor {wanted} could not be found.")


def _hypervisors() -> list[dict[str, Any]]:
    client().require_admin("hypervisors")
    known = services()
    found = instances.views(known.desired.store.read, Filter())
    capacity = capacities(known.config, known.server)
    return [
        _hypervisor_of(service, capacity[service["host"]], [view for view in found if _runs_at(view, service["host"])])
        for service in _services()
    ]


def _runs_at(view: View, location: str) -> bool:
    return view.running is not None and view.running.location == location


def _hypervisor_of(service: dict[str, Any], capacity: Capacity, running: list[View]) -> dict[str, Any]:
    sizes = services().desired.catalog.flavors
    flavors = [sizes[view.instance.flavor] for view in running if view.instance.flavor in sizes]
    memory = capacity.memory_mb or 0
    used_mb = sum(flavor.memory_mb for flavor in flavors)
    return {
        "id": service["id"],
        "hypervisor_hostname": service["host"],
        "hypervisor_type": "nfagent",
        "hypervisor_version": 1,
        "state": service["state"],
        "status": service["status"],
        "host_ip": "127.0.0.1",
        "running_vms": len(running),
        "service": {"host": service["host"], "id": service["id"], "disabled_reason": None},
        "vcpus": capacity.millicores // _MILLI,
        "vcpus_used": sum(flavor.workers for flavor in flavors),
        "memory_mb": memory,
        "memory_mb_used": used_mb,
        "free_ram_mb": max(0, memory - used_mb),
        **dict.fromkeys(("local_gb", "local_gb_used", "free_disk_gb", "current_workload", "disk_available_least"), 0),
        "cpu_info": {} if at_least(28) else "{}",
    }


def _services() -> list[dict[str, Any]]:
    """Return a service for each location; it is down if the location's switch does not answer oneswitchd."""
    up, now = _locations_up(), views.time(time.time())
    return [
        {
            "id": str(index) if at_least(53) else index,
            "binary": _BINARY,
            "host": name,
            "zone": _ZONE,
            "status": "enabled",
            "state": "up" if name in up else "down",
            "updated_at": now,
            "disabled_reason": None,
            "forced_down": False,
        }
        for index, name in enumerate(services().desired.catalog.locations, 1)
    ]


def _locations_up() -> Iterable[str]:
    try:
        status = services().status()
    except ServerError:
        # Without oneswitchd nothing can be started anywhere.
        return ()
    return [each.name for each in status.switches if "down" not in (each.virt.state, each.edge.state)]
