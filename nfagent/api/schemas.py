"""Bodies and queries of ``/api/v1``; the OpenAPI document is made from these and from `placement_schemas`."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from nfagent import model
from server.names import PORT_MAX, PORT_MIN

PAGE_MAX = 1000

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=255)]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Labels = Annotated[dict[LabelKey, Annotated[str, StringConstraints(max_length=1024)]], Field(max_length=64)]
# From a query, where everything is text.
Limit = Annotated[int, Field(strict=False, ge=1, le=PAGE_MAX)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def iso(seconds: float) -> str:
    """A time in UTC, as RFC 3339 writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class In(BaseModel):
    """What comes: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Out(BaseModel):
    """What goes."""

    model_config = ConfigDict(frozen=True)


class _Page(In):
    limit: Limit = 100


class Problem(Out):
    """RFC 9457. ``code`` is for programs; ``errors`` names fields."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[dict[str, str]] = []


# ---- instances


class InstanceOrder(In):
    """An instance that is asked for."""

    name: Name
    kind: Name
    flavor: Name = "small"
    config: dict[str, Any] = {}
    labels: Labels = {}
    ports: Annotated[int, Field(ge=0, le=2, description="How many; default: as few as the kind needs")] | None = None
    pin: Annotated[Name, Field(description="The only location where it may be; administrators only")] | None = None


class InstanceAmendment(In):
    """Changes of an instance: what is not named stays as it is. ``config`` and ``labels`` are replaced whole."""

    config: dict[str, Any] | None = None
    name: Name | None = None
    labels: Labels | None = None
    pin: Annotated[Name, Field(description="null takes it away; administrators only")] | None = None

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing is to be changed; name at least one of config, name, labels, pin")
        for key in self.model_fields_set - {"pin"}:
            if getattr(self, key) is None:
                raise ValueError(f"{key} cannot be null; leave it out to keep it as it is")
        return self


class InstanceQuery(_Page):
    """Which instances; ``marker``: the id of the last one of the page before."""

    marker: Reference | None = None
    name: Reference | None = None
    kind: Reference | None = None
    flavor: Reference | None = None
    status: model.Status | None = None
    project: Annotated[Reference, Field(description="Administrators see all projects")] | None = None
    location: Annotated[Reference, Field(description="Administrators only")] | None = None


class PortOut(Out):
    """A virtual port, as the controllers see it."""

    number: int
    name: str
    mac: str


class PlacementOut(Out):
    """Where an instance runs, is wanted, and may be."""

    location: str | None
    slot: str | None
    pid: int | None
    since: Time | None
    pin: str | None
    target: str | None


class InstanceOut(Out):
    """An instance. ``placement`` is null for tenants: where it runs is the server's business."""

    id: str
    name: str
    project: str
    kind: str
    flavor: str
    status: model.Status
    reason: str | None
    config: dict[str, Any]
    config_state: Literal["pending", "applied"]
    labels: dict[str, str]
    ports: list[PortOut]
    created: Time
    placement: PlacementOut | None

    @classmethod
    def of(cls, view: model.View, reason: str | None, *, admin: bool) -> Self:
        """As a client may see it; ``reason`` as it is told."""
        instance, running = view.instance, view.running
        applied = running is not None and running.phase == "active" and running.generation == instance.generation
        return cls(
            id=instance.id,
            name=instance.name,
            project=instance.project,
            kind=instance.kind,
            flavor=instance.flavor,
            status=view.status,
            reason=reason,
            config=instance.config,
            config_state="applied" if applied else "pending",
            labels=instance.labels,
            ports=[PortOut(number=each.number, name=each.name, mac=each.mac) for each in instance.ports],
            created=iso(instance.created),
            placement=_placement(view) if admin else None,
        )


def _placement(view: model.View) -> PlacementOut:
    running = view.running
    return PlacementOut(
        location=running.location if running else None,
        slot=running.slot if running else None,
        pid=(running.own_pid or running.pid) if running else None,
        since=iso(running.since) if running else None,
        pin=view.instance.pin,
        target=view.instance.target,
    )


class InstancePage(Out):
    """``next``: the marker of the next page; null: this is the last."""

    instances: list[InstanceOut]
    next: str | None


# ---- what there is


class KindOut(Out):
    """What can be deployed. ``ports``: least and most."""

    name: str
    summary: str
    movable: bool
    ports: list[int]


class KindList(Out):
    """All kinds."""

    kinds: list[KindOut]


class FlavorOut(Out):
    """A size."""

    name: str
    workers: int
    memory_mb: int


