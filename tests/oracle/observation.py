"""The effects of a step on a switch, in a form for comparing two switches.

Kept byte for byte, but for: durations, MAC addresses of ports, the order in which dumps list things, and the order of
flow_removed and port-status messages.
"""

import dataclasses
import re
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.oracle import openflow as of

NAMES = {
    getattr(of, name): name
    for name in (
        *(
            "HELLO",
            "ERROR",
            "ECHO_REPLY",
            "FEATURES_REPLY",
            "GET_CONFIG_REPLY",
            "PACKET_IN",
            "FLOW_REMOVED",
            "PORT_STATUS",
        ),
        *("MULTIPART_REPLY", "BARRIER_REPLY", "QUEUE_GET_CONFIG_REPLY", "ROLE_REPLY", "GET_ASYNC_REPLY"),
    )
}
TO_CONTROLLER = "to controller "
"""Begins what others than the first controller were told."""
_MAC = b"\xee" * 6
_COUNTERS = re.compile(r" packets \d+ bytes \d+.*| counters .*| aggregate .*|(?<=: )(aggregate|table \d) .*")


@dataclass
class Observation:
    """The effects of a step on a switch."""

    replies: list[str] = field(default_factory=list)
    packet_ins: list[str] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)
    port_status: Counter[str] = field(default_factory=Counter)
    frames: dict[int, list[str]] = field(default_factory=dict)
    state: dict[str, list[str]] = field(default_factory=dict)

    def add(self, later: "Observation") -> None:
        """Add the effects of a later step of the same kind."""
        self.replies += later.replies
        self.packet_ins += later.packet_ins
        self.removed += later.removed
        self.port_status += later.port_status
        for place, frames in later.frames.items():
            self.frames.setdefault(place, []).extend(frames)
        self.state = later.state or self.state

    def without_counters(self) -> "Observation":
        """Return a copy without packet counters."""
        strip = lambda lines: [_COUNTERS.sub("", line) for line in lines if not line.startswith("table")]  # noqa: E731
        state = {name: strip(lines) for name, lines in self.state.items() if name not in ("aggregate", "tables")}
        removed = Counter(strip(self.removed.elements()))
        return Observation(strip(self.replies), self.packet_ins, removed, self.port_status, self.frames, state)

    def with_link_states(self) -> "Observation":
        """Of port-status only which ports were reported down, which up: how a link goes down is not compared."""
        states = Counter({_link_state(line): 1 for line in self.port_status})
        return dataclasses.replace(self, port_status=states)

    def differences(self, reference: "Observation") -> list[str]:
        """Describe the differences from ``reference``; [] if there are none."""
        found = []
        for name in ("replies", "packet_ins", "removed", "port_status"):
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


def _by_controller(told: list[str] | Counter[str]) -> list[str] | Counter[str]:
    """Return the messages to each controller in order; the order between controllers is undefined."""
    if isinstance(told, Counter):
        return told
    return sorted(told, key=lambda text: text.split(": ")[0] if text.startswith(TO_CONTROLLER) else "")


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


@dataclass
class Baseline:
    """The counters of ports and tables at the start of the run, which nothing resets."""

    ports: dict[int, tuple[int, ...]] = field(default_factory=dict)
    tables: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, ports: list[bytes], tables: list[bytes]) -> "Baseline":
        """Read the replies to requests for statistics of all ports and tables."""
        return cls(
            dict(_port_counters(_body(ports))),
            {table: tuple(counters) for table, _, *counters in _table_counters(_body(tables))},
        )


def _since(now: Iterable[int], then: Iterable[int] | None) -> list[int]:
    return list(now) if then is None else [(new - old) & of.MASK64 for new, old in zip(now, then, strict=True)]


# ---- messages


def replies(messages: Iterable[bytes], baseline: Baseline) -> list[str]:
    """Return replies in order, with the parts of a multipart reply joined."""
    told: list[str] = []
    parts: list[bytes] = []
    for frame in messages:
        if frame[1] == of.MULTIPART_REPLY:
            parts.append(frame)
            if not frame[11] & 1:
                told += [
                    f"xid {_xid(parts[0])}: {line}" for line in multipart(parts, baseline) or ["MULTIPART_REPLY, empty"]
                ]
                parts = []
        else:
            told.append(reply(frame))
    if parts:
        told.append(f"xid {_xid(parts[0])}: MULTIPART_REPLY without its last part")
    return told


def reply(frame: bytes) -> str:
    """Return a reply that is not multipart."""
    kind, body = frame[1], frame[8:]
    if kind == of.ERROR:
        error, code = struct.unpack_from("!HH", body)
        data = bytearray(body[4:])
        if len(data) > 1 and data[1] == of.PORT_MOD:
            data[16:22] = _MAC[: max(0, min(6, len(data) - 16))]
        return f"xid {_xid(frame)}: ERROR type {error} code {code} about {data.hex()}"
    if kind == of.FEATURES_REPLY:
        body = body[8:]  # without the datapath id
    return f"xid {_xid(frame)}: {NAMES.get(kind, kind)} {body.hex()}"


def packet_in(frame: bytes) -> str:
    _, total, reason, table, cookie = struct.unpack_from("!IHBBQ", frame, 8)
    length = struct.unpack_from("!H", frame, 26)[0]
    end = 24 + length + -length % 8
    fields, data = frame[28 : 24 + length], frame[end + 2 :]
    head = (
        f"buffer {frame[8:12].hex()} xid {_xid(frame)} total {total} reason {reason} table {table} cookie {cookie:#x}"
    )
    return f"{head} match {fields.hex()} data {data.hex()}"


