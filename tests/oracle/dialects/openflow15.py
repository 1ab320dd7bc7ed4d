"""OpenFlow 1.5: what it changes of 1.4, in what a switch says and in what a controller sends."""

import itertools
import struct
from collections.abc import Iterable

from tests.oracle import openflow as of
from tests.oracle.dialects import messages15 as m
from tests.oracle.dialects.baseline import Baseline
from tests.oracle.dialects.openflow14 import OpenFlow14

_EVERY_PORT, _EVERY_GROUP = struct.pack("!I4x", of.ANY), struct.pack("!I4x", of.GROUP_ALL)
_RULE_BYTES = 24
"""Of a description of a rule, or of a flow_removed, before its match."""


class OpenFlow15(OpenFlow14):
    """OpenFlow 1.5."""

    version = m.VERSION
    name = "OpenFlow 1.5"
    _removed_cookie = 16

    def dumps(self) -> dict[str, tuple[int, bytes]]:
        return super().dumps() | {
            "group descriptions": (of.GROUP_DESC, _EVERY_GROUP),
            "ports": (of.PORT_DESC, _EVERY_PORT),
        }

    def entries(self, kind: int, data: bytes, baseline: Baseline) -> Iterable[str]:
        if kind != of.AGGREGATE:
            return super().entries(kind, data, baseline)
        return [f"aggregate {m.statistics(data)}"]

    def _removed(self, frame: bytes) -> str:
        return _with_counters(f"rule {frame[8:_RULE_BYTES].hex()}", frame)

    def _flows(self, data: bytes) -> list[str]:
        found = []
        while data:
            length = int.from_bytes(data[:2])
            found.append(_with_counters(f"flow {data[2:_RULE_BYTES].hex()}", data[:length]))
            data = data[length:]
        return found

    # ---- what controllers send

    def translated(self, message: bytes) -> bytes:
        if message[0] != of.VERSION:
            return message
        kind, number, body = message[1], int.from_bytes(message[4:8]), message[8:]
        match kind:
            case of.FLOW_MOD:
                return self.message(kind, number, m.flow_mod(body))
            case of.GROUP_MOD:
                return self.message(kind, number, m.numbered(body, itertools.count()))
            case of.PACKET_OUT:
                return self.message(kind, number, m.with_fields(body))
            case of.MULTIPART_REQUEST if body[:2] == struct.pack("!H", of.GROUP_DESC):
                return self.message(kind, number, body + _EVERY_GROUP)
            case of.MULTIPART_REQUEST if body[:2] == struct.pack("!H", of.PORT_DESC):
                return self.message(kind, number, body + _EVERY_PORT)
            case _:
                return super().translated(message)


def _with_counters(head: str, data: bytes) -> str:
    """Describe a rule: its match, its instructions, which statistics there are, and its counters."""
    start = _RULE_BYTES + m.padded_length(data, _RULE_BYTES)
    end = start + m.padded_length(data, start)
    listed = m.statistics(data[start:end])
    known = dict(listed)
    head = f"{head} match {data[_RULE_BYTES:start].hex()} instructions {data[end:].hex()}"
    head = f"{head} statistics {[number for number, _ in listed]}"
    return f"{head} packets {known.get(m.OXS_PACKETS)} bytes {known.get(m.OXS_BYTES)}"
