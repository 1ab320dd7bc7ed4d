"""Bodies and queries of ``/api/v1``. The OpenAPI document comes from these and the other `*_schemas`."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from nfagent import model
from nfagent.measurement import Offload, OffloadState

PAGE_MAX = 1000

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=255)]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Labels = Annotated[dict[LabelKey, Annotated[str, StringConstraints(max_length=1024)]], Field(max_length=64)]
# From a query, in which everything is text.
LOG_MAX = 1 << 18
Limit = Annotated[int, Field(strict=False, ge=1, le=PAGE_MAX)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def iso(seconds: float) -> str:
    """Format a time in UTC as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class In(BaseModel):
    """Input: unknown members are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Out(BaseModel):
    """Output: frozen, and always complete."""

    model_config = ConfigDict(frozen=True)


class Page(In):
    """A part of a list."""

    limit: Limit = 100


class ProblemDetails(Out):
    """RFC 9457. ``code`` is for programs; ``errors`` names fields."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[dict[str, str]] = []


# ---- instances


class InstanceOrder(In):
    """A requested instance."""

    name: Name
    kind: Name
    flavor: Name = "small"
    config: dict[str, Any] = {}
    labels: Labels = {}
    ports: Annotated[int, Field(ge=0, le=2, description="Number of ports; default: the kind's minimum")] | None = None
    pin: Annotated[Name, Field(description="The only location where it may run; administrators only")] | None = None


class InstanceAmendment(In):
    """Changes of an instance: omitted members stay unchanged. ``config`` and ``labels`` are replaced as a whole."""

    config: dict[str, Any] | None = None
    name: Name | None = None
    labels: Labels | None = None
    pin: Annotated[Name, Field(description="null removes the pin; administrators only")] | None = None

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing to change; give at least one of config, name, labels, pin")
        for key in self.model_fields_set - {"pin"}:
            if getattr(self, key) is None:
                raise ValueError(f"{key} cannot be null; omit it to keep its value")
        return self


class InstanceQuery(Page):
    """A filter of instances; ``marker``: the id of the previous page's last instance."""

    marker: Reference | None = None
    name: Reference | None = None
    kind: Reference | None = None
    flavor: Reference | None = None
    status: model.Status | None = None
    project: Annotated[Reference, Field(description="Administrators see all projects")] | None = None
    location: Annotated[Reference, Field(description="Administrators only")] | None = None


class LogQuery(In):
    """A part of a log."""

    after: Annotated[str, StringConstraints(max_length=64)] | None = None
    most: Annotated[int, Field(strict=False, ge=1, le=LOG_MAX, description="Bytes, at most")] = 65_536
    previous: Annotated[
        bool, Field(strict=False, description="What the process before it said, or what was cut off its own log")
    ] = False


class LogOut(Out):
    """A part of an instance's output.

    ``position`` is for the next request's ``after``; ``more``: another part may follow at once.
    """

    text: str
    position: str
    more: bool


class PortOut(Out):
    """A virtual port, as the controllers see it."""

    number: int
    name: str
    mac: str


class PlacementOut(Out):
    """Where an instance runs, is wanted, and may run."""

    location: str | None
    slot: str | None
    pid: int | None
    since: Time | None
    pin: str | None
    target: str | None


class OffloadOut(Out):
    """Packets that the switches carry for an instance, by the newest measurement; each counts once.

    ``state``: whether oneswitchd takes its requests; ``why`` it does not, for administrators. ``share``: 0..1 of the
    packets of the last second. ``packets``, ``bytes`` and ``refused`` (requests by reason) count since its state began.
    """

    state: OffloadState
    why: str | None
    flows: int
    capacity: int
    share: float
    packets: int
    bytes: int
    refused: dict[str, int]

    @classmethod
    def of(cls, offload: Offload, *, admin: bool) -> Self:
        """Convert for a client."""
        row: dict[str, Any] = {name: getattr(offload, name) for name in cls.model_fields}
        row["why"] = offload.why if admin else None
        return cls(**row)


class InstanceOut(Out):
    """An instance. ``placement`` is null for tenants, who do not learn where it runs.

    ``offload`` is null if it does not ask the switches to carry flows, or has not been measured yet.
    """

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
    offload: OffloadOut | None

    @classmethod
    def of(
        cls, view: model.View, config: dict[str, Any], reason: str | None, offload: Offload | None, *, admin: bool
    ) -> Self:
        """Convert for a client; ``config`` and ``reason`` are already filtered."""
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
            config=config,
            config_state="applied" if applied else "pending",
            labels=instance.labels,
            ports=[PortOut(number=each.number, name=each.name, mac=each.mac) for each in instance.ports],
            created=iso(instance.created),
            placement=_placement(view) if admin else None,
            offload=OffloadOut.of(offload, admin=admin) if offload else None,
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
    """``next``: the marker of the next page; null: this is the last page."""

    instances: list[InstanceOut]
    next: str | None


# ---- inventory


class KindOut(Out):
    """A kind that can be deployed. ``ports``: minimum and maximum."""

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
    """A virtual port and its instance."""

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
    """A place for a process with ports; ``taken``: by an instance, or null."""

    name: str
    wires: list[dict[str, str]]
    taken: str | None


class SwitchOut(Out):
    """A switch: from server.toml, with oneswitchd's view of it."""

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


# ---- migrations


class MigrationOrder(In):
    """``target`` may be omitted if only one other location exists."""

    instance: Reference
    target: Name | None = None


class MigrationQuery(Page):
    """``marker``: the epoch of the previous page's last migration; newest first."""

    marker: Annotated[int, Field(strict=False, ge=1, le=2**63 - 1)] | None = None
    instance: Reference | None = None
    outcome: Literal["none", "done", "rolled-back", "failed", "cancelled"] | None = None


class MigrationLook(In):
    """How to look at a migration."""

    wait_s: Annotated[
        float, Field(strict=False, ge=0, le=60, description="Answer when it has ended, or after this many seconds")
    ] = 0.0


class MigrationOut(Out):
    """A migration; ``outcome`` null: not ended."""

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
        """Convert to the API's form."""
        row: dict[str, Any] = dict(vars(migration))
        for name in ("requested", "started", "ended"):
            row[name] = None if row[name] is None else iso(row[name])
        return cls(**row)


class MigrationPage(Out):
    """``next``: the marker of the next page; null: this is the last page."""

    migrations: list[MigrationOut]
    next: int | None


# ---- faults


class FaultOut(Out):
    """A fault that may need a person. ``critical``: a function does not serve."""

    gravity: Literal["critical", "warning"]
    about: Literal["instance", "location", "oneswitchd", "database", "disk"]
    id: str
    name: str
    project: str | None
    since: Time
    text: str


class FaultList(Out):
    """All known faults."""

    faults: list[FaultOut]


# ---- events


class EventQuery(In):
    """``after``: an id, like ``Last-Event-ID`` of a client that reconnects; default: only events from now on."""

    after: Annotated[int, Field(strict=False, ge=0, le=2**63 - 1)] | None = None
    subject: Annotated[Reference, Field(description="Only events about this id")] | None = None
