"""OpenFlow 1.3: the messages of a switch as text for comparison, and the requests that the oracle itself sends.

Kept byte for byte, but for: durations, MAC addresses of ports, and the order in which dumps list things.
"""

import struct
from collections.abc import Iterable
from typing import ClassVar

from tests.oracle import openflow as of
from tests.oracle.dialects import nicira
from tests.oracle.dialects.baseline import Baseline

MAC = b"\xee" * 6
Sort = str
"""The kind of a message: a reply, a packet-in, removed (a rule), or a status (of ports, tables, roles)."""

_NAMES = (
    *("HELLO", "ERROR", "ECHO_REPLY", "FEATURES_REPLY", "GET_CONFIG_REPLY", "PACKET_IN", "FLOW_REMOVED", "PORT_STATUS"),
    *("MULTIPART_REPLY", "BARRIER_REPLY", "QUEUE_GET_CONFIG_REPLY", "ROLE_REPLY", "GET_ASYNC_REPLY"),
)
NAMES = {getattr(of, name): name for name in _NAMES}


def xid(frame: bytes) -> int:
    """Return the xid of a message."""
    return struct.unpack_from("!I", frame, 4)[0]


class OpenFlow13:
    """OpenFlow 1.3; later versions change parts of it."""

    version = of.VERSION
    name = "OpenFlow 1.3"
    barrier_request = of.BARRIER_REQUEST
    multipart_request = of.MULTIPART_REQUEST
    multipart_reply = of.MULTIPART_REPLY
    multipart_head = 16
    names: ClassVar[dict[int, str]] = NAMES
    sorts: ClassVar[dict[int, Sort]] = {of.PACKET_IN: "packet-in", of.FLOW_REMOVED: "removed", of.PORT_STATUS: "status"}

    # ---- requests

    def message(self, kind: int, number: int, body: bytes = b"") -> bytes:
        """Return a message."""
        return struct.pack("!BBHI", self.version, kind, 8 + len(body), number) + body

    def multipart(self, number: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
        """Return a request for statistics."""
        return self.message(self.multipart_request, number, struct.pack("!HH4x", kind, flags) + body)

    def port_mod(
        self, number: int, port: int, address: bytes, config: int, mask: int, *, properties: bytes | None = None
    ) -> bytes:
        """Return a port-mod; properties are those of OpenFlow 1.4 and later."""
        del properties
        return of.port_mod(number, port, address, config, mask)

    def set_async(self, number: int, masks: Iterable[int]) -> bytes:
        """Return an asynchronous configuration with masks in the order of OpenFlow 1.3."""
        return of.set_async(number, masks)

    def translated(self, message: bytes) -> bytes:
        """Return a message of OpenFlow 1.3 in this version, which others are already."""
        return message

    def every_flow(self) -> bytes:
        """Return the body of a request for flow statistics of all rules."""
        return struct.pack("!B3xII4xQQ", of.ALL_TABLES, of.ANY, of.ANY, 0, 0) + of.match(())

    def dumps(self) -> dict[str, tuple[int, bytes]]:
        """Return requests for all state: type and body."""
        every_port, every_id = struct.pack("!I4x", of.ANY), struct.pack("!I4x", of.ALL_IDS)
        return {
            "flows": (of.FLOW, self.every_flow()),
            "aggregate": (of.AGGREGATE, self.every_flow()),
            "tables": (of.TABLES, b""),
            "port counters": (of.PORT_STATS, every_port),
            "groups": (of.GROUP, struct.pack("!I4x", of.GROUP_ALL)),
            "group descriptions": (of.GROUP_DESC, b""),
            "meters": (of.METER, every_id),
            "meter configurations": (of.METER_CONFIG, every_id),
            "ports": (of.PORT_DESC, b""),
        }

    # ---- sorting

    def sort(self, frame: bytes) -> Sort:
        """Tell what a message is."""
        return self.sorts.get(frame[1]) or nicira.sort(frame)

    def has_more(self, frame: bytes) -> bool:
        """Tell whether further parts of a multipart reply follow."""
        return frame[1] == self.multipart_reply and bool(frame[11] & 1)

    def removed_cookie(self, frame: bytes) -> int:
        """Return the cookie of a rule that is reported as removed."""
        at = nicira.COOKIE if nicira.is_one(frame) else self._removed_cookie
        return struct.unpack_from("!Q", frame, at)[0]

    _removed_cookie = 8

    # ---- notifications

    def packet_in(self, frame: bytes) -> str:
        """Describe a packet-in."""
        return nicira.packet_in(frame) if nicira.is_one(frame) else self._packet_in(frame)

    def removed(self, frame: bytes) -> str:
        """Describe a flow_removed without its duration."""
        return nicira.removed(frame) if nicira.is_one(frame) else self._removed(frame)

    def status(self, frame: bytes) -> str:
        """Describe a port-status, or another one."""
        return f"reason {frame[8]} {self.port(frame[16:])}"

    def _packet_in(self, frame: bytes) -> str:
        _, total, reason, table, cookie = struct.unpack_from("!IHBBQ", frame, 8)
        length = struct.unpack_from("!H", frame, 26)[0]
        end = 24 + length + -length % 8
        fields, data = frame[28 : 24 + length], frame[end + 2 :]
        head = f"buffer {frame[8:12].hex()} xid {xid(frame)} total {total} reason {reason}"
        return f"{head} table {table} cookie {cookie:#x} match {fields.hex()} data {data.hex()}"

    def _removed(self, frame: bytes) -> str:
        cookie, priority, reason, table = struct.unpack_from("!QHBB", frame, 8)
        idle, hard, packets, octets = struct.unpack_from("!HHQQ", frame, 28)
        head = f"table {table} priority {priority} match {frame[48:].hex()} cookie {cookie:#x} reason {reason}"
        return f"{head} idle {idle} hard {hard} packets {packets} bytes {octets}"

    # ---- replies

    def reply(self, frame: bytes) -> str:
        """Describe a reply that is not multipart."""
        kind, body = frame[1], frame[8:]
        if kind == of.ERROR:
            error, code = struct.unpack_from("!HH", body)
            data = self._without_address(bytearray(body[4:]))
            return f"xid {xid(frame)}: ERROR type {error} code {code} about {data.hex()}"
        if kind == of.FEATURES_REPLY:
            return f"xid {xid(frame)}: FEATURES_REPLY {self._features(body)}"
        return f"xid {xid(frame)}: {self.names.get(kind, kind)} {body.hex()}"

    def _without_address(self, data: bytearray) -> bytearray:
        """Hide the address in a port-mod, which differs between the worlds."""
        if len(data) > 1 and data[1] == of.PORT_MOD:
            data[16:22] = MAC[: max(0, min(6, len(data) - 16))]
        return data

    def _features(self, body: bytes) -> str:
        return body[8:].hex()  # without the datapath id

    def multipart_lines(self, parts: list[bytes], baseline: Baseline) -> list[str]:
        """Describe a whole multipart reply as sorted entries."""
        if parts[0][1] != self.multipart_reply:
            return [self.reply(part) for part in parts]
        kind = struct.unpack_from("!H", parts[0], 8)[0]
        if kind == of.DESC:
            return ["DESC"]
        return sorted(self.entries(kind, self.body(parts), baseline))

    def body(self, parts: list[bytes]) -> bytes:
        """Return the joined bodies of a reply's parts."""
        return b"".join(part[self.multipart_head :] for part in parts)

    def entries(self, kind: int, data: bytes, baseline: Baseline) -> Iterable[str]:
        """Describe the entries of a reply of some type."""
        match kind:
            case of.FLOW:
                return self._flows(data)
            case of.AGGREGATE:
                return [f"aggregate {struct.unpack_from('!QQI', data)}"]
            case of.TABLES:
                return (
                    line for number, *counts in self.table_counters(data) for line in _table(baseline, number, counts)
                )
            case of.PORT_STATS:
                return (baseline.port(number, counters) for number, counters in self.port_counters(data))
            case of.GROUP:
                return groups(data)
            case of.GROUP_DESC:
                return sized(data, "group-desc")
            case of.METER:
                return _meters(data)
            case of.METER_CONFIG:
                return sized(data, "meter-config")
            case of.PORT_DESC:
                return (self.port(each) for each in self.ports(data))
            case _:
                return [f"multipart {kind} {data.hex()}"]

    # ---- ports and tables

    def ports(self, data: bytes) -> Iterable[bytes]:
        """Return the ports of a description, without LOCAL, which a server does not have."""
        ports = (data[at : at + 64] for at in range(0, len(data), 64))
        return (each for each in ports if struct.unpack_from("!I", each)[0] != of.LOCAL)

    def port(self, data: bytes) -> str:
        """Describe an ``ofp_port`` without its MAC address."""
        number = struct.unpack_from("!I", data)[0]
        name = data[16:32].rstrip(b"\0").decode(errors="replace")
        return f"port {number} {name} rest {data[32:].hex()}"

    def table_counters(self, data: bytes) -> Iterable[tuple[int, ...]]:
        """Return each table's number, number of rules, and counters."""
        return (struct.unpack_from("!B3xIQQ", data, at) for at in range(0, len(data), 24))

    def port_counters(self, data: bytes) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Return each port's number and counters."""
        for at in range(0, len(data), 112):
            number, *counters = struct.unpack_from("!I4x12Q", data, at)
            if number != of.LOCAL:
                yield number, tuple(counters)

    def baseline(self, ports: list[bytes], tables: list[bytes]) -> Baseline:
        """Read the replies to requests for statistics of all ports and tables."""
        return Baseline(
            dict(self.port_counters(self.body(ports))),
            {table: tuple(counters) for table, _, *counters in self.table_counters(self.body(tables))},
        )

    def _flows(self, data: bytes) -> list[str]:
        found = []
        while data:
            length, table = struct.unpack_from("!HB", data)
            priority, idle, hard, flags = struct.unpack_from("!HHHH", data, 12)
            cookie, packets, octets = struct.unpack_from("!QQQ", data, 24)
            head = f"flow table {table} priority {priority} match+instructions {data[48:length].hex()}"
            more = f"cookie {cookie:#x} idle {idle} hard {hard} flags {flags} {data[20:24].hex()}"
            found.append(f"{head} {more} packets {packets} bytes {octets}")
            data = data[length:]
        return found


def _table(baseline: Baseline, number: int, counts: list[int]) -> list[str]:
    return baseline.table(number, counts[0], counts[1:])


def sized(data: bytes, name: str) -> list[str]:
    """Describe entries that begin with their length."""
    found = []
    while data:
        length = struct.unpack_from("!H", data)[0]
        found.append(f"{name} {data[2:length].hex()}")
        data = data[length:]
    return found


def groups(data: bytes) -> list[str]:
    """Describe statistics of groups."""
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
