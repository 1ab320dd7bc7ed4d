"""The draws' model of the switch and of its controllers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.oracle import openflow as of
from tests.oracle import pools
from tests.oracle.dialects import nicira
from tests.oracle.openflow import FlowMod, Oxm

Draw = st.DrawFn
CONTROLLERS = 3
_NXAST_CONTROLLER2 = 37
_LEARN = [struct.pack("!IH", nicira.VENDOR, subtype) for subtype in of.LEARN_ACTIONS]
_PAUSE = struct.pack("!IH", nicira.VENDOR, _NXAST_CONTROLLER2)


@dataclass
class Sender:
    """A controller's version, and what it has chosen in Nicira's messages."""

    version: int = of.VERSION
    names_tables: bool = False
    """In flow-mods of OpenFlow 1.0."""
    monitors: list[int] = field(default_factory=list)
    """The numbers of its flow monitors."""


@dataclass
class Model:
    """The controller's view, a superset: good enough to draw messages that interact.

    ``stateful``: rules may keep state that all ports share. The executors then stay as they are, and switches are not
    restarted: they would forget. ``gathers``: the ports have several executors until such a rule comes. It could take
    ports away from a link that is cut.
    """

    stateful: bool = False
    gathers: bool = False

    senders: dict[int, Sender] = field(default_factory=lambda: {number: Sender() for number in range(CONTROLLERS)})
    sender: Sender = field(default_factory=Sender)
    """The one that sends the messages that are drawn now."""
    versions: tuple[int, ...] = (of.VERSION,)
    """The versions that controllers may speak in this run; some read some rules of others otherwise."""
    keeps_sets: bool = False
    """Whether packets may keep an action set for later lookups, and not freeze behind the first one (`freezing`)."""
    pauses: bool = False
    has_frames: bool = False
    """Whether the last step was frames."""

    rules: list[FlowMod] = field(default_factory=list)
    groups: dict[int, int] = field(default_factory=dict)
    kinds: dict[int, set[int]] = field(default_factory=dict)
    """The types that a group may have, as some messages are refused."""
    meters: set[int] = field(default_factory=set)
    keeps_meters: bool = False
    """Whether no meter is deleted: rules that have it behind other actions stay, but no switch takes them again."""
    learns: bool = False
    xid: int = 0
    fresh_priority: int = 1000

    @property
    def is_old(self) -> bool:
        """Whether all controllers speak OpenFlow 1.0."""
        return self.versions == (1,)

    def is_spoken(self, version: int) -> bool:
        """Tell whether a controller may speak a version."""
        return version in self.versions

    def forget_all(self) -> None:
        """Note that everything is deleted."""
        self.rules.clear()
        self.groups.clear()
        self.meters.clear()
        self.keeps_meters = False

    def next_xid(self) -> int:
        self.xid += 1
        return self.xid

    def note(self, actions: bytes) -> bytes:
        """Look for actions that learn rules, or pause a packet."""
        self.learns |= any(each in actions for each in _LEARN)
        self.pauses |= _PAUSE in actions
        return actions

    def without_overlap(self, table: int, priority: int, fields: tuple[Oxm, ...]) -> int:
        """Return ``priority`` or another one without overlapping rules, whose precedence is undefined."""
        if not any(
            rule.table == table
            and rule.priority == priority
            and set(rule.fields) != set(fields)
            and pools.overlap(rule.fields, fields)
            for rule in self.rules
        ):
            return priority
        self.fresh_priority += 1
        return self.fresh_priority


Maker = Callable[[Draw, Model], bytes]
"""A function that draws a message."""
