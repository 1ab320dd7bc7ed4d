"""OpenFlow 1.5 as bytes: what it has in another form than 1.3, and 1.3's messages in its form."""

import struct
from collections.abc import Callable, Iterable, Iterator

from tests.oracle import openflow as of
from tests.oracle.dialects import nicira

VERSION = 6
BUNDLE_CONTROL, BUNDLE_ADD = 33, 34
INSERT_BUCKET, REMOVE_BUCKET = 3, 5
NETRONOME = 0x154D
FIRST_BUCKET, LAST_BUCKET, ALL_BUCKETS = 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF
COPY_FIELD, METER_ACTION = 28, 29
WEIGHT, WATCH_PORT, WATCH_GROUP = 0, 1, 2
OXS_AGES, OXS_PACKETS, OXS_BYTES = (0, 1), 4, 5
"""Numbers of statistics; ages are durations and idle times."""

_SET_FIELD = 25
_METER, _APPLY_ACTIONS, _WRITE_ACTIONS = 6, 4, 3


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    """Return a message."""
    return struct.pack("!BBHI", VERSION, kind, 8 + len(body), xid) + body


# ---- actions


def meter(number: int) -> bytes:
    """Return the action."""
    return struct.pack("!HHI", METER_ACTION, 8, number)


def copy_field(bits: int, source: bytes, target: bytes, offsets: tuple[int, int] = (0, 0)) -> bytes:
    """Return the action; fields are headers."""
    return _of_kind(COPY_FIELD, struct.pack("!HHH2x", bits, *offsets) + source + target)


def _of_kind(kind: int, content: bytes) -> bytes:
    whole = of.padded(bytes(4) + content)
    return struct.pack("!HH", kind, len(whole)) + whole[4:]


def header(name: str) -> bytes:
    """Return the header of a field."""
    field = of.FIELDS[name]
    return struct.pack("!HBB", field.oxm_class, field.number << 1, field.size)


def actions(data: bytes) -> bytes:
    """Return actions of OpenFlow 1.3 in this version, which has Nicira's loads and moves as actions of its own.

    Known difference: earlier versions read a set_field of bits that one load cannot set otherwise; it sets all bits.
    """
    return b"".join(map(_action, parts(data)))


_LOADED_BITS = 64
"""The largest number of bits that one of Nicira's loads sets."""
_PRESENT = 0x1000
"""The bit of vlan_vid that tells whether there is a tag, which no load sets."""
_LOADED = [header(name)[:3] for name in ("reg0", "metadata", "tunnel_id")]
"""Fields that OpenFlow 1.0 has no action for but Nicira's load."""


def without_masks(data: bytes) -> bytes:
    """Return actions that set fields of packets without masks. Known difference: OpenFlow 1.0 reads them otherwise."""
    return b"".join(map(_without_mask, parts(data)))


def _without_mask(data: bytes) -> bytes:
    return _whole(data) if _is_masked(data) and data[4:6] + bytes([data[6] - 1]) not in _LOADED else data


def _is_masked(data: bytes) -> bool:
    return data[:2] == struct.pack("!H", _SET_FIELD) and len(data) > 8 and data[6] & 1 == 1


def _whole(data: bytes) -> bytes:
    """Return an action that sets all bits of a field, not some."""
    size = data[7] // 2
    return _of_kind(_SET_FIELD, data[4:6] + bytes([data[6] - 1, size]) + data[8 : 8 + size])


