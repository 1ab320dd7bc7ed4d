"""Parses the output of ovs-ofctl's ``dump-flows`` and ``dump-ports``.

The forms are those of Open vSwitch 3.1 (ofputil_flow_stats_format, ofputil_port_stats); ``?`` means "not counted".
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

from server.errors import TextError

DEFAULT_PRIORITY = 32768
_NUMBERS = ("n_packets", "n_bytes", "idle_timeout", "hard_timeout", "importance", "idle_age", "hard_age")
_FLAGS = ("send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts")
_PREFIX = re.compile(rf"(?:(cookie|duration|table|{'|'.join(_NUMBERS)})=([^,\s]+),?\s+|({'|'.join(_FLAGS)})\s+)")
_PORT = re.compile(r"^\s*port\s+(\S+?):\s+rx\s+(.*)$")
_DESCRIBED = re.compile(r"^ (\d+|LOCAL)\((.+)\): addr:")
_COUNTER = re.compile(r"(\w+)=(\d+|\?)")
_DURATION = re.compile(r"duration=([\d.]+)s")


@dataclass(frozen=True)
class Flow:
    """One rule. ``match`` and ``actions`` are lists of the rule's own terms; ``duration_s`` None: not printed."""

    table: int
    priority: int
    cookie: int
    match: tuple[str, ...]
    actions: tuple[str, ...]
    packets: int | None = None
    bytes: int | None = None
    duration_s: float | None = None
    idle_timeout_s: int = 0
    hard_timeout_s: int = 0
    importance: int = 0
    flags: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Convert to plain data; ``match_fields`` maps field to value, None for a bare protocol name."""
        record = asdict(self)
        record["cookie"] = f"{self.cookie:#x}"
        record["match_fields"] = dict(split_field(term) for term in self.match)
        return record


@dataclass(frozen=True)
class PortCounters:
    """Counters of one port; None: the switch does not count it."""

    port: str
    rx_packets: int | None
    rx_bytes: int | None
    rx_dropped: int | None
    rx_errors: int | None
    tx_packets: int | None
    tx_bytes: int | None
    tx_dropped: int | None
    tx_errors: int | None
    duration_s: float | None = None


def parse_flows(text: str) -> list[Flow]:
    """Parse the output of ``dump-flows``, in its order.

    Raises:
        TextError: a line with ``actions=`` is not a rule.
    """
    return [parse_flow(line) for line in text.splitlines() if "actions=" in line]


def parse_flow(line: str) -> Flow:
    """Parse one rule as ovs-ofctl prints it.

    Raises:
        TextError: the line does not end with ``actions=...``, or a number is invalid.
    """
    head, found, actions = line.strip().partition("actions=")
    if not found:
        raise TextError(f"not a rule: {line.strip()!r}; expected '... actions=...' as ovs-ofctl dump-flows prints")
    values: dict[str, str] = {}
    flags: list[str] = []
    while term := _PREFIX.match(head):
        key, value, flag = term.groups()
        if flag:
            flags.append(flag)
        else:
            values[key] = value
        head = head[term.end() :]
    match = list(split_terms(head.strip()))
    try:
        return Flow(
            table=int(values.get("table", "0")),
            priority=_take_priority(match),
            cookie=int(values.get("cookie", "0"), 0),
            match=tuple(match),
            actions=tuple(split_terms(actions)),
            packets=_optional(values.get("n_packets")),
            bytes=_optional(values.get("n_bytes")),
            duration_s=float(values["duration"].removesuffix("s")) if "duration" in values else None,
            idle_timeout_s=int(values.get("idle_timeout", "0")),
            hard_timeout_s=int(values.get("hard_timeout", "0")),
            importance=int(values.get("importance", "0")),
            flags=tuple(flags),
        )
    except ValueError as error:
        raise TextError(f"not a rule: {line.strip()!r} ({error})") from error


def split_terms(text: str) -> list[str]:
    """Split at the commas outside brackets: ``a(b,c),d`` is two terms."""
    terms: list[str] = []
    depth = 0
    start = 0
    for position, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            terms.append(text[start:position].strip())
            start = position + 1
    terms.append(text[start:].strip())
    return [term for term in terms if term]


def split_field(term: str) -> tuple[str, str | None]:
    """Split ``key=value`` into key and value; a bare word has the value None."""
    key, found, value = term.partition("=")
    return key, value if found else None


def parse_port_numbers(text: str) -> dict[str, int | None]:
    """Parse name and number of each port in the output of ``show``; None: LOCAL."""
    found: dict[str, int | None] = {}
    for line in text.splitlines():
        if match := _DESCRIBED.match(line):
            number, name = match.groups()
            found[name.strip('"')] = int(number) if number.isdecimal() else None
    return found


def parse_ports(text: str) -> dict[str, PortCounters]:
    """Parse the counters in the output of ``dump-ports``, by port number (``LOCAL`` by that name)."""
    ports: dict[str, PortCounters] = {}
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if not (first := _PORT.match(line)):
            continue
        number = first.group(1).strip('"')
        sent = lines[index + 1] if index + 1 < len(lines) else ""
        lived = lines[index + 2] if index + 2 < len(lines) else ""
        ports[number] = _counters(number, first.group(2), sent, lived)
    return ports


def _counters(number: str, received: str, sent: str, lived: str) -> PortCounters:
    rx = dict(_COUNTER.findall(received))
    tx = dict(_COUNTER.findall(sent))
    duration = _DURATION.search(lived)
    return PortCounters(
        port=number,
        rx_packets=_optional(rx.get("pkts")),
        rx_bytes=_optional(rx.get("bytes")),
        rx_dropped=_optional(rx.get("drop")),
        rx_errors=_optional(rx.get("errs")),
        tx_packets=_optional(tx.get("pkts")),
        tx_bytes=_optional(tx.get("bytes")),
        tx_dropped=_optional(tx.get("drop")),
        tx_errors=_optional(tx.get("errs")),
        duration_s=float(duration.group(1)) if duration else None,
    )


def _optional(value: str | None) -> int | None:
    return None if value in (None, "?") else int(value)


def _take_priority(match: list[str]) -> int:
    for index, term in enumerate(match):
        if term.startswith("priority="):
            del match[index]
            return int(term.removeprefix("priority="))
    return DEFAULT_PRIORITY
