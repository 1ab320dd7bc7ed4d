"""The result of ``unoctl trace``: a tree of stages, one for each switch that the packet visits.

A stage has one pass through the datapath, which ends in outcomes. An outcome may hold what follows: the stage at the
other end of a PCIe link, or the passes of a recirculated packet. :func:`as_json` writes fields under their names.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

from server.errors import ServerError


class TraceError(ServerError):
    """A packet that cannot be followed any further."""

    code = "trace"


@dataclass(frozen=True)
class Step:
    """One line of the way through the bridges; the fields from ``table`` on are those of a rule.

    Attributes:
        depth: nesting, in levels.
        kind: ``bridge``, ``rule``, ``action``, ``detail``, ``warning``.
        bridge: "" before the first bridge, ``resumed`` after a recirculation.
        match: None if no rule of this table matches.
    """

    depth: int
    kind: str
    bridge: str
    text: str
    table: int | None = None
    match: str | None = None
    priority: int | None = None
    cookie: str | None = None


@dataclass(frozen=True)
class Pass:
    """One translation by ofproto/trace, and the outcomes of its actions.

    Attributes:
        recirc_id, resumed: id and reason of the recirculation; None for a packet that was received.
        flow, megaflow: the packet, and what the cached flow would match.
        datapath_actions: None where translation failed; ``failure`` is the reason.
        slow_path: reasons why such packets go through ovs-vswitchd.
    """

    recirc_id: int | None
    resumed: str | None
    flow: str
    steps: tuple[Step, ...]
    megaflow: str
    datapath_actions: str | None
    failure: str | None
    slow_path: tuple[str, ...]
    outcomes: tuple["Outcome", ...] = ()


@dataclass(frozen=True)
class Stage:
    """A packet at a switch, received at ``interface``."""

    switch: str
    bridge: str
    interface: str
    ofport: int
    data: bytes
    pass_: Pass


@dataclass(frozen=True)
class Outcome:
    """The packet's bytes, and the conditions on which it has this outcome with these bytes."""

    TYPE: ClassVar[str]
    data: bytes
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class Exit(Outcome):
    """The packet leaves the server: through a virtual port, another interface or (``local``) a bridge's own port."""

    TYPE = "exit"
    switch: str
    interface: str
    local: bool
    port: int | None
    name: str | None
    flow: str


@dataclass(frozen=True)
class FlowId:
    """A tag on a PCIe link: its VLAN id and meaning, ``DELIVER(vm2)`` or ``MULTICAST``."""

    vid: int
    meaning: str


@dataclass(frozen=True)
class Crossing(Outcome):
    """The packet crosses a PCIe link."""

    TYPE = "pcie"
    switch: str
    interface: str
    peer_switch: str
    peer_interface: str
    flow_id: FlowId | None
    stage: Stage


@dataclass(frozen=True)
class ToController(Outcome):
    """A packet-in; ``data`` is the part of the packet that it carries."""

    TYPE = "packet-in"
    switch: str
    reason: str
    cookie: str
    controller_id: int
    max_len: int


@dataclass(frozen=True)
class Branch:
    """One continuation of a recirculated packet, for ``share`` of ``shares`` hash values."""

    share: int
    shares: int
    pass_: Pass


@dataclass(frozen=True)
class Recirculated(Outcome):
    """The packet passes the datapath again, with several branches where a hash decides."""

    TYPE = "recirculated"
    why: str
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Dropped(Outcome):
    """The packet ends here."""

    TYPE = "dropped"
    reason: str


@dataclass(frozen=True)
class NotFollowed(Outcome):
    """The trace ends here, although the packet may not."""

    TYPE = "not-followed"
    switch: str
    reason: str


@dataclass(frozen=True)
class Trace:
    """The way of a packet from a virtual port; ``flow`` is the packet in flow syntax."""

    port: int
    name: str
    data: bytes
    flow: str
    stage: Stage
    notes: tuple[str, ...] = ()

    def outcomes(self, translated: Pass | None = None) -> Iterator[Outcome]:
        """Yield every outcome of every stage, in the order of the tree; or only those from one pass on."""
        for outcome in (translated or self.stage.pass_).outcomes:
            yield outcome
            if isinstance(outcome, Crossing):
                yield from self.outcomes(outcome.stage.pass_)
            elif isinstance(outcome, Recirculated):
                for branch in outcome.branches:
                    yield from self.outcomes(branch.pass_)

    @property
    def exits(self) -> list[Exit]:
        return [outcome for outcome in self.outcomes() if isinstance(outcome, Exit)]

    @property
    def complete(self) -> bool:
        """Whether the trace followed the packet to its end."""
        return not any(isinstance(outcome, NotFollowed) for outcome in self.outcomes())


def trace_json(trace: Trace) -> dict[str, Any]:
    """Return the tree as plain data, with a flat list of exits beside it."""
    record = as_json(trace)
    packet = {key: record.pop(key) for key in ("hex", "length", "flow")}
    return {**record, "input": packet, "complete": trace.complete, "exits": as_json(trace.exits)}


def as_json(value: Any) -> Any:
    """Return dataclasses as plain data: ``data`` becomes ``hex`` and ``length``, an outcome has its ``type``."""
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if not is_dataclass(value):
        return value
    record: dict[str, Any] = {"type": value.TYPE} if isinstance(value, Outcome) else {}
    for each in fields(value):
        item = getattr(value, each.name)
        if isinstance(item, bytes):
            record |= {"hex": item.hex(), "length": len(item)}
        else:
            record[each.name.rstrip("_")] = as_json(item)
    return record