def _action(data: bytes) -> bytes:
    if len(data) == 24 and data[:2] == b"\xff\xff" and data[4:8] == struct.pack("!I", nicira.VENDOR):
        match int.from_bytes(data[8:10]):
            case nicira.REG_MOVE:
                bits, *offsets = struct.unpack_from("!HHH", data, 10)
                return copy_field(bits, data[16:20], data[20:24], (offsets[0], offsets[1]))
            case nicira.REG_LOAD:
                return _load(data)
    if not _is_masked(data):
        return data
    mask = int.from_bytes(data[8 + data[7] // 2 : 8 + data[7]])
    is_presence = data[4:6] + bytes([data[6] - 1]) == header("vlan_vid")[:3] and mask & _PRESENT
    return _whole(data) if mask.bit_count() > _LOADED_BITS or is_presence else data


def _load(data: bytes) -> bytes:
    place, family, number, size, value = struct.unpack_from("!HHBBQ", data, 10)
    offset, bits = place >> 6, (place & 0x3F) + 1
    mask = (1 << bits) - 1
    payload = (value << offset).to_bytes(size) + (mask << offset).to_bytes(size)
    return _of_kind(_SET_FIELD, struct.pack("!HBB", family, number | 1, 2 * size) + payload)


def parts(data: bytes) -> Iterator[bytes]:
    """Return actions or instructions one by one; what is malformed, as the last."""
    while data:
        length = int.from_bytes(data[2:4])
        if not 4 <= length <= len(data):
            yield data
            return
        yield data[:length]
        data = data[length:]


def instructions(data: bytes, first: bytes = b"", *, masks: bool = True) -> bytes:
    """Return instructions of OpenFlow 1.3 in this version, which has a meter as the first of the applied actions.

    Known difference: a meter at another place; further meters are left out.

    Args:
        data: instructions.
        first: actions of this version that are applied before the others, if others are.
        masks: whether they set fields with masks, or only those that are not of packets.
    """
    translated = actions if masks else lambda data: without_masks(actions(data))
    listed = [(int.from_bytes(each[:2]), each) for each in parts(data)]
    meters = [struct.pack("!HH", METER_ACTION, 8) + rest[4:] for kind, rest in listed if kind == _METER]
    found = [of.apply_actions(meters[0])] if meters and _APPLY_ACTIONS not in dict(listed) else []
    metered = b"" if found else b"".join(meters[:1])
    for kind, rest in listed:
        if kind == _APPLY_ACTIONS:
            found.append(of.apply_actions(metered + translated(first + rest[8:])))
            metered = b""
        elif kind != _METER:
            found.append(of.write_actions(translated(rest[8:])) if kind == _WRITE_ACTIONS else rest)
    return b"".join(found)


# ---- messages


def flow_mod(body: bytes, first: bytes = b"", importance: int = 0, *, masks: bool = True) -> bytes:
    """Return the body of a flow-mod of OpenFlow 1.3 in this version; see `instructions`."""
    end = 40 + padded_length(body, 40)
    return body[:38] + struct.pack("!H", importance) + body[40:end] + instructions(body[end:], first, masks=masks)


def padded_length(data: bytes, at: int) -> int:
    """Return the length of a match or of statistics at some place, with its padding."""
    length = int.from_bytes(data[at + 2 : at + 4])
    return length + -length % 8


def prop(kind: int, content: bytes) -> bytes:
    """Return a property."""
    return of.padded(struct.pack("!HH", kind, 4 + len(content)) + content)


def bucket(number: int, done: bytes = b"", properties: bytes = b"") -> bytes:
    length = 8 + len(done) + len(properties)
    return struct.pack("!HHI", length, len(done), number) + done + properties


def watching(kind: int, weight: int, watch_port: int, watch_group: int) -> bytes:
    """Return the properties of a bucket in a group of some kind."""
    found = prop(WEIGHT, struct.pack("!H2x", weight)) if weight or kind == of.SELECT_GROUP else b""
    for number, watched in ((WATCH_PORT, watch_port), (WATCH_GROUP, watch_group)):
        found += prop(number, struct.pack("!I", watched)) if watched != of.ANY else b""
    return found


def group_mod(
    command: int, kind: int = 0, *buckets: bytes, group: int = 1, place: int = ALL_BUCKETS, properties: bytes = b""
) -> bytes:
    """Return the body of a group-mod."""
    listed = b"".join(buckets)
    return struct.pack("!HBxIH2xI", command, kind, group, len(listed), place) + listed + properties


def selection(method: bytes, fields: bytes = b"", vendor: int = NETRONOME, number: int = 1) -> bytes:
    """Return Netronome's property of a group."""
    return prop(0xFFFF, struct.pack("!III16sQ", vendor, number, 0, method, 0) + fields)


def numbered(
    body: bytes,
    numbers: Iterable[int],
    properties: bytes = b"",
    translated: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """Return the body of a group-mod of OpenFlow 1.3 in this version, with numbers for its buckets.

    ``translated`` returns the actions of a bucket, by default those of this version.
    """
    command, kind, group = struct.unpack_from("!HBxI", body)
    buckets = _buckets(body[8:], kind, numbers, translated or actions)
    return group_mod(command, kind, *buckets, group=group, properties=properties)


def _buckets(data: bytes, kind: int, numbers: Iterable[int], translated: Callable[[bytes], bytes]) -> Iterator[bytes]:
    for number in numbers:
        if not data:
            return
        length, *watched = struct.unpack_from("!HHII", data)
        yield bucket(number, translated(data[16:length]), watching(kind, *watched))
        data = data[length:]


def packet_out(fields: bytes, done: bytes, data: bytes = b"", buffer: int = of.NO_BUFFER) -> bytes:
    """Return the body of a packet-out; ``fields`` as bytes."""
    matched = of.padded(struct.pack("!HH", 1, 4 + len(fields)) + fields)
    return struct.pack("!IH2x", buffer, len(done)) + matched + done + data


def with_fields(body: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    """Return the body of a packet-out of OpenFlow 1.3 in this version, with fields of the packet beside its port."""
    buffer, in_port, length = struct.unpack_from("!IIH", body)
    fields = before + of.oxm(("in_port", in_port, None)) + after
    return packet_out(fields, actions(body[16 : 16 + length]), body[16 + length :], buffer)


# ---- statistics of rules


def statistics(data: bytes) -> list[tuple[int, int]]:
    """Return statistics in OXS in their order: numbers and values."""
    found: list[tuple[int, int]] = []
    fields = data[4 : int.from_bytes(data[2:4])]
    while fields:
        found.append((fields[2] >> 1, int.from_bytes(fields[4 : 4 + fields[3]])))
        fields = fields[4 + fields[3] :]
    return found
