"""What ``unoctl trace`` finds: a tree of stages, one for each switch that the packet comes to.

A :class:`Stage` holds one :class:`Pass`; a pass ends in outcomes, in the order in which the datapath does them. An
outcome may hold what follows from it: the stage at the other end of a PCIe link, or passes of a recirculated packet.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from unoctl.trace_text import Translation


@dataclass(frozen=True)
class FlowId:
    """A tag on a PCIe link: its VLAN id and what it means, ``DELIVER(vm2)`` or ``MULTICAST``."""

    vid: int
    meaning: str

    def __str__(self) -> str:
        return f"flow-id {self.vid} = {self.meaning}"


@dataclass(frozen=True)
class Outcome:
    """Base: the bytes, and what has to hold for it to happen with these bytes (empty: it always does)."""

    data: bytes
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class Exit(Outcome):
    """The packet leaves through a virtual port's interface, or one that is none (``port`` None).

    ``local``: it is a bridge's own port, that is, the switch's operating system.
    """

    switch: str
    interface: str
    local: bool
    port: int | None
    name: str | None
    flow: str = ""


@dataclass(frozen=True)
class Crossing(Outcome):
    """The packet crosses a PCIe link. ``flow_id`` None: it is not tagged as it should be."""

    switch: str
    interface: str
    peer_switch: str
    peer_interface: str
    flow_id: FlowId | None
    stage: "Stage | None"


@dataclass(frozen=True)
class ToController(Outcome):
    """A packet-in. ``data`` is as much of the packet as it carries."""

    switch: str
    reason: str
    cookie: int
    controller_id: int
    max_len: int


@dataclass(frozen=True)
class Branch:
    """One way on for a recirculated packet; ``share`` of ``shares`` hash values lead here."""

    share: int
    shares: int
    translated: "Pass"


@dataclass(frozen=True)
class Again(Outcome):
    """The packet is recirculated; more than one branch where a hash decides."""

    why: str
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Elsewhere(Outcome):
    """The packet goes where it is not followed: a tunnel, a sampler, an action that is not understood."""

    action: str


@dataclass(frozen=True)
class Dropped(Outcome):
    """The packet ends here."""

    reason: str


@dataclass(frozen=True)
class Stopped(Outcome):
    """The trace ends here, though the packet may not: a loop, or something that cannot be asked."""

    reason: str


@dataclass(frozen=True)
class Pass:
    """One translation at one switch, and what came of it."""

    translation: Translation
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Stage:
    """A packet at a switch: where it came in, and as what."""

    switch: str
    interface: str
    ofport: int
    data: bytes
    translated: Pass


@dataclass(frozen=True)
class Trace:
    """All of it. ``flow`` is the input in flow syntax."""

    port: int
    name: str
    data: bytes
    flow: str
    stage: Stage
    notes: tuple[str, ...] = field(default=())

    def outcomes(self) -> Iterator[Outcome]:
        """Every outcome of every stage, in the order of the tree."""
        yield from _outcomes(self.stage.translated)

    def exits(self) -> list[Exit]:
        """Where the packet leaves the server."""
        return [outcome for outcome in self.outcomes() if isinstance(outcome, Exit)]

    @property
    def complete(self) -> bool:
        """Nothing kept the trace from following the packet to its end."""
        return not any(isinstance(outcome, Stopped) for outcome in self.outcomes())


def _outcomes(translated: Pass) -> Iterator[Outcome]:
    for outcome in translated.outcomes:
        yield outcome
        if isinstance(outcome, Crossing) and outcome.stage is not None:
            yield from _outcomes(outcome.stage.translated)
        elif isinstance(outcome, Again):
            for branch in outcome.branches:
                yield from _outcomes(branch.translated)


def trace_json(trace: Trace) -> dict[str, Any]:
    """Plain data: the tree, and beside it a flat list of exits."""
    return {
        "port": trace.port,
        "name": trace.name,
        "input": {"hex": trace.data.hex(), "length": len(trace.data), "flow": trace.flow},
        "complete": trace.complete,
        "notes": list(trace.notes),
        "exits": [_outcome_json(outcome) for outcome in trace.exits()],
        "stage": _stage_json(trace.stage),
    }


def _stage_json(stage: Stage) -> dict[str, Any]:
    return {
        "switch": stage.switch,
        "bridge": "edge",
        "interface": stage.interface,
        "ofport": stage.ofport,
        "hex": stage.data.hex(),
        "pass": _pass_json(stage.translated),
    }


def _pass_json(translated: Pass) -> dict[str, Any]:
    translation = translated.translation
    return {
        "recirc_id": translation.recirc_id,
        "resumed": translation.resumed or None,
        "flow": translation.flow,
        "steps": [step.as_json() for step in translation.steps],
        "megaflow": translation.megaflow,
        "datapath_actions": translation.actions,
        "failure": translation.failure,
        "slow_path": list(translation.slow_path),
        "outcomes": [_outcome_json(outcome) for outcome in translated.outcomes],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    record: dict[str, Any] = {
        "type": _TYPES[type(outcome)],
        "hex": outcome.data.hex(),
        "length": len(outcome.data),
        "conditions": list(outcome.conditions),
    }
    if isinstance(outcome, Again):
        record["why"] = outcome.why
        record["branches"] = [
            {"share": branch.share, "shares": branch.shares, "pass": _pass_json(branch.translated)}
            for branch in outcome.branches
        ]
    elif isinstance(outcome, Crossing):
        record |= _plain(outcome, ("switch", "interface", "peer_switch", "peer_interface"))
        identity = outcome.flow_id
        record["flow_id"] = {"vid": identity.vid, "meaning": identity.meaning} if identity else None
        record["stage"] = _stage_json(outcome.stage) if outcome.stage else None
    elif isinstance(outcome, Exit):
        record |= _plain(outcome, ("switch", "interface", "local", "port", "name", "flow"))
    elif isinstance(outcome, ToController):
        record |= _plain(outcome, ("switch", "reason", "controller_id", "max_len"))
        record["cookie"] = f"{outcome.cookie:#x}"
    elif isinstance(outcome, Elsewhere):
        record["action"] = outcome.action
    elif isinstance(outcome, Dropped | Stopped):
        record["reason"] = outcome.reason
    return record


def _plain(outcome: Outcome, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in names}


_TYPES: dict[type[Outcome], str] = {
    Exit: "exit",
    Crossing: "pcie",
    ToController: "packet-in",
    Again: "recirculated",
    Elsewhere: "elsewhere",
    Dropped: "dropped",
    Stopped: "stopped",
}