class FlavorList(Out):
    """All flavors."""

    flavors: list[FlavorOut]


class InstancePort(PortOut):
    """A virtual port and whose it is."""

    instance: str


class PortList(Out):
    """All virtual ports of instances."""

    ports: list[InstancePort]


class BridgeOut(Out):
    """oneswitchd's connection to a bridge; ``unknown``: oneswitchd does not answer."""

    target: str
    state: str
    last_error: str | None


class SlotOut(Out):
    """A place for a process with ports; ``taken`` by an instance or null."""

    name: str
    wires: list[dict[str, str]]
    taken: str | None


class SwitchOut(Out):
    """A switch: from server.toml, and what oneswitchd says of it."""

    name: str
    hub: bool
    machine: str
    virt: BridgeOut
    edge: BridgeOut
    link: Literal["up", "down", "unknown"] | None
    slots: list[SlotOut]


class SwitchList(Out):
    """All switches."""

    switches: list[SwitchOut]


class ServerOut(Out):
    """The server: one host with its smart NICs."""

    datapath_id: str
    api: str
    oneswitchd: Literal["up", "down"]
    reason: str | None
    version: str | None
    controllers: int
    switches: list[str]


class ServerList(Out):
    """All servers of this agent: one."""

    servers: list[ServerOut]


# ---- chains


class Hop(In):
    """An instance, by id or name, or a virtual port of the server."""

    instance: Reference | None = None
    port: Annotated[int, Field(ge=PORT_MIN, le=PORT_MAX)] | None = None

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.instance is None) == (self.port is None) or len(self.model_fields_set) != 1:
            raise ValueError("a hop is either an instance or a port")
        return self


class ChainOrder(In):
    """A chain that is asked for: what traffic passes, in this order, and how long that may take."""

    name: Name
    hops: Annotated[list[Hop], Field(min_length=2, max_length=64)]
    latency_us: Annotated[int, Field(ge=1, le=60_000_000)] | None = None


class ChainQuery(_Page):
    """``marker``: the id of the last one of the page before."""

    marker: Reference | None = None


class HopOut(Out):
    """Either."""

    instance: str | None = None
    port: int | None = None


class ChainOut(Out):
    """A chain. ``unkept``: why its bound is left out of the placement; null: it is kept, or there is none."""

    id: str
    name: str
    project: str
    hops: list[HopOut]
    latency_us: int | None
    unkept: str | None
    created: Time


class ChainPage(Out):
    """``next``: the marker of the next page; null: this is the last."""

    chains: list[ChainOut]
    next: str | None


# ---- migrations


class MigrationOrder(In):
    """``target`` may be left out where there is only one other location."""

    instance: Reference
    target: Name | None = None


class MigrationQuery(_Page):
    """``marker``: the epoch of the last one of the page before; the newest come first."""

    marker: Annotated[int, Field(strict=False, ge=1, le=2**63 - 1)] | None = None
    instance: Reference | None = None
    outcome: Literal["none", "done", "rolled-back", "failed", "cancelled"] | None = None


class MigrationOut(Out):
    """A migration; ``outcome`` null: it goes on."""

    epoch: int
    instance: str
    project: str
    source: str
    target: str
    mode: model.Mode
    step: str
    requested: Time
    started: Time | None
    ended: Time | None
    outcome: model.Outcome | None
    reason: str | None
    report: dict[str, Any]

    @classmethod
    def of(cls, migration: model.Migration) -> Self:
        """As JSON has it."""
        row: dict[str, Any] = dict(vars(migration))
        for name in ("requested", "started", "ended"):
            row[name] = None if row[name] is None else iso(row[name])
        return cls(**row)


class MigrationPage(Out):
    """``next``: the marker of the next page; null: this is the last."""

    migrations: list[MigrationOut]
    next: int | None


# ---- faults


class FaultOut(Out):
    """Something that is wrong and may need a person. ``critical``: a function does not serve."""

    gravity: Literal["critical", "warning"]
    about: Literal["instance", "location"]
    id: str
    name: str
    project: str | None
    since: Time
    text: str


class FaultList(Out):
    """All that is known to be wrong."""

    faults: list[FaultOut]


# ---- events


class EventQuery(In):
    """``after``: an id, as ``Last-Event-ID`` of a client that reconnects; default: only what happens from now on."""

    after: Annotated[int, Field(strict=False, ge=0, le=2**63 - 1)] | None = None
    subject: Annotated[Reference, Field(description="Only what is about this id")] | None = None
