"""Bodies of ``/api/v1/chains``."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from nfagent import model
from nfagent.api.schemas import In, InstanceOrder, Name, Out, Page, PortOut, Reference, Time
from server.names import PORT_MAX, PORT_MIN


class Hop(In):
    """An instance, by id or name, a virtual port of the server, or an instance to create with the chain."""

    instance: Reference | None = None
    port: Annotated[int, Field(ge=PORT_MIN, le=PORT_MAX)] | None = None
    function: InstanceOrder | None = None

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [each for each in (self.instance, self.port, self.function) if each is not None]
        if len(given) != 1 or len(self.model_fields_set) != 1:
            raise ValueError("a hop is an instance, a port or a function")
        return self


class ChainOrder(In):
    """A requested chain: the hops of traffic in order, and the bound of their latency."""

    name: Name
    hops: Annotated[list[Hop], Field(min_length=2, max_length=64)]
    latency_us: Annotated[int, Field(ge=1, le=60_000_000)] | None = None


class ChainQuery(Page):
    """``marker``: the id of the previous page's last chain."""

    marker: Reference | None = None


class HopCost(Out):
    """The cost that a hop adds to the chain: ``crossings`` of PCIe links from the hop before, and their latency.

    ``millicores``: CPU that its process uses. ``mbps``: traffic between the hop before and it, both ways, which each of
    the crossed links carries. null: unknown, or not measured yet.
    """

    location: str | None
    crossings: int | None
    latency_us: int | None
    millicores: int | None
    mbps: float | None


class HopOut(Out):
    """A port, or an instance: its virtual ports are what a controller sends its packets to and gets them from.

    ``owned``: it was created with the chain, and is deleted with it.
    """

    port: int | None
    instance: str | None
    name: str | None
    kind: str | None
    status: model.Status | None
    reason: str | None
    ports: list[PortOut]
    owned: bool
    cost: HopCost | None


class ChainCost(Out):
    """The sums of its hops' costs; null: that of a hop is unknown."""

    crossings: int | None
    latency_us: int | None
    millicores: int


class ChainOut(Out):
    """A chain. ``status``: the worst of its instances'. ``cost`` is null for tenants.

    ``unkept``: why the placement ignores its bound; null: it is kept, or it has none.
    """

    id: str
    name: str
    project: str
    status: model.Status
    hops: list[HopOut]
    latency_us: int | None
    unkept: str | None
    cost: ChainCost | None
    created: Time


class ChainPage(Out):
    """``next``: the marker of the next page; null: this is the last page."""

    chains: list[ChainOut]
    next: str | None
