"""OpenFlow 1.4: what it changes of 1.3, in what a switch says and in what a controller sends."""

import struct
from collections.abc import Iterable
from typing import ClassVar

from tests.oracle import openflow as of
from tests.oracle.dialects import nicira
from tests.oracle.dialects.baseline import Baseline
from tests.oracle.dialects.openflow13 import OpenFlow13

ROLE_STATUS, TABLE_STATUS, REQUESTFORWARD, BUNDLE_CONTROL, BUNDLE_ADD = 30, 31, 32, 33, 34
TABLE_DESC = 14
ASYNC_PACKET_IN_SLAVE, ASYNC_PACKET_IN_MASTER, ASYNC_PORT_SLAVE, ASYNC_PORT_MASTER, ASYNC_REMOVED_SLAVE = range(5)
_ACTION = 1
_EXPERIMENTER = 0xFFFF


class OpenFlow14(OpenFlow13):
    """OpenFlow 1.4."""

    version = 5
    name = "OpenFlow 1.4"
    sorts: ClassVar[dict[int, str]] = {
        **OpenFlow13.sorts,
        ROLE_STATUS: "status",
        TABLE_STATUS: "status",
        REQUESTFORWARD: "status",
    }

    def port_mod(
        self, number: int, port: int, address: bytes, config: int, mask: int, *, properties: bytes | None = None
    ) -> bytes:
        said = struct.pack("!HHI", 0, 8, 0) if properties is None else properties
        return self.message(of.PORT_MOD, number, struct.pack("!I4x6s2xII", port, address, config, mask) + said)

    def set_async(self, number: int, masks: Iterable[int]) -> bytes:
        return self.message(of.SET_ASYNC, number, self.masks(masks))

    def dumps(self) -> dict[str, tuple[int, bytes]]:
        return super().dumps() | {"table descriptions": (TABLE_DESC, b"")}

    def status(self, frame: bytes) -> str:
        if frame[1] == of.PORT_STATUS:
            return super().status(frame)
        return f"status {frame[1]} {frame[8:].hex()}"

    def entries(self, kind: int, data: bytes, baseline: Baseline) -> Iterable[str]:
        return sized(data) if kind == TABLE_DESC else super().entries(kind, data, baseline)

    def ports(self, data: bytes) -> Iterable[bytes]:
        while data:
            number, length = struct.unpack_from("!IH", data)
            if number != of.LOCAL:
                yield data[:length]
            data = data[length:]

    def port_counters(self, data: bytes) -> Iterable[tuple[int, tuple[int, ...]]]:
        while data:
            length, number, *counters = struct.unpack_from("!H2xI8x8Q", data)
            at = 80
            while at < length:
                kind, size = struct.unpack_from("!HH", data, at)
                if kind == 0:
                    counters += struct.unpack_from("!4x4Q", data, at + 4)
                elif kind == _EXPERIMENTER:
                    counters += intel_counters(data[at : at + size]).values()
                else:
                    counters += (kind, int.from_bytes(data[at : at + size]))
                at += size + -size % 8
            if number != of.LOCAL:
                yield number, tuple(counters)
            data = data[length:]

    # ---- what controllers send

    def translated(self, message: bytes) -> bytes:
        if message[0] != of.VERSION:
            return message
        kind, number, body = message[1], int.from_bytes(message[4:8]), message[8:]
        if kind == of.EXPERIMENTER and body[:4] == struct.pack("!I", of.ONF):
            return self._bundle(number, struct.unpack_from("!I", body, 4)[0], body[8:])
        if kind == of.SET_ASYNC and len(body) == 24:
            return self.message(kind, number, self.masks(struct.unpack("!6I", body)))
        if kind == of.PORT_MOD and len(body) == 32:
            return self.message(kind, number, body[:24] + struct.pack("!HH", 0, 8) + body[24:28])
        return self.message(kind, number, body)

    def masks(self, masks: Iterable[int]) -> bytes:
        """Return properties of an asynchronous configuration, from masks in the order of 1.3."""
        found = b""
        for index, mask in enumerate(masks):
            kind = index ^ 1  # here a slave's come first
            is_action = kind in (ASYNC_PACKET_IN_SLAVE, ASYNC_PACKET_IN_MASTER) and mask & 1 << _ACTION
            sorts = sum(1 << each for each in nicira.SORTS_OF_ACTION) if is_action else 0
            found += struct.pack("!HHI", kind, 8, mask | sorts)
        return found

    def _bundle(self, number: int, subtype: int, body: bytes) -> bytes:
        if subtype == of.BUNDLE_CONTROL:
            return self.message(BUNDLE_CONTROL, number, body)
        return self.message(BUNDLE_ADD, number, body[:8] + self.translated(body[8:]))


def intel_counters(data: bytes) -> dict[str, int]:
    """Return the counters of one of Intel's properties of a port, by their names."""
    vendor, kind = struct.unpack_from("!II", data, 4)
    match vendor, kind:
        case 0xAA01, 1:
            return {f"RFC 2819 {index}": count for index, count in enumerate(struct.unpack("!21Q", data[16:]))}
        case 0xAA01, 2:
            found: dict[str, int] = {}
            at = 16
            for _ in range(int.from_bytes(data[14:16])):
                end = at + 1 + data[at]
                found[data[at + 1 : end].decode()] = int.from_bytes(data[end : end + 8])
                at = end + 8
            return found
        case _:
            return {data.hex(): 0}


def sized(data: bytes) -> list[str]:
    """Describe entries that begin with their length."""
    found = []
    while data:
        length = struct.unpack_from("!H", data)[0]
        found.append(f"table-desc {data[:length].hex()}")
        data = data[length:]
    return found
