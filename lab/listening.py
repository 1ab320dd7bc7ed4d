"""A raw socket for a stream: the kernel filters its frames (classic BPF), timestamps them, and counts lost ones."""

import contextlib
import ctypes
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_ETH_P_IP = 0x0800
_SO_RCVBUFFORCE = 33
_SO_ATTACH_FILTER = 26
SO_TIMESTAMPNS = 35
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_BUFFER_BYTES = 8 * 1024 * 1024

_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _EQUAL, _GIVE = 0x20, 0x28, 0x30, 0x15, 0x06
_INDEX_OF_INTERFACE = 0xFFFFF000 + 8  # SKF_AD_OFF + SKF_AD_IFINDEX


@dataclass(frozen=True)
class Field:
    """A big-endian number at an offset of a frame, and its required value."""

    load: int
    offset: int
    value: int

    @classmethod
    def word(cls, offset: int, value: int) -> Self:
        """32 bits."""
        return cls(_LOAD_WORD, offset, value)

    @classmethod
    def byte(cls, offset: int, value: int) -> Self:
        """8 bits."""
        return cls(_LOAD_BYTE, offset, value)


def listen(fields: Sequence[Field], interfaces: Sequence[str]) -> socket.socket:
    """Open a non-blocking socket for the IPv4 frames with those fields that arrive at one of those interfaces.

    One socket serves all interfaces, because two would lose the order between them. Arrival times are in the control
    messages `SO_TIMESTAMPNS`, by CLOCK_REALTIME.
    """
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_IP))
    _attach_filter(raw, fields, interfaces)
    _enlarge_buffer(raw)
    raw.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    raw.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:  # discard what arrived before the filter was attached
            raw.recv(1)
    return raw


def overflowed(raw: socket.socket) -> int:
    """Return the frames lost to a full socket buffer since the last call (struct tpacket_stats)."""
    return struct.unpack("II", raw.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]


def _attach_filter(raw: socket.socket, fields: Sequence[Field], interfaces: Sequence[str]) -> None:
    tests = [Field(_LOAD_HALF, 12, _ETH_P_IP), *fields]
    length = 2 * len(tests) + 1 + len(interfaces) + 2
    program: list[tuple[int, int, int, int]] = []
    for test in tests:
        program += [(test.load, 0, 0, test.offset), (_EQUAL, 0, length - 1 - (len(program) + 2), test.value)]
    program.append((_LOAD_WORD, 0, 0, _INDEX_OF_INTERFACE))
    for position, name in enumerate(interfaces):
        remaining = len(interfaces) - 1 - position
        program.append((_EQUAL, remaining, 0 if remaining else 1, socket.if_nametoindex(name)))
    program += [(_GIVE, 0, 0, 0xFFFF), (_GIVE, 0, 0, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    packed = struct.pack("HP", len(program), ctypes.addressof(code))
    raw.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, packed)


def _enlarge_buffer(raw: socket.socket) -> None:
    """Set 8 MiB if this user may, else the machine's maximum."""
    for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
        try:
            raw.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            return
        except PermissionError:
            continue
