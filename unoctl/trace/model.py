"""The result of ``unoctl trace``: a tree of stages, one for each switch that the packet visits.

A stage has one pass through the datapath, which ends in outcomes. A pass over a PCIe link has a further stage, a
recirculated packet further passes.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from server.errors import ServerError
from unoctl.trace.packet import Packet


class TraceError(ServerError):
    """A packet that cannot be followed any further."""

    code = "trace"


@dataclass(frozen=True)
class Step:
    """One line of the way through the bridges; of a rule, the fields from ``table`` on are set.

    ``kind`` is ``bridge``, ``rule``, ``action``, ``detail`` or ``warning``; ``match`` is None if no rule matches.
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

    ``recirc_id`` and ``resumed`` are None for a packet that was received, ``datapath_actions`` if translation failed.
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
class Branch:
    """One continuation of a recirculated packet, for ``share`` of ``shares`` hash values."""

    share: int
    shares: int
    pass_: Pass


@dataclass(frozen=True)
class Outcome:
    """One end of a pass: ``exit``, ``pcie``, ``packet-in``, ``recirculated``, ``dropped`` or ``not-followed``.

    Attributes:
        conditions: what has to hold for this outcome with these bytes.
        headline: the outcome in words.
        details: further keys in JSON, by type; of ``pcie`` the ``stage``, of ``recirculated`` the ``branches``.
    """

    type: str
    data: bytes
    conditions: tuple[str, ...]
    headline: str
    details: dict[str, Any]

    @classmethod
    def of(cls, packet: Packet, kind: str, headline: str, **details: Any) -> "Outcome":
        return cls(kind, packet.sent(), packet.conditions, headline, details)

    @classmethod
    def not_followed(cls, packet: Packet, switch: str, reason: str) -> "Outcome":
        return cls.of(packet, "not-followed", f"not followed at {switch}: {reason}", switch=switch, reason=reason)

    @classmethod
    def dropped(cls, packet: Packet, reason: str) -> "Outcome":
        return cls.of(packet, "dropped", f"dropped: {reason}", reason=reason)


@dataclass(frozen=True)
class Trace:
    """The way of a packet from a virtual port; ``flow`` is the packet in flow syntax."""

    port: int
    name: str
    data: bytes
    flow: str
    stage: Stage
    notes: tuple[str, ...] = ()

    def outcomes(self, first: Pass | None = None) -> Iterator[Outcome]:
        """Yield every outcome of every stage in the order of the tree, or only those from one pass on."""
        for outcome in (first or self.stage.pass_).outcomes:
            yield outcome
            for following in (outcome.details.get("stage"), *outcome.details.get("branches", ())):
                if following:
                    yield from self.outcomes(following.pass_)

    @property
    def exits(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes() if outcome.type == "exit"]

    @property
    def complete(self) -> bool:
        """Whether the trace followed the packet to its end."""
        return all(outcome.type != "not-followed" for outcome in self.outcomes())


def trace_json(trace: Trace) -> dict[str, Any]:
    """Return the tree as plain data, with a flat list of exits beside it."""
    record = asdict(trace, dict_factory=_record)
    packet = {key: record.pop(key) for key in ("hex", "length", "flow")}
    exits = [asdict(outcome, dict_factory=_record) for outcome in trace.exits]
    return {**record, "input": packet, "complete": trace.complete, "exits": exits}


def _record(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dataclass as plain data: ``data`` becomes ``hex`` and ``length``; ``details`` become keys."""
    record: dict[str, Any] = {}
    for name, value in fields:
        if isinstance(value, bytes):
            record |= {"hex": value.hex(), "length": len(value)}
        elif name == "details":
            record |= value
        elif name != "headline":
            record[name.rstrip("_")] = value
    return record
