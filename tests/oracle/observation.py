"""The effects of a step on a switch, in a form for comparing two switches.

Messages are described by `dialects`; the order of flow_removed and status messages is not compared.
"""

import dataclasses
import re
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.oracle import monitors
from tests.oracle import openflow as of
from tests.oracle.dialects.baseline import Baseline
from tests.oracle.dialects.openflow10 import NO_MATCH, entry_of_report
from tests.oracle.dialects.openflow13 import OpenFlow13, xid

TO_CONTROLLER = "to controller "
"""Begins what others than the first controller were told."""
_COUNTERS = re.compile(r" packets \d+ bytes \d+.*| counters .*| aggregate .*|(?<=: )aggregate .*| lookups \d+ .*")
_EMPTY_TABLE = re.compile(r"(.*: )?table \d+ active 0")
_METER, _NUMBER = re.compile(r"(.*\bmeter \d+ flows \d+) (packets .*)"), re.compile(r"\d+")
_TAG_BYTES = 4


@dataclass
class Observation:
    """The effects of a step on a switch."""

    replies: list[str] = field(default_factory=list)
    packet_ins: list[str] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)
    port_status: Counter[str] = field(default_factory=Counter)
    reports: Counter[str] = field(default_factory=Counter)
    """Of flow monitors: entries, for their order and their messages are Open vSwitch's own."""
    frames: dict[int, list[str]] = field(default_factory=dict)
    state: dict[str, list[str]] = field(default_factory=dict)

    def add(self, later: "Observation") -> None:
        """Add the effects of a later step of the same kind."""
        self.replies += later.replies
        self.packet_ins += later.packet_ins
        self.removed += later.removed
        self.port_status += later.port_status
        self.reports += later.reports
        for place, frames in later.frames.items():
            self.frames.setdefault(place, []).extend(frames)
        self.state = later.state or self.state

    def told_of_removals(self) -> int:
        """Return how many removed rules the controller that was told of most was told of."""
        told: Counter[str] = Counter()
        for line, count in self.removed.items():
            told[_whom(line)] += count
        return max(told.values(), default=0)

    def without_counters(self) -> "Observation":
        """Return a copy without packet counters."""

        def strip(lines: Iterable[str]) -> list[str]:
            stripped = (_COUNTERS.sub("", line) for line in lines)
            return [line for line in stripped if not _EMPTY_TABLE.fullmatch(line)]

        state = {name: strip(lines) for name, lines in self.state.items() if not name.startswith("aggregate")}
        removed = Counter(strip(self.removed.elements()))
        return dataclasses.replace(self, replies=strip(self.replies), removed=removed, state=state)

    def without_tags_at_meters(self, reference: "Observation") -> "Observation":
        """Return a copy with the reference's bytes at meters that may have counted tags of PCIe links, too."""
        state = {name: _without_tags(lines, reference.state.get(name, [])) for name, lines in self.state.items()}
        return dataclasses.replace(self, replies=_without_tags(self.replies, reference.replies), state=state)

    def with_frames_in_order(self, reference: "Observation") -> "Observation":
        """Return a copy with the reference's order of frames at ports where they are the same in another order.

        A switch executes flow by flow what it receives together over a link of type ``pcie``.
        """
        frames = {
            place: theirs if Counter(theirs := reference.frames.get(place, [])) == Counter(ours) else ours
            for place, ours in self.frames.items()
        }
        return dataclasses.replace(self, frames=frames)

    def with_link_states(self) -> "Observation":
        """Of port-status only which ports were reported down, which up: how a link goes down is not compared."""
        states = Counter({_link_state(line): 1 for line in self.port_status})
        return dataclasses.replace(self, port_status=states)

    def differences(self, reference: "Observation") -> list[str]:
        """Describe the differences from ``reference``; [] if there are none."""
        found = []
        for name in ("replies", "packet_ins", "removed", "port_status", "reports"):
            ours, theirs = _by_controller(getattr(self, name)), _by_controller(getattr(reference, name))
            if ours != theirs:
                found += _listed(name, ours, theirs)
        for place in sorted(self.frames.keys() | reference.frames.keys()):
            ours, theirs = self.frames.get(place, []), reference.frames.get(place, [])
            if ours != theirs:
                found += _listed(f"frames at port {place}", ours, theirs)
        for name in sorted(self.state.keys() | reference.state.keys()):
            ours, theirs = self.state.get(name, []), reference.state.get(name, [])
            if ours != theirs:
                found += _listed(name, ours, theirs)
        return found


