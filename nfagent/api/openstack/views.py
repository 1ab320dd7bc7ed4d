"""Instances, kinds and flavors as clients of OpenStack expect them: servers, images and flavors."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from flask import url_for

from nfagent.api.openstack import addresses
from nfagent.api.openstack.addresses import NETWORK
from nfagent.api.openstack.bodies import DESCRIPTION
from nfagent.api.openstack.versions import at_least
from nfagent.clients import Client
from nfagent.model import Flavor, Instance, Kind, Migration, View

_STATUS = {"building": "BUILD", "active": "ACTIVE", "migrating": "MIGRATING", "deleting": "ACTIVE", "error": "ERROR"}
_VM_STATE = {"building": "building", "active": "active", "migrating": "active", "deleting": "active", "error": "error"}
_TASK = {"building": "spawning", "migrating": "migrating", "deleting": "deleting"}
_RESIZING, _RESIZED = "RESIZE", "VERIFY_RESIZE"
_RUNNING = 1
_NO_STATE = 0


def time(seconds: float) -> str:
    """Format a time as Nova does."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def brief_server(instance: Instance) -> dict[str, Any]:
    """Return a server in a list without details."""
    return {"id": instance.id, "name": instance.name, "links": links("servers", instance.id)}


def server(view: View, reason: str | None, flavor: Flavor | None, who: Client, datapath_id: str) -> dict[str, Any]:
    """Return a server. Only administrators learn where it runs; ``reason`` is already filtered for this client."""
    instance, status = view.instance, view.status
    task, resize = _TASK.get(status), _resize(view)
    shown = {
        **brief_server(instance),
        "status": resize or _STATUS[status],
        "tenant_id": instance.project,
        "user_id": instance.project,
        "metadata": instance.labels,
        # An id of the whole server: the same wherever the instance runs.
        "hostId": hashlib.sha224(f"{instance.project}{datapath_id}".encode()).hexdigest(),
        "image": {"id": instance.kind, "links": links("images", instance.kind)},
        "flavor": _flavor_of(instance, flavor),
        "created": time(instance.created),
        "updated": time(view.running.since if view.running else instance.created),
        "addresses": addresses.by_network(instance),
        "accessIPv4": "",
        "accessIPv6": "",
        "progress": 100 if status == "active" else 0,
        "key_name": None,
        "config_drive": "",
        "security_groups": [],
        "OS-DCF:diskConfig": "MANUAL",
        "OS-EXT-AZ:availability_zone": "nova",
        "OS-EXT-STS:power_state": _RUNNING if status in ("active", "migrating") else _NO_STATE,
        "OS-EXT-STS:task_state": "resize_finish" if resize == _RESIZING else task,
        "OS-EXT-STS:vm_state": "resized" if resize == _RESIZED else _VM_STATE[status],
        "OS-SRV-USG:launched_at": time(view.running.since) if view.running else None,
        "OS-SRV-USG:terminated_at": None,
        "os-extended-volumes:volumes_attached": [],
    }
    if status == "error" and view.running is not None:
        shown["fault"] = {"code": 500, "created": time(view.running.since), "message": reason or ""}
    if who.admin:
        shown |= _whereabouts(view)
    return shown | _later(instance)


def _resize(view: View) -> str | None:
    """Return the status of an instance that is being resized, or was and waits for its owner; None: neither."""
    if view.running is None or view.status not in ("active", "building"):
        return None
    if view.status == "active" and view.running.flavor != view.instance.flavor:
        return _RESIZING
    if view.instance.resized_from is None:
        return None
    return _RESIZED if view.status == "active" else _RESIZING


def _whereabouts(view: View) -> dict[str, Any]:
    location = view.running.location if view.running else None
    return {
        "OS-EXT-SRV-ATTR:host": location,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": location,
        "OS-EXT-SRV-ATTR:instance_name": view.instance.name,
    }


def _later(instance: Instance) -> dict[str, Any]:
    """Return what newer microversions add."""
    members: dict[int, dict[str, Any]] = {
        9: {"locked": False},
        19: {"description": instance.labels.get(DESCRIPTION)},
        26: {"tags": []},
        63: {"trusted_image_certificates": None},
        71: {"server_groups": []},
        73: {"locked_reason": None},
    }
    return {name: value for since, each in members.items() if at_least(since) for name, value in each.items()}


