"""The nouns of the management plane. All are immutable; the store creates new ones."""

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["building", "active", "migrating", "deleting", "error"]
"""Status of an instance as its client sees it; derived from desired, actual and migrations."""

Phase = Literal["starting", "active", "stopping", "error"]
"""Phase of an instance's process, as the reconciler last saw it."""

Role = Literal["serving", "incoming"]
"""Role of a process during a migration: the new one (``incoming``) or the old one (``serving``)."""

Mode = Literal["state", "restart"]
"""Kind of migration: with its state and without loss, or by a restart at the target."""

Outcome = Literal["done", "rolled-back", "failed", "cancelled"]


@dataclass(frozen=True)
class Kind:
    """A kind of network function.

    Attributes:
        movable: its state moves, so its process speaks the control protocol of nfs/README.md.
        ports: minimum and maximum number of an instance's virtual ports.
        command: to run; see `nfagent.launch.commands` for its placeholders.
        check: examines a configuration, ``{config}``, of an instance with ``{ports}`` ports; empty: there is none.
        files: places of its configuration that name files, such as ``listeners[].tls.key``.
    """

    name: str
    summary: str
    movable: bool
    ports: tuple[int, int]
    command: tuple[str, ...]
    check: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def check_of(self, ports: int) -> tuple[str, ...]:
        """Return the words of `check` for an instance with this number of ports; ``{config}`` remains."""
        return tuple(str(ports) if word == "{ports}" else word for word in self.check)


@dataclass(frozen=True)
class Flavor:
    """A size: worker threads, and memory in MB, which counts for the optimiser but is not enforced."""

    name: str
    workers: int
    memory_mb: int


@dataclass(frozen=True)
class Wire:
    """An interface of a slot: its name on the switch's bridge ``edge``, and the name of its end at the process."""

    edge: str
    inside: str


@dataclass(frozen=True)
class Slot:
    """A place for one process at a location.

    Attributes:
        wires: its interfaces, in the order of the instance's ports.
        enter: command prefix to enter the place, such as ``nsenter --net=... --``; empty for this one.
    """

    name: str
    wires: tuple[Wire, ...]
    enter: tuple[str, ...] = ()


@dataclass(frozen=True)
class InstancePort:
    """A virtual port of an instance, as the controllers see it."""

    number: int
    name: str
    mac: str


@dataclass(frozen=True)
class Instance:
    """A network function as requested by a client.

    Attributes:
        id: a UUID.
        name: unique in its project.
        config: of the network function itself.
        labels: the client's own; the agent reads only `nfagent.decide.situation.APART`.
        pin: the only location where it may run; None: the optimiser decides.
        target: the location wanted by a request or a decision; a pin takes precedence.
        present: False once deletion was requested.
        generation: counts configurations, from 1.
        created: seconds since 1970.
        resized_from: the flavor before a resize that its owner has neither confirmed nor reverted.
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
    ports: tuple[InstancePort, ...] = ()
    resized_from: str | None = None


@dataclass(frozen=True)
class Running:
    """A process of an instance, as last known.

    Attributes:
        incarnation: a UUID, one for each start.
        slot: name at the location; None without ports.
        pid, pid_started: of the process, and when it started in clock ticks since boot; None before it is known. At a
            remote location they are the remote machine's.
        control: path of its control socket on this machine; None without one.
        generation: of its current configuration.
        reason: why it is not active, or why its newest configuration was refused.
        since: when phase or reason last changed, seconds since 1970.
        silent: since when it has not answered, seconds since 1970; None if it answers.
        own_pid: of the network function itself, if ``pid`` is a wrapper that entered its namespaces.
        flavor: with which it was started.
        last_slot: of a failed process, which has none; its ports may still be there.
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
    flavor: str = ""
    last_slot: str | None = None


@dataclass(frozen=True)
class View:
    """An instance together with its actual state."""

    instance: Instance
    status: Status
    running: Running | None
    migration: "Migration | None"


@dataclass(frozen=True)
class Migration:
    """A row of the migrations' journal.

    Attributes:
        epoch: its number; increases.
        step: the last journalled step, written before the step starts; ``requested`` before the first.
        outcome: None until it ends.
        report: figures and losses.
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


PORT_HOP = "port:"
"""Prefix of a hop of a chain that is a virtual port, before its number; other hops are ids of instances."""


@dataclass(frozen=True)
class Chain:
    """Instances and ports, in the order in which traffic passes them, with a latency bound in microseconds.

    Attributes:
        owned: ids of the instances that were ordered with it, and that are deleted with it.
        present: False once deletion was requested; it disappears with the last of these instances.
    """

    id: str
    name: str
    project: str
    hops: tuple[str, ...]
    latency_us: int | None
    created: float
    owned: tuple[str, ...] = ()
    present: bool = True


@dataclass(frozen=True)
class Decision:
    """A decision of the optimiser.

    Attributes:
        plan: location by instance id.
        explanation: the optimiser's, as JSON.
        moves: instance ids in the order of their moves.
        outcome: ``done``, ``rolled-back``, ``failed``, ``superseded``, ``interrupted``,
            ``unchanged``; None until it ends.
        ended: when the outcome was known.
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
    """A change, as reported to clients.

    Attributes:
        id: increases by one per event.
        type: such as ``instance.created``.
        subject: the id of an instance, the epoch of a migration, ...
        project: whose clients may see it; None: administrators only.
        payload: the subject after the change, or a summary of its end.
    """

    id: int
    time: float
    type: str
    subject: str
    project: str | None
    payload: dict[str, Any]