def _without_tags(lines: list[str], reference: list[str]) -> list[str]:
    wanted = {found[1]: found for found in map(_METER.fullmatch, reference) if found}

    def corrected(line: str) -> str:
        found = _METER.fullmatch(line)
        other = wanted.get(found[1]) if found else None
        return other[0] if found and other and _may_differ_by_tags(found[2], other[2]) else line

    return [corrected(line) for line in lines]


def _may_differ_by_tags(ours: str, theirs: str) -> bool:
    """Tell whether counters, in turn of packets and of bytes, are of the same packets, some of them with a tag."""
    seen, expected = ([int(number) for number in _NUMBER.findall(each)] for each in (ours, theirs))
    packets = seen[::2]
    if packets != expected[::2]:
        return False
    tags = (more - less for more, less in zip(seen[1::2], expected[1::2], strict=True))
    return all(each in range(0, _TAG_BYTES * most + 1, _TAG_BYTES) for each, most in zip(tags, packets, strict=True))


def _by_controller(told: list[str] | Counter[str]) -> list[str] | Counter[str]:
    """Return the messages to each controller in order; the order between controllers is undefined."""
    if isinstance(told, Counter):
        return told

    def place(text: str) -> tuple[str, bool, str]:
        whom = _whom(text)
        rest = text.removeprefix(f"{whom}: ")
        # Known difference: they come on connections of their own.
        is_miss = rest.startswith(NO_MATCH)
        return whom, is_miss, rest if is_miss else ""

    return sorted(told, key=place)


def _whom(told: str) -> str:
    """Return which controller was told, "" for the first one."""
    return told.partition(": ")[0] if told.startswith(TO_CONTROLLER) else ""


def _listed(what: str, ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    ours, theirs = _spread(ours), _spread(theirs)
    lines = [f"{what} differ:"]
    lines += [f"  only one switch    {item}" for item in (Counter(theirs) - Counter(ours)).elements()]
    lines += [f"  only oneswitchd    {item}" for item in (Counter(ours) - Counter(theirs)).elements()]
    if len(lines) == 1:
        lines += [f"  other order: oneswitchd {ours}", f"               one switch {theirs}"]
    return lines


def _spread(items: Iterable[str]) -> list[str]:
    return list(items.elements()) if isinstance(items, Counter) else list(items)


def replies(messages: Iterable[bytes], dialect: OpenFlow13, baseline: Baseline) -> list[str]:
    """Return replies in order, with the parts of a multipart reply joined."""
    told: list[str] = []
    parts: list[bytes] = []
    for frame in messages:
        if frame[1] != dialect.multipart_reply:
            line = dialect.reply(frame)
            # Known difference: a refused modification of rules in several tables.
            if not (dialect.version == 1 and " ERROR " in line and line in told):
                told.append(line)
            continue
        parts.append(frame)
        if not dialect.has_more(frame):
            lines = "MULTIPART_REPLY", *dialect.multipart_lines(parts, baseline)
            told += [f"xid {xid(parts[0])}: {line}" for line in lines]
            parts = []
    if parts:
        told.append(f"xid {xid(parts[0])}: MULTIPART_REPLY without its last part")
    return told


def reports(message: bytes) -> list[str] | None:
    """Return the entries of a report of flow monitors; None: it is none."""
    entries = monitors.entries(message)
    if entries is None:
        return None
    head = f"report {xid(message)}:"
    show = bytes.hex if message[0] > 1 else entry_of_report
    return [f"{head} {show(each)}" for each in entries] or [f"{head} empty"]


def _link_state(line: str) -> str:
    """Return whom a port-status tells which state; other messages, such as forwarded requests, as they are."""
    who, _, rest = line.partition(" rest ")
    if not rest:
        return line
    state = struct.unpack_from("!I", bytes.fromhex(rest), 4)[0]
    return f"{who} {'down' if state & of.LINK_DOWN else 'up'}"


def shortened(text: str, most: int = 400) -> str:
    """Truncate ``text`` to a length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
