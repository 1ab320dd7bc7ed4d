"""The nouns of the management plane. All are immutable; the store makes new ones."""

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["building", "active", "migrating", "deleting", "error"]
"""What an instance is, as its client sees it; derived from desired, actual and migrations."""

Phase = Literal["starting", "active", "stopping", "error"]
"""What a process of an instance is, as the reconciler last saw it."""

Role = Literal["serving", "incoming"]
"""Of two processes of one instance during a migration: the one that is to be, and the one that is."""

Mode = Literal["state", "restart"]
"""How a migration is done: state moves and no packet is lost, or the process ends here and begins there."""

Outcome = Literal["done", "rolled-back", "failed", "cancelled"]


@dataclass(frozen=True)
class Kind:
    """What can be deployed.

    Attributes:
        movable: its state moves: its process speaks the control protocol of nfs/README.md.
        ports: how many virtual ports an instance may have, least and most.
        command: what is run; see `nfagent.launch.commands` for its placeholders.
    """

    name: str
    summary: str
    movable: bool
    ports: tuple[int, int]
    command: tuple[str, ...]


@dataclass(frozen=True)
class Flavor:
    """A size: worker threads, and memory in MB, which the optimiser counts and nobody enforces."""

    name: str
    workers: int
    memory_mb: int


@dataclass(frozen=True)
class Wire:
    """An interface of a slot: its name on the switch's bridge ``edge``, and at the other end, where the process is."""

    edge: str
    inside: str


@dataclass(frozen=True)
class Slot:
    """A place for one process at a location.

    Attributes:
        wires: its interfaces, in the order of the instance's ports.
        enter: words before a command that is to run there, as ``nsenter --net=... --``; none: right here.
    """

    name: str
    wires: tuple[Wire, ...]
    enter: tuple[str, ...] = ()


@dataclass(frozen=True)
class Port:
    """A virtual port of an instance, as the controllers see it."""

    number: int
    name: str
    mac: str


@dataclass(frozen=True)
class Instance:
    """What a client wants.

    Attributes:
        id: a UUID.
        name: unique in its project.
        config: of the network function itself.
        labels: the client's own; only `nfagent.decide.situation.APART` is read here.
        pin: the only location where it may be; None: the optimiser decides.
        target: where it is wanted now, by a request or a decision; a pin goes before it.
        present: False: to be deleted.
        generation: counts the configurations, from 1.
        created: seconds since 1970.
    """

    id: str
    name: str
    project: str
    kind: str
    flavor: str
    config: dict[str, Any]
    labels: dict[str, str]
    pin: str | None
    target: str | None
    present: bool
    generation: int
    created: float
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True)
class Running:
    """A process of an instance, as it was last known.

    Attributes:
        incarnation: a UUID, one for each start.
        slot: name at the location; None: it has no ports.
        pid, pid_started: of the process, and when it started in clock ticks since boot; None before it is known. At a
            remote location they are the remote machine's.
        control: path of its control socket on this machine; None: it has none.
        generation: of the configuration that it runs on.
        reason: why it is not active, or what is wrong with its newest configuration.
        since: when phase or reason last changed, seconds since 1970.
        silent: since when it has not answered, seconds since 1970; None: it answers.
        own_pid: of the network function itself, where ``pid`` is what entered its namespaces for it.
    """

    incarnation: str
    instance: str
    role: Role
    location: str
    slot: str | None
    phase: Phase
    generation: int
    since: float
    pid: int | None = None
    pid_started: int | None = None
    control: str | None = None
    reason: str | None = None
    silent: float | None = None
    own_pid: int | None = None


@dataclass(frozen=True)
class View:
    """An instance together with what is true of it."""

    instance: Instance
    status: Status
    running: Running | None
    migration: "Migration | None"


@dataclass(frozen=True)
class Migration:
    """A row of the migrations' journal.

    Attributes:
        epoch: its number; grows.
        step: the last one that was written before it was begun; ``requested`` before the first.
        outcome: None while it goes on.
        report: figures and what was lost, by whoever did it.
    """

    epoch: int
    instance: str
    project: str
    source: str
    target: str
    mode: Mode
    step: str
    requested: float
    started: float | None = None
    ended: float | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Chain:
    """Instances, by name or id, that traffic passes in this order, and how long that may take in microseconds."""

    id: str
    name: str
    project: str
    hops: tuple[str, ...]
    latency_us: int | None
    created: float


@dataclass(frozen=True)
class Decision:
    """What the optimiser said.

    Attributes:
        plan: location by instance id.
        explanation: why, in the optimiser's words, as JSON.
        moves: instance ids in the order in which they are to move.
        outcome: what came of it: ``done``, ``rolled-back``, ``failed``, ``superseded``, ``interrupted``,
            ``unchanged``; None: nothing yet.
        ended: when that was known.
        report: of each move, and the host's CPU before and after.
    """

    id: int
    decided: float
    problem: dict[str, Any]
    plan: dict[str, str]
    explanation: dict[str, Any]
    moves: tuple[str, ...]
    outcome: str | None
    ended: float | None = None
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """A change, as clients are told of it.

    Attributes:
        id: grows by one from event to event.
        type: as ``instance.created``.
        subject: what it is about: the id of an instance, the epoch of a migration, ...
        project: whose clients may see it; None: administrators' only.
        payload: the thing after the change, or what is known of its end.
    """

    id: int
    time: float
    type: str
    subject: str
    project: str | None
    payload: dict[str, Any]
