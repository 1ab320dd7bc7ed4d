"""OpenFlow 1.0 with Nicira's extensions: the messages of a switch as text, and the requests that the oracle sends."""

import struct
from collections.abc import Iterable
from typing import ClassVar

from tests.oracle import openflow as of
from tests.oracle.dialects import messages10 as m
from tests.oracle.dialects import nicira
from tests.oracle.dialects.baseline import Baseline
from tests.oracle.dialects.openflow13 import MAC, OpenFlow13, groups, sized, xid

NO_MATCH = "no match: "
"""Begins what controllers are told of packets that meet no rule; the order of others with them is not compared."""
_CONTROLLER2 = struct.pack("!IH", nicira.VENDOR, 37)
_LOCAL = 0xFFFE
# Known difference: there are two ways to say that there is no tag.
_NO_VID, _NO_TAG = bytes.fromhex("0000090400001fff"), bytes.fromhex("000008020000")
_PORT_BYTES, _PORT_STATS_BYTES, _TABLE_BYTES, _UPDATE_BYTES = 48, 104, 64, 24


class OpenFlow10(OpenFlow13):
    """OpenFlow 1.0; of 1.3 it takes how answers are sorted and joined."""

    version = 1
    name = "OpenFlow 1.0"
    barrier_request = m.BARRIER_REQUEST
    multipart_request, multipart_reply = m.STATS_REQUEST, m.STATS_REPLY
    multipart_head = 12
    names: ClassVar[dict[int, str]] = {
        3: "ECHO_REPLY",
        4: "VENDOR",
        8: "GET_CONFIG_REPLY",
        m.BARRIER_REPLY: "BARRIER_REPLY",
    }
    _removed_cookie = 48

    # ---- requests

    def multipart(self, number: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
        return m.stats(number, kind, body, flags)

    def port_mod(
        self, number: int, port: int, address: bytes, config: int, mask: int, *, properties: bytes | None = None
    ) -> bytes:
        del properties
        return m.port_mod(number, port, address, config, mask)

    def set_async(self, number: int, masks: Iterable[int]) -> bytes:
        return nicira.message(self.version, number, nicira.SET_ASYNC_CONFIG, struct.pack("!6I", *masks))

    def every_flow(self) -> bytes:
        return m.flow_request()

    def dumps(self) -> dict[str, tuple[int, bytes]]:
        every_flow, every_group = m.nicira_flow_request(), struct.pack("!I4x", of.GROUP_ALL)
        return {
            "flows": (m.FLOW, self.every_flow()),
            "flows, Nicira's form": (m.STATS_VENDOR, m.nicira_stats(m.NXST_FLOW, every_flow)),
            "aggregate": (m.AGGREGATE, self.every_flow()),
            "aggregate, Nicira's form": (m.STATS_VENDOR, m.nicira_stats(m.NXST_AGGREGATE, every_flow)),
            "groups": (m.STATS_VENDOR, m.nicira_stats(m.NXST_GROUP, every_group)),
            "group descriptions": (m.STATS_VENDOR, m.nicira_stats(m.NXST_GROUP_DESC, every_group)),
            "tables": (m.TABLE, b""),
            "port counters": (m.PORT, struct.pack("!H6x", m.NONE)),
            "ports": (m.PORT_DESC, b""),
        }

    # ---- notifications

    def packet_in(self, frame: bytes) -> str:
        told = super().packet_in(frame)
        return f"{NO_MATCH}{told}" if _reason(frame) == 0 else told

    def removed(self, frame: bytes) -> str:
        return super().removed(frame).replace(_NO_VID.hex(), _NO_TAG.hex())

    def _packet_in(self, frame: bytes) -> str:
        total, in_port, reason = struct.unpack_from("!HHB", frame, 12)
        head = f"buffer {frame[8:12].hex()} xid {xid(frame)} total {total} in_port {in_port} reason {reason}"
        return f"{head} {frame[17:18].hex()} data {frame[18:].hex()}"

    def _removed(self, frame: bytes) -> str:
        cookie, priority, reason, pad = struct.unpack_from("!QHBB", frame, 48)
        idle, packets, octets = struct.unpack_from("!H2xQQ", frame, 68)
        head = f"match {frame[8:48].hex()} priority {priority} cookie {cookie:#x} reason {reason} {pad}"
        return f"{head} idle {idle} packets {packets} bytes {octets}"

    # ---- replies

    def _without_address(self, data: bytearray) -> bytearray:
        if len(data) > 1 and data[0] == self.version and data[1] == m.PORT_MOD:
            data[10:16] = MAC[: max(0, min(6, len(data) - 10))]
        return data

    def _features(self, body: bytes) -> str:
        return f"{body[8:24].hex()} {sorted(self.port(each) for each in self.ports(body[24:]))}"

    def body(self, parts: list[bytes]) -> bytes:
        if parts[0][8:10] == b"\xff\xff":  # each part says whose they are
            return parts[0][12:24] + b"".join(part[24:] for part in parts)
        return super().body(parts)

    def entries(self, kind: int, data: bytes, baseline: Baseline) -> Iterable[str]:
        match kind:
            case m.FLOW:
                return _flows(data)
            case m.AGGREGATE:
                return [f"aggregate {struct.unpack_from('!QQI', data)}"]
            case m.PORT_DESC:
                return (self.port(each) for each in self.ports(data))
            case m.STATS_VENDOR:
                return _nicira_entries(data)
            case m.TABLE | m.PORT:
                return super().entries(kind, data, baseline)
            case _:
                return [f"stats {kind} {data.hex()}"]

    # ---- ports and tables

    def ports(self, data: bytes) -> Iterable[bytes]:
        ports = (data[at : at + _PORT_BYTES] for at in range(0, len(data), _PORT_BYTES))
        return (each for each in ports if struct.unpack_from("!H", each)[0] != _LOCAL)

    def port(self, data: bytes) -> str:
        number = struct.unpack_from("!H", data)[0]
        name = data[8:24].rstrip(b"\0").decode(errors="replace")
        return f"port {number} {name} rest {data[24:].hex()}"

    def table_counters(self, data: bytes) -> Iterable[tuple[int, ...]]:
        return (struct.unpack_from("!B43xIQQ", data, at) for at in range(0, len(data), _TABLE_BYTES))

    def port_counters(self, data: bytes) -> Iterable[tuple[int, tuple[int, ...]]]:
        for at in range(0, len(data), _PORT_STATS_BYTES):
            number, *counters = struct.unpack_from("!H6x12Q", data, at)
            if number != _LOCAL:
                yield number, tuple(counters)


def _reason(frame: bytes) -> int:
    """Return the reason of a packet-in of any format."""
    if not nicira.is_one(frame):
        return frame[16]
    if frame[12:16] == struct.pack("!I", nicira.PACKET_IN):
        return frame[22]
    return next((body[0] for kind, body in nicira.properties(frame) if kind == nicira.REASON), 0)


def _flows(data: bytes) -> list[str]:
    found = []
    while data:
        length, table = struct.unpack_from("!HB", data)
        priority, idle, hard = struct.unpack_from("!HHH", data, 52)
        cookie, packets, octets = struct.unpack_from("!QQQ", data, 64)
        # Open vSwitch 3.1 pads properties of this action as from the start of the message, and cannot read them itself.
        actions = "with controller2" if _CONTROLLER2 in data[88:length] else data[88:length].hex()
        head = f"flow table {table} priority {priority} match {data[4:44].hex()} actions {actions}"
        found.append(f"{head} cookie {cookie:#x} idle {idle} hard {hard} packets {packets} bytes {octets}")
        data = data[length:]
    return found


def entry_of_report(entry: bytes) -> str:
    """Describe an entry of a report of flow monitors in Nicira's form."""
    if len(entry) < _UPDATE_BYTES:
        return entry.hex()  # only whose change it was
    end = _UPDATE_BYTES + (length := struct.unpack_from("!H", entry, 12)[0])
    matched, actions = entry[_UPDATE_BYTES:end].replace(_NO_VID, _NO_TAG), entry[end + -length % 8 :]
    told = "with controller2" if _CONTROLLER2 in actions else actions.hex()
    return f"{entry[2:12].hex()} {entry[14:24].hex()} match {matched.hex()} actions {told}"


def _nicira_entries(data: bytes) -> list[str]:
    vendor, subtype = struct.unpack_from("!II", data)
    if subtype == m.NXST_GROUP:
        return groups(data[12:])
    if subtype == m.NXST_GROUP_DESC:
        return sized(data[12:], "group-desc")
    if vendor != nicira.VENDOR or subtype != m.NXST_FLOW:
        return [f"stats of {vendor:x} {subtype}: aggregate {data[12:].hex()}"]
    data, found = data[12:], []
    while data:
        length, table = struct.unpack_from("!HB", data)
        priority, idle, hard, match_length = struct.unpack_from("!HHHH", data, 12)
        cookie, packets, octets = struct.unpack_from("!QQQ", data, 24)
        end = 48 + match_length
        matched = data[48:end].replace(_NO_VID, _NO_TAG)
        head = f"nxst table {table} priority {priority} match {matched.hex()}"
        actions = data[end + -match_length % 8 : length]
        head = f"{head} actions {actions.hex()}"
        found.append(f"{head} cookie {cookie:#x} idle {idle} hard {hard} packets {packets} bytes {octets}")
        data = data[length:]
    return found
