"""Queries and answers of ``/api/v1/instances/ID/assets``: what an asset monitor has found."""

from typing import Annotated, Literal

from pydantic import Field

from nfagent.api.schemas import In, Limit, Out


class AssetsQuery(In):
    """A page of hosts."""

    start: Annotated[int, Field(strict=False, ge=0, le=1 << 31, description="``next`` of the page before")] = 0
    limit: Limit = 100


class AssetService(Out):
    """A service that a host offers or uses."""

    protocol: Literal["tcp", "udp"]
    port: int
    role: Literal["server", "client"]
    service: str
    application: str
    distance: int
    first_seen: int
    last_seen: int


class AssetSystem(Out):
    """An operating system as packets show it; ``way``: which packets; ``system``: None if unknown."""

    way: str
    port: int
    fingerprint: str
    system: str | None
    distance: int
    first_seen: int
    last_seen: int


class AssetOut(Out):
    """A host. Times are seconds since 1970."""

    address: str
    vlan: int
    mac: str | None = None
    vendor: str | None = None
    first_seen: int
    last_seen: int
    services: list[AssetService]
    systems: list[AssetSystem]


class AssetsOut(Out):
    """Hosts; ``next``: where the next page starts."""

    hosts: list[AssetOut]
    next: int | None


class AssetLinesQuery(In):
    """Lines after a number."""

    after: Annotated[int, Field(strict=False, ge=0, le=1 << 62)] = 0
    limit: Limit = 100


class AssetLine(Out):
    """A line of PRADS' log."""

    number: int
    line: str


class AssetLinesOut(Out):
    """Lines; ``last``: the number of the newest."""

    lines: list[AssetLine]
    last: int