def flow_removed(frame: bytes) -> str:
    """Return a flow_removed without its duration."""
    cookie, priority, reason, table = struct.unpack_from("!QHBB", frame, 8)
    idle, hard, packets, octets = struct.unpack_from("!HHQQ", frame, 28)
    head = f"table {table} priority {priority} match {frame[48:].hex()} cookie {cookie:#x} reason {reason}"
    return f"{head} idle {idle} hard {hard} packets {packets} bytes {octets}"


def port_status(frame: bytes) -> str:
    return f"reason {frame[8]} {port(frame[16:80])}"


def port(data: bytes) -> str:
    """Return an ``ofp_port`` without its MAC address."""
    number = struct.unpack_from("!I", data)[0]
    name = data[16:32].rstrip(b"\0").decode(errors="replace")
    return f"port {number} {name} rest {data[32:].hex()}"


def _link_state(line: str) -> str:
    who, _, rest = line.partition(" rest ")
    state = struct.unpack_from("!I", bytes.fromhex(rest), 4)[0]
    return f"{who} {'down' if state & of.LINK_DOWN else 'up'}"


def _xid(frame: bytes) -> int:
    return struct.unpack_from("!I", frame, 4)[0]


# ---- multipart replies


def multipart(parts: list[bytes], baseline: Baseline) -> list[str]:
    """Return a whole multipart reply as sorted entries."""
    if parts[0][1] != of.MULTIPART_REPLY:
        return [reply(part) for part in parts]
    kind = struct.unpack_from("!H", parts[0], 8)[0]
    body = _body(parts)
    readers = {
        of.FLOW: _flows,
        of.AGGREGATE: lambda data: [f"aggregate {struct.unpack_from('!QQI', data)}"],
        of.TABLES: lambda data: _tables(data, baseline),
        of.PORT_STATS: lambda data: _ports(data, baseline),
        of.GROUP: _groups,
        of.GROUP_DESC: lambda data: _sized(data, "group-desc"),
        of.METER: _meters,
        of.METER_CONFIG: lambda data: _sized(data, "meter-config"),
        of.PORT_DESC: _port_descriptions,
    }
    reader = readers.get(kind)
    if kind == of.DESC:
        return ["DESC"]
    return sorted(reader(body)) if reader else [f"multipart {kind} {body.hex()}"]


def _sized(data: bytes, name: str) -> list[str]:
    found = []
    while data:
        length = struct.unpack_from("!H", data)[0]
        found.append(f"{name} {data[2:length].hex()}")
        data = data[length:]
    return found


def _port_descriptions(data: bytes) -> list[str]:
    """Return the ports without LOCAL, which a server does not have."""
    ports = (data[at : at + 64] for at in range(0, len(data), 64))
    return [port(each) for each in ports if struct.unpack_from("!I", each)[0] != of.LOCAL]


def _flows(data: bytes) -> list[str]:
    found = []
    while data:
        length, table = struct.unpack_from("!HB", data)
        priority, idle, hard, flags = struct.unpack_from("!HHHH", data, 12)
        cookie, packets, octets = struct.unpack_from("!QQQ", data, 24)
        head = f"flow table {table} priority {priority} match+instructions {data[48:length].hex()} cookie {cookie:#x}"
        found.append(f"{head} idle {idle} hard {hard} flags {flags} packets {packets} bytes {octets}")
        data = data[length:]
    return found


def _body(parts: list[bytes]) -> bytes:
    return b"".join(part[16:] for part in parts)


def _table_counters(data: bytes) -> Iterable[tuple[int, ...]]:
    return (struct.unpack_from("!B3xIQQ", data, at) for at in range(0, len(data), 24))


def _port_counters(data: bytes) -> Iterable[tuple[int, tuple[int, ...]]]:
    for at in range(0, len(data), 112):
        number, *counters = struct.unpack_from("!I4x12Q", data, at)
        if number != of.LOCAL:
            yield number, tuple(counters)


def _tables(data: bytes, baseline: Baseline) -> list[str]:
    """Return the tables with activity."""
    found = []
    for table, active, *counters in _table_counters(data):
        lookups, matched = _since(counters, baseline.tables.get(table))
        if active or lookups or matched:
            found.append(f"table {table} active {active} lookups {lookups} matched {matched}")
    return found


def _ports(data: bytes, baseline: Baseline) -> list[str]:
    return [
        f"port {number} counters {_since(counters, baseline.ports.get(number))}"
        for number, counters in _port_counters(data)
    ]


def _groups(data: bytes) -> list[str]:
    found = []
    while data:
        length, group, references, packets, octets = struct.unpack_from("!H2xII4xQQ", data)
        buckets = [struct.unpack_from("!QQ", data, at) for at in range(40, length, 16)]
        found.append(f"group {group} references {references} packets {packets} bytes {octets} buckets {buckets}")
        data = data[length:]
    return found


def _meters(data: bytes) -> list[str]:
    found = []
    while data:
        meter, length, flows, packets, octets = struct.unpack_from("!IH6xIQQ", data)
        bands = [struct.unpack_from("!QQ", data, at) for at in range(40, length, 16)]
        found.append(f"meter {meter} flows {flows} packets {packets} bytes {octets} bands {bands}")
        data = data[length:]
    return found


def shortened(text: str, most: int = 400) -> str:
    """Truncate ``text`` to a length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
