"""The tally of a run's draws: an oracle that draws nothing of something proves nothing about it."""

import struct
from collections import Counter

from tests.oracle import openflow as of
from tests.oracle.dialects import DIALECTS, nicira
from tests.oracle.steps import BreakLink, Reconnect, Send, Step, Timed

_ACTIONS = {
    "NORMAL": (struct.pack("!HHI", 0, 16, of.NORMAL), struct.pack("!HHH", 0, 8, of.NORMAL & 0xFFFF)),
    "ct": (struct.pack("!IH", nicira.VENDOR, of.CT),),
    "learn": tuple(struct.pack("!IH", nicira.VENDOR, subtype) for subtype in of.LEARN_ACTIONS),
}
_KINDS = {of.FLOW_MOD: "flow-mod", of.GROUP_MOD: "group-mod", of.METER_MOD: "meter-mod", of.PACKET_OUT: "packet-out"}


class Tally:
    """Counts of steps and messages, and of how often ports were gathered and went home."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._is_gathered = False

    def add(self, step: Step) -> None:
        """Count a step."""
        self._counts[type(step).__name__] += 1
        if isinstance(step, Reconnect):
            self._counts[f"connections over {DIALECTS[step.version].name}"] += 1
        if isinstance(step, Send | BreakLink | Timed):
            for message in step.messages:
                self._add_message(bytes.fromhex(message))

    def gathered(self, *, is_gathered: bool) -> None:
        """Count a change of whether ports are gathered."""
        if is_gathered != self._is_gathered:
            self._counts["ports gathered" if is_gathered else "ports went home"] += 1
        self._is_gathered = is_gathered

    def reported(self, entries: int) -> None:
        """Count entries of flow monitors' reports."""
        self._counts["entries of reports"] += entries

    def _add_message(self, frame: bytes) -> None:
        version = DIALECTS[frame[0]].name if frame[0] in DIALECTS else "another version"
        kind = _KINDS.get(frame[1], f"message of type {frame[1]}")
        if nicira.is_one(frame):
            kind = f"Nicira's message {int.from_bytes(frame[12:16])}"
        self._counts[f"{version}: {kind}"] += 1
        for name, patterns in _ACTIONS.items():
            if any(pattern in frame for pattern in patterns):
                self._counts[f"{name} in a {kind}"] += 1

    def __str__(self) -> str:
        return ", ".join(f"{name}: {count}" for name, count in sorted(self._counts.items()))
