"""IP addresses of instances, as their configurations name them: an instance has no others."""

import ipaddress
from collections.abc import Iterator
from typing import Any

from nfagent.model import Instance

NETWORK = "virtual"
"""The one virtual switch."""

_INTERFACES = "interfaces"
_SERVICES = ("vips", "listeners")


def of_port(instance: Instance, index: int) -> list[str]:
    """Return the addresses of a virtual port: those of the configuration's interface with the same index."""
    interfaces = _members(instance.config, _INTERFACES)
    if index >= len(interfaces) or not isinstance(interfaces[index], dict):
        return []
    return list(_valid(_members(interfaces[index], "addresses")))


def by_network(instance: Instance) -> dict[str, list[dict[str, Any]]]:
    """Return ``addresses`` of a server: its ports' are fixed, those of its services floating."""
    ports = enumerate(instance.ports)
    found = [_entry(each, port.mac, "fixed") for index, port in ports for each in of_port(instance, index)]
    if instance.ports:
        found += [_entry(each, instance.ports[0].mac, "floating") for each in _services(instance.config)]
    return {NETWORK: found} if found else {}


def _services(config: dict[str, Any]) -> list[str]:
    named = [each.get("address") for key in _SERVICES for each in _members(config, key) if isinstance(each, dict)]
    return list(dict.fromkeys(_valid(named)))


def _members(config: dict[str, Any], key: str) -> list[Any]:
    # A kind of the operator's own may give these keys another meaning.
    value = config.get(key)
    return value if isinstance(value, list) else []


def _valid(texts: list[Any]) -> Iterator[str]:
    for text in texts:
        try:
            yield str(ipaddress.ip_interface(text).ip)
        except ValueError:
            continue


def _entry(address: str, mac: str, kind: str) -> dict[str, Any]:
    version = ipaddress.ip_address(address).version
    return {"addr": address, "version": version, "OS-EXT-IPS-MAC:mac_addr": mac, "OS-EXT-IPS:type": kind}
