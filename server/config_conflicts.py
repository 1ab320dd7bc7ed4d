"""Contradictions between entries of a server.toml, each valid by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from server.config_faults import KeyPath
from server.names import EDGE, HOME, MULTICAST_PORT, VIRT

if TYPE_CHECKING:
    from server.config import PortConfig, ServerConfig, SwitchConfig

Conflict = tuple[KeyPath, str]
T = TypeVar("T")

_RESERVED = re.compile(rf"({VIRT}|{EDGE})(-\d+|-mc)?$")


def conflicts(config: ServerConfig) -> Iterator[Conflict]:
    """Yield each conflict as its key and the problem, in the order of the file's tables."""
    yield from _duplicates("switch", "name", config.switch, lambda switch: switch.name)
    yield from _same_address(config.switch)
    yield from _link_conflicts(config.switch)
    yield from _duplicates("port", "number", config.port, lambda port: port.number)
    yield from _duplicates("port", "name", config.port, lambda port: port.shown_name)
    yield from _duplicates("port", "interface", config.port, lambda port: f"{port.interface} on {port.switch}")
    for index, switch in enumerate(config.switch):
        if switch.name == HOME:
            yield ("switch", index, "name"), f"{HOME!r} is reserved: as executor it means a port's own switch"
    yield from _executor_conflicts(config, ("oneswitchd", "executor"), config.oneswitchd.executor)
    is_tcp, token_file = config.oneswitchd.api.startswith("tcp:"), config.oneswitchd.api_token_file
    if is_tcp and token_file is None:
        problem = "api_token_file is missing: a file with the token that clients of an API on TCP must send"
        yield ("oneswitchd", "api"), problem
    if token_file is not None and not is_tcp:
        problem = "is for an API on TCP; a unix socket is protected by its file mode"
        yield ("oneswitchd", "api_token_file"), problem
    for index, port in enumerate(config.port):
        yield from _port_conflicts(config, index, port)
        yield from _executor_conflicts(config, ("port", index, "executor"), port.executor)


def _duplicates(table: str, key: str, items: Iterable[T], value: Callable[[T], object]) -> Iterator[Conflict]:
    first: dict[object, int] = {}
    for index, item in enumerate(items):
        seen = first.setdefault(value(item), index)
        if seen != index:
            yield (table, index, key), f"{value(item)!r} is already the {key} of {table}[{seen}]"


def _same_address(switches: list[SwitchConfig]) -> Iterator[Conflict]:
    first: dict[str, str] = {}
    for index, switch in enumerate(switches):
        for key in ("virt", "edge", "ovsdb", "control"):
            address = getattr(switch, key)
            where = f"switch[{index}].{key}"
            if address is not None and first.setdefault(address, where) != where:
                yield ("switch", index, key), f"{address!r} is already {first[address]}"


def _link_conflicts(switches: list[SwitchConfig]) -> Iterator[Conflict]:
    hub = switches[0]
    if hub.link is not None:
        yield (
            ("switch", 0, "link"),
            f"{hub.name!r} is the first switch, the hypervisor, and has no link; only sNICs have",
        )
    taken: dict[str, str] = {}
    for index, switch in enumerate(switches[1:], start=1):
        if switch.link is None:
            expected = f'link = {{ hypervisor = "pcie-{switch.name}", local = "pf0hpf" }}'
            yield ("switch", index, "link"), f"is missing: sNIC {switch.name!r} needs its PCIe link, such as {expected}"
            continue
        for key in ("hypervisor", "local"):
            name = getattr(switch.link, key)
            if _RESERVED.match(name):
                yield ("switch", index, "link", key), _reserved(name)
        other = taken.setdefault(switch.link.hypervisor, switch.name)
        if other != switch.name:
            yield (
                ("switch", index, "link", "hypervisor"),
                f"{switch.link.hypervisor!r} is already the port toward {other!r}",
            )


def _port_conflicts(config: ServerConfig, index: int, port: PortConfig) -> Iterator[Conflict]:
    names = [switch.name for switch in config.switch]
    if port.switch not in names:
        yield ("port", index, "switch"), f"unknown switch {port.switch!r}; expected one of {', '.join(names)}"
    elif port.interface in [pcie.interface for pcie in config.pcie_ports(port.switch)]:
        yield ("port", index, "interface"), f"{port.interface!r} is the PCIe port of {port.switch!r}"
    elif _RESERVED.match(port.interface):
        yield ("port", index, "interface"), _reserved(port.interface)


def _executor_conflicts(config: ServerConfig, key: KeyPath, executor: str | None) -> Iterator[Conflict]:
    names = [switch.name for switch in config.switch]
    if executor is not None and executor not in (HOME, *names):
        yield key, f"unknown switch {executor!r}; expected one of {', '.join(names)}, and {HOME!r}"


def _reserved(name: str) -> str:
    ours = f"{VIRT}, {EDGE}, {VIRT}-N, {EDGE}-N, {VIRT}-{MULTICAST_PORT} and {EDGE}-{MULTICAST_PORT}"
    return f"{name!r} is reserved; plumbing creates {ours} itself"
