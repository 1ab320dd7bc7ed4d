"""The frames of a traffic stream: Ethernet, IPv4, UDP, and a payload that identifies stream and frame.

    offset  0  MAC addresses, EtherType        14  IPv4 header without options     34  UDP header
    offset 42  magic "UNOs"    46  kind, 3 unused bytes    50  stream    54  number    62  sent at    70  padding

Everything after the headers is big-endian. Network functions may rewrite addresses and ports: magic and stream alone
identify a frame.
"""

import ipaddress
import struct
from dataclasses import dataclass

MAGIC = b"UNOs"
DATA = 0
END = 1

SIZE_MIN = 70
SIZE_MAX = 1514
UDP_PORT = 40000

MAGIC_AT = 42
STREAM_AT = 50

_PAYLOAD = struct.Struct(">4sB3xIQQ")
_PAYLOAD_AT = MAGIC_AT
_VARYING = struct.Struct(">8H")  # number and time, as the words of a checksum
_VARYING_AT = 54
_KIND_AT = 46
_SOURCE_PORT_AT = 34
_CHECKSUM_AT = 40


@dataclass(frozen=True)
class Endpoint:
    """Source or destination of frames."""

    mac: str
    ip: str
    port: int = UDP_PORT


@dataclass(frozen=True)
class Mark:
    """A frame's identification.

    Attributes:
        kind: `DATA`, or `END`, whose number is how many data frames were sent.
        stream: its stream.
        number: of the frame in its stream, from 0.
        sent_ns: when it was sent, in ns since the epoch.
    """

    kind: int
    stream: int
    number: int
    sent_ns: int


class FrameMaker:
    """Builds the frames of one stream, all of one size.

    Args:
        source: addresses of the sender.
        target: addresses of the receiver.
        stream: number of the stream, 32 bits.
        size: bytes of a frame without its checksum, 70 to 1514.
        flows: number of UDP flows, which take turns; they differ in the source's port.

    Raises:
        ValueError: ``size`` or ``flows`` is out of range, or an address is invalid.
    """

    def __init__(self, source: Endpoint, target: Endpoint, stream: int, size: int, flows: int = 1) -> None:
        if not 1 <= flows <= 1 << 16:
            raise ValueError(f"{flows} flows: expected 1 to 65536")
        if not SIZE_MIN <= size <= SIZE_MAX:
            raise ValueError(f"frame size {size}: expected {SIZE_MIN} to {SIZE_MAX} bytes")
        ethernet = _mac(target.mac) + _mac(source.mac) + b"\x08\x00"
        addresses = ipaddress.IPv4Address(source.ip).packed + ipaddress.IPv4Address(target.ip).packed
        ip_head = struct.pack(">BBHHHBBH", 0x45, 0, size - 14, 0, 0x4000, 64, 17, 0) + addresses
        ip_head = ip_head[:10] + struct.pack(">H", ~_sum(ip_head) & 0xFFFF) + ip_head[12:]
        udp = struct.pack(">HHHH", 0, target.port, size - 34, 0)
        payload = _PAYLOAD.pack(MAGIC, DATA, stream, 0, 0)
        self._frame = bytearray((ethernet + ip_head + udp + payload).ljust(size, b"\0"))
        pseudo = addresses + struct.pack(">HH", 17, size - 34)
        self._port, self._flows = source.port, flows
        self._constant_sum = _sum(pseudo + bytes(self._frame[34:]))

    def make(self, number: int, sent_ns: int, kind: int = DATA) -> bytearray:
        """Return a frame. The next call returns the same buffer, overwritten."""
        frame = self._frame
        frame[_KIND_AT] = kind
        port = (self._port + number % self._flows) & 0xFFFF
        struct.pack_into(">H", frame, _SOURCE_PORT_AT, port)
        struct.pack_into(">QQ", frame, _VARYING_AT, number, sent_ns)
        total = self._constant_sum + port + (kind << 8) + sum(_VARYING.unpack_from(frame, _VARYING_AT))
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", frame, _CHECKSUM_AT, (~total & 0xFFFF) or 0xFFFF)
        return frame


def read_mark(frame: bytes | bytearray | memoryview) -> Mark | None:
    """Return the mark of a frame of a stream; None for any other frame."""
    if len(frame) < SIZE_MIN or bytes(frame[MAGIC_AT:_KIND_AT]) != MAGIC:
        return None
    _, kind, stream, number, sent_ns = _PAYLOAD.unpack_from(frame, _PAYLOAD_AT)
    return Mark(kind, stream, number, sent_ns)


def _mac(text: str) -> bytes:
    parts = bytes.fromhex(text.replace(":", ""))
    if len(parts) != 6:
        raise ValueError(f"{text!r} is not a MAC address such as 02:00:00:00:00:01")
    return parts


def _sum(data: bytes) -> int:
    """Compute the internet checksum's sum (RFC 1071), folded to 16 bits, not inverted."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