def _flavor_of(instance: Instance, flavor: Flavor | None) -> dict[str, Any]:
    if not at_least(47):
        return {"id": instance.flavor, "links": links("flavors", instance.flavor)}
    sizes = {"vcpus": flavor.workers if flavor else 0, "ram": flavor.memory_mb if flavor else 0}
    return sizes | {"disk": 0, "ephemeral": 0, "swap": 0, "original_name": instance.flavor, "extra_specs": {}}


def flavor(each: Flavor) -> dict[str, Any]:
    """Return a size: workers are its virtual CPUs."""
    shown: dict[str, Any] = {
        "id": each.name,
        "name": each.name,
        "vcpus": each.workers,
        "ram": each.memory_mb,
        "disk": 0,
        "swap": "",
        "rxtx_factor": 1.0,
        "OS-FLV-DISABLED:disabled": False,
        "OS-FLV-EXT-DATA:ephemeral": 0,
        "os-flavor-access:is_public": True,
        "links": links("flavors", each.name),
    }
    if at_least(55):
        shown["description"] = None
    if at_least(61):
        shown["extra_specs"] = {}
    return shown


def image(kind: Kind) -> dict[str, Any]:
    """Return a kind of network function, in the form of the Image API v2."""
    return {
        "id": kind.name,
        "name": kind.name,
        "status": "active",
        "visibility": "public",
        "owner": None,
        "protected": True,
        "container_format": "bare",
        "disk_format": "raw",
        "min_disk": 0,
        "min_ram": 0,
        "size": 0,
        "tags": [],
        "description": kind.summary,
        "self": f"/v2/images/{kind.name}",
        "file": f"/v2/images/{kind.name}/file",
        "schema": "/v2/schemas/image",
    }


def attachment(instance: Instance, index: int) -> dict[str, Any]:
    """Return a virtual port in ``os-interface``."""
    port = instance.ports[index]
    return {
        "port_id": str(port.number),
        "port_state": "ACTIVE",
        "net_id": NETWORK,
        "mac_addr": port.mac,
        "fixed_ips": _fixed_ips(instance, index),
    }


def port(instance: Instance, index: int) -> dict[str, Any]:
    """Return a virtual port, in the form of the Networking API."""
    each = instance.ports[index]
    return {
        "id": str(each.number),
        "name": each.name,
        "mac_address": each.mac,
        "network_id": NETWORK,
        "device_id": instance.id,
        "device_owner": "compute:nova",
        "tenant_id": instance.project,
        "project_id": instance.project,
        "status": "ACTIVE",
        "admin_state_up": True,
        "fixed_ips": _fixed_ips(instance, index),
        "security_groups": [],
    }


def _fixed_ips(instance: Instance, index: int) -> list[dict[str, str]]:
    return [{"ip_address": each} for each in addresses.of_port(instance, index)]


def network() -> dict[str, Any]:
    """Return the one virtual switch, in the form of the Networking API."""
    return {
        "id": NETWORK,
        "name": NETWORK,
        "status": "ACTIVE",
        "admin_state_up": True,
        "shared": True,
        "router:external": False,
        "subnets": [],
        "tenant_id": "",
        "project_id": "",
    }


def migration(each: Migration) -> dict[str, Any]:
    """Return a migration in ``os-migrations``."""
    states = {"done": "completed", "rolled-back": "error", "failed": "error", "cancelled": "cancelled"}
    running = "queued" if each.started is None else "running"
    return {
        "id": each.epoch,
        "instance_uuid": each.instance,
        "source_compute": each.source,
        "source_node": each.source,
        "dest_compute": each.target,
        "dest_node": each.target,
        "dest_host": None,
        "status": states[each.outcome] if each.outcome else running,
        "migration_type": "live-migration" if each.mode == "state" else "migration",
        "old_instance_type_id": None,
        "new_instance_type_id": None,
        "created_at": time(each.requested),
        "updated_at": time(each.ended or each.started or each.requested),
        **({"uuid": str(each.epoch)} if at_least(59) else {}),
    }


def links(collection: str, name: str) -> list[dict[str, str]]:
    """Return the links to a resource."""
    href = f"{url_for('compute.show_version', _external=True).rstrip('/')}/{collection}/{name}"
    return [{"rel": "self", "href": href}, {"rel": "bookmark", "href": href}]
